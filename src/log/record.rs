//! The records of a thread's log. `src/docs/format.md` tells what each one means.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::effect::{Compensating, EffectDone, EffectDoubted, EffectFailed, EffectStarted, Marked};
use super::outside::{Delivered, Reminded, Signalled, Suspension};
use super::parts::{Arrival, Cost, Due, Durability, Source, Target, TaskRef, Trigger};
use super::question::{OnExpiry, Question};
use super::rounds::Rounds;
use super::scope::Written;
use super::terms::Arguments;
use super::upgraded::{InnerSchema, Upgraded};
use crate::clock::Timestamp;
use crate::error::Failure;
use crate::id::{BranchId, NodeName, Path, Position, QuestionId, RunId, StepNumber, TaskId, ThreadName};
use crate::state::{Change, Schema};

/// One entry of a thread's log.
///
/// Records serialize to readable JSON, for tools that know nothing of the user's types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record {
    /// The first record of every thread.
    Opened(Box<Opened>),
    /// A run began.
    RunStarted(Box<RunStarted>),
    /// A run's input, before it is applied.
    Input(Box<Input>),
    /// A task has a result.
    TaskDone(Arc<TaskDone>),
    /// An attempt failed and another one will follow.
    AttemptFailed(Box<AttemptFailed>),
    /// A task failed for this run.
    TaskFailed(Box<TaskFailed>),
    /// A question is open.
    Asked(Arc<Question>),
    /// A question was answered.
    Answered(Box<Answered>),
    /// Questions were closed without an answer.
    Closed(Box<Closed>),
    /// A question was not answered in time.
    Expired(Box<Expired>),
    /// Somebody was told of a question, or reminded of it.
    Reminded(Box<Reminded>),
    /// A signal came from outside.
    Signalled(Box<Signalled>),
    /// A signal reached what waits for it.
    Delivered(Box<Delivered>),
    /// An effect that must not happen twice is about to be performed.
    EffectStarted(Box<EffectStarted>),
    /// An effect was performed.
    EffectDone(Box<EffectDone>),
    /// An effect was certainly not performed.
    EffectFailed(Box<EffectFailed>),
    /// Whether an effect was performed is not known.
    EffectDoubted(Box<EffectDoubted>),
    /// A node says how far it has come.
    Marked(Box<Marked>),
    /// A step was merged: a checkpoint.
    Stepped(Box<Stepped>),
    /// What the thread did outside is compensated, in place of what was due.
    Compensating(Box<Compensating>),
    /// The thread goes on from an earlier checkpoint, in a new line of history.
    Forked(Forked),
    /// A program with other shapes of states goes on with the thread.
    Upgraded(Box<Upgraded>),
    /// A run ended.
    RunEnded(Box<RunEnded>),
}

impl Record {
    /// The graph whose checkpoint this is; `None` for a record that is none.
    pub(crate) fn checkpoint(&self) -> Option<&Path> {
        match self {
            Self::Input(input) => Some(&input.path).filter(|_| !input.unlisted),
            Self::Stepped(stepped) => Some(&stepped.path),
            _ => None,
        }
    }

    /// The wait that a signal reached.
    pub(crate) fn delivered_to(&self) -> Option<QuestionId> {
        match self {
            Self::Delivered(delivered) => Some(delivered.question),
            _ => None,
        }
    }

    pub(crate) fn forked(&self) -> Option<&Forked> {
        match self {
            Self::Forked(forked) => Some(forked),
            _ => None,
        }
    }

    /// The graph that it tells about, if it is a record of how a graph's steps go.
    pub(crate) fn step_path(&self) -> Option<&Path> {
        match self {
            Self::Input(input) => Some(&input.path),
            Self::Stepped(stepped) => Some(&stepped.path),
            Self::TaskDone(done) => Some(&done.task.path),
            Self::AttemptFailed(failed) => Some(&failed.task.path),
            Self::TaskFailed(failed) => Some(&failed.task.path),
            _ => None,
        }
    }
}

/// See [`Record::Opened`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Tells this thread from every other one, also from one of the same name in another store or after a delete.
    pub id: Uuid,
    /// The ids of the threads that this one is a copy of, oldest first, each with the position behind its last record: effects started before it have keys
    /// made from that id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub was: Vec<(Position, Uuid)>,
    /// The thread.
    pub thread: ThreadName,
    /// Name of the graph.
    pub graph: String,
    /// The state's fields, merge rules and JSON Schema, and what the fields hold before anything is written.
    pub schema: Schema,
    /// The schema's fingerprint; absent in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The shapes of the states of the graphs inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<InnerSchema>,
    /// When.
    pub at: Timestamp,
}

impl Opened {
    /// The id that the thread had when the record at that position was written, if it was another one.
    pub(crate) fn id_then(&self, position: Position) -> Option<Uuid> {
        self.was.iter().find(|(end, _)| position < *end).map(|(_, id)| *id)
    }
}

/// See [`Record::RunStarted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// The run.
    pub run: RunId,
    /// What made it begin.
    pub trigger: Trigger,
    /// How many steps it may make.
    pub steps_max: u64,
    /// How many steps the thread may have made in its life, those of subgraphs included, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_steps_max: Option<u64>,
    /// When it is stopped at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What the caller calls it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The graph's fingerprint; absent in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// Irreversible nodes that run without an approval, with the reasons that the graph gives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unguarded: BTreeMap<String, String>,
    /// When its steps are stored.
    #[serde(default)]
    pub durability: Durability,
    /// When.
    pub at: Timestamp,
}

/// See [`Record::Input`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The line of history.
    pub branch: BranchId,
    /// Where the graph runs.
    #[serde(default, skip_serializing_if = "Path::is_root")]
    pub path: Path,
    /// The task that called the graph, if it is not the outermost one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<TaskId>,
    /// Whether it begins with the state of the graph that called it, and gives its changes back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Number of this checkpoint.
    pub step: StepNumber,
    /// What the input writes.
    pub changes: Vec<Change>,
    /// Left out of histories: the run's steps are stored as one checkpoint, which holds the input too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlisted: bool,
    /// Where the graph kept its state when the node that is or calls it had another name: it goes on with that state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Path>,
    /// What a node called the graph with by a key, but for secret fields; absent in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
}

/// See [`Record::TaskDone`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskDone {
    /// The task.
    pub task: TaskId,
    /// The attempt that succeeded, from 1.
    pub attempt: u32,
    /// What it writes.
    pub changes: Vec<Change>,
    /// Where it leads, if the node itself said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goto: Option<Vec<Target>>,
    /// Whether it stands in the place of the node's own result, whose edges are not taken then: it is that of the node's error handler, or the
    /// question that the node asks has expired.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handled: bool,
    /// Whether it is less than was asked for: the node's fallback, in place of a result that could not be had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    /// What the node says that failed, and that it went on without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Whether it speaks to the graph outside: changes and targets are that one's, and the subgraph ends here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_parent: bool,
    /// What the attempt cost.
    pub cost: Cost,
}

/// See [`Record::AttemptFailed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptFailed {
    /// The task.
    pub task: TaskId,
    /// The attempt, from 1.
    pub attempt: u32,
    /// What went wrong.
    pub failure: Failure,
    /// When the next attempt is due.
    pub next_at: Timestamp,
    /// When the first attempt began; absent in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// What the attempt cost.
    pub cost: Cost,
}

/// See [`Record::TaskFailed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailed {
    /// The task.
    pub task: TaskId,
    /// The last attempt, from 1.
    pub attempt: u32,
    /// What went wrong.
    pub failure: Failure,
    /// Whether the node's error handler takes over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handled: bool,
    /// What the attempt cost.
    pub cost: Cost,
}

/// See [`Record::Answered`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The question.
    pub question: QuestionId,
    /// The answer.
    pub value: Value,
    /// Who gave it, as the caller says.
    pub by: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// Why a question was closed without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CloseReason {
    /// New input or an edit took its place, as the caller asked.
    Superseded,
    /// It was asked in a graph that a node called, and the node went on without it.
    Abandoned,
    /// What the thread has done is compensated.
    Compensated,
}

/// See [`Record::Closed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// The questions.
    pub questions: Vec<QuestionId>,
    /// Why.
    pub why: CloseReason,
    /// When.
    pub at: Timestamp,
}

/// See [`Record::Expired`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expired {
    /// The question.
    pub question: QuestionId,
    /// What became of it.
    pub then: OnExpiry,
    /// When that was noticed; the deadline stands with the question.
    pub at: Timestamp,
}

/// See [`Record::Forked`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forked {
    /// The new line of history.
    pub branch: BranchId,
    /// Position of the checkpoint that it starts from.
    pub parent: Position,
    /// When.
    pub at: Timestamp,
}

/// See [`Record::Stepped`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stepped {
    /// The line of history.
    pub branch: BranchId,
    /// Where the graph runs.
    #[serde(default, skip_serializing_if = "Path::is_root")]
    pub path: Path,
    /// Number of this checkpoint.
    pub step: StepNumber,
    /// What it comes from.
    pub source: Source,
    /// The node that an edit of the state stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_node: Option<NodeName>,
    /// The merged tasks, in merge order; none where an input was applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<TaskRef>,
    /// Outcomes that stand instead of all changes of their fields in this step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolved: Vec<Change>,
    /// Joins that wait for more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<Arrival>,
    /// Deferred nodes that run when nothing else is due.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<NodeName>,
    /// Nodes in whose place a guard let others be due.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rerouted: Vec<Rerouted>,
    /// Nodes whose rounds are counted from 0 again: their phase was left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anew: Vec<NodeName>,
    /// The steps that this one stands for, if a run was stored as one checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub squashed: Option<Squashed>,
    /// What a graph that shares the state of another one wrote since it was called, where outcomes do not tell: after an edit, or several steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) written: Option<Written>,
    /// What is due next: by edges in declared order, then sends.
    pub due: Vec<Due>,
}

/// What a step that stands for several of them no longer shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Squashed {
    /// How many steps.
    pub steps: u64,
    /// The nodes that ran in the last one.
    pub last: Vec<NodeName>,
    /// The rounds of the graph's nodes after it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rounds: BTreeMap<NodeName, Rounds>,
}

/// A node in whose place another one is due: it goes in circles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rerouted {
    /// The node.
    pub node: NodeName,
    /// What is due in its place.
    pub to: NodeName,
    /// Why.
    pub why: String,
    /// The nodes whose rounds are counted from 0 again.
    pub anew: Vec<NodeName>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunOutcome {
    /// Nothing is left to do.
    Done,
    /// Questions are open.
    Waiting,
    /// The run was stopped and can be continued.
    Suspended,
    /// Something went wrong.
    Failed(Fault),
}

/// What a run failed of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The code of the error that the caller got.
    pub code: String,
    /// The node, if one can be named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// The error's text.
    pub text: String,
    /// What the node failed of, where the thread is compensated because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Box<Failure>>,
}

/// See [`Record::RunEnded`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnded {
    /// The run.
    pub run: RunId,
    /// How.
    pub outcome: RunOutcome,
    /// Why it was suspended, if it was; absent in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Suspension>,
    /// When.
    pub at: Timestamp,
}

/// A record and its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number in the log.
    pub position: Position,
    /// When it was appended, by the clock of the runner that did. The order of a log is that of its positions, never of its times.
    pub at: Timestamp,
    /// The record.
    pub record: Record,
}
