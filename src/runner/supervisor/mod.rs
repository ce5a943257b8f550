//! One owner for everything that has to happen to threads without a caller.

mod charge;
mod core;
mod ends;
mod outbox;
mod schedule;
mod watch;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use self::core::Core;
use super::hub::Hub;
use super::notice::{Notice, Notifier};
use super::stop::{Live, ShutDown, Stop};
use super::{Error, Runner};
use crate::log::QuestionTerms;
use crate::log::Suspension;
use crate::state::State;
use crate::store::{Store, Supervises};
use charge::Charge;
pub(super) use ends::notice as ended_notice;
use outbox::Outbox;
use schedule::Scheduler;
pub use schedule::{Firing, Schedule};
use watch::Watch;

/// How long a node may give no sign of life if nobody says otherwise.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long notices may take that are on their way when all ends. They are kept.
const LAST_NOTICES: Duration = Duration::from_secs(5);

/// How threads are gone on with whose process died.
///
/// ```
/// use ferrata::Recovery;
/// let careful = Recovery::default().at_once(10).deaths_max(2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Recovery {
    at_once: usize,
    deaths_max: u32,
    first_delay: Duration,
    probation: Duration,
}

impl Default for Recovery {
    fn default() -> Self {
        let (first_delay, probation) = (Duration::from_secs(1), Duration::from_secs(10));
        Self { at_once: 100, deaths_max: 3, first_delay, probation }
    }
}

impl Recovery {
    /// How many threads the supervisor runs at once, for whatever reason; at least 1, and 100 if not set. The oldest have their turn first.
    pub fn at_once(mut self, threads: usize) -> Self {
        self.at_once = threads.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        self
    }

    /// After how many deaths of its process, in a row and without any result in between, a thread is given to a person; at least 1, and 3 if not set. It is suspended then, and goes on when it
    /// is resumed.
    ///
    /// From the second death on a thread goes on after a while and alone, until it has lived for ten seconds or come to a result: so it takes no other threads along, and these are not blamed.
    pub fn deaths_max(mut self, deaths: u32) -> Self {
        self.deaths_max = deaths.max(1);
        self
    }

    /// How long it is waited after the second death, and twice as long after each further one, up to five minutes; a second if not set.
    pub fn first_delay(mut self, delay: Duration) -> Self {
        self.first_delay = delay;
        self
    }

    fn delay(&self, deaths: u32) -> Duration {
        let doubled = self.first_delay.saturating_mul(2_u32.saturating_pow(deaths.saturating_sub(2)));
        doubled.min(Duration::from_secs(300)).max(self.first_delay)
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
type Begin = Box<dyn FnOnce(Arc<Core>) -> Work + Send>;

/// What a supervisor is to do; see [`Runner::supervise`].
#[must_use = "nothing is supervised before `start`"]
pub struct Supervise<S> {
    runner: Runner<S>,
    charges: Vec<Arc<dyn Charge>>,
    stores: Vec<Arc<dyn Store>>,
    notifiers: Vec<Arc<dyn Notifier>>,
    schedules: Vec<(String, Result<Begin, Error>)>,
    terms: QuestionTerms,
    patience: Option<Duration>,
    recovery: Recovery,
}

impl<S: State> Runner<S> {
    /// Begins to say what a supervisor of the runner's store does. There is one for each store, and it does everything that has to happen without a caller:
    ///
    /// - **Questions.** Somebody is told of them, reminded, and told when they expire, which they do then as they say. Questions to people that say no times of their own are asked on
    ///   [terms](Supervise::questions): a reminder after 6 hours, and after 24 the thread is suspended.
    /// - **Time and signals.** Threads that wait for a [time](crate::Context::sleep_until) or a [signal](crate::Thread::signal) go on when it comes.
    /// - **Recovery.** Threads whose process died go on, in bounded parallel, the oldest first; one that the process dies of again and again is given to a person. See [`Recovery`].
    /// - **Watchdog.** A node that gives no sign of life is noticed, begun again, and given to a person. See [`patience`](Supervise::patience).
    /// - **[Schedules](Schedule)**, and **[notices](Notifier)** of what went wrong.
    /// - **[Drain](Supervisor::drain)**, at the end.
    ///
    /// The guide [`supervisor`](crate::guide::supervisor) tells what is guaranteed.
    ///
    /// ```
    /// # use ferrata::{Context, END, Graph, Runner, START, State, TracingNotifier, store::{MemoryStore, ThreadStatus}};
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Tea { drawn: bool }
    ///
    /// async fn draw(ctx: Context) -> ferrata::Result<TeaUpdate> {
    ///     ctx.sleep(Duration::from_millis(20)).await?; // the thread is at rest meanwhile
    ///     Ok(Tea::update().drawn(true))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Tea>::new("tea").node("draw", draw).edge(START, "draw").edge("draw", END).build()?;
    /// let runner = Runner::new(graph, MemoryStore::new());
    /// let supervisor = runner.supervise().notify(TracingNotifier).start().await?;
    /// runner.thread("pot").run(Tea::update()).await?; // it sleeps; the supervisor goes on with it
    /// while !runner.thread("pot").state().await?.values.drawn {
    ///     tokio::task::yield_now().await;
    /// }
    /// supervisor.drain(Duration::from_secs(5)).await;
    /// # Ok(()) }
    /// ```
    pub fn supervise(&self) -> Supervise<S> {
        let (terms, patience, recovery) = (QuestionTerms::default(), Some(PATIENCE), Recovery::default());
        let (notifiers, schedules) = (Vec::new(), Vec::new());
        Supervise {
            runner: self.clone(),
            charges: Vec::new(),
            stores: Vec::new(),
            notifiers,
            schedules,
            terms,
            patience,
            recovery,
        }
        .also(self)
    }
}

impl<S: State> Supervise<S> {
    /// Looks after threads of another graph, too, whose runner is over the same store.
    pub fn also<T: State>(mut self, runner: &Runner<T>) -> Self {
        let is_known = |charge: &Arc<dyn Charge>| Arc::ptr_eq(charge.live(), &runner.inner.live);
        if !self.charges.iter().any(is_known) {
            self.charges.push(Arc::new(runner.clone()));
            self.stores.extend(runner.inner.store.clone());
        }
        self
    }

    /// Tells somebody of what is noticed; can be said several times. Without it nobody is told.
    pub fn notify(mut self, notifier: impl Notifier) -> Self {
        self.notifiers.push(Arc::new(notifier));
        self
    }

    /// Lets the graph of the runner run at given times; can be said several times.
    pub fn schedule(self, schedule: Schedule<S>) -> Self {
        let runner = self.runner.clone();
        self.schedule_on(&runner, schedule)
    }

    /// As [`schedule`](Self::schedule), for the graph of another runner over the same store, which is [looked after](Self::also), too.
    pub fn schedule_on<T: State>(mut self, runner: &Runner<T>, schedule: Schedule<T>) -> Self {
        let name = schedule.name.clone();
        let begin = Scheduler::new(runner.clone(), schedule)
            .map(|scheduler| Box::new(move |core: Arc<Core>| Box::pin(scheduler.work(core)) as Work) as Begin);
        self.schedules.push((name, begin));
        self.also(runner)
    }

    /// What holds for questions to people that say no times of their own, and are asked by runs that begin from now on.
    pub fn questions(mut self, terms: QuestionTerms) -> Self {
        self.terms = terms;
        self
    }

    /// How threads are gone on with whose process died.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = recovery;
        self
    }

    /// How long an attempt of a node may give no sign of life, if the node says nothing of it [itself](crate::Node::patience); ten minutes if not set, and `None` for as long as it takes. Signs
    /// of life are those of [`idle_timeout`](crate::Node::idle_timeout).
    ///
    /// After that time, or a quarter more, somebody is told, and the node is polled once more, in case nothing woke it up. After as much again its attempt is cut off and begun again, once: effects keep what they
    /// did, and one that was under way is in doubt. If that hangs, too, a person is asked.
    pub fn patience(mut self, time: Option<Duration>) -> Self {
        self.patience = time;
        self
    }

    /// Begins. Threads whose process died go on from now.
    ///
    /// # Errors
    ///
    /// The store has a supervisor in this process (code `supervised`; in another process the store itself cannot be opened, as far as it is a [`RedbStore`](crate::store::RedbStore)); a schedule
    /// that makes no sense, or two of one name (`schedule`); a runner without a store (`no-store`), or over another one (`other-store`).
    pub async fn start(self) -> Result<Supervisor, Error> {
        let Self { runner, charges, stores, notifiers, schedules, terms, patience, recovery } = self;
        let store = Arc::clone(runner.store("supervise threads")?);
        if stores.len() < charges.len() || !stores.iter().all(|other| same(&store, other)) {
            return Err(Error::other_store());
        }
        let begins = schedules.into_iter().map(|(name, begin)| Ok((name, begin?))).collect::<Result<Vec<_>, Error>>()?;
        if let Some(twice) = twice(begins.iter().map(|(name, _)| name.as_str())) {
            return Err(Error::schedule(twice, "is there twice; give each a name of its own"));
        }
        if let Some(twice) = twice(notifiers.iter().map(|notifier| notifier.name())) {
            return Err(Error::notifier(twice));
        }
        let clock = Arc::clone(&runner.inner.clock);
        let (hub, notices) = Hub::new(terms, patience);
        let claim = Claim::of(&store, &charges, &hub).ok_or_else(Error::supervised)?;
        let outbox = Arc::new(Outbox::new(Arc::clone(&store), Arc::clone(&clock), notifiers));
        let core = Core::new((store, clock), hub, charges, outbox, recovery);
        let mut loops = vec![tokio::spawn(Watch::new(Arc::clone(&core)).work())];
        loops.extend(begins.into_iter().map(|(_, begin)| tokio::spawn(begin(Arc::clone(&core)))));
        let workers = core.outbox.workers().into_iter().map(tokio::spawn).collect();
        let (last, is_last) = oneshot::channel();
        let keeper = tokio::spawn(keep_notices(Arc::clone(&core.outbox), notices, is_last));
        Ok(Supervisor { core, loops, workers, keeper: Some((last, keeper)), claim: Some(claim) })
    }
}

/// Whether two runners share a store.
fn same(one: &Arc<dyn Store>, other: &Arc<dyn Store>) -> bool {
    match (one.at_work(), other.at_work()) {
        (Some(one), Some(other)) => one.is_same(other),
        _ => Arc::ptr_eq(one, other),
    }
}

fn twice<'n>(names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let mut known = std::collections::HashSet::new();
    names.into_iter().find(|name| !known.insert(*name))
}

/// Keeps what runs have to tell. When `is_last` is over, it keeps what was told by then, and ends.
async fn keep_notices(outbox: Arc<Outbox>, mut notices: mpsc::Receiver<Notice>, mut is_last: oneshot::Receiver<()>) {
    loop {
        let notice = tokio::select! {
            biased;
            notice = notices.recv() => notice,
            _ = &mut is_last, if !notices.is_closed() => {
                notices.close();
                continue;
            }
        };
        let Some(notice) = notice else { return };
        if let Err(error) = outbox.put(&notice).await {
            tracing::error!(%error, notice = notice.kind.code(), text = notice.text, "a notice cannot be kept");
        }
    }
}

/// The store is supervised until this is dropped.
struct Claim {
    _store: Option<Supervises>,
    lives: Vec<Arc<Live>>,
}

impl Claim {
    fn of(store: &Arc<dyn Store>, charges: &[Arc<dyn Charge>], hub: &Arc<Hub>) -> Option<Self> {
        if let Some(at_work) = store.at_work() {
            return Some(Self { _store: Some(at_work.supervise(hub.clone())?), lives: Vec::new() });
        }
        // A store that does not tell who works on it: its runners have to.
        let mut claim = Self { _store: None, lives: Vec::new() };
        for charge in charges {
            if !charge.live().set_hub(Some(Arc::clone(hub))) {
                return None;
            }
            claim.lives.push(Arc::clone(charge.live()));
        }
        Some(claim)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.lives.iter().for_each(|live| _ = live.set_hub(None));
    }
}

/// A supervisor at work. When it is dropped it begins nothing any more, and runs that it began end as by [`drain`](Self::drain), without anybody waiting for them.
#[must_use = "a supervisor that is dropped stops"]
pub struct Supervisor {
    core: Arc<Core>,
    loops: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    /// Ends by itself when the sender goes.
    keeper: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    claim: Option<Claim>,
}

impl Supervisor {
    /// Ends all runs of the runners that it looks after: steps in flight finish and are recorded, and the runs end as suspended. The next supervisor of the store goes on with them
    /// by itself. What is not through after `within` is cut off, as by [`Thread::cancel`](crate::Thread::cancel), and waited for that long again: its effects under way are in doubt.
    ///
    /// No run begins any more on these runners. Notices that are on their way have five seconds more; they are kept, and told by the next supervisor.
    ///
    /// For a program that is told to end, by SIGTERM or from its keyboard:
    ///
    /// ```no_run
    /// # use ferrata::Supervisor;
    /// # async fn end(supervisor: Supervisor) {
    /// // tokio::signal::unix::signal(SignalKind::terminate())?.recv().await;
    /// let down = supervisor.drain(std::time::Duration::from_secs(20)).await;
    /// println!("{} runs ended, {} were cut off", down.ended.len(), down.cut.len());
    /// # }
    /// ```
    pub async fn drain(mut self, within: Duration) -> ShutDown {
        self.core.close();
        let mut down = ShutDown::default();
        let lives: Vec<_> = self.core.charges.iter().map(|charge| Arc::clone(charge.live())).collect();
        // All at once: each has the whole time.
        let downs: Vec<_> = lives.into_iter().map(|live| tokio::spawn(async move { live.shut_down(within).await })).collect();
        for shut_down in downs {
            let Ok(ShutDown { ended, cut, stuck }) = shut_down.await else { continue };
            down.ended.extend(ended);
            down.cut.extend(cut);
            down.stuck.extend(stuck);
        }
        if down.stuck.is_empty() {
            for work in self.loops.drain(..) {
                // A loop that panicked has told so.
                _ = work.await;
            }
        }
        let keeper = self.keeper.take().map(|(_, keeper)| keeper);
        let last = async {
            if let Some(keeper) = keeper {
                _ = keeper.await;
            }
            self.core.outbox.emptied().await;
        };
        _ = tokio::time::timeout(LAST_NOTICES, last).await;
        // Nothing holds the store any more when this is over.
        for worker in self.workers.drain(..) {
            worker.abort();
            _ = worker.await;
        }
        down
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.core.close();
        let stop = Stop { why: Suspension::ShutDown, cuts: false };
        for thread in self.core.at_work() {
            self.core.charges.iter().for_each(|charge| _ = charge.live().tell(&thread, stop));
        }
        self.loops.iter().chain(&self.workers).for_each(JoinHandle::abort);
        self.claim = None;
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("graphs", &self.core.charges.len()).finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Supervise<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervise").field("graphs", &self.charges.len()).finish_non_exhaustive()
    }
}
