//! Questions as they are recorded and shown.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::parts::is_default;
use super::question_terms::QuestionTerms;
use crate::clock::Timestamp;
use crate::id::{EffectId, NodeName, QuestionId, TaskId};
use crate::state::value_bytes;

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
    /// What becomes of a result that breaks a rule: it is taken as it is, or tried again with what the person says.
    Violation,
    /// Whether these nodes, which go in circles, go on.
    Guard(Vec<NodeName>),
    /// Whether a node that gave no sign of life, twice, is tried again.
    Stall,
    /// When a signal of that name comes. Nobody is asked: the world answers.
    Signal(String),
    /// When its deadline has come. Nobody is asked.
    Time,
    /// When what the node needs is there. Nobody is asked: the state has to change from outside.
    Condition,
}

impl QuestionKind {
    /// Whether nobody is asked: it is answered by a signal, by time, or by a change of the state.
    pub fn is_outside(&self) -> bool {
        matches!(self, Self::Signal(_) | Self::Time | Self::Condition)
    }
}

/// What becomes of a question whose deadline has passed without an answer. To expire is never to be refused: the log has a record of its own for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnExpiry {
    /// The question is closed and the thread suspended, for somebody to look at. When it is resumed the question is asked anew.
    #[default]
    Suspend,
    /// This stands in the place of an answer. To an approval it can only be a refusal: no deadline ever approves anything.
    Answer(Value),
    /// The question is closed and the thread goes on without an answer: by the `expired` edges of a question node, with an error for which
    /// [`NodeError::is_expired`](crate::NodeError::is_expired) holds inside a node.
    GoOn,
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
    /// Who may answer, in the words of the program that asks. The engine keeps it and does not check it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Until when it can be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// When somebody should be reminded, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reminders: Vec<Timestamp>,
    /// What becomes of it when the deadline has passed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_expiry: OnExpiry,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// Whether somebody is told of it as soon as it is asked: a supervisor is there to do so.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tell: bool,
    /// How many times somebody was told of it and reminded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reminded: u32,
}

impl Question {
    /// Whether it asks if an effect was performed.
    pub fn is_doubt(&self) -> bool {
        matches!(self.kind, QuestionKind::Doubt(_))
    }

    /// Whether nobody is asked: it waits for a signal, for a time, or for a change of the state.
    pub fn is_outside(&self) -> bool {
        self.kind.is_outside()
    }

    /// The times at which somebody is told of it and reminded, in this order.
    fn calls(&self) -> impl Iterator<Item = Timestamp> {
        self.tell.then_some(self.asked_at).into_iter().chain(self.reminders.iter().copied())
    }

    /// How many of its reminders are due at that time, those that were given among them.
    pub(crate) fn calls_by(&self, now: Timestamp) -> u32 {
        u32::try_from(self.calls().take_while(|at| *at <= now).count()).unwrap_or(u32::MAX)
    }

    /// When somebody has to look at it next: a reminder that was not given, or its deadline.
    pub(crate) fn rings_at(&self) -> Option<Timestamp> {
        let given = usize::try_from(self.reminded).unwrap_or(usize::MAX);
        self.calls().nth(given).into_iter().chain(self.deadline).min()
    }

    /// Whether its deadline has passed at that time: it can no longer be answered, and expires when the thread is continued.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
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
    pub(crate) assignee: Option<String>,
    pub(crate) deadline_ms: Option<u64>,
    /// When it is over at the latest, whatever the time is when it is asked.
    pub(crate) until: Option<Timestamp>,
    pub(crate) reminders_ms: Vec<u64>,
    pub(crate) on_expiry: OnExpiry,
}

impl QuestionSpec {
    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let at_expiry = match &self.on_expiry {
            OnExpiry::Answer(value) => Some(value),
            OnExpiry::Suspend | OnExpiry::GoOn => None,
        };
        let values = self.show.iter().chain([&self.schema]).chain(at_expiry);
        self.text.len() as u64 + values.map(value_bytes).sum::<u64>()
    }

    /// Whether it says itself until when, or when somebody is reminded.
    fn has_times(&self) -> bool {
        self.deadline_ms.is_some() || !self.reminders_ms.is_empty()
    }

    /// `terms`: what holds for questions that say no times of their own, where a supervisor looks after them.
    pub(crate) fn ask(mut self, id: QuestionId, task: TaskId, now: Timestamp, terms: Option<&QuestionTerms>) -> Question {
        let terms = terms.filter(|_| !self.kind.is_outside());
        if let Some(terms) = terms.filter(|_| !self.has_times()) {
            (self.reminders_ms, self.deadline_ms) = terms.in_ms();
        }
        Question {
            id,
            task,
            key: self.key,
            occurrence: self.occurrence,
            kind: self.kind,
            text: self.text,
            show: self.show,
            schema: self.schema,
            assignee: self.assignee,
            deadline: self.deadline_ms.map(|ms| now.plus_ms(ms)).into_iter().chain(self.until).min(),
            reminders: self.reminders_ms.into_iter().map(|ms| now.plus_ms(ms)).collect(),
            on_expiry: self.on_expiry,
            asked_at: now,
            tell: terms.is_some(),
            reminded: 0,
        }
    }
}
