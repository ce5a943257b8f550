//! The error of the runner: one type, with a code and predicates.

mod make;

use std::fmt;

use super::secrets::SecretsError;
use crate::error::{Class, Failure, Origin};
use crate::id::{InvalidThreadName, NodeName, Position, QuestionId, ThreadName};
use crate::log::{ExportError, Fault, FoldError};
use crate::machine::{AnswerRefusal, EditRefusal, Refusal, RunFailure, SignalRefusal};
use crate::state::{StateError, ValueError};
use crate::store::{StoreError, ThreadStatus};

/// What went wrong with a run or a question to a thread.
///
/// The text says what to do. Programs decide by the predicates or by [`code`](Self::code), never by the text. It converts into a
/// [`NodeError`](crate::NodeError) and into `Box<dyn Error>` with `?`.
///
/// | code | what | the thread |
/// | --- | --- | --- |
/// | `thread-name`, `thread-unknown`, `no-store` | the name cannot be used; there is no such thread; the runner keeps none | - |
/// | `thread-exists`, `export` | a copy or an import would overwrite a thread; lines are no export | as it was |
/// | `thread-busy`, `thread-moved` | it is running already, here or in another runner; somebody else wrote to it meanwhile | goes on there |
/// | `thread-unfinished`, `thread-waiting`, `in-doubt`, `compensating`, `input`, `no-steps` | new input is refused | as it was |
/// | `unknown-message` | a message is to be removed that is not there, by an input, an edit or a node | as it was, or can be resumed |
/// | `question-unknown`, `question-answered`, `question-expired`, `question-closed`, `question-ambiguous`, `not-waiting`, `answer-misfit` | an answer is refused | as it was |
/// | `signal-unknown`, `signal-misfit`, `signal-limit`, `thread-finished`, `not-a-question` | a signal is refused, or an answer to what no person is asked | as it was |
/// | `supervised`, `schedule`, `notifier`, `other-store` | the store has a supervisor; a schedule makes no sense, or two have one name; two notifiers have; a runner is over another store | - |
/// | `edit-node`, `edit-changes`, `no-checkpoint`, `no-subgraph` | an edit, a fork or a look inside is refused | as it was |
/// | `node-failed`, `update-refused`, `effect-arguments`, `goto`, `no-parent`, `route`, `join-starved`, `merge-conflict`, `merge-function` | a run failed | can be resumed |
/// | `step-limit`, `task-limit`, `update-limit`, `state-limit`, `question-limit` | a limit is reached, of steps, of tasks in a step, of bytes written at once, of bytes of a state, of open questions | can be resumed; as it was, where an input, an edit or an answer is refused |
/// | `limit-zero` | a limit lets nothing through | as it was |
/// | `dependency-missing`, `resource`, `unknown-node`, `shut-down` | a node needs what was not handed in, or uses a resource that is not declared or cannot work; a breakpoint at no node; the runner shuts down | as it was |
/// | `no-secrets`, `secret-missing`, `secret-unknown`, `secret` | secret fields and nobody says what of them is stored; a value that is not there any more, of a field that is not there; one that cannot be sealed or opened | as it was stored |
/// | `store`, `log-damaged`, `state-shape`, `other-graph`, `node-gone`, `value`, `crashed` | it cannot be stored, read or run | as it was stored |
///
/// ```
/// # use ferrata::{END, Graph, Runner, START, State, View, store::MemoryStore};
/// # use serde::{Deserialize, Serialize};
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Count { n: u64 }
///
/// async fn divide(state: View<Count>) -> ferrata::Result<CountUpdate> {
///     Ok(Count::update().n(100_u64.checked_div(state.n).ok_or_else(|| ferrata::NodeError::new("n is zero"))?))
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// # let graph = Graph::<Count>::new("count").node("divide", divide).edge(START, "divide").edge("divide", END).build()?;
/// # let runner = Runner::new(graph, MemoryStore::new());
/// let error = runner.thread("t").run(Count::update().n(0)).await.unwrap_err();
/// assert_eq!(error.code(), "node-failed");
/// assert_eq!(error.node_failure().unwrap().0.as_str(), "divide");
/// assert!(runner.thread("nobody").resume().await.unwrap_err().is_unknown_thread());
/// # Ok(()) }
/// ```
pub struct Error {
    kind: Box<Kind>,
}

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error(transparent)]
    Name(#[from] InvalidThreadName),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("thread \"{thread}\" cannot be read: {source}")]
    Damaged { thread: ThreadName, source: FoldError },
    #[error(
        "thread \"{thread}\"{place} was stored as {stored}, and the program's state is {known}: {why}; nothing was changed: {hint}"
    )]
    Shape { thread: ThreadName, place: String, stored: String, known: String, why: String, hint: String },
    #[error("thread \"{thread}\" belongs to graph \"{found}\", not to \"{expected}\"; use another thread name or another store")]
    OtherGraph { thread: ThreadName, found: String, expected: String },
    #[error("there is a thread \"{thread}\" already; delete it first, or use another name")]
    Exists { thread: ThreadName },
    #[error("thread \"{thread}\" was forked from a checkpoint that is not in its log; restore the store from a copy")]
    ForkedFromNowhere { thread: ThreadName },
    #[error("thread \"{thread}\": the snapshot at {at} is not what its records yield; restore the store from a copy", at = .at.0)]
    OtherSnapshot { thread: ThreadName, at: Position },
    #[error("thread \"{thread}\" is listed as {listed:?}, and its records say {told:?}; export and import it")]
    OtherStatus { thread: ThreadName, listed: ThreadStatus, told: ThreadStatus },
    #[error("the index of open questions does not say what the records of thread \"{thread}\" say; export and import it")]
    OtherQuestions { thread: ThreadName },
    #[error("the index of alarms does not say what the records of thread \"{thread}\" say; export and import it")]
    OtherAlarms { thread: ThreadName },
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("there is no thread \"{thread}\"; run it with an input first")]
    UnknownThread { thread: ThreadName },
    #[error("thread \"{thread}\" is already running in this process; wait for that run, or use another thread")]
    Busy { thread: ThreadName },
    #[error("thread \"{thread}\": {refusal}")]
    Refused { thread: ThreadName, refusal: Refusal },
    #[error("thread \"{thread}\": {refusal}")]
    Answer { thread: ThreadName, refusal: AnswerRefusal },
    #[error("thread \"{thread}\" waits for several answers, so say which question is meant: {open}")]
    Ambiguous { thread: ThreadName, open: String },
    #[error("thread \"{thread}\" waits for no answer; its state tells what it is doing")]
    NotWaiting { thread: ThreadName },
    #[error("thread \"{thread}\": {}", .fault.text)]
    FailedElsewhere { thread: ThreadName, fault: Fault },
    #[error("thread \"{thread}\": question {question} was closed at {at} ms by {by} with {value}; it is answered once")]
    Answered { thread: ThreadName, question: QuestionId, at: u64, by: String, value: String },
    #[error("thread \"{thread}\": question {question} expired without an answer, which was noticed at {at} ms: {then}")]
    Expired { thread: ThreadName, question: QuestionId, at: u64, then: &'static str },
    #[error("thread \"{thread}\": question {question} was closed at {at} ms without an answer: {why}")]
    Closed { thread: ThreadName, question: QuestionId, at: u64, why: &'static str },
    #[error("thread \"{thread}\": {refusal}")]
    Edit { thread: ThreadName, refusal: EditRefusal },
    #[error("thread \"{thread}\" has no checkpoint at position {at}; take one from its history", at = .at.0)]
    NoCheckpoint { thread: ThreadName, at: Position },
    #[error("thread \"{thread}\": {failure}")]
    Failed { thread: ThreadName, failure: RunFailure },
    #[error("thread \"{thread}\" has no graph at work at {place}; its questions and records tell the paths there are")]
    NoSubgraph { thread: ThreadName, place: String },
    #[error("thread \"{thread}\" has several graphs at work there: {paths}; name one by its path")]
    ManySubgraphs { thread: ThreadName, paths: String },
    #[error("the graph at {path} of thread \"{thread}\" has the state {found}, not {expected}")]
    SubgraphType { thread: ThreadName, path: String, found: &'static str, expected: &'static str },
    #[error("thread \"{thread}\": {refusal}")]
    Signal { thread: ThreadName, refusal: SignalRefusal },
    #[error("the store has a supervisor already; a store has one, and that one can look after several runners")]
    Supervised,
    #[error("a supervisor looks after runners over one store; this one is over another")]
    OtherStore,
    #[error("two notifiers are called \"{name}\"; give each a name of its own")]
    Notifier { name: String },
    #[error("the schedule \"{name}\" {what}")]
    Schedule { name: String, what: String },
    #[error("a value cannot be stored: {0}")]
    Value(#[from] ValueError),
    #[error("the state cannot be stored: {0}")]
    State(#[from] StateError),
    #[error("this runner has no store, so it keeps no threads; make it with a store to {what}")]
    NoStore { what: &'static str },
    #[error("node \"{node}\" needs a {what}; hand one in with `.provide(..)` on the runner or on the thread")]
    Missing { node: NodeName, what: &'static str },
    #[error("{what}; thread \"{thread}\" is as it was")]
    Resource { thread: ThreadName, what: String },
    #[error("a run cannot stop at \"{node}\": there is no such node; there are: {known}")]
    UnknownPause { node: NodeName, known: String },
    #[error("the runner shuts down and begins no more runs; thread \"{thread}\" is as it was")]
    ShutDown { thread: ThreadName },
    #[error(
        "thread \"{thread}\" has secret fields ({fields}), and nothing says what its store may get of them: hand in `Runner::secrets`, for \
         example `.secrets(ForgetSecrets)`; nothing was stored"
    )]
    NoSecrets { thread: ThreadName, fields: String },
    #[error(
        "thread \"{thread}\" cannot go on without the secret values of {fields}, which are not there any more; hand them in with \
         `.secret(field, value)` on the thread, or write the fields with the input or the edit"
    )]
    SecretMissing { thread: ThreadName, fields: String },
    #[error("thread \"{thread}\" has no secret field `{field}`; it has: {known}")]
    SecretUnknown { thread: ThreadName, field: String, known: String },
    #[error("the secret field `{field}` of thread \"{thread}\" cannot be {what}: {source}; the thread is as it was stored")]
    Secret { thread: ThreadName, field: String, what: &'static str, source: SecretsError },
    #[error("a limit of 0 for `{what}` lets nothing through: set 1 or more; thread \"{thread}\" is as it was")]
    LimitZero { thread: ThreadName, what: &'static str },
    #[error("the run ended before its time: {0}; the thread can be resumed")]
    Crashed(String),
}

impl Error {
    /// A word for the kind of error that stays the same.
    pub fn code(&self) -> &'static str {
        match &*self.kind {
            Kind::Name(_) => "thread-name",
            Kind::Store(StoreError::Moved { .. }) => "thread-moved",
            Kind::Store(_) => "store",
            Kind::Damaged { .. }
            | Kind::ForkedFromNowhere { .. }
            | Kind::OtherSnapshot { .. }
            | Kind::OtherStatus { .. }
            | Kind::OtherQuestions { .. }
            | Kind::OtherAlarms { .. } => "log-damaged",
            Kind::Exists { .. } => "thread-exists",
            Kind::Export(_) => "export",
            Kind::Shape { .. } => "state-shape",
            Kind::OtherGraph { .. } => "other-graph",
            Kind::UnknownThread { .. } => "thread-unknown",
            Kind::Busy { .. } => "thread-busy",
            Kind::Refused { refusal, .. } => match refusal {
                Refusal::Fresh => "thread-unknown",
                Refusal::NoSteps => "no-steps",
                Refusal::Input(StateError::UnknownMessage { .. }) => "unknown-message",
                Refusal::Unfinished { .. } => "thread-unfinished",
                Refusal::Waiting { .. } => "thread-waiting",
                Refusal::Input(_) => "input",
                Refusal::Gone(_) => "node-gone",
                Refusal::Limit(failure) => failure.code(),
                Refusal::InDoubt { .. } => "in-doubt",
                Refusal::Compensating => "compensating",
            },
            Kind::Answer { refusal: AnswerRefusal::NotOpen(_), .. } => "question-unknown",
            Kind::Answer { refusal: AnswerRefusal::Misfit { .. } | AnswerRefusal::Twice(_), .. } => "answer-misfit",
            Kind::Answer { refusal: AnswerRefusal::TooLarge(_), .. } => Origin::UpdateLimit.code(),
            Kind::Answer { refusal: AnswerRefusal::Overdue { .. }, .. } | Kind::Expired { .. } => "question-expired",
            Kind::Answered { .. } => "question-answered",
            Kind::Answer { refusal: AnswerRefusal::Outside { .. }, .. } => "not-a-question",
            Kind::Signal { refusal, .. } => match refusal {
                SignalRefusal::Unknown { .. } => Origin::Signal.code(),
                SignalRefusal::Misfit { .. } => "signal-misfit",
                SignalRefusal::TooLarge(_) => Origin::UpdateLimit.code(),
                SignalRefusal::Finished(_) => "thread-finished",
                SignalRefusal::TooMany => "signal-limit",
            },
            Kind::Supervised => "supervised",
            Kind::OtherStore => "other-store",
            Kind::Notifier { .. } => "notifier",
            Kind::Schedule { .. } => "schedule",
            Kind::Ambiguous { .. } => "question-ambiguous",
            Kind::NotWaiting { .. } => "not-waiting",
            Kind::FailedElsewhere { fault, .. } => Origin::of_code(&fault.code).code(),
            Kind::Closed { .. } => "question-closed",
            Kind::NoCheckpoint { .. } => "no-checkpoint",
            Kind::NoSubgraph { .. } | Kind::ManySubgraphs { .. } | Kind::SubgraphType { .. } => "no-subgraph",
            Kind::Edit { refusal, .. } => match refusal {
                EditRefusal::UnknownNode { .. } | EditRefusal::Ambiguous { .. } => "edit-node",
                EditRefusal::Changes(StateError::UnknownMessage { .. }) => "unknown-message",
                EditRefusal::Changes(_) => "edit-changes",
                EditRefusal::InDoubt { .. } => "in-doubt",
                EditRefusal::Compensating => "compensating",
                EditRefusal::NoGraph { .. } => "no-subgraph",
                EditRefusal::Failed(failure) => failure.code(),
            },
            Kind::Failed { failure, .. } => failure.code(),
            Kind::Value(_) | Kind::State(_) => "value",
            Kind::NoStore { .. } => "no-store",
            Kind::Missing { .. } => "dependency-missing",
            Kind::Resource { .. } => "resource",
            Kind::UnknownPause { .. } => "unknown-node",
            Kind::ShutDown { .. } => "shut-down",
            Kind::NoSecrets { .. } => "no-secrets",
            Kind::SecretMissing { .. } => "secret-missing",
            Kind::SecretUnknown { .. } => "secret-unknown",
            Kind::Secret { .. } => "secret",
            Kind::LimitZero { .. } => "limit-zero",
            Kind::Crashed(_) => "crashed",
        }
    }

    /// The node that failed, and what it failed of.
    pub fn node_failure(&self) -> Option<(&NodeName, &Failure)> {
        match &*self.kind {
            Kind::Failed { failure: RunFailure::Node { node, failure, .. }, .. } => Some((node, failure)),
            Kind::Failed { failure: RunFailure::Compensated { fault }, .. } => fault.node.as_ref().zip(fault.failure.as_deref()),
            _ => None,
        }
    }

    /// Whether the thread is already running, here or elsewhere.
    pub fn is_busy(&self) -> bool {
        matches!(&*self.kind, Kind::Busy { .. } | Kind::Store(StoreError::Moved { .. }))
    }

    /// Whether there is no such thread.
    pub fn is_unknown_thread(&self) -> bool {
        self.code() == "thread-unknown"
    }

    /// Whether the limit of steps is used up.
    pub fn is_step_limit(&self) -> bool {
        self.code() == "step-limit"
    }

    /// Whether a limit is reached that can be set higher: of steps, of tasks, of bytes, of questions. The guide [`failures`](crate::guide::failures) lists them.
    pub fn is_limit(&self) -> bool {
        matches!(self.code(), "step-limit" | "task-limit" | "update-limit" | "state-limit" | "question-limit")
    }

    /// Whether the run itself failed, and the log tells of it.
    pub(crate) fn is_of_the_run(&self) -> bool {
        matches!(&*self.kind, Kind::Failed { .. } | Kind::FailedElsewhere { .. })
    }

    /// Whether it is about the answer to a question, and the thread is as it was.
    pub fn is_answer_refused(&self) -> bool {
        matches!(
            &*self.kind,
            Kind::Answer { .. }
                | Kind::Answered { .. }
                | Kind::Closed { .. }
                | Kind::Expired { .. }
                | Kind::Ambiguous { .. }
                | Kind::NotWaiting { .. }
        )
    }

    /// Whether other threads of the store may well be read.
    pub(crate) fn is_damage_of_a_thread(&self) -> bool {
        self.code() == "log-damaged" || matches!(&*self.kind, Kind::Store(StoreError::Codec(_)))
    }

    /// Whether trying the same again later may help: the node's failure was transient, or the thread was busy.
    pub fn is_transient(&self) -> bool {
        self.is_busy() || self.node_failure().is_some_and(|(_, failure)| failure.class == Class::Transient)
    }
}

impl<T: Into<Kind>> From<T> for Error {
    fn from(kind: T) -> Self {
        Self::of(kind.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.kind, self.code())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.kind)
    }
}
