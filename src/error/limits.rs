//! What is too large to be stored in one piece, and what there are too many of.

use super::{Class, Failure, NodeError, Origin};

/// Something takes more bytes than a limit allows.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{what} takes about {bytes} bytes, and {limit} are allowed; keep large data outside and store where it is, or set a higher limit with \
     `update_bytes_max`"
)]
pub(crate) struct TooLarge {
    pub(crate) what: String,
    pub(crate) bytes: u64,
    pub(crate) limit: u64,
}

impl TooLarge {
    /// Whether something may be that large.
    pub(crate) fn check(what: impl FnOnce() -> String, bytes: u64, limit: u64) -> Result<(), Self> {
        if bytes <= limit { Ok(()) } else { Err(Self { what: what(), bytes, limit }) }
    }
}

impl NodeError {
    /// A node comes with something that is too large.
    pub(crate) fn too_large(error: TooLarge) -> Self {
        Self { origin: Origin::UpdateLimit, ..Self::from(error).deterministic() }
    }

    /// Whether it says that something takes more bytes than may be stored at once, such as the result of an effect; see
    /// [`Thread::update_bytes_max`](crate::Thread::update_bytes_max).
    pub fn is_too_large(&self) -> bool {
        self.origin == Origin::UpdateLimit
    }
}

impl Failure {
    /// A task asks for more answers than a thread may wait for.
    pub(crate) fn too_many_questions(open: usize, asks: usize, limit: usize) -> Self {
        let message = format!(
            "it asks {asks} more, and {open} questions of the thread are open already, of {limit} that may be; answer some of them, or set a higher \
             limit with `questions_max`, and resume the thread"
        );
        Self { origin: Origin::QuestionLimit, class: Class::Deterministic, message, causes: Vec::new(), tried: false }
    }
}
