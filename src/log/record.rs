//! The records of a thread's log. `src/docs/format.md` tells what each one means.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::question::Question;
use crate::clock::Timestamp;
use crate::error::Failure;
use crate::id::{BranchId, EffectId, NodeName, Path, Position, QuestionId, RunId, StepNumber, TaskId, ThreadName};
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
    RunStarted(RunStarted),
    /// A run's input, before it is applied.
    Input(Input),
    /// A task has a result.
    TaskDone(Arc<TaskDone>),
    /// An attempt failed and another one will follow.
    AttemptFailed(AttemptFailed),
    /// A task failed for this run.
    TaskFailed(TaskFailed),
    /// A question is open.
    Asked(Arc<Question>),
    /// A question was answered.
    Answered(Answered),
    /// Questions were closed without an answer.
    Closed(Closed),
    /// An effect that must not happen twice is about to be performed.
    EffectStarted(EffectStarted),
    /// An effect was performed.
    EffectDone(EffectDone),
    /// An effect was certainly not performed.
    EffectFailed(EffectFailed),
    /// Whether an effect was performed is not known.
    EffectDoubted(EffectDoubted),
    /// A step was merged: a checkpoint.
    Stepped(Box<Stepped>),
    /// The thread goes on from an earlier checkpoint, in a new line of history.
    Forked(Forked),
    /// A run ended.
    RunEnded(RunEnded),
}

/// See [`Record::Opened`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Tells this thread from every other one, also from one of the same name in another store or after a delete.
    pub id: Uuid,
    /// The thread.
    pub thread: ThreadName,
    /// Name of the graph.
    pub graph: String,
    /// The state's fields, merge rules and JSON Schema.
    pub schema: Schema,
    /// When.
    pub at: Timestamp,
}

/// What made a run begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Trigger {
    /// New input.
    Input,
    /// The thread was continued.
    Resume,
    /// A question was answered.
    Answer,
}

/// When the steps of a run are stored. Input, answers and effects are stored at once, whichever is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Before anything follows from them.
    #[default]
    Step,
    /// In the background: when the process dies, the last step may be lost, and its nodes run again.
    Behind,
    /// When the run ends, whatever way it ends, as one checkpoint. When the process dies, all steps of the run are lost.
    Exit,
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
    /// Number of this checkpoint.
    pub step: StepNumber,
    /// What the input writes.
    pub changes: Vec<Change>,
    /// Left out of histories: the run's steps are stored as one checkpoint, which holds the input too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlisted: bool,
}

/// What runs next: what a conditional edge gives, or a node that says itself where to go.
///
/// ```
/// use ferrata::Target;
/// let targets = vec![Target::node("review"), Target::send("read", serde_json::json!({"path": "a.md"}))];
/// assert_eq!(targets.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Target {
    /// A node, on the state.
    Node(NodeName),
    /// A node, on a payload.
    Send {
        /// The node.
        node: NodeName,
        /// What it gets.
        payload: Arc<Value>,
    },
    /// Past a node, to where it leads: a fan-out over nothing.
    Past(NodeName),
}

impl Target {
    /// A node, on the state; [`END`](crate::END) leads nowhere.
    pub fn node(name: impl Into<NodeName>) -> Self {
        Self::Node(name.into())
    }

    /// A task of its own for a node, on a payload. A node that takes a view of the state gets the payload as its state.
    pub fn send(node: impl Into<NodeName>, payload: impl Into<Value>) -> Self {
        Self::Send { node: node.into(), payload: Arc::new(payload.into()) }
    }
}

/// What a task or an effect cost. The tokens of an effect are not in its task's cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Wall time in milliseconds.
    pub ms: u64,
    /// Tokens sent to models.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_tokens: u64,
    /// Tokens written by models.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output_tokens: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde wants")]
fn is_zero(count: &u64) -> bool {
    *count == 0
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
    /// Whether it is the result of the node's error handler: the node's edges are not taken then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handled: bool,
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
    /// New input took its place, as the caller asked.
    Superseded,
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

/// See [`Record::EffectStarted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectStarted {
    /// The effect.
    pub effect: EffectId,
    /// The attempt of the task, from 1.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
}

/// See [`Record::EffectDone`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectDone {
    /// The effect.
    pub effect: EffectId,
    /// What it gave.
    pub result: Value,
    /// What it cost.
    pub cost: Cost,
}

/// See [`Record::EffectFailed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectFailed {
    /// The effect.
    pub effect: EffectId,
    /// What went wrong.
    pub failure: Failure,
}

/// Why it is not known whether an effect was performed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Doubt {
    /// The process ended between the start of the effect and its record.
    Interrupted,
    /// The attempt ran out of time.
    TimedOut,
    /// The node dropped the effect before it ended.
    Dropped,
    /// It failed with an error that does not say whether it was performed.
    Failed(Failure),
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interrupted => f.write_str("the process ended before the outcome was recorded"),
            Self::TimedOut => f.write_str("the attempt ran out of time before the outcome was known"),
            Self::Dropped => f.write_str("the node stopped waiting for it"),
            Self::Failed(failure) => write!(f, "it failed with \"{failure}\", which does not tell"),
        }
    }
}

/// See [`Record::EffectDoubted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectDoubted {
    /// The effect.
    pub effect: EffectId,
    /// Why.
    pub why: Doubt,
    /// When.
    pub at: Timestamp,
}

/// What a checkpoint comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// An input that is not applied yet.
    Input,
    /// A step, or an input that was applied.
    Loop,
    /// An edit of the state from outside.
    Update,
    /// A copy of an earlier checkpoint, to run from there again.
    Fork,
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

/// A task within its step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRef {
    /// The node.
    pub node: NodeName,
    /// The send index, for a sent task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<u32>,
}

/// A task that is due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Due {
    /// The node.
    pub node: NodeName,
    /// What it gets, if it was sent something, be it null; else it gets the state.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub payload: Option<Arc<Value>>,
}

/// A payload that is there: a null is one too.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<Value>>, D::Error> {
    Value::deserialize(deserializer).map(|value| Some(Arc::new(value)))
}

/// What has arrived at a join that is still waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The join: its target and its sources.
    pub join: Arc<str>,
    /// The sources that have run since it last fired.
    pub arrived: Vec<NodeName>,
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
    /// The steps that this one stands for, if a run was stored as one checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub squashed: Option<Squashed>,
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
}

/// See [`Record::RunEnded`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnded {
    /// The run.
    pub run: RunId,
    /// How.
    pub outcome: RunOutcome,
    /// When.
    pub at: Timestamp,
}

/// A record and its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number in the log.
    pub position: Position,
    /// The record.
    pub record: Record,
}
