//! What kind of failure an error is: by its type, and never by its text.

use std::error::Error as StdError;
use std::fmt;
use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

/// What kind of failure an error is. Decided by type, never by text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Class {
    /// It may work when tried again: a time-out, a connection that broke, a server that is busy.
    Transient,
    /// It fails the same way each time.
    Deterministic,
    /// It worked, but the result breaks a rule. It goes back to the node as feedback.
    Violation,
    /// Nothing may be tried again, whatever the policy says.
    Terminal,
    /// Nobody said. Retried only by a policy that retries everything.
    #[default]
    Unclassified,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transient => "transient",
            Self::Deterministic => "deterministic",
            Self::Violation => "violation",
            Self::Terminal => "terminal",
            Self::Unclassified => "unclassified",
        })
    }
}

/// An error, and then its causes.
pub(super) fn chain<'e>(error: &'e (dyn StdError + 'static)) -> Vec<&'e (dyn StdError + 'static)> {
    let (mut chain, mut next) = (Vec::new(), Some(error));
    while let Some(error) = next {
        chain.push(error);
        next = error.source();
    }
    chain
}

/// The class of an error that nobody has classified: that of the first `io::Error` in it or in its causes.
pub(super) fn class_of(error: &(dyn StdError + 'static)) -> Class {
    let io = chain(error).into_iter().find_map(|error| error.downcast_ref::<std::io::Error>());
    io.map_or(Class::Unclassified, |io| class_of_io(io.kind()))
}

fn class_of_io(kind: ErrorKind) -> Class {
    use ErrorKind as K;
    match kind {
        K::BrokenPipe
        | K::ConnectionAborted
        | K::ConnectionRefused
        | K::ConnectionReset
        | K::HostUnreachable
        | K::Interrupted
        | K::NetworkDown
        | K::NetworkUnreachable
        | K::NotConnected
        | K::ResourceBusy
        | K::TimedOut
        | K::WouldBlock => Class::Transient,
        K::NotFound
        | K::PermissionDenied
        | K::AlreadyExists
        | K::InvalidInput
        | K::IsADirectory
        | K::NotADirectory
        | K::ReadOnlyFilesystem
        | K::Unsupported => Class::Deterministic,
        _ => Class::Unclassified,
    }
}

/// Whether a server says that it has done nothing.
pub(super) struct Refused(pub(super) bool);

pub(super) fn class_of_status(status: u16) -> (Class, Refused) {
    let class = match status {
        408 | 425 | 429 => Class::Transient,
        401..=403 => Class::Terminal,
        501 | 505 => Class::Deterministic,
        500..=599 => Class::Transient,
        _ => Class::Deterministic,
    };
    (class, Refused(matches!(status, 400..=499) && !matches!(status, 408 | 409 | 499)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodeError;

    #[derive(Debug, thiserror::Error)]
    #[error("the upload failed")]
    struct Upload(#[source] std::io::Error);

    #[test]
    fn the_first_io_error_in_an_error_decides_whatever_its_text_says() {
        let io = |kind| std::io::Error::new(kind, "transient terminal not found timed out");
        assert_eq!(NodeError::from(io(ErrorKind::TimedOut)).class(), Class::Transient);
        assert_eq!(NodeError::from(Upload(io(ErrorKind::ConnectionReset))).class(), Class::Transient);
        assert_eq!(NodeError::from(Upload(io(ErrorKind::NotFound))).class(), Class::Deterministic);
        assert_eq!(NodeError::from(Upload(io(ErrorKind::Other))).class(), Class::Unclassified);
        assert_eq!(NodeError::from("x".parse::<u8>().expect_err("no number")).class(), Class::Unclassified);
    }

    #[test]
    fn a_status_says_whether_it_may_pass_and_whether_anything_was_done() {
        use Class::{Deterministic as D, Terminal as X, Transient as T};
        let cases = [
            (400, D, true),
            (401, X, true),
            (402, X, true),
            (403, X, true),
            (404, D, true),
            (408, T, false),
            (409, D, false),
            (425, T, true),
            (429, T, true),
            (499, D, false),
            (500, T, false),
            (501, D, false),
            (503, T, false),
            (505, D, false),
            (599, T, false),
            (302, D, false),
            (0, D, false),
            (999, D, false),
        ];
        for (status, class, refused) in cases {
            let error = NodeError::http(status, "x");
            assert_eq!((error.class(), error.is_not_performed()), (class, refused), "{status}");
        }
    }
}
