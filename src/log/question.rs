//! Questions as they are recorded and shown.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::id::{EffectId, QuestionId, TaskId};

/// What an open question is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuestionKind {
    /// Yes or no, or yes with a correction.
    Approval,
    /// Anything that has a JSON Schema.
    Free,
    /// Whether an effect was performed.
    Doubt(EffectId),
}

/// A question that a thread asks a person.
///
/// Everything a program needs to show it and to check an answer is in here; the graph is not needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Question {
    /// Identifies it over all threads.
    pub id: QuestionId,
    /// The task that waits.
    pub task: TaskId,
    /// What the node calls it; the node's name for a question node.
    pub key: Arc<str>,
    /// Counts the questions of one key in one task, from 0.
    pub occurrence: u32,
    /// What it is about.
    pub kind: QuestionKind,
    /// What to ask.
    pub text: String,
    /// The data to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show: Option<Value>,
    /// JSON Schema of the answer.
    pub schema: Value,
    /// When it should be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// When it was asked.
    pub asked_at: Timestamp,
}

impl Question {
    /// Whether it asks if an effect was performed.
    pub fn is_doubt(&self) -> bool {
        matches!(self.kind, QuestionKind::Doubt(_))
    }
}

/// A question before it is asked: what a node or a question node says.
#[derive(Clone, Debug)]
pub(crate) struct QuestionSpec {
    pub(crate) key: Arc<str>,
    pub(crate) occurrence: u32,
    pub(crate) kind: QuestionKind,
    pub(crate) text: String,
    pub(crate) show: Option<Value>,
    pub(crate) schema: Value,
    pub(crate) deadline_ms: Option<u64>,
}

impl QuestionSpec {
    pub(crate) fn ask(self, id: QuestionId, task: TaskId, now: Timestamp) -> Question {
        Question {
            id,
            task,
            key: self.key,
            occurrence: self.occurrence,
            kind: self.kind,
            text: self.text,
            show: self.show,
            schema: self.schema,
            deadline: self.deadline_ms.map(|ms| now.plus_ms(ms)),
            asked_at: now,
        }
    }
}
