//! What comes to a thread from outside without being asked for by a person: signals, and what is told of questions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fold::{Facts, FoldError};
use super::question::Question;
use super::record::{CloseReason, Closed};
use crate::clock::Timestamp;
use crate::id::QuestionId;

/// Of how many signals a thread remembers that it had them: one that is sent again within so many is known.
const SIGNAL_IDS: usize = 1_000;

/// See [`Record::Signalled`](super::Record::Signalled).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signalled {
    /// What tells it from every other one of the thread: the sender's own word, or one made for it.
    pub id: String,
    /// Which signal it is.
    pub name: String,
    /// What it says.
    pub value: Value,
    /// Who sent it, as the sender says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// See [`Record::Delivered`](super::Record::Delivered).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    /// The signal.
    pub signal: String,
    /// What waited for it.
    pub question: QuestionId,
    /// When.
    pub at: Timestamp,
}

/// See [`Record::Reminded`](super::Record::Reminded).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reminded {
    /// The question.
    pub question: QuestionId,
    /// How many of its reminders are over, with this one: those of a time when nobody looked count as given together.
    pub reminders: u32,
    /// When.
    pub at: Timestamp,
}

/// Why a run was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Suspension {
    /// Whoever waited for the run went away.
    Dropped,
    /// The graph or the caller wants a stop here; resuming goes on.
    Breakpoint,
    /// It was cancelled: what was under way was cut off.
    Cancelled,
    /// The run's time was over: what was under way was cut off.
    Deadline,
    /// The runner shuts down. A supervisor goes on with the thread.
    ShutDown,
    /// A question was not answered in time; resuming asks it anew. See [`OnExpiry::Suspend`](crate::OnExpiry::Suspend).
    Expired,
    /// Its process died again and again while it ran: somebody has to look at it. See [`Recovery`](crate::Recovery).
    Dying,
}

impl std::fmt::Display for Suspension {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dropped => f.write_str("nobody waited for the run any more"),
            Self::Breakpoint => f.write_str("it came to a breakpoint"),
            Self::Cancelled => f.write_str("it was cancelled"),
            Self::Deadline => f.write_str("it took longer than it may"),
            Self::ShutDown => f.write_str("the runner shuts down"),
            Self::Expired => f.write_str("a question was not answered in time"),
            Self::Dying => f.write_str("its process died again and again while it ran"),
        }
    }
}

impl Facts {
    pub(super) fn note_answer(&mut self, question: &Question, value: &Value) {
        let answer = (question.key.clone(), question.occurrence, value.clone());
        self.journal(&question.task).answers.push(answer);
    }

    pub(super) fn take_signal(&mut self, signalled: &Signalled) {
        if self.signal_ids.len() >= SIGNAL_IDS {
            self.signal_ids.pop_front();
        }
        self.signal_ids.push_back(signalled.id.clone());
        self.signals.push(signalled.clone());
    }

    pub(super) fn deliver(&mut self, delivered: &Delivered) -> Result<(), FoldError> {
        let misplaced = FoldError::Misplaced { position: self.next, what: "delivered" };
        let place = self.signals.iter().position(|signal| signal.id == delivered.signal).ok_or(misplaced)?;
        let question = self.close(delivered.question, "delivered")?;
        let signal = self.signals.remove(place);
        self.note_answer(&question, &signal.value);
        self.is_ready |= self.is_at_rest();
        Ok(())
    }

    pub(super) fn remind(&mut self, reminded: &Reminded) -> Result<(), FoldError> {
        let misplaced = FoldError::Misplaced { position: self.next, what: "reminded" };
        let question = self.questions.iter_mut().find(|question| question.id == reminded.question).ok_or(misplaced)?;
        Arc::make_mut(question).reminded = reminded.reminders;
        Ok(())
    }

    pub(super) fn close_all(&mut self, closed: &Closed) {
        let is_closed = |question: &Arc<Question>| closed.questions.contains(&question.id);
        let waited = |question: &Arc<Question>| is_closed(question) && question.is_outside();
        // The state is edited: a condition may hold now, and nothing wakes what was to sleep.
        self.is_ready |= self.is_at_rest() && closed.why == CloseReason::Superseded && self.questions.iter().any(waited);
        self.questions.retain(|question| !is_closed(question));
    }

    fn is_at_rest(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.ended.is_some())
    }

    /// Whether signals, times and conditions are all that it waits for.
    pub(crate) fn waits_outside(&self) -> bool {
        !self.questions.is_empty() && self.questions.iter().all(|question| question.is_outside())
    }
}
