//! What can be watched while a run goes on.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::broadcast;

use super::error::Error;
use super::outcome::Outcome;
use super::thread::Running;
use crate::error::Failure;
use crate::id::{NodeName, StepNumber};
use crate::log::{Question, Record};
use crate::state::{Change, State, StateCell, View};

/// How many events a reader may be behind before it misses some.
const BEHIND_MAX: usize = 4_096;

/// Something that happened in a run.
///
/// What is not marked *ephemeral* is durable before it is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<S> {
    /// Ephemeral: an attempt of a task begins.
    TaskStarted {
        /// The node.
        node: NodeName,
        /// Which attempt, from 1.
        attempt: u32,
    },
    /// A task has a result.
    Update {
        /// The node.
        node: NodeName,
        /// What it writes.
        changes: Vec<Change>,
    },
    /// A step was merged.
    Values {
        /// Its number.
        step: StepNumber,
        /// The state after it.
        state: View<S>,
    },
    /// An attempt failed.
    Failed {
        /// The node.
        node: NodeName,
        /// Which attempt, from 1.
        attempt: u32,
        /// What went wrong.
        failure: Failure,
        /// Whether another attempt follows.
        again: bool,
    },
    /// A question is open.
    Asked(Arc<Question>),
    /// Ephemeral: a node told something.
    Custom {
        /// The node.
        node: NodeName,
        /// What it told.
        value: Value,
    },
    /// The reader was too slow and missed that many events. The log has what was not ephemeral.
    Missed(u64),
}

/// An event before the state's type is known.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    TaskStarted { node: NodeName, attempt: u32 },
    Recorded(Record),
    Values { step: StepNumber, state: StateCell },
    Custom { node: NodeName, value: Value },
}

/// Tells those who watch a run, if there are any. Nobody who is slow holds the run up.
#[derive(Clone, Debug)]
pub(crate) struct Announcer(Option<broadcast::Sender<Told>>);

impl Announcer {
    pub(crate) fn silent() -> Self {
        Self(None)
    }

    pub(crate) fn watched() -> (Self, broadcast::Receiver<Told>) {
        let (sender, receiver) = broadcast::channel(BEHIND_MAX);
        (Self(Some(sender)), receiver)
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn tell(&self, told: Told) {
        if let Some(sender) = &self.0 {
            // An error means that the reader has gone.
            let _ = sender.send(told);
        }
    }

    /// What will be told of these records once they are appended; nothing if nobody watches.
    pub(crate) fn of_interest(&self, records: &[Record]) -> Vec<Record> {
        if !self.is_watched() {
            return Vec::new();
        }
        use Record::{Asked, AttemptFailed, Stepped, TaskDone, TaskFailed};
        let told = |record: &&Record| matches!(record, TaskDone(_) | AttemptFailed(_) | TaskFailed(_) | Asked(_) | Stepped(_));
        records.iter().filter(told).cloned().collect()
    }

    /// Tells what was just appended.
    pub(crate) fn tell_records(&self, records: Vec<Record>, state: &StateCell) {
        for record in records {
            self.tell(match record {
                Record::Stepped(stepped) => Told::Values { step: stepped.step, state: state.clone() },
                record => Told::Recorded(record),
            });
        }
    }
}

/// The events of a run, and its outcome. Made by [`Thread::stream`](crate::Thread::stream).
///
/// Dropping it stops the run as [`Thread::run`](crate::Thread::run) says.
#[must_use = "a run that nobody waits for is stopped"]
pub struct Events<S> {
    pub(crate) told: broadcast::Receiver<Told>,
    pub(crate) run: Running<S>,
    pub(crate) state: PhantomData<fn() -> S>,
}

impl<S: State> Events<S> {
    /// The next event; `None` when the run has ended.
    pub async fn next(&mut self) -> Option<Event<S>> {
        loop {
            let told = match self.told.recv().await {
                Ok(told) => told,
                Err(broadcast::error::RecvError::Lagged(missed)) => return Some(Event::Missed(missed)),
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            if let Some(event) = event(told) {
                return Some(event);
            }
        }
    }

    /// Waits for the end of the run.
    pub async fn outcome(self) -> Result<Outcome<S>, Error> {
        self.run.wait().await
    }
}

impl<S> fmt::Debug for Events<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

fn event<S: State>(told: Told) -> Option<Event<S>> {
    Some(match told {
        Told::TaskStarted { node, attempt } => Event::TaskStarted { node, attempt },
        Told::Values { step, state } => Event::Values { step, state: state.view() },
        Told::Custom { node, value } => Event::Custom { node, value },
        Told::Recorded(Record::TaskDone(done)) => Event::Update { node: done.task.node.clone(), changes: done.changes.clone() },
        Told::Recorded(Record::AttemptFailed(f)) => {
            Event::Failed { node: f.task.node, attempt: f.attempt, failure: f.failure, again: true }
        }
        Told::Recorded(Record::TaskFailed(f)) => {
            Event::Failed { node: f.task.node, attempt: f.attempt, failure: f.failure, again: false }
        }
        Told::Recorded(Record::Asked(question)) => Event::Asked(question),
        Told::Recorded(_) => return None,
    })
}
