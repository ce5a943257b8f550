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
use crate::graph::START;
use crate::id::{NodeName, Path, Position, StepNumber, TaskId};
use crate::log::{Folded, Question, Record, Source};
use crate::state::{AnyState, Change, State, View};

/// How many events a reader may be behind before it misses some.
const BEHIND_MAX: usize = 4_096;

/// Something that happened in a run, in the thread's graph or in one inside it: the path of a task tells where.
///
/// What is not marked *ephemeral* is durable before it is told, but in runs that are stored behind or at the end, and in subgraphs whose steps are not stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<S> {
    /// Ephemeral: an attempt of a task begins.
    TaskStarted {
        /// The task.
        task: TaskId,
        /// Which attempt, from 1.
        attempt: u32,
        /// What was sent to it, if it was sent something.
        payload: Option<Arc<Value>>,
        /// The state of the step's beginning.
        state: AnyState,
    },
    /// A task has a result.
    Update {
        /// The task.
        task: TaskId,
        /// What it writes.
        changes: Vec<Change>,
        /// Whether the changes are meant for the graph outside, as [`Next::to_parent`](crate::Next::to_parent) says.
        to_parent: bool,
    },
    /// A step of the thread's graph was merged.
    Values {
        /// Its number.
        step: StepNumber,
        /// The state after it.
        state: View<S>,
    },
    /// A step of a graph inside was merged.
    InnerValues {
        /// Where the graph runs.
        path: Path,
        /// The step's number.
        step: StepNumber,
        /// The state after it.
        state: AnyState,
    },
    /// A checkpoint was stored. None without a store, and one for each graph in a run that is stored at its end.
    Checkpoint {
        /// Where the graph runs.
        path: Path,
        /// Where the checkpoint stands in the log.
        position: Position,
        /// Its number.
        step: StepNumber,
        /// What it comes from.
        source: Source,
        /// The nodes that are due next.
        next: Vec<NodeName>,
    },
    /// An attempt failed.
    Failed {
        /// The task.
        task: TaskId,
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
        /// The task.
        task: TaskId,
        /// What it told.
        value: Value,
    },
    /// The reader was too slow and missed that many events. The log has what was not ephemeral.
    Missed(u64),
}

impl<S> Event<S> {
    /// Where the graph runs that it is about; `None` for missed events.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::TaskStarted { task, .. }
            | Self::Update { task, .. }
            | Self::Failed { task, .. }
            | Self::Custom { task, .. } => Some(&task.path),
            Self::Values { .. } => Some(&Path::ROOT),
            Self::InnerValues { path, .. } | Self::Checkpoint { path, .. } => Some(path),
            Self::Asked(question) => Some(&question.task.path),
            Self::Missed(_) => None,
        }
    }
}

/// Which events a reader wants; see [`Events::only`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The states after each step.
    Values,
    /// What tasks wrote, and questions.
    Updates,
    /// What nodes told.
    Custom,
    /// Beginnings and ends of tasks: with results, failures and questions.
    Tasks,
    /// Checkpoints as they are stored.
    Checkpoints,
    /// Tasks and checkpoints.
    Debug,
}

impl Mode {
    /// Whether events of that kind are wanted. Missed events always are.
    pub fn shows<S>(self, event: &Event<S>) -> bool {
        match event {
            Event::Values { .. } | Event::InnerValues { .. } => self == Self::Values,
            Event::TaskStarted { .. } | Event::Failed { .. } => matches!(self, Self::Tasks | Self::Debug),
            Event::Update { .. } | Event::Asked(_) => matches!(self, Self::Updates | Self::Tasks | Self::Debug),
            Event::Custom { .. } => self == Self::Custom,
            Event::Checkpoint { .. } => matches!(self, Self::Checkpoints | Self::Debug),
            Event::Missed(_) => true,
        }
    }
}

/// An event before the state's type is known.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    TaskStarted {
        task: TaskId,
        attempt: u32,
        payload: Option<Arc<Value>>,
        state: AnyState,
    },
    Recorded(Record),
    Values {
        path: Path,
        step: StepNumber,
        state: AnyState,
    },
    Checkpoint {
        path: Path,
        position: Position,
        step: StepNumber,
        source: Source,
        next: Vec<NodeName>,
    },
    Custom {
        task: TaskId,
        value: Value,
    },
    /// The run has ended.
    Ended,
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

    pub(crate) fn tell(&self, told: impl FnOnce() -> Told) {
        if let Some(sender) = &self.0 {
            // An error means that the reader has gone.
            let _ = sender.send(told());
        }
    }

    /// What will be told of these records once they are appended; nothing if nobody watches.
    pub(crate) fn of_interest(&self, records: &[Record], folded: &Folded) -> Vec<Told> {
        use Record::{Asked, AttemptFailed, Stepped, TaskDone, TaskFailed};
        if !self.is_watched() {
            return Vec::new();
        }
        let told = |record: &Record| match record {
            TaskDone(_) | AttemptFailed(_) | TaskFailed(_) | Asked(_) => Some(Told::Recorded(record.clone())),
            Stepped(stepped) => {
                let state = folded.scope(&stepped.path)?.any_state();
                Some(Told::Values { path: stepped.path.clone(), step: stepped.step, state })
            }
            _ => None,
        };
        records.iter().filter_map(told).collect()
    }

    /// Tells of the checkpoints that are among the records that were appended from `position` on.
    pub(crate) fn checkpoints(&self, records: &[Record], position: Position) -> Vec<Told> {
        if !self.is_watched() {
            return Vec::new();
        }
        let told = |(record, place): (&Record, u64)| {
            let (path, position) = (record.checkpoint()?.clone(), Position(position.0 + place));
            Some(match record {
                Record::Stepped(stepped) => {
                    let next = stepped.due.iter().map(|due| due.node.clone()).collect();
                    Told::Checkpoint { path, position, step: stepped.step, source: stepped.source, next }
                }
                Record::Input(input) => {
                    let next = vec![NodeName::from(START)];
                    Told::Checkpoint { path, position, step: input.step, source: Source::Input, next }
                }
                _ => return None,
            })
        };
        records.iter().zip(0..).filter_map(told).collect()
    }

    pub(crate) fn tell_all(&self, all: Vec<Told>) {
        all.into_iter().for_each(|told| self.tell(|| told));
    }
}

/// The events of a run, and its outcome. Made by [`Thread::stream`](crate::Thread::stream).
///
/// Dropping it stops the run as [`Thread::run`](crate::Thread::run) says.
#[must_use = "a run that nobody waits for is stopped"]
pub struct Events<S> {
    pub(crate) told: broadcast::Receiver<Told>,
    pub(crate) run: Running<S>,
    /// What the reader wants, if not all.
    pub(crate) modes: Option<Vec<Mode>>,
    /// Whether events of graphs inside the thread's are left out.
    pub(crate) outermost: bool,
    pub(crate) ended: bool,
    pub(crate) state: PhantomData<fn() -> S>,
}

impl<S: State> Events<S> {
    /// Leaves out all events but those of these kinds.
    ///
    /// ```
    /// # use ferrata::{END, Event, Graph, Mode, Runner, START, State, View, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Count { n: u64 }
    /// # async fn add(s: View<Count>) -> ferrata::Result<CountUpdate> { Ok(Count::update().n(s.n + 1)) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Count>::new("count").node("add", add).edge(START, "add").edge("add", END).build()?;
    /// # let runner = Runner::new(graph, MemoryStore::new());
    /// let mut events = runner.thread("t").stream(Count::update().n(1))?.only([Mode::Updates]);
    /// let Some(Event::Update { task, .. }) = events.next().await else { panic!("one node writes") };
    /// assert_eq!(task.node.as_str(), "add");
    /// assert!(events.next().await.is_none());
    /// # Ok(()) }
    /// ```
    pub fn only(mut self, modes: impl IntoIterator<Item = Mode>) -> Self {
        self.modes = Some(modes.into_iter().collect());
        self
    }

    /// Leaves out the events of graphs inside the thread's.
    pub fn outermost(mut self) -> Self {
        self.outermost = true;
        self
    }

    fn is_wanted(&self, event: &Event<S>) -> bool {
        let mode = self.modes.as_ref().is_none_or(|modes| modes.iter().any(|mode| mode.shows(event)));
        mode && (!self.outermost || event.path().is_none_or(Path::is_root))
    }

    /// The next event; `None` when the run has ended.
    pub async fn next(&mut self) -> Option<Event<S>> {
        while !self.ended {
            let told = match self.told.recv().await {
                // Somebody may still hold a context, and with it the other end.
                Ok(Told::Ended) | Err(broadcast::error::RecvError::Closed) => {
                    self.ended = true;
                    break;
                }
                Ok(told) => told,
                Err(broadcast::error::RecvError::Lagged(missed)) => return Some(Event::Missed(missed)),
            };
            if let Some(event) = event(told).filter(|event| self.is_wanted(event)) {
                return Some(event);
            }
        }
        None
    }

    /// Waits for the end of the run.
    pub async fn outcome(self) -> Result<Outcome<S>, Error> {
        let Self { run, told, .. } = self;
        // Nobody reads on: the states that wait in there are not needed.
        drop(told);
        run.wait().await
    }
}

impl<S> fmt::Debug for Events<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

fn event<S: State>(told: Told) -> Option<Event<S>> {
    Some(match told {
        Told::TaskStarted { task, attempt, payload, state } => Event::TaskStarted { task, attempt, payload, state },
        Told::Values { path, step, state } if path.is_root() => Event::Values { step, state: state.view()? },
        Told::Values { path, step, state } => Event::InnerValues { path, step, state },
        Told::Checkpoint { path, position, step, source, next } => Event::Checkpoint { path, position, step, source, next },
        Told::Custom { task, value } => Event::Custom { task, value },
        Told::Recorded(Record::TaskDone(done)) => {
            Event::Update { task: done.task.clone(), changes: done.changes.clone(), to_parent: done.to_parent }
        }
        Told::Recorded(Record::AttemptFailed(f)) => {
            Event::Failed { task: f.task, attempt: f.attempt, failure: f.failure, again: true }
        }
        Told::Recorded(Record::TaskFailed(f)) => {
            Event::Failed { task: f.task, attempt: f.attempt, failure: f.failure, again: false }
        }
        Told::Recorded(Record::Asked(question)) => Event::Asked(question),
        Told::Recorded(_) | Told::Ended => return None,
    })
}
