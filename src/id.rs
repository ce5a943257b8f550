//! Names and numbers that identify things. Never bare strings or integers.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Name of a node in its graph.
///
/// ```
/// let name = ferrata::NodeName::from("pay");
/// assert_eq!(name.as_str(), "pay");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NodeName {
    /// Whether both are one text in memory. Two that are not may still be equal.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for NodeName {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// Name of a thread: what persists, one conversation or one piece of work.
///
/// Any text of 1 to 512 bytes without control characters. Names are compared byte by byte: two names that differ in letter case or in
/// Unicode form are two threads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadName(Arc<str>);

impl ThreadName {
    /// Checks the name.
    ///
    /// ```
    /// use ferrata::ThreadName;
    /// assert!(ThreadName::new("order-42").is_ok());
    /// assert!(ThreadName::new("").is_err());
    /// ```
    pub fn new(name: &str) -> Result<Self, InvalidThreadName> {
        let why = match name {
            "" => "it is empty",
            _ if name.len() > 512 => "it is longer than 512 bytes",
            _ if name.chars().any(char::is_control) => "it holds a control character",
            _ => return Ok(Self(name.into())),
        };
        Err(InvalidThreadName { name: name.chars().take(80).collect(), why })
    }

    /// For errors about a name that is damaged.
    pub(crate) fn unnamed() -> Self {
        Self("?".into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ThreadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ThreadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A thread name that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{name:?} cannot name a thread: {why}; use 1 to 512 bytes of text")]
pub struct InvalidThreadName {
    name: String,
    why: &'static str,
}

/// Number of a record in the log of its thread, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Position(pub u64);

/// A line of history; a fork opens the next one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BranchId(pub u32);

/// Number of a checkpoint in its branch; -1 is a first input that is not applied yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepNumber(pub i64);

impl StepNumber {
    /// The number after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The number before this one.
    pub(crate) fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

uuid_id!(
    /// One call of the runner on a thread.
    RunId
);
uuid_id!(
    /// One question, whoever asks it and how often.
    QuestionId
);

/// A task of an outer graph, as part of the path to a subgraph.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Frame {
    /// The node that runs the subgraph.
    pub node: NodeName,
    /// Step of the outer task; absent where the subgraph keeps its state between calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepNumber>,
    /// Send index of the outer task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<u32>,
    /// Key of the graph that the node calls; absent where the node is a subgraph itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Arc<str>>,
    /// Counts the calls of one graph in one attempt, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub call: u32,
    /// Whether the node's error handler calls it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_error: bool,
    /// Fingerprint of the input, where a later round of the node calls the graph with another one than the rounds before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Arc<str>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde wants")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Frame {
    /// What the graph is declared as: the key it is called by, or the node's name.
    pub fn key(&self) -> &str {
        self.graph.as_deref().unwrap_or(self.node.as_str())
    }

    fn is_of(&self, task: &TaskId) -> bool {
        self.node == task.node && self.step.is_none_or(|step| (step, self.send) == (task.step, task.send))
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.node)?;
        if let Some(step) = self.step {
            write!(f, "@{}", step.0)?;
        }
        if let Some(send) = self.send {
            write!(f, "#{send}")?;
        }
        if let Some(graph) = &self.graph {
            write!(f, ".{graph}")?;
        }
        if self.call > 0 {
            write!(f, ".{}", self.call)?;
        }
        if let Some(input) = &self.input {
            write!(f, "~{input}")?;
        }
        f.write_str(if self.on_error { "!/" } else { "/" })
    }
}

/// Where a graph runs: the outer tasks that lead to it, none for the outermost graph.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Path(Option<Arc<[Frame]>>);

impl Path {
    /// The outermost graph.
    pub const ROOT: Self = Self(None);

    /// The frames, outermost first.
    pub fn frames(&self) -> &[Frame] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// Whether this is the outermost graph.
    pub fn is_root(&self) -> bool {
        self.0.is_none()
    }

    /// Where the graph runs that contains this one; `None` for the outermost graph.
    #[must_use]
    pub fn outer(&self) -> Option<Self> {
        let (_, outer) = self.frames().split_last()?;
        Some(if outer.is_empty() { Self::ROOT } else { Self(Some(outer.into())) })
    }

    /// Whether this is `other`, or lies inside it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.frames().starts_with(other.frames())
    }

    /// Whether it lies inside that task, however deep.
    pub(crate) fn is_inside(&self, task: &TaskId) -> bool {
        self.is_within(&task.path) && self.frames().get(task.path.frames().len()).is_some_and(|frame| frame.is_of(task))
    }

    /// The outermost frames of it.
    #[must_use]
    pub fn to_depth(&self, depth: usize) -> Self {
        if depth >= self.frames().len() {
            self.clone()
        } else if depth == 0 {
            Self::ROOT
        } else {
            Self(Some(self.frames()[..depth].into()))
        }
    }

    /// Whether it lies inside `outer`, and all graphs in between keep their state between calls.
    pub(crate) fn is_kept_by(&self, outer: &Self) -> bool {
        self.is_within(outer) && self.frames()[outer.frames().len()..].iter().all(|frame| frame.step.is_none())
    }

    /// The same place inside `to` that it is inside `from`.
    pub(crate) fn moved(&self, from: &Self, to: &Self) -> Self {
        let inside = self.frames().get(from.frames().len()..).unwrap_or_default();
        Self(Some(to.frames().iter().chain(inside).cloned().collect()))
    }

    /// A graph inside this one.
    pub(crate) fn inner(&self, frame: Frame) -> Self {
        Self(Some(self.frames().iter().cloned().chain([frame]).collect()))
    }

    /// Whether it belongs to a task that is merged once that step of `outer` is.
    pub(crate) fn is_settled(&self, outer: &Self, step: StepNumber) -> bool {
        self.is_within(outer) && self.frames().get(outer.frames().len()).is_some_and(|f| f.step.is_some_and(|own| own <= step))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.frames().iter().try_for_each(|frame| frame.fmt(f))
    }
}

/// One execution of one node in one step: stable over attempts, restarts and machines.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TaskId {
    /// The line of history.
    pub branch: BranchId,
    /// The outer tasks, if the node is in a subgraph.
    #[serde(default, skip_serializing_if = "Path::is_root")]
    pub path: Path,
    /// The number that the checkpoint of the task's superstep will get.
    pub step: StepNumber,
    /// The node.
    pub node: NodeName,
    /// Which of the step's sends, from 0; absent for a task that is due by an edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<u32>,
}

impl TaskId {
    /// The step of the graph at `path`, itself or one around it, that the task belongs to; `None` if a graph in between keeps its state.
    pub(crate) fn step_in(&self, path: &Path) -> Option<StepNumber> {
        self.path.frames().get(path.frames().len()).map_or(Some(self.step), |frame| frame.step)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.branch.0)?;
        write!(f, "{}{}@{}", self.path, self.node, self.step.0)?;
        self.send.map_or(Ok(()), |send| write!(f, "#{send}"))
    }
}

/// One use of an effect key in a task.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct EffectId {
    /// The task that performs it.
    pub task: TaskId,
    /// The key the node gave.
    pub key: Arc<str>,
    /// Counts the uses of one key in one attempt, from 0.
    pub occurrence: u32,
}

impl EffectId {
    /// The idempotency key for the outside system: the same over retries and restarts, another one on a fork and in every other thread.
    pub(crate) fn idempotency_key(&self, thread: Uuid) -> String {
        // A length in front keeps two different pairs from joining to one text.
        let task = self.task.to_string();
        let text = format!("{}:{task}{}:{}", task.len(), self.occurrence, self.key);
        Uuid::new_v5(&thread, text.as_bytes()).to_string()
    }
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.key, self.task)?;
        if self.occurrence > 0 {
            write!(f, " ({})", self.occurrence + 1)?;
        }
        Ok(())
    }
}
