//! The error of the runner: one type, with a code and predicates.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::secrets::{SecretPlace, SecretsError};
use crate::error::{Class, Failure, Origin, shortened};
use crate::id::{InvalidThreadName, NodeName, Path, Position, QuestionId, ThreadName};
use crate::log::{
    Answered, CloseReason, Closed, Expired, ExportError, Fault, FoldError, Lack, Misshapen, OnExpiry, Question, Why,
};
use crate::machine::{AnswerRefusal, EditRefusal, Refusal, RunFailure};
use crate::state::{StateError, Unfit, ValueError};
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
    fn of(kind: Kind) -> Self {
        Self { kind: Box::new(kind) }
    }

    pub(crate) fn damaged(thread: &ThreadName, source: FoldError) -> Self {
        Self::of(Kind::Damaged { thread: thread.clone(), source })
    }

    /// `at`: the checkpoint that it is about, if not the thread as it stands.
    pub(crate) fn misshapen(thread: &ThreadName, misshapen: &Misshapen, at: Option<Position>) -> Self {
        let Misshapen { path, stored, known, why } = misshapen;
        let graph = if path.is_root() { String::new() } else { format!(", in the graph at {path},") };
        let place = at.map_or(graph.clone(), |at| format!(", checkpoint {}{graph}", at.0));
        let from = stored.version();
        let (why, hint) = match why {
            Why::Unfit(Unfit::Newer) => (Unfit::Newer.to_string(), "use the newer program".to_owned()),
            Why::Unfit(unfit) if from < known.version() => (
                unfit.to_string(),
                format!(
                    "correct the upgrade from version {from} (`.upgrade({from}, ..)` on the graph), or finish the thread with the old program"
                ),
            ),
            Why::Unfit(unfit) => {
                let next = from.saturating_add(1);
                let hint = format!(
                    "give new fields a serde default; or raise the state to `#[state(version = {next})]` and add `.upgrade({from}, ..)` to the graph; or \
                     finish the thread with the old program"
                );
                (unfit.to_string(), hint)
            }
            Why::Pending { by, field } => {
                let why = format!(
                    "field `{field}` has another shape or value after the upgrade, and {by}, which writes it, is not merged yet"
                );
                (
                    why,
                    "finish that step with the old program, or drop it with new input that supersedes it or with an edit"
                        .to_owned(),
                )
            }
        };
        Self::of(Kind::Shape { thread: thread.clone(), place, stored: stored.shape(), known: known.shape(), why, hint })
    }

    pub(crate) fn other_graph(thread: &ThreadName, found: &str, expected: &str) -> Self {
        Self::of(Kind::OtherGraph { thread: thread.clone(), found: found.to_owned(), expected: expected.to_owned() })
    }

    pub(crate) fn unknown_thread(thread: &ThreadName) -> Self {
        Self::of(Kind::UnknownThread { thread: thread.clone() })
    }

    pub(crate) fn restore(thread: &ThreadName, error: StoreError) -> Self {
        match error {
            StoreError::Moved { .. } => Self::of(Kind::Exists { thread: thread.clone() }),
            error => error.into(),
        }
    }

    pub(crate) fn forked_from_nowhere(thread: &ThreadName) -> Self {
        Self::of(Kind::ForkedFromNowhere { thread: thread.clone() })
    }

    pub(crate) fn other_snapshot(thread: &ThreadName, at: Position) -> Self {
        Self::of(Kind::OtherSnapshot { thread: thread.clone(), at })
    }

    pub(crate) fn other_status(thread: &ThreadName, listed: ThreadStatus, told: ThreadStatus) -> Self {
        Self::of(Kind::OtherStatus { thread: thread.clone(), listed, told })
    }

    pub(crate) fn other_questions(thread: &ThreadName) -> Self {
        Self::of(Kind::OtherQuestions { thread: thread.clone() })
    }

    pub(crate) fn busy(thread: &ThreadName) -> Self {
        Self::of(Kind::Busy { thread: thread.clone() })
    }

    pub(crate) fn refused(thread: &ThreadName, refusal: Refusal) -> Self {
        Self::of(match refusal {
            Refusal::Fresh => Kind::UnknownThread { thread: thread.clone() },
            refusal => Kind::Refused { thread: thread.clone(), refusal },
        })
    }

    pub(crate) fn answer(thread: &ThreadName, refusal: AnswerRefusal) -> Self {
        Self::of(Kind::Answer { thread: thread.clone(), refusal })
    }

    pub(crate) fn answered(thread: &ThreadName, answered: &Answered) -> Self {
        let Answered { question, value, by, at } = answered;
        let (by, value) = (by.as_deref().unwrap_or("somebody").to_owned(), shortened(&value.to_string()));
        Self::of(Kind::Answered { thread: thread.clone(), question: *question, at: at.0, by, value })
    }

    pub(crate) fn ambiguous(thread: &ThreadName, open: &[Arc<Question>]) -> Self {
        let open = open.iter().map(|question| format!("\"{}\" ({})", shortened(&question.text), question.id)).collect::<Vec<_>>();
        Self::of(Kind::Ambiguous { thread: thread.clone(), open: open.join(", ") })
    }

    pub(crate) fn not_waiting(thread: &ThreadName) -> Self {
        Self::of(Kind::NotWaiting { thread: thread.clone() })
    }

    pub(crate) fn failed_elsewhere(thread: &ThreadName, fault: Fault) -> Self {
        Self::of(Kind::FailedElsewhere { thread: thread.clone(), fault })
    }

    pub(crate) fn closed(thread: &ThreadName, question: QuestionId, closed: &Closed) -> Self {
        let why = match closed.why {
            CloseReason::Superseded => "new input or an edit took its place",
            CloseReason::Abandoned => "the node that waited for it went on without it",
            CloseReason::Compensated => "the thread was given up, and what it had done is compensated",
        };
        Self::of(Kind::Closed { thread: thread.clone(), question, at: closed.at.0, why })
    }

    pub(crate) fn expired(thread: &ThreadName, expired: &Expired) -> Self {
        let then = match expired.then {
            OnExpiry::Suspend => "the thread is suspended, and asks anew when it is resumed",
            OnExpiry::Answer(_) => "the answer that the question had for this case was taken",
            OnExpiry::GoOn => "the thread went on without one",
        };
        Self::of(Kind::Expired { thread: thread.clone(), question: expired.question, at: expired.at.0, then })
    }

    pub(crate) fn edit(thread: &ThreadName, refusal: EditRefusal) -> Self {
        Self::of(Kind::Edit { thread: thread.clone(), refusal })
    }

    pub(crate) fn no_checkpoint(thread: &ThreadName, at: Position) -> Self {
        Self::of(Kind::NoCheckpoint { thread: thread.clone(), at })
    }

    pub(crate) fn failed(thread: &ThreadName, failure: RunFailure) -> Self {
        Self::of(Kind::Failed { thread: thread.clone(), failure })
    }

    pub(crate) fn no_subgraph(thread: &ThreadName, place: &impl fmt::Display) -> Self {
        Self::of(Kind::NoSubgraph { thread: thread.clone(), place: place.to_string() })
    }

    pub(crate) fn many_subgraphs<'p>(thread: &ThreadName, paths: impl Iterator<Item = &'p Path>) -> Self {
        let paths = paths.map(Path::to_string).collect::<Vec<_>>().join(", ");
        Self::of(Kind::ManySubgraphs { thread: thread.clone(), paths })
    }

    pub(crate) fn subgraph_type(thread: &ThreadName, path: &Path, found: &'static str, expected: &'static str) -> Self {
        Self::of(Kind::SubgraphType { thread: thread.clone(), path: path.to_string(), found, expected })
    }

    pub(crate) fn no_store(what: &'static str) -> Self {
        Self::of(Kind::NoStore { what })
    }

    pub(crate) fn missing(node: &NodeName, what: &'static str) -> Self {
        Self::of(Kind::Missing { node: node.clone(), what })
    }

    pub(crate) fn resource(thread: &ThreadName, what: String) -> Self {
        Self::of(Kind::Resource { thread: thread.clone(), what })
    }

    pub(crate) fn unknown_pause(node: &NodeName, known: String) -> Self {
        Self::of(Kind::UnknownPause { node: node.clone(), known })
    }

    pub(crate) fn shut_down(thread: &ThreadName) -> Self {
        Self::of(Kind::ShutDown { thread: thread.clone() })
    }

    pub(crate) fn no_secrets(thread: &ThreadName, fields: &[String]) -> Self {
        Self::of(Kind::NoSecrets { thread: thread.clone(), fields: fields.join(", ") })
    }

    pub(crate) fn secret_missing(thread: &ThreadName, lacks: &[Lack]) -> Self {
        let fields = lacks.iter().map(Lack::to_string).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ");
        Self::of(Kind::SecretMissing { thread: thread.clone(), fields })
    }

    pub(crate) fn secret_unknown(thread: &ThreadName, field: &str, known: &BTreeSet<&str>) -> Self {
        let known = if known.is_empty() { "none".to_owned() } else { known.iter().copied().collect::<Vec<_>>().join(", ") };
        Self::of(Kind::SecretUnknown { thread: thread.clone(), field: field.to_owned(), known })
    }

    pub(crate) fn secret(place: SecretPlace<'_>, what: &'static str, source: SecretsError) -> Self {
        let (thread, field) = (place.thread.clone(), format!("{}{}", place.path, place.field));
        Self::of(Kind::Secret { thread, field, what, source })
    }

    pub(crate) fn limit_zero(thread: &ThreadName, what: &'static str) -> Self {
        Self::of(Kind::LimitZero { thread: thread.clone(), what })
    }

    pub(crate) fn crashed(error: &tokio::task::JoinError) -> Self {
        Self::of(Kind::Crashed(error.to_string()))
    }

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
            | Kind::OtherQuestions { .. } => "log-damaged",
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
