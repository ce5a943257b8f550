//! The handle to a thread: what a program does with it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tracing::Instrument;

use super::Inner;
use super::dependency::Dependencies;
use super::driver::Driver;
use super::error::Error;
use super::keeper::{Keeper, spawned_may_block};
use super::open::Opened;
use super::options::Options;
use super::outcome::{Checkpoint, Outcome, ThreadState};
use super::resource;
use super::spans::{self, Spans};
use super::stop::{Lease, NoLease, Stop, Stopped, Stopper};
use super::stream::{Announcer, Events, Told};
use super::supervisor::ended_notice;
use super::turn::Resources;
use crate::id::{InvalidThreadName, NodeName, Path, ThreadName};
use crate::log::Suspension;
use crate::log::{Durability, Entry, Folded, OpenQuestions, Progress, Question, Report, Snapshot};
use crate::machine::{Begin, Ending, Machine};
use crate::state::{Change, State, StateKind, Update, Values, View};
use crate::store::{Reach, Store};

/// A handle to a thread: what persists, one conversation or one piece of work.
///
/// Any number of handles may exist; one run at a time is made. A second one is refused with an error for which
/// [`Error::is_busy`] holds, also if another runner over the same store makes it.
///
/// A run is a task of its own. If the future that waits for it is dropped, the run starts nothing new, what is under way ends
/// and is recorded, and the thread can be resumed.
#[must_use]
pub struct Thread<S> {
    pub(super) inner: Arc<Inner<S>>,
    pub(super) name: Result<ThreadName, InvalidThreadName>,
    pub(super) options: Options,
    dependencies: Dependencies,
    resources: Arc<Resources>,
}

impl<S> Clone for Thread<S> {
    fn clone(&self) -> Self {
        let Self { inner, name, options, dependencies, resources } = self;
        let (inner, name) = (Arc::clone(inner), name.clone());
        let (dependencies, resources) = (dependencies.clone(), Arc::clone(resources));
        Self { inner, name, options: options.clone(), dependencies, resources }
    }
}

impl<S: State> Thread<S> {
    pub(super) fn new(
        inner: Arc<Inner<S>>,
        name: &str,
        dependencies: Dependencies,
        resources: Arc<Resources>,
        options: Options,
    ) -> Self {
        Self { inner, name: ThreadName::new(name), options, dependencies, resources }
    }

    /// Hands something in that nodes work with in runs through this handle: a client, a setting. It is never stored; see [`Dep`](crate::Dep). One that
    /// the runner has of the same type is not used then.
    pub fn provide<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.dependencies.add(value);
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
    /// Unfinished work or open questions, unless the handle says [`supersede`](Self::supersede); work that is being compensated; a run that is going on; whatever fails in the run. All but
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
        let fresh = self.open_stateless().await?.root.facts.head.is_none();
        if fresh { self.run(input).await } else { self.resume().await }
    }

    /// Continues the thread where it stands: after a crash, a failure, a step limit, or a stop. Tasks that have a result do not
    /// run again; a task that had failed for good has all the attempts of its policy again, one that was cut off has those that were left. A thread that is finished gives its state, and one that waits gives its questions; nothing is recorded then, if that is what its last run ended with.
    pub async fn resume(&self) -> Result<Outcome<S>, Error> {
        self.spawn(Begin::Resume, Announcer::silent())?.wait().await
    }

    /// Cuts the run of this thread that goes on in this process, and waits until it has ended: tasks stop where they are, effects under way are in
    /// doubt, and the run ends as suspended. False if none goes on. What was recorded stays, and the thread can be resumed.
    ///
    /// # Not guaranteed
    ///
    /// A node that blocks its thread of the runtime is not stopped before it lets go.
    pub async fn cancel(&self) -> Result<bool, Error> {
        let name = self.name()?;
        let run = self.inner.live.tell(name, Stop { why: Suspension::Cancelled, cuts: true });
        if let Some(run) = run {
            self.inner.live.until_ended(Some((name, run))).await;
        }
        Ok(run.is_some())
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
    /// A run that is going on, an effect in doubt, work that is being compensated, an update that does not fit, a node that does not exist, no node where several ran last:
    /// the thread is as it was.
    pub async fn update(&self, update: impl Into<Update>, as_node: Option<&str>) -> Result<(), Error> {
        self.edit(&Path::ROOT, update.into(), as_node).await
    }

    pub(super) async fn edit(&self, path: &Path, update: Update, as_node: Option<&str>) -> Result<(), Error> {
        let changes = update.into_changes()?;
        let _lease = self.lease()?;
        self.store("keep an edit")?;
        let drops = path.is_root();
        let mut driver = self.driver(Announcer::silent(), drops, Some((path, &changes))).await?;
        driver.edit(self.options.at, path, changes, as_node.map(NodeName::from)).await
    }

    /// The fold of what is stored, up to the chosen checkpoint.
    pub(super) async fn folded(&self, what: &'static str) -> Result<Folded, Error> {
        self.store(what)?;
        Ok(self.open(false).await?.folded)
    }

    /// Whether the handle shows the thread as it stands, and not as it was.
    pub(super) fn is_live(&self) -> bool {
        self.options.at.is_none()
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
        super::inside::state_of(&folded, &folded.root, self.inner.shape(), self.is_live())
            .map_err(|error| Error::damaged(name, error))
    }

    /// How far the thread has come: which tasks are done, have failed and remain, which effects are in doubt, and which were compensated.
    ///
    /// # Errors
    ///
    /// No such thread.
    pub async fn progress(&self) -> Result<Progress, Error> {
        let folded = self.open_stateless().await?;
        if folded.root.facts.head.is_none() {
            return Err(Error::unknown_thread(self.name()?));
        }
        Ok(folded.progress())
    }

    /// The open questions to people; none if there is no such thread.
    pub async fn questions(&self) -> Result<Vec<Arc<Question>>, Error> {
        Ok(self.all_open().await?.into_iter().filter(|question| !question.is_outside()).collect())
    }

    /// The signals, times and conditions that the thread waits for; none if there is no such thread.
    pub async fn waits(&self) -> Result<Vec<Arc<Question>>, Error> {
        Ok(self.all_open().await?.into_iter().filter(|question| question.is_outside()).collect())
    }

    async fn all_open(&self) -> Result<Vec<Arc<Question>>, Error> {
        // Questions can be shown whatever has become of the states.
        Ok(self.open_stateless().await?.facts.questions)
    }

    /// All checkpoints that are kept, newest first. Costs as much as the thread's whole history.
    ///
    /// # Errors
    ///
    /// A checkpoint that was stored in another shape and that no upgrade makes one of the program's (code `state-shape`); see
    /// [`values_history`](Self::values_history).
    pub async fn history(&self) -> Result<Vec<Checkpoint<S>>, Error> {
        let seen = self.seen(self.whole().await?, &Path::ROOT)?;
        Ok(super::inside::checkpoints(seen, self.inner.shape()))
    }

    /// As [`history`](Self::history), with the states as they were recorded, whatever their types were: for a thread whose states the program cannot
    /// read any more, and for tools. Fields that were not written hold what the state type of then begins with, if the log tells.
    pub async fn values_history(&self) -> Result<Vec<Checkpoint<Values>>, Error> {
        let seen = self.seen_recorded(self.whole().await?, &Path::ROOT)?;
        Ok(super::inside::checkpoints(seen, self.inner.shape()))
    }

    /// Every record of the thread that is kept, in order; none if there is no such thread. As they are stored: of secret values it shows what
    /// stands instead.
    pub async fn log(&self) -> Result<Vec<Entry>, Error> {
        Ok(self.store("read the log")?.load(self.name()?, Reach::Whole).await?.entries)
    }

    /// What the thread cost, by node.
    pub async fn report(&self) -> Result<Report, Error> {
        Ok(Report::of(&self.log().await?))
    }

    /// Removes everything of the thread. False if there is no such thread.
    pub async fn delete(&self) -> Result<bool, Error> {
        let name = self.name()?;
        let _lease = self.lease()?;
        Ok(self.store("delete a thread")?.delete(name).await?)
    }

    fn input(&self, input: impl Into<Update>) -> Result<Begin, Error> {
        Ok(Begin::Input { changes: input.into().into_changes()?, supersede: self.options.supersede || self.options.at.is_some() })
    }

    pub(super) fn store(&self, what: &'static str) -> Result<&Arc<dyn Store>, Error> {
        self.inner.store.as_ref().ok_or_else(|| Error::no_store(what))
    }

    pub(super) fn watch(&self, begin: Begin) -> Result<Events<S>, Error> {
        let (announcer, told) = Announcer::watched();
        Ok(Events { told, run: self.spawn(begin, announcer)?, modes: None, outermost: false, ended: false, state: PhantomData })
    }

    /// Takes the thread for a run, or for an edit.
    pub(super) fn lease(&self) -> Result<(Lease, Stopped), Error> {
        let name = self.name()?;
        let at_work = self.inner.store.as_ref().and_then(|store| store.at_work());
        self.inner.live.lease(name, at_work).map_err(|no| match no {
            NoLease::Busy => Error::busy(name),
            NoLease::ShutDown => Error::shut_down(name),
        })
    }

    /// Starts the run as a task of its own.
    pub(super) fn spawn(&self, begin: Begin, announcer: Announcer) -> Result<Running<S>, Error> {
        let lacks = self.inner.shape().lacks(&|id| self.dependencies.has(id));
        if let Some((node, what)) = lacks {
            return Err(Error::missing(node, what));
        }
        if let Some(what) = resource::missing(&self.resources, self.inner.shape().uses()) {
            return Err(Error::resource(self.name()?, what));
        }
        let pauses = self.options.pauses.iter().flat_map(|pauses| pauses.before.iter().chain(&pauses.after));
        if let Some(node) = pauses.into_iter().find(|node| self.inner.shape().index(node).is_none()) {
            return Err(Error::unknown_pause(node, self.inner.shape().node_names()));
        }
        let (lease, stopped) = self.lease()?;
        let (this, stopper) = (self.clone(), lease.stopper.clone());
        let span = spans::run(self.inner.graph.name(), self.name()?, &self.options.tags);
        let run = async move {
            let result = this.drive(begin, announcer.clone(), stopped).await;
            announcer.tell(|| Told::Ended);
            drop(lease);
            result
        };
        Ok(Running { handle: tokio::spawn(run.instrument(span)), stopper })
    }

    /// `drops`: what is not merged yet will be dropped. `writes`: what is written into the graph at that path to begin with.
    pub(super) async fn driver(
        &self,
        announcer: Announcer,
        drops: bool,
        writes: Option<(&Path, &[Change])>,
    ) -> Result<Driver, Error> {
        let (name, sealer) = (self.name()?, self.sealer()?);
        if let Some(what) = self.options.bounds.zero() {
            return Err(Error::limit_zero(name, what));
        }
        let Opened { folded, meter, newest, upgraded } = self.open(drops).await?;
        self.need_secrets(&folded, writes)?;
        let (position, questions) = (folded.facts.next, OpenQuestions::of(&folded));
        // Without a store there is nothing to wait for.
        let durability = if self.inner.store.is_some() { self.options.durability } else { Durability::Step };
        let is_due = durability == Durability::Exit && self.options.at.is_none() && upgraded.is_empty() && meter.is_due();
        let opened = if is_due { Some(Box::new(Snapshot::of(&folded, position)?)) } else { None };
        let pauses = self.options.pauses.as_ref().unwrap_or(&self.inner.shape().pauses).clone();
        let machine = Machine::new(Arc::clone(self.inner.shape()), name.clone(), folded, self.options.tasks_max, pauses);
        Ok(Driver {
            runnables: Arc::clone(&self.inner.runnables),
            keeper: Keeper {
                store: self.inner.store.clone(),
                clock: Arc::clone(&self.inner.clock),
                hub: self.inner.hub(),
                thread: name.clone(),
                durability,
                sealer,
                position,
                meter,
                questions,
                opened,
                may_block: false,
                keep_last: self.options.keep_last,
                snapshots: newest.into_iter().collect(),
                behind: None,
            },
            clock: Arc::clone(&self.inner.clock),
            thread: name.clone(),
            machine: machine.durability(durability).upgraded(upgraded).bounded(self.options.bounds),
            kept: Vec::new(),
            announcer,
            spans: Spans::default(),
            dependencies: self.dependencies.clone(),
            resources: Arc::clone(&self.resources),
            observer: self.inner.observer.clone(),
            heavy: HashSet::new(),
            calls: HashMap::new(),
            inner_tasks: HashMap::new(),
        })
    }

    /// Makes one run.
    async fn run_to_end(
        &self,
        begin: Begin,
        announcer: Announcer,
        stopped: &mut Stopped,
    ) -> Result<(Ending, Machine, Option<Suspension>), Error> {
        let name = self.name()?;
        let drops = matches!(begin, Begin::Input { supersede: true, .. } | Begin::Compensate { .. });
        let mut driver = self.driver(announcer, drops, begin.writes()).await?;
        driver.keeper.may_block = spawned_may_block();
        driver.go_back(self.options.at, matches!(begin, Begin::Resume))?;
        if let Begin::Answer(answers) = &begin {
            driver.machine.check_answers(answers, self.inner.clock.now()).map_err(|refusal| Error::answer(name, refusal))?;
        }
        let now = self.inner.clock.now();
        let limits = self.options.limits(now);
        stopped.by(limits.deadline, now);
        driver.run(begin, limits, stopped).await
    }

    async fn drive(&self, begin: Begin, announcer: Announcer, mut stopped: Stopped) -> Result<Outcome<S>, Error> {
        let (name, desk) = (self.name()?, stopped.desk());
        let (mut ending, mut machine, mut why) = self.run_to_end(begin, announcer.clone(), &mut stopped).await?;
        if let Ending::Failed(failure) = &ending
            && machine.wants_to_compensate(failure)
        {
            let begin = Begin::Compensate { why: Some(failure.cause()) };
            // The run has gone on from wherever the handle goes back to.
            let mut here = self.clone();
            here.options.at = None;
            (ending, machine, why) = here.run_to_end(begin, announcer, &mut stopped).await?;
        }
        if let Some(hub) = self.inner.hub()
            && let Some(notice) = ended_notice(name, &ending, machine.folded(), why, self.inner.clock.now())
        {
            hub.tell(notice).await;
        }
        let suspended = |why| {
            desk.says_why(Some(why));
            Ok(Outcome::Suspended(why))
        };
        match ending {
            Ending::Done => Ok(self.done(machine.folded())),
            Ending::Paused => suspended(Suspension::Breakpoint),
            Ending::Expired => suspended(Suspension::Expired),
            Ending::Waiting(open) => Ok(Outcome::waits(open)),
            Ending::Suspended | Ending::Handed { .. } => suspended(why.unwrap_or(Suspension::Dropped)),
            Ending::Failed(failure) => Err(Error::failed(name, failure)),
        }
    }

    /// The end of a run with nothing left to do.
    pub(super) fn done(&self, folded: &Folded) -> Outcome<S> {
        let state: View<S> = folded.root.state.view();
        Outcome::Done(match &self.inner.shape().output {
            Some(fields) => View::new(state.only(&|name| fields.iter().any(|field| field == name))),
            None => state,
        })
    }
}

/// A run that goes on in a task of its own, and is told to end when this is dropped.
pub(crate) struct Running<S> {
    handle: JoinHandle<Result<Outcome<S>, Error>>,
    stopper: Stopper,
}

impl<S> Running<S> {
    pub(crate) async fn wait(mut self) -> Result<Outcome<S>, Error> {
        (&mut self.handle).await.unwrap_or_else(|error| Err(Error::crashed(&error)))
    }
}

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        self.stopper.tell(Stop { why: Suspension::Dropped, cuts: false });
    }
}

impl<S> fmt::Debug for Thread<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("name", &self.name).finish_non_exhaustive()
    }
}
