//! Errors of nodes: what went wrong, what kind of thing that is, and whether an effect may have happened.

mod class;
mod limits;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::EffectId;
pub use class::Class;
use class::{Refused, chain, class_of, class_of_status};
pub(crate) use limits::TooLarge;

/// The result of a node, or of anything that ends up in one.
pub type Result<T, E = NodeError> = std::result::Result<T, E>;

/// Says of an error which class it is, if it knows it.
pub(crate) type ClassOf = Arc<dyn Fn(&(dyn StdError + 'static)) -> Option<Class> + Send + Sync>;

/// An error inside a node.
///
/// `?` makes one of any error. Its class is what somebody says of it, here or for an answer over HTTP with [`http`](Self::http); else what
/// [`GraphBuilder::classify`](crate::GraphBuilder::classify) says for its type or that of a cause; else what the first `std::io::Error` in it, or in its
/// causes, says: the connection and the time are transient, a file that is not there or not ours is deterministic. Every other error is unclassified, and is
/// tried again by [`Retry::any`](crate::Retry::any) only.
///
/// ```
/// use ferrata::{Class, NodeError};
///
/// fn read() -> ferrata::Result<u64> {
///     Ok("12x".parse::<u64>()?)
/// }
/// assert_eq!(read().unwrap_err().class(), Class::Unclassified);
///
/// let busy = NodeError::new("the bank is closed").transient();
/// assert_eq!(busy.class(), Class::Transient);
/// ```
///
/// It does not implement [`std::error::Error`] itself, since that would forbid the conversion from any error.
pub struct NodeError {
    class: Class,
    /// Whether the class is what an `io::Error` in it says: nobody has said it of this error.
    by_io: bool,
    origin: Origin,
    performed: Option<bool>,
    retry_after: Option<Duration>,
    /// Whether it was tried again already, in a graph inside.
    tried: bool,
    source: Box<dyn StdError + Send + Sync>,
}

impl NodeError {
    /// An error with a text of one's own, unclassified.
    pub fn new(text: impl Into<String>) -> Self {
        Self::made_of(text.into().into())
    }

    fn made_of(source: Box<dyn StdError + Send + Sync>) -> Self {
        let (class, origin) = (Class::Unclassified, Origin::Node);
        Self { class, by_io: false, origin, performed: None, retry_after: None, tried: false, source }
    }

    /// The answer of a server over HTTP that is no success, classified by its status: 408, 425, 429 and 5xx are transient (but for 501 and 505), 401,
    /// 402 and 403 terminal, all others deterministic. The server says itself that it did nothing with 4xx, but for 408, 409 and 499: such an effect is
    /// [`not_performed`](Self::not_performed).
    ///
    /// ```
    /// use ferrata::{Class, NodeError};
    /// use std::time::Duration;
    ///
    /// let busy = NodeError::http(429, "too many requests").retry_after(Duration::from_secs(3));
    /// assert_eq!((busy.class(), busy.is_not_performed()), (Class::Transient, true));
    /// let down = NodeError::http(502, "bad gateway"); // behind the gateway it may have happened
    /// assert_eq!((down.class(), down.is_not_performed()), (Class::Transient, false));
    /// assert_eq!(NodeError::http(404, "no such order").class(), Class::Deterministic);
    /// ```
    pub fn http(status: u16, text: impl fmt::Display) -> Self {
        let (class, Refused(refused)) = class_of_status(status);
        let error = Self::new(format!("HTTP {status}: {text}")).with_class(class);
        if refused { error.not_performed() } else { error }
    }

    /// The same error, as one that may pass.
    #[must_use]
    pub fn transient(self) -> Self {
        self.with_class(Class::Transient)
    }

    /// The same error, as one that stays.
    #[must_use]
    pub fn deterministic(self) -> Self {
        self.with_class(Class::Deterministic)
    }

    /// The same error, as that of a result which breaks a rule.
    #[must_use]
    pub fn violation(self) -> Self {
        self.with_class(Class::Violation)
    }

    /// The same error, as one after which nothing is tried again.
    #[must_use]
    pub fn terminal(self) -> Self {
        self.with_class(Class::Terminal)
    }

    /// The same error in that class.
    #[must_use]
    pub fn with_class(mut self, class: Class) -> Self {
        (self.class, self.by_io) = (class, false);
        self
    }

    /// Says that the effect which failed has certainly not been performed, so that it may be tried again.
    ///
    /// An effect's error that does not say so leaves the effect *in doubt*, and the thread waits for a person.
    #[must_use]
    pub fn not_performed(mut self) -> Self {
        self.performed = Some(false);
        self
    }

    /// The soonest time that makes sense for another attempt, as the other side said.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// The same error with words in front that say what was being done; class and causes stay.
    ///
    /// ```
    /// use ferrata::{Class, NodeError};
    /// let error = NodeError::new("connection refused").transient().context("asking the bank");
    /// assert_eq!((error.to_string().as_str(), error.class()), ("asking the bank: connection refused", Class::Transient));
    /// ```
    #[must_use]
    pub fn context(mut self, doing: impl Into<String>) -> Self {
        self.source = Box::new(Within { doing: doing.into(), source: self.source });
        self
    }

    /// A failure of a graph that the node called.
    pub(crate) fn of_failure(failure: Failure) -> Self {
        let Failure { origin, class, message, tried, .. } = failure;
        Self { class, origin, tried, ..Self::new(message) }
    }

    /// Has these functions say which class it is, if nobody has said. They know its type, and an `io::Error` in it knows nothing of that.
    pub(crate) fn classified<'c>(mut self, say: impl IntoIterator<Item = &'c ClassOf>) -> Self {
        if self.by_io || self.class == Class::Unclassified {
            let source: &(dyn StdError + 'static) = &*self.source;
            let said = say.into_iter().find_map(|say| chain(source).into_iter().find_map(|error| say(error)));
            self.class = said.filter(|class| *class != Class::Unclassified).unwrap_or(self.class);
        }
        self
    }

    /// What kind of failure it is.
    pub fn class(&self) -> Class {
        self.class
    }

    /// An effect comes back with other arguments than it was started with.
    pub(crate) fn other_arguments(effect: &EffectId, then: &str, now: &str) -> Self {
        let error = Self::new(format!(
            "effect \"{}\" was started with {then}, and the node now comes with {now}; arguments and the order of effects must depend on nothing but \
             the state and earlier results",
            effect.key
        ));
        Self { class: Class::Deterministic, origin: Origin::EffectArguments, ..error }
    }

    /// A question that nobody answered in time.
    pub(crate) fn expired(key: &str) -> Self {
        let error = Self::new(format!("nobody answered \"{key}\" before its deadline"));
        Self { class: Class::Deterministic, origin: Origin::Expired, ..error }
    }

    /// Whether it says that a question was not answered in time, which is no refusal.
    pub fn is_expired(&self) -> bool {
        self.origin == Origin::Expired
    }

    /// Whether it is certain that the failed effect was not performed.
    pub fn is_not_performed(&self) -> bool {
        self.performed == Some(false)
    }

    /// How long to wait before another attempt, if the other side said so.
    pub fn delay(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The error this was made of.
    pub fn source(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }

    /// What a record keeps of it.
    pub(crate) fn failure(&self) -> Failure {
        let mut causes = Vec::new();
        let mut source = self.source.source();
        while let Some(error) = source {
            causes.push(error.to_string());
            source = error.source();
        }
        Failure { origin: self.origin, class: self.class, message: self.source.to_string(), causes, tried: self.tried }
    }
}

/// An error with words in front.
#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
struct Within {
    doing: String,
    source: Box<dyn StdError + Send + Sync>,
}

impl<E: StdError + Send + Sync + 'static> From<E> for NodeError {
    fn from(error: E) -> Self {
        let class = class_of(&error);
        Self { class, by_io: true, ..Self::made_of(Box::new(error)) }
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure().fmt(f)
    }
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({})", self.class)
    }
}

/// Where a failure comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// The node returned an error.
    #[default]
    Node,
    /// The node panicked.
    Panic,
    /// The attempt ran out of time.
    Timeout,
    /// What the node wrote does not fit the state.
    Update,
    /// The node wanted to go where it may not.
    Goto,
    /// The node spoke to an outer graph, and there is none.
    NoParent,
    /// A graph that the node called used up its steps.
    StepLimit,
    /// A step of a graph that the node called cannot be merged.
    Merge,
    /// A merge rule that is a function failed in a graph that the node called.
    MergeFunction,
    /// A graph that the node called removed a message that is not there.
    UnknownMessage,
    /// A conditional edge of a graph that the node called failed.
    Route,
    /// A join of a graph that the node called waited in vain.
    Starved,
    /// A question that the node asked was not answered in time.
    Expired,
    /// An effect came back with other arguments.
    EffectArguments,
    /// The result breaks the rule of its node.
    Rule,
    /// A resource that the node uses is not available.
    Resource,
    /// It goes in circles, and its guard or a person stopped it.
    Guard,
    /// More tasks would be due in one step than may be.
    TaskLimit,
    /// What the node wrote, or wanted recorded, is too large.
    UpdateLimit,
    /// A state would become too large.
    StateLimit,
    /// The node asked for more answers than the thread may wait for.
    QuestionLimit,
    /// The node gave no sign of life, and the watchdog or a person stopped it.
    Stalled,
    /// The node waits for a signal that the graph does not know.
    Signal,
}

impl Origin {
    const ALL: [Self; 23] = [
        Self::Node,
        Self::Panic,
        Self::Timeout,
        Self::Update,
        Self::Goto,
        Self::NoParent,
        Self::StepLimit,
        Self::Merge,
        Self::MergeFunction,
        Self::UnknownMessage,
        Self::Route,
        Self::Starved,
        Self::Expired,
        Self::EffectArguments,
        Self::Rule,
        Self::Resource,
        Self::Guard,
        Self::TaskLimit,
        Self::UpdateLimit,
        Self::StateLimit,
        Self::QuestionLimit,
        Self::Stalled,
        Self::Signal,
    ];

    /// Where a failure came from that was recorded with that code.
    pub(crate) fn of_code(recorded: &str) -> Self {
        Self::ALL.into_iter().find(|origin| origin.code() == recorded).unwrap_or_default()
    }

    /// The code of the error that a run fails with.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Update => "update-refused",
            Self::Goto => "goto",
            Self::NoParent => "no-parent",
            Self::StepLimit => "step-limit",
            Self::Merge => "merge-conflict",
            Self::MergeFunction => "merge-function",
            Self::UnknownMessage => "unknown-message",
            Self::Route => "route",
            Self::Starved => "join-starved",
            Self::Expired => "question-expired",
            Self::EffectArguments => "effect-arguments",
            Self::Rule => "rule-broken",
            Self::Resource => "resource-unavailable",
            Self::Guard => "guarded",
            Self::TaskLimit => "task-limit",
            Self::UpdateLimit => "update-limit",
            Self::StateLimit => "state-limit",
            Self::QuestionLimit => "question-limit",
            Self::Stalled => "stalled",
            Self::Signal => "signal-unknown",
            Self::Node | Self::Panic | Self::Timeout => "node-failed",
        }
    }
}

/// A failure as it is recorded: the text of the error and of its causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where it comes from.
    #[serde(default)]
    pub origin: Origin,
    /// What kind of failure it is.
    pub class: Class,
    /// The error's text.
    pub message: String,
    /// The texts of its causes, nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// Whether it was tried again: where this is the failure of a graph inside, the node that called it does not try again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tried: bool,
}

impl Failure {
    /// What a person says of a result.
    pub(crate) fn said(message: String) -> Self {
        Self { origin: Origin::Rule, class: Class::Violation, message, causes: Vec::new(), tried: false }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        // Many errors repeat their cause in their own text.
        self.causes.iter().filter(|cause| !self.message.contains(cause.as_str())).try_for_each(|cause| write!(f, ": {cause}"))
    }
}

/// How much of a text an error shows, in characters.
const SHOWN_MAX: usize = 200;

/// A text as far as an error shows it.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}.. ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
