//! What somebody is told that nobody asked for: of questions, of threads that stopped, of what recovered.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::id::ThreadName;

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NoticeKind {
    /// A question was asked.
    Asked,
    /// A question is open still, and it is time to remind somebody.
    Reminded,
    /// A question was not answered in time.
    Expired,
    /// A thread was suspended, and somebody has to decide what becomes of it.
    Suspended,
    /// A run failed.
    Failed,
    /// A node gives no sign of life.
    Stalled,
    /// A thread goes on whose process died.
    Recovered,
    /// A thread cannot be gone on with: its process died too often, or it cannot be read.
    GivenUp,
    /// A schedule has passed times at which nothing ran.
    Missed,
}

impl NoticeKind {
    /// The word for it, which stays the same.
    pub fn code(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Reminded => "reminded",
            Self::Expired => "expired",
            Self::Suspended => "suspended",
            Self::Failed => "failed",
            Self::Stalled => "stalled",
            Self::Recovered => "recovered",
            Self::GivenUp => "given_up",
            Self::Missed => "missed",
        }
    }

    /// Whether it is for whoever looks after the system, and not for whoever is asked.
    pub fn is_for_administrators(self) -> bool {
        !matches!(self, Self::Asked | Self::Reminded)
    }
}

/// Something that somebody has to be told.
///
/// It serializes to readable JSON, which is what a webhook gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Notice {
    /// The same whenever the same thing is told again: whoever gets it acts on it once.
    pub id: Uuid,
    /// What it is about.
    pub kind: NoticeKind,
    /// The thread; none where it is about a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadName>,
    /// What happened, in words.
    pub text: String,
    /// What more is known: the question with its id, the node, the failure.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub about: Value,
    /// When it was noticed.
    pub at: Timestamp,
}

/// The namespace of the ids.
const NOTICES: Uuid = Uuid::from_u128(0x6f5c_2f1e_3c0b_4a52_9a41_9d0c_5b7e_2e61);

impl Notice {
    /// `what`: tells it from every other notice of that kind about the thread.
    pub(crate) fn new(kind: NoticeKind, thread: Option<&ThreadName>, what: &str, text: impl Into<String>, at: Timestamp) -> Self {
        let of = thread.map_or("", ThreadName::as_str);
        let id = Uuid::new_v5(&NOTICES, format!("{}\0{of}\0{what}", kind.code()).as_bytes());
        Self { id, kind, thread: thread.cloned(), text: text.into(), about: Value::Null, at }
    }

    pub(crate) fn about(self, about: Value) -> Self {
        Self { about, ..self }
    }
}

/// Why a notice did not get through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyError {
    text: String,
    is_final: bool,
    after: Option<Duration>,
}

impl NotifyError {
    /// It may get through later.
    pub fn later(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_final: false, after: None }
    }

    /// It will not get through, however often it is tried.
    pub fn never(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_final: true, after: None }
    }

    /// How long the notifier is to be left alone at least, with all its notices; up to a week.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        self.after = Some(time);
        self
    }

    /// Whether it will not get through, however often it is tried.
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// How long it is to be left alone at least, if anybody said.
    pub fn delay(&self) -> Option<Duration> {
        self.after
    }
}

impl fmt::Display for NotifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for NotifyError {}

/// What comes of an attempt to tell somebody.
pub type Notifying<'n> = Pin<Box<dyn Future<Output = Result<(), NotifyError>> + Send + 'n>>;

/// Tells somebody of what a [supervisor](crate::Runner::supervise) notices.
///
/// A notice is kept in the store until it got through, and is tried again with growing delays, over restarts: it gets through at least once. Each has an
/// [`id`](Notice::id) by which whoever gets it twice can tell. Notices are told one after the other, the oldest first; one that fails has its turn again behind all others, so that
/// it holds up none of them. After a week it is dropped, with a word in the program's log.
///
/// ```
/// use ferrata::{Notice, Notifier, Notifying};
/// use std::sync::{Arc, Mutex};
///
/// /// Keeps the texts.
/// #[derive(Clone, Debug, Default)]
/// struct Texts(Arc<Mutex<Vec<String>>>);
///
/// impl Notifier for Texts {
///     fn name(&self) -> &str {
///         "texts"
///     }
///
///     fn notify<'n>(&'n self, notice: &'n Notice) -> Notifying<'n> {
///         self.0.lock().unwrap().push(notice.text.clone());
///         Box::pin(std::future::ready(Ok(())))
///     }
/// }
/// ```
pub trait Notifier: Send + Sync + fmt::Debug + 'static {
    /// By what its notices are kept. Two notifiers of one supervisor have two names; a name that changes leaves what was kept behind.
    fn name(&self) -> &str;

    /// Tells of one notice. Who takes longer than a minute, or panics, has failed, and is asked again later.
    fn notify<'n>(&'n self, notice: &'n Notice) -> Notifying<'n>;
}

/// Tells of notices in the program's log, by `tracing`: what went wrong as a warning, everything else as information.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingNotifier;

impl Notifier for TracingNotifier {
    fn name(&self) -> &'static str {
        "tracing"
    }

    fn notify<'n>(&'n self, notice: &'n Notice) -> Notifying<'n> {
        let Notice { id, kind, thread, text, .. } = notice;
        let (kind_code, thread) = (kind.code(), thread.as_ref().map_or("", ThreadName::as_str));
        if kind.is_for_administrators() && *kind != NoticeKind::Recovered {
            tracing::warn!(notice = kind_code, %id, thread, "{text}");
        } else {
            tracing::info!(notice = kind_code, %id, thread, "{text}");
        }
        Box::pin(std::future::ready(Ok(())))
    }
}
