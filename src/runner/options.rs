//! What a handle to a thread says about the runs that are made through it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::seal::SecretOptions;
use super::thread::Thread;
use crate::clock::Timestamp;
use crate::graph::Pauses;
use crate::id::{NodeName, Position};
use crate::log::Durability;
use crate::machine::{Bounds, Limits};

/// How many steps a run may make if nobody says otherwise.
const STEPS_MAX: u64 = 1_000;
/// How many tasks of a run are at work at once if nobody says otherwise.
const TASKS_MAX: usize = 1_000;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) steps_max: u64,
    pub(crate) thread_steps_max: Option<u64>,
    pub(crate) tasks_max: usize,
    pub(crate) bounds: Bounds,
    pub(crate) deadline: Option<Duration>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) supersede: bool,
    /// Instead of the graph's own.
    pub(crate) pauses: Option<Pauses>,
    /// The checkpoint to go on from, instead of the newest.
    pub(crate) at: Option<Position>,
    pub(crate) durability: Durability,
    pub(crate) keep_last: Option<u64>,
    pub(crate) secrets: SecretOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            steps_max: STEPS_MAX,
            thread_steps_max: None,
            tasks_max: TASKS_MAX,
            bounds: Bounds::default(),
            deadline: None,
            tags: BTreeMap::new(),
            supersede: false,
            pauses: None,
            at: None,
            durability: Durability::Step,
            keep_last: None,
            secrets: SecretOptions::default(),
        }
    }
}

impl Options {
    pub(crate) fn limits(&self, now: Timestamp) -> Limits {
        let deadline = self.deadline.map(|limit| now.plus_ms(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)));
        let (steps_max, thread_steps_max) = (self.steps_max, self.thread_steps_max);
        Limits { steps_max, thread_steps_max, deadline, tags: self.tags.clone() }
    }
}

impl<S> Thread<S> {
    /// How many steps a run through this handle may make; 1,000 if not set. With the limit used up the run fails, what is done
    /// stays done, and the thread can be resumed. Each call of a subgraph has the same limit for itself.
    pub fn steps_max(mut self, steps: u64) -> Self {
        self.options.steps_max = steps;
        self
    }

    /// How many steps the thread may have made in its current line of history, over all runs and with the steps of its subgraphs; no limit if not set.
    /// A step counts when it is merged: with graphs inside, those that are under way when the limit is reached still end.
    /// Steps that are not stored count only in the process that made them. With the limit used up the run fails as [`steps_max`](Self::steps_max) says, and is counted in the log, so that a restart goes on counting.
    pub fn thread_steps_max(mut self, steps: u64) -> Self {
        self.options.thread_steps_max = Some(steps);
        self
    }

    /// How many tasks a run through this handle has at work at once, at least 1; 1,000 if not set. A task that waits for a graph it
    /// called is not at work.
    pub fn tasks_max(mut self, tasks: usize) -> Self {
        self.options.tasks_max = tasks;
        self
    }

    /// How long a run through this handle may take. When the time is over it is cut off, as by [`cancel`](Self::cancel), and suspended; the thread can be
    /// resumed.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.options.deadline = Some(limit);
        self
    }

    /// A word for runs through this handle, which stands in the log with them and in their spans: who asked, which job it belongs to.
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.tags.insert(key.into(), value.into());
        self
    }

    /// Lets new input through this handle drop unfinished work and open questions, which it else refuses to do.
    ///
    /// Not what may have happened: while an effect is in doubt, new input is refused all the same, with the code `in-doubt`.
    pub fn supersede(mut self) -> Self {
        self.options.supersede = true;
        self
    }

    /// Stops runs through this handle before steps in which one of these nodes is due, instead of where the graph says.
    pub fn pause_before<N: Into<NodeName>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        let pauses = self.options.pauses.get_or_insert_with(Pauses::default);
        pauses.before = nodes.into_iter().map(Into::into).collect();
        self
    }

    /// Stops runs through this handle after steps in which one of these nodes ran, instead of where the graph says.
    pub fn pause_after<N: Into<NodeName>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        let pauses = self.options.pauses.get_or_insert_with(Pauses::default);
        pauses.after = nodes.into_iter().map(Into::into).collect();
        self
    }

    /// Goes back in time: what is done through this handle goes on from that checkpoint of the thread's [`history`](Self::history), in a new line of
    /// history. Nothing older is removed.
    ///
    /// [`resume`](Self::resume) runs what came after the checkpoint again: other tasks, whose effects have keys of their own and whose questions
    /// are asked again. [`state`](Self::state) shows the checkpoint as it was recorded.
    pub fn at(mut self, checkpoint: Position) -> Self {
        self.options.at = Some(checkpoint);
        self
    }

    /// When the steps of runs through this handle are stored. Without this, before anything follows from them.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.options.durability = durability;
        self
    }

    /// Lets runs through this handle forget history as they go: at least the last `checkpoints` are kept, and older ones are removed as snapshots make
    /// that free, so that what the thread takes does not grow with its history. Open questions and the newest state always stay. All are kept if not set.
    ///
    /// [`prune`](Self::prune) removes exactly what it is told to.
    pub fn keep_last(mut self, checkpoints: usize) -> Self {
        self.options.keep_last = Some(checkpoints.max(1) as u64);
        self
    }
}
