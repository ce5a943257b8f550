//! The handle to a thread: what a program does with it.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::Inner;
use super::driver::Driver;
use super::error::Error;
use super::keeper::Keeper;
use super::outcome::{Checkpoint, Outcome, Suspension, ThreadState};
use super::spans::{self, Spans};
use super::stream::{Announcer, Events};
use crate::graph::{Answer, Pauses};
use crate::id::{InvalidThreadName, NodeName, Path, Position, QuestionId, ThreadName};
use crate::log::{Durability, Entry, FoldError, Folded, Question, Record, Report, Snapshot, SnapshotMeter, fold_line, history};
use crate::machine::{Begin, Ending, GivenAnswer, Machine};
use crate::state::{Schema, State, StateKind, Update, View};
use crate::store::{Loaded, Store};

/// How many steps a run may make if nobody says otherwise.
const STEPS_MAX: u64 = 1_000;
/// How many tasks of a run are at work at once if nobody says otherwise.
const TASKS_MAX: usize = 1_000;

/// A handle to a thread: what persists, one conversation or one piece of work.
///
/// Any number of handles may exist; one run at a time is made. A second one is refused with an error for which
/// [`Error::is_busy`] holds, also if another runner over the same store makes it.
///
/// A run is a task of its own. If the future that waits for it is dropped, the run starts nothing new, what is under way ends
/// and is recorded, and the thread can be resumed.
#[must_use]
pub struct Thread<S> {
    inner: Arc<Inner<S>>,
    name: Result<ThreadName, InvalidThreadName>,
    steps_max: u64,
    tasks_max: usize,
    supersede: bool,
    /// Instead of the graph's own.
    pauses: Option<Pauses>,
    /// The checkpoint to go on from, instead of the newest.
    at: Option<Position>,
    durability: Durability,
}

impl<S> Clone for Thread<S> {
    fn clone(&self) -> Self {
        let Self { inner, name, steps_max, tasks_max, supersede, pauses, at, durability } = self;
        let (inner, name, pauses) = (Arc::clone(inner), name.clone(), pauses.clone());
        Self {
            inner,
            name,
            steps_max: *steps_max,
            tasks_max: *tasks_max,
            supersede: *supersede,
            pauses,
            at: *at,
            durability: *durability,
        }
    }
}

/// A thread as it was read: its fold, where its log ends, and how much stands behind the last snapshot.
struct Opened {
    folded: Folded,
    meter: SnapshotMeter,
}

impl<S: State> Thread<S> {
    pub(super) fn new(inner: Arc<Inner<S>>, name: &str) -> Self {
        let name = ThreadName::new(name);
        Self {
            inner,
            name,
            steps_max: STEPS_MAX,
            tasks_max: TASKS_MAX,
            supersede: false,
            pauses: None,
            at: None,
            durability: Durability::Step,
        }
    }

    /// How many steps a run through this handle may make; 1,000 if not set. With the limit used up the run fails, what is done
    /// stays done, and the thread can be resumed.
    pub fn steps_max(mut self, steps: u64) -> Self {
        self.steps_max = steps;
        self
    }

    /// How many tasks a run through this handle has at work at once, at least 1; 1,000 if not set.
    pub fn tasks_max(mut self, tasks: usize) -> Self {
        self.tasks_max = tasks;
        self
    }

    /// Lets new input through this handle drop unfinished work and open questions, which it else refuses to do.
    ///
    /// Not what may have happened: while an effect is in doubt, new input is refused all the same, with the code `in-doubt`.
    pub fn supersede(mut self) -> Self {
        self.supersede = true;
        self
    }

    /// Stops runs through this handle before steps in which one of these nodes is due, instead of where the graph says.
    pub fn pause_before<N: Into<NodeName>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.pauses.get_or_insert_default().before = nodes.into_iter().map(Into::into).collect();
        self
    }

    /// Stops runs through this handle after steps in which one of these nodes ran, instead of where the graph says.
    pub fn pause_after<N: Into<NodeName>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.pauses.get_or_insert_default().after = nodes.into_iter().map(Into::into).collect();
        self
    }

    /// Goes back in time: what is done through this handle goes on from that checkpoint of the thread's [`history`](Self::history), in a new line of
    /// history. Nothing older is removed.
    ///
    /// [`resume`](Self::resume) runs what came after the checkpoint again: other tasks, whose effects have keys of their own and whose questions
    /// are asked again. [`state`](Self::state) shows the checkpoint as it was recorded.
    pub fn at(mut self, checkpoint: Position) -> Self {
        self.at = Some(checkpoint);
        self
    }

    /// When the steps of runs through this handle are stored. Without this, before anything follows from them.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The thread's name.
    pub fn name(&self) -> Result<&ThreadName, Error> {
        self.name.as_ref().map_err(|error| error.clone().into())
    }

    /// Begins at the entry with new input. What the input does not write stays as it is.
    ///
    /// # Errors
    ///
    /// Unfinished work or open questions, unless the handle says [`supersede`](Self::supersede); a run that is going on; whatever fails in the run. All but
    /// failures in the run itself leave the thread as it was.
    pub async fn run(&self, input: impl Into<Update>) -> Result<Outcome<S>, Error> {
        let begin = self.input(input)?;
        self.spawn(begin, Announcer::silent())?.wait().await
    }

    /// Runs the input once, however often this is called: a fresh thread is run with it, an unfinished or failed one is resumed, a waiting
    /// one says what it waits for, a finished one gives its state. For programs that are started again after a crash.
    ///
    /// The input counts on a fresh thread only; later calls go on with the first one.
    pub async fn run_once(&self, input: impl Into<Update>) -> Result<Outcome<S>, Error> {
        let fresh = self.open().await?.folded.root.facts.head.is_none();
        if fresh { self.run(input).await } else { self.resume().await }
    }

    /// Continues the thread where it stands: after a crash, a failure, a step limit, or a stop. Tasks that have a result do not
    /// run again; a task that had failed for good has all the attempts of its policy again, one that was cut off has those that were left. A thread that is finished gives its state, and one that waits gives its questions; nothing is recorded then.
    pub async fn resume(&self) -> Result<Outcome<S>, Error> {
        self.spawn(Begin::Resume, Announcer::silent())?.wait().await
    }

    /// Answers a question and continues the thread.
    ///
    /// # Errors
    ///
    /// A question that is not open (with who answered it, and when), an answer that does not fit its schema: nothing is recorded, and the
    /// question stays as it was. Whatever fails in the run: the answer is recorded.
    pub async fn answer(&self, question: QuestionId, answer: impl Into<Answer>) -> Result<Outcome<S>, Error> {
        let Answer { value, by } = answer.into();
        let result = self.spawn(Begin::Answer(GivenAnswer { question, value, by }), Announcer::silent())?.wait().await;
        match result {
            Err(error) if error.code() == "question-unknown" => Err(self.closed(question).await?.unwrap_or(error)),
            result => result,
        }
    }

    /// As [`run`](Self::run), to be watched.
    pub fn stream(&self, input: impl Into<Update>) -> Result<Events<S>, Error> {
        self.watch(self.input(input)?)
    }

    /// As [`resume`](Self::resume), to be watched.
    pub fn stream_resume(&self) -> Result<Events<S>, Error> {
        self.watch(Begin::Resume)
    }

    /// Changes the state from outside, as if `as_node` had returned the update: its edges are taken, and whatever else was due, with its results and
    /// questions, is dropped. `START` and `END` stand for the entry and for "nothing is due". Without a node, for the one that ran last.
    ///
    /// # Errors
    ///
    /// A run that is going on, an effect in doubt, an update that does not fit, a node that does not exist, no node where several ran last:
    /// the thread is as it was.
    pub async fn update(&self, update: impl Into<Update>, as_node: Option<&str>) -> Result<(), Error> {
        self.edit(&Path::ROOT, update.into(), as_node).await
    }

    pub(super) async fn edit(&self, path: &Path, update: Update, as_node: Option<&str>) -> Result<(), Error> {
        let name = self.name()?;
        let changes = update.into_changes()?;
        let _lease = self.inner.lease(name).ok_or_else(|| Error::busy(name))?;
        self.store("keep an edit")?;
        let mut driver = self.driver(Announcer::silent()).await?;
        driver.edit(self.at, path, changes, as_node.map(NodeName::from)).await
    }

    /// The fold of what is stored, up to the chosen checkpoint.
    pub(super) async fn folded(&self, what: &'static str) -> Result<Folded, Error> {
        self.store(what)?;
        Ok(self.open().await?.folded)
    }

    /// Whether the handle shows the thread as it stands, and not as it was.
    pub(super) fn is_live(&self) -> bool {
        self.at.is_none()
    }

    pub(super) fn kind(&self) -> &Arc<StateKind> {
        &self.inner.shape().kind
    }

    /// The thread as it stands.
    pub async fn state(&self) -> Result<ThreadState<S>, Error> {
        let folded = self.folded("read a state").await?;
        let name = self.name()?;
        if folded.root.facts.head.is_none() {
            return Err(Error::unknown_thread(name));
        }
        super::inside::state_of(&folded, &folded.root, self.is_live()).map_err(|error| Error::damaged(name, error))
    }

    /// The open questions; none if there is no such thread.
    pub async fn questions(&self) -> Result<Vec<Arc<Question>>, Error> {
        Ok(self.open().await?.folded.facts.questions)
    }

    /// All checkpoints, newest first. Costs as much as the thread's whole history.
    pub async fn history(&self) -> Result<Vec<Checkpoint<S>>, Error> {
        let name = self.name()?;
        let seen = history(self.fresh(), &self.log().await?, &Path::ROOT).map_err(|error| Error::damaged(name, error))?;
        Ok(super::inside::checkpoints(seen))
    }

    /// Every record of the thread, in order; none if there is no such thread.
    pub async fn log(&self) -> Result<Vec<Entry>, Error> {
        Ok(self.store("read the log")?.read(self.name()?, Position(0)).await?)
    }

    /// What the thread cost, by node.
    pub async fn report(&self) -> Result<Report, Error> {
        Ok(Report::of(&self.log().await?))
    }

    /// Removes everything of the thread. False if there is no such thread.
    pub async fn delete(&self) -> Result<bool, Error> {
        let name = self.name()?;
        let _lease = self.inner.lease(name).ok_or_else(|| Error::busy(name))?;
        Ok(self.store("delete a thread")?.delete(name).await?)
    }

    /// As [`answer`](Self::answer), to be watched. An answer that is refused is the outcome's error.
    pub fn stream_answer(&self, question: QuestionId, answer: impl Into<Answer>) -> Result<Events<S>, Error> {
        let Answer { value, by } = answer.into();
        self.watch(Begin::Answer(GivenAnswer { question, value, by }))
    }

    fn input(&self, input: impl Into<Update>) -> Result<Begin, Error> {
        Ok(Begin::Input { changes: input.into().into_changes()?, supersede: self.supersede || self.at.is_some() })
    }

    fn store(&self, what: &'static str) -> Result<&Arc<dyn Store>, Error> {
        self.inner.store.as_ref().ok_or_else(|| Error::no_store(what))
    }

    fn watch(&self, begin: Begin) -> Result<Events<S>, Error> {
        let (announcer, told) = Announcer::watched();
        Ok(Events { told, run: self.spawn(begin, announcer)?, modes: None, outermost: false, state: PhantomData })
    }

    /// Starts the run as a task of its own.
    fn spawn(&self, begin: Begin, announcer: Announcer) -> Result<Running<S>, Error> {
        let name = self.name()?.clone();
        let lease = self.inner.lease(&name).ok_or_else(|| Error::busy(&name))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let this = self.clone();
        let span = spans::run(self.inner.graph.name(), &name);
        let run = async move {
            let result = this.drive(begin, announcer, async { _ = stopped.await }).await;
            drop(lease);
            result
        };
        Ok(Running { handle: tokio::spawn(run.instrument(span)), _stop: stop })
    }

    async fn driver(&self, announcer: Announcer) -> Result<Driver, Error> {
        let name = self.name()?;
        let Opened { folded, meter } = self.open().await?;
        let position = folded.facts.next;
        let pauses = self.pauses.as_ref().unwrap_or(&self.inner.shape().pauses).clone();
        let machine = Machine::new(Arc::clone(self.inner.shape()), name.clone(), folded, self.tasks_max, pauses);
        Ok(Driver {
            runnables: Arc::clone(&self.inner.runnables),
            keeper: Keeper {
                store: self.inner.store.clone(),
                clock: Arc::clone(&self.inner.clock),
                thread: name.clone(),
                durability: self.durability,
                position,
                meter,
                behind: None,
            },
            clock: Arc::clone(&self.inner.clock),
            thread: name.clone(),
            machine: machine.durability(self.durability),
            kept: Vec::new(),
            announcer,
            spans: Spans::default(),
            calls: HashMap::new(),
            inner_tasks: HashMap::new(),
        })
    }

    async fn drive(&self, begin: Begin, announcer: Announcer, stop: impl Future<Output = ()>) -> Result<Outcome<S>, Error> {
        let name = self.name()?;
        let mut driver = self.driver(announcer).await?;
        if let Begin::Answer(answer) = &begin {
            driver.machine.check_answer(answer).map_err(|refusal| Error::answer(name, refusal))?;
        }
        driver.go_back(self.at, matches!(begin, Begin::Resume))?;
        let (ending, machine) = driver.run(begin, self.steps_max, stop).await?;
        match ending {
            Ending::Done => {
                let state: View<S> = machine.folded().root.state.view();
                Ok(Outcome::Done(match &self.inner.shape().output {
                    Some(fields) => View::new(state.only(&|name| fields.iter().any(|field| field == name))),
                    None => state,
                }))
            }
            Ending::Paused => Ok(Outcome::Suspended(Suspension::Breakpoint)),
            Ending::Waiting(questions) => Ok(Outcome::Waiting(questions)),
            Ending::Suspended | Ending::Handed { .. } => Ok(Outcome::Suspended(Suspension::Dropped)),
            Ending::Failed(failure) => Err(Error::failed(name, failure)),
        }
    }

    pub(super) fn fresh(&self) -> Folded {
        Folded::new(Arc::clone(&self.inner.shape().kind))
    }

    /// Reads the thread: the newest snapshot, and what follows it.
    async fn open(&self) -> Result<Opened, Error> {
        let name = self.name()?;
        let Some(store) = &self.inner.store else {
            return Ok(Opened { folded: self.fresh(), meter: SnapshotMeter::default() });
        };
        let Loaded { snapshot, snapshot_bytes, entries, record_bytes } = store.load(name).await?;
        if self.at.is_some() || entries.iter().any(|entry| matches!(entry.record, Record::Forked(_))) {
            // The line leads through what the snapshot leaves out.
            return self.open_line(&store.read(name, Position(0)).await?, SnapshotMeter::new(record_bytes, snapshot_bytes));
        }
        let stored = snapshot.as_ref().and_then(Snapshot::schema).or_else(|| entries.first().and_then(schema_of));
        let folded = self.accept(self.fold(snapshot, &entries), stored.as_ref())?;
        Ok(Opened { folded, meter: SnapshotMeter::new(record_bytes, snapshot_bytes) })
    }

    /// Reads the line that leads to the chosen checkpoint, or to the end of the log.
    fn open_line(&self, entries: &[Entry], meter: SnapshotMeter) -> Result<Opened, Error> {
        let name = self.name()?;
        if let Some(at) = self.at {
            let record = usize::try_from(at.0).ok().and_then(|at| entries.get(at)).map(|entry| &entry.record);
            if record.and_then(Record::checkpoint).is_none() {
                return Err(Error::no_checkpoint(name, at));
            }
        }
        let folded = self.accept(fold_line(self.fresh(), entries, self.at), entries.first().and_then(schema_of).as_ref())?;
        Ok(Opened { folded, meter })
    }

    fn fold(&self, snapshot: Option<Snapshot>, entries: &[Entry]) -> Result<Folded, FoldError> {
        let mut folded = match snapshot {
            Some(snapshot) => snapshot.restore(&self.inner.shape().kind)?,
            None => self.fresh(),
        };
        entries.iter().try_for_each(|entry| folded.fold(&entry.record))?;
        Ok(folded)
    }

    /// Accepts what was read if it fits this program's state and graph.
    fn accept(&self, read: Result<Folded, FoldError>, stored: Option<&Schema>) -> Result<Folded, Error> {
        let (name, schema) = (self.name()?, &self.inner.shape().schema);
        let fits = |folded: &Folded| match stored.filter(|stored| **stored != **schema) {
            // A field that the stored thread never had must have a serde default: no field becomes empty by itself.
            Some(stored) => S::decode(schema, folded.root.state.values(stored)?).map(|_| ()),
            None => Ok(()),
        };
        let folded = read.and_then(|folded| fits(&folded).map(|()| folded).map_err(FoldError::from));
        let folded = folded.map_err(|error| match (error, stored) {
            (FoldError::State(source), Some(stored)) => Error::shape(name, stored, schema, source),
            (error, _) => Error::damaged(name, error),
        })?;
        if let Some(opened) = &folded.facts.opened {
            self.check_graph(name, &opened.graph)?;
        }
        Ok(folded)
    }

    fn check_graph(&self, name: &ThreadName, found: &str) -> Result<(), Error> {
        let expected = self.inner.graph.name();
        if found == expected { Ok(()) } else { Err(Error::other_graph(name, found, expected)) }
    }

    /// The error for a question that is not open any more.
    async fn closed(&self, question: QuestionId) -> Result<Option<Error>, Error> {
        let name = self.name()?;
        Ok(self.log().await?.into_iter().rev().find_map(|entry| match entry.record {
            Record::Answered(a) if a.question == question => {
                Some(Error::answered(name, question, a.at.0, a.by.as_deref(), a.value.to_string()))
            }
            Record::Closed(closed) if closed.questions.contains(&question) => Some(Error::closed(name, question, closed.at.0)),
            _ => None,
        }))
    }
}

fn schema_of(first: &Entry) -> Option<Schema> {
    match &first.record {
        Record::Opened(opened) => Some(opened.schema.clone()),
        _ => None,
    }
}

/// A run that goes on in a task of its own, and is told to stop when this is dropped.
pub(crate) struct Running<S> {
    handle: JoinHandle<Result<Outcome<S>, Error>>,
    _stop: oneshot::Sender<()>,
}

impl<S> Running<S> {
    pub(crate) async fn wait(self) -> Result<Outcome<S>, Error> {
        // Not destructured: the stop signal must live until the run has ended.
        let Self { handle, _stop } = self;
        handle.await.unwrap_or_else(|error| Err(Error::crashed(&error)))
    }
}

impl<S> fmt::Debug for Thread<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("name", &self.name).finish_non_exhaustive()
    }
}
