//! How a run ends, and how a thread stands.

use std::fmt;
use std::sync::Arc;

use crate::id::{BranchId, NodeName, Position, StepNumber};
use crate::log::{Question, Source, TaskState};
use crate::state::View;
use crate::store::ThreadStatus;

/// How a run ended, if nothing went wrong.
#[must_use = "a run may have ended with a question"]
pub enum Outcome<S> {
    /// Nothing is left to do. The state as it is.
    Done(View<S>),
    /// A person has to decide. The questions that are open; the process may end here.
    Waiting(Vec<Arc<Question>>),
    /// The run was stopped; the thread can be resumed.
    Suspended(Suspension),
}

impl<S> Outcome<S> {
    /// The state, if nothing is left to do.
    pub fn done(self) -> Option<View<S>> {
        match self {
            Self::Done(state) => Some(state),
            _ => None,
        }
    }

    /// The open questions; none if the run does not wait.
    pub fn questions(&self) -> &[Arc<Question>] {
        match self {
            Self::Waiting(questions) => questions,
            _ => &[],
        }
    }
}

impl<S> fmt::Debug for Outcome<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(_) => f.write_str("Done(..)"),
            Self::Waiting(questions) => f.debug_tuple("Waiting").field(questions).finish(),
            Self::Suspended(why) => f.debug_tuple("Suspended").field(why).finish(),
        }
    }
}

/// Why a run was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suspension {
    /// Whoever waited for the run went away.
    Dropped,
    /// The graph or the caller wants a stop here; resuming goes on.
    Breakpoint,
}

impl fmt::Display for Suspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped => f.write_str("nobody waited for the run any more"),
            Self::Breakpoint => f.write_str("it came to a breakpoint"),
        }
    }
}

/// A thread as it stands: live, with the results that are pending in an open step.
#[derive(Debug)]
#[non_exhaustive]
pub struct ThreadState<S> {
    /// The state.
    pub values: View<S>,
    /// The nodes whose tasks still have to run or to be answered.
    pub next: Vec<NodeName>,
    /// The open questions.
    pub questions: Vec<Arc<Question>>,
    /// What the thread is doing.
    pub status: ThreadStatus,
    /// Number of the newest checkpoint.
    pub step: StepNumber,
}

/// A state that a thread was in, as it was recorded.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checkpoint<S> {
    /// Where it stands in the log.
    pub position: Position,
    /// The line of history.
    pub branch: BranchId,
    /// Its number.
    pub step: StepNumber,
    /// What it comes from.
    pub source: Source,
    /// The state.
    pub values: View<S>,
    /// Whether another checkpoint comes before it in its line.
    pub parent: bool,
    /// The nodes that were due next.
    pub next: Vec<NodeName>,
    /// The tasks of these nodes, with what became of them.
    pub tasks: Vec<TaskState>,
}
