//! What records are made of.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::NodeName;

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
    /// What the thread has done outside is to be compensated.
    Compensate,
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
    #[serde(default, skip_serializing_if = "is_default")]
    pub input_tokens: u64,
    /// Tokens written by models.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output_tokens: u64,
}

/// What is left out when it says nothing.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
    /// What was due was given up, and what the thread has done outside is compensated.
    Compensation,
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
