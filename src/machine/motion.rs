//! What this process does for one graph at work.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::clock::Timestamp;
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

/// The tasks of a node of which only so many run at once.
#[derive(Debug, Default)]
pub(super) struct Capped {
    pub(super) running: usize,
    held_back: VecDeque<usize>,
}

/// A graph in motion.
#[derive(Debug)]
pub(super) struct Motion {
    pub(super) shape: Arc<Shape>,
    pub(super) tasks: Vec<Live>,
    pub(super) running: usize,
    /// Tasks that may be startable, in the order in which they start.
    pub(super) ready: VecDeque<usize>,
    /// Nodes of which only so many tasks run at once.
    pub(super) capped: HashMap<usize, Capped>,
    /// Nodes before and after which it stops.
    pub(super) pauses: Pauses,
    /// The nodes of the step that was merged last.
    pub(super) merged: Vec<NodeName>,
    /// When the first attempts of tasks began whose time for all attempts has a limit.
    pub(super) began: HashMap<usize, Timestamp>,
    /// Tasks at work that may go on although they are about to pause: what they pause for has been answered.
    pub(super) woken: HashSet<usize>,
    /// Tasks whose wait for the next attempt is over.
    pub(super) waited: HashSet<usize>,
}

impl Motion {
    pub(super) fn new(shape: Arc<Shape>, tasks: usize) -> Self {
        let pauses = shape.pauses.clone();
        let (ready, tasks) = ((0..tasks).collect(), vec![Live::Idle; tasks]);
        Self {
            shape,
            tasks,
            running: 0,
            ready,
            capped: HashMap::new(),
            pauses,
            merged: Vec::new(),
            began: HashMap::new(),
            woken: HashSet::new(),
            waited: HashSet::new(),
        }
    }

    /// Whether there is something to wait for. A run that stops does not wait for delays.
    pub(super) fn is_busy(&self, stopping: bool) -> bool {
        self.running > 0 || (!stopping && self.tasks.iter().any(|task| matches!(task, Live::Delayed { .. })))
    }

    /// Another step is due.
    pub(super) fn begin_step(&mut self, tasks: usize) {
        self.tasks.clear();
        self.tasks.resize(tasks, Live::Idle);
        self.ready.clear();
        self.ready.extend(0..tasks);
        self.capped.clear();
        self.began.clear();
        self.waited.clear();
        self.woken.clear();
    }

    /// How many tasks of a node with a cap are running.
    pub(super) fn running_of(&self, node: usize) -> usize {
        self.capped.get(&node).map_or(0, |capped| capped.running)
    }

    /// The node's cap is reached: the task starts when another one of it has ended.
    pub(super) fn hold_back(&mut self, node: usize, index: usize) {
        self.capped.entry(node).or_default().held_back.push_back(index);
    }

    /// A task of the node has ended, and makes room for another one.
    pub(super) fn make_room(&mut self, node: usize) {
        if let Some(capped) = self.capped.get_mut(&node) {
            capped.running -= 1;
        }
        self.next_of(node);
    }

    /// Of the tasks that the node's cap held back, the next one may have its turn.
    pub(super) fn next_of(&mut self, node: usize) {
        if let Some(capped) = self.capped.get_mut(&node) {
            self.ready.extend(capped.held_back.pop_front());
        }
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
