//! What this process does for one graph at work.

use std::collections::HashMap;
use std::sync::Arc;

use crate::graph::{Pauses, Shape};
use crate::id::NodeName;

/// What it does for one task of the current step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Live {
    /// Not started in this run.
    Idle,
    Running {
        serial: u64,
        /// Graphs it called and waits for.
        calls: u32,
    },
    /// Waits for its next attempt.
    Delayed { serial: u64 },
    /// Stopped for the rest of the run: somebody has to answer, or there is a breakpoint in a graph that it called.
    Paused,
}

/// A graph in motion.
#[derive(Debug)]
pub(super) struct Motion {
    pub(super) shape: Arc<Shape>,
    pub(super) tasks: Vec<Live>,
    pub(super) running: usize,
    pub(super) running_by_node: HashMap<usize, usize>,
    /// Whether a look at the tasks may find one to start. Without it, each end of a wide step would look at all of them.
    pub(super) look: bool,
    /// Nodes before and after which it stops.
    pub(super) pauses: Pauses,
    /// The nodes of the step that was merged last.
    pub(super) merged: Vec<NodeName>,
}

impl Motion {
    pub(super) fn new(shape: Arc<Shape>, tasks: usize) -> Self {
        let pauses = shape.pauses.clone();
        let tasks = vec![Live::Idle; tasks];
        Self { shape, tasks, running: 0, running_by_node: HashMap::new(), look: true, pauses, merged: Vec::new() }
    }

    /// Whether there is something to wait for. A run that stops does not wait for delays.
    pub(super) fn is_busy(&self, stopping: bool) -> bool {
        self.running > 0 || (!stopping && self.tasks.iter().any(|task| matches!(task, Live::Delayed { .. })))
    }

    /// Another step is due.
    pub(super) fn begin_step(&mut self, tasks: usize) {
        self.tasks.clear();
        self.tasks.resize(tasks, Live::Idle);
        self.look = true;
    }

    /// A task has come to rest. True if it was at work, and not waiting for a graph.
    pub(super) fn rest(&mut self, index: usize, live: Live) -> bool {
        let was = std::mem::replace(&mut self.tasks[index], live);
        self.running -= 1;
        matches!(was, Live::Running { calls: 0, .. })
    }

    /// How many of its tasks are at work.
    pub(super) fn at_work(&self) -> usize {
        self.tasks.iter().filter(|task| matches!(task, Live::Running { calls: 0, .. })).count()
    }
}
