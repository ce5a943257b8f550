//! The one loop: performs what the machine asks, and reports what happened.
//!
//! One turn: take in what has happened, append the records that follow from it, and only then answer those who waited for
//! them, tell the watchers, and start what is due.

use std::collections::{HashMap, HashSet};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument;

use super::context::{Attempt, Common, Context, Request};
use super::dependency::Dependencies;
use super::desk::{Counter, Handed};
use super::error::Error;
use super::handler::Startable;
use super::keeper::Keeper;
use super::observer::Observer;
use super::rule::Checkable;
use super::spans::Spans;
use super::stop::{Stop, Stopped};
use super::stream::{Announcer, Told};
use super::subgraph::Runnables;
use super::task::Times;
use super::turn::{Resources, enter_all, report_all};
use crate::clock::{Clock, Timestamp};
use crate::id::{NodeName, Path, Position, ThreadName};
use crate::log::Suspension;
use crate::log::{Cost, Durability, FoldError, Record, is_kept_back, squash};
use crate::machine::{
    AnswerRefusal, Begin, CallOutcome, Command, Ending, Env, Limits, Machine, Place, Refusal, SignalRefusal, Start, Taken,
    TaskEnd,
};
use crate::policy::NodePolicy;
use crate::state::Change;

/// A node as the loop sees it.
pub(crate) struct Runnable {
    pub(crate) start: Startable,
    pub(crate) on_error: Option<Startable>,
    pub(crate) rule: Option<Checkable>,
    pub(crate) policy: NodePolicy,
}

impl Runnable {
    /// What runs: the node, or its error handler.
    fn for_attempt(&self, handled: bool) -> &Startable {
        self.on_error.as_ref().filter(|_| handled).unwrap_or(&self.start)
    }
}

/// What happened.
enum Happened {
    TaskEnded { place: Place, end: TaskEnd, cost: Cost, at: Timestamp },
    DelayOver { place: Place },
}

/// How many requests of tasks wait for the loop at most. Whoever has one more waits with it.
const REQUESTS_MAX: usize = 4_096;

/// How many tasks in a row the loop runs itself before it gives way.
const TURNS_AT_ONCE: u32 = 256;

/// What counts as long for the loop, in milliseconds. The clock tells whole ones, so that a difference of one may be no time at all.
const LONG_MS: u64 = 2;

/// An attempt that goes on.
type Attempting = Pin<Box<dyn Future<Output = Happened> + Send>>;

/// What the loop did itself in one turn.
#[derive(Default)]
struct Turn {
    ended: Vec<Happened>,
    began: Option<Timestamp>,
    /// It has taken long: the rest runs beside the loop.
    is_over: bool,
}

impl Turn {
    fn has_time(&self) -> bool {
        !self.is_over
    }

    /// A task ended in its first poll. True: it took long, and its node is not polled here again, where it holds up the others.
    fn take(&mut self, ended: Happened) -> bool {
        let mut is_heavy = false;
        if let Happened::TaskEnded { cost, at, .. } = &ended {
            is_heavy = cost.ms >= LONG_MS;
            self.is_over |= is_heavy || at.ms_since(*self.began.get_or_insert(*at)) >= LONG_MS;
        }
        self.ended.push(ended);
        is_heavy
    }
}

/// Someone who goes on when the records are durable.
enum Waiter {
    Note(oneshot::Sender<bool>, bool),
    Answers(oneshot::Sender<Result<(), AnswerRefusal>>, Result<(), AnswerRefusal>),
    Signal(oneshot::Sender<Result<Taken, SignalRefusal>>, Result<Taken, SignalRefusal>),
    Rung(oneshot::Sender<()>),
}

impl Waiter {
    /// One that is gone needs no answer.
    fn tell(self) {
        match self {
            Self::Note(reply, allowed) => _ = reply.send(allowed),
            Self::Answers(reply, taken) => _ = reply.send(taken),
            Self::Signal(reply, taken) => _ = reply.send(taken),
            Self::Rung(reply) => _ = reply.send(()),
        }
    }
}

pub(crate) struct Driver {
    pub(crate) runnables: Arc<Runnables>,
    pub(crate) keeper: Keeper,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) thread: ThreadName,
    pub(crate) machine: Machine,
    /// Records that wait for the end of the run.
    pub(crate) kept: Vec<Record>,
    pub(crate) announcer: Announcer,
    pub(crate) spans: Spans,
    pub(crate) dependencies: Dependencies,
    pub(crate) resources: Arc<Resources>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// Nodes that took long in their first poll.
    pub(crate) heavy: HashSet<NodeName>,
    /// Tasks that wait for a graph they called.
    pub(crate) calls: HashMap<Path, (oneshot::Sender<CallOutcome>, Arc<Attempt>)>,
    /// The tasks of such graphs, in case nobody waits for them any more.
    pub(crate) inner_tasks: HashMap<Path, Vec<AbortHandle>>,
}

impl Driver {
    /// Carries a run from its beginning to its end, or to where `stop` says. Says why, if it was stopped.
    pub(crate) async fn run(
        mut self,
        begin: Begin,
        limits: Limits,
        stop: &mut Stopped,
    ) -> Result<(Ending, Machine, Option<Suspension>), Error> {
        let (common, mut requests) = self.common();
        let mut tasks: JoinSet<Happened> = JoinSet::new();
        let mut waiters: Vec<Waiter> = Vec::new();
        let mut why = None;
        let mut commands = Vec::new();
        let mut turns = 0_u32;
        let begun: Result<(), Refusal> = self.with_env(|machine, env| machine.begin(begin, limits, env))?;
        begun.map_err(|refusal| Error::refused(&self.thread, refusal))?;
        self.need_secrets()?;
        loop {
            self.commit().await?;
            waiters.drain(..).for_each(Waiter::tell);
            self.machine.take_commands(&mut commands);
            let mut turn = Turn::default();
            for command in commands.drain(..) {
                match command {
                    Command::Start(start) => {
                        let (path, node) = (start.place.path.clone(), start.task.node.clone());
                        let mut attempt = self.attempt(start, &common);
                        // The loop makes the first poll itself: a node that has nothing to wait for then costs no task of its own.
                        let here = turn.has_time() && !self.heavy.contains(&node);
                        match if here { first_poll(attempt.as_mut()).await } else { None } {
                            None => self.keep_track(path, tasks.spawn(attempt)),
                            Some(ended) => self.heavy.extend(turn.take(ended).then_some(node)),
                        }
                    }
                    Command::Wait { place, ms } => {
                        tasks.spawn(async move {
                            tokio::time::sleep(Duration::from_millis(ms)).await;
                            Happened::DelayOver { place }
                        });
                    }
                    // A caller that is gone needs no answer.
                    Command::Answer { path, outcome } => _ = self.forget(&path).map(|reply| reply.send(outcome)),
                    Command::Abort(path) => _ = self.forget(&path),
                    Command::End(ending) => {
                        let recorded = self.machine.folded().facts.run.as_ref().and_then(|run| run.why);
                        return Ok((ending, self.machine, recorded.or(why)));
                    }
                }
            }
            let told = if turn.ended.is_empty() {
                self.wait(stop, &mut requests, &mut tasks, &mut waiters).await?
            } else {
                // Other tasks of the runtime have their turn now and then.
                turns = turns.wrapping_add(1);
                if turns.is_multiple_of(TURNS_AT_ONCE) {
                    tokio::task::yield_now().await;
                }
                // Something to record is there already; the loop only looks whether it should stop.
                stop.so_far(|| self.clock.now())
            };
            // Whatever else has happened by now shares the append: what a task asked for before it ended goes first.
            while let Ok(request) = requests.try_recv() {
                waiters.extend(self.take_request(request)?);
            }
            self.take_handed(&stop.counter, &mut waiters)?;
            turn.ended.into_iter().try_for_each(|ended| self.take(Ok(ended)))?;
            while let Some(ended) = tasks.try_join_next() {
                self.take(ended)?;
            }
            self.stop(told, &mut why, &mut tasks)?;
        }
    }

    /// Waits until something happens.
    async fn wait(
        &mut self,
        stop: &mut Stopped,
        requests: &mut mpsc::Receiver<Request>,
        tasks: &mut JoinSet<Happened>,
        waiters: &mut Vec<Waiter>,
    ) -> Result<Option<Stop>, Error> {
        tokio::select! {
            biased;
            told = stop.next() => return Ok(told),
            Some(request) = requests.recv() => waiters.extend(self.take_request(request)?),
            Some(ended) = tasks.join_next() => self.take(ended)?,
        }
        Ok(None)
    }

    /// What all attempts of the run share, and where their requests come in.
    fn common(&mut self) -> (Arc<Common>, mpsc::Receiver<Request>) {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let common = Common {
            thread: self.thread.clone(),
            requests: sender,
            announcer: self.announcer.clone(),
            clock: Arc::clone(&self.clock),
            dependencies: std::mem::take(&mut self.dependencies),
            root: Arc::clone(&self.runnables),
            resources: Arc::clone(&self.resources),
            observer: self.observer.clone(),
            hub: self.keeper.hub.clone(),
            update_bytes_max: self.machine.bounds().update_bytes,
        };
        (Arc::new(common), requests)
    }

    /// The run is to end before its time.
    fn stop(&mut self, told: Option<Stop>, why: &mut Option<Suspension>, tasks: &mut JoinSet<Happened>) -> Result<(), Error> {
        let Some(stop) = told else { return Ok(()) };
        *why = Some(stop.why);
        if stop.cuts {
            tasks.abort_all();
            return self.with_env(|machine, env| machine.cancel(stop.why, env));
        }
        self.with_env(|machine, env| machine.stop(stop.why, env))
    }

    /// A called graph is no longer at work. Whatever still runs of it is stopped: nobody waits for it.
    fn forget(&mut self, path: &Path) -> Option<oneshot::Sender<CallOutcome>> {
        self.inner_tasks.remove(path).iter().flatten().for_each(AbortHandle::abort);
        self.spans.forget(path);
        self.calls.remove(path).map(|(reply, _)| reply)
    }

    /// Remembers the tasks of a called graph.
    fn keep_track(&mut self, path: Path, task: AbortHandle) {
        if path.is_root() {
            return;
        }
        let tasks = self.inner_tasks.entry(path).or_default();
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(task);
    }

    /// Begins a new line of history at the checkpoint that the machine was folded to. `again`: what came after it runs again.
    pub(crate) fn go_back(&mut self, at: Option<Position>, again: bool) -> Result<(), Error> {
        let Some(at) = at else { return Ok(()) };
        let copy = self.with_env(|machine, env| {
            let path = machine.fork(at, env.now)?;
            if again { machine.copy_checkpoint(&path) } else { Ok(Ok(())) }
        })?;
        copy.map_err(|failure| Error::failed(&self.thread, failure))
    }

    /// Changes the state from outside a run.
    pub(crate) async fn edit(
        &mut self,
        at: Option<Position>,
        path: &Path,
        changes: Vec<Change>,
        as_node: Option<NodeName>,
    ) -> Result<(), Error> {
        self.go_back(at, false)?;
        let edited = self.with_env(|machine, env| machine.edit(path, changes, as_node, env))?;
        edited.map_err(|refusal| Error::edit(&self.thread, refusal))?;
        self.need_secrets()?;
        // Whatever the durability of runs: an edit is stored when this returns.
        let records = self.machine.take_records();
        self.keeper.append(&self.machine, records, true).await
    }

    /// Has the machine record something of a thread at rest, and waits until it is durable.
    pub(crate) async fn at_rest<T>(
        &mut self,
        act: impl FnOnce(&mut Machine, &Env<'_>) -> Result<T, FoldError>,
    ) -> Result<T, Error> {
        let done = self.with_env(act)?;
        let records = self.machine.take_records();
        self.keeper.append(&self.machine, records, true).await?;
        Ok(done)
    }

    fn with_env<T>(&mut self, act: impl FnOnce(&mut Machine, &Env<'_>) -> Result<T, FoldError>) -> Result<T, Error> {
        let now = self.clock.now();
        self.with_env_at(now, act)
    }

    fn with_env_at<T>(
        &mut self,
        now: Timestamp,
        act: impl FnOnce(&mut Machine, &Env<'_>) -> Result<T, FoldError>,
    ) -> Result<T, Error> {
        let (clock, terms) = (&self.clock, self.keeper.hub.as_ref().map(|hub| &hub.terms));
        let env = Env { now, new_id: &|| clock.new_id(), jitter: &|| clock.jitter(), terms };
        act(&mut self.machine, &env).map_err(|error| Error::damaged(&self.thread, error))
    }

    fn take(&mut self, happened: Result<Happened, tokio::task::JoinError>) -> Result<(), Error> {
        match happened {
            Ok(Happened::TaskEnded { place, end, cost, at }) => {
                self.with_env_at(at, |machine, env| machine.task_ended(&place, end, cost, env))
            }
            Ok(Happened::DelayOver { place }) => self.with_env(|machine, env| machine.delay_over(&place, env)),
            // Nobody waited for it any more.
            Err(error) if error.is_cancelled() => Ok(()),
            Err(error) => Err(Error::crashed(&error)),
        }
    }

    fn take_request(&mut self, request: Request) -> Result<Option<Waiter>, Error> {
        match request {
            Request::Note { place, note, reply } => {
                let allowed = self.with_env(|machine, env| machine.note(&place, note, env))?;
                Ok(Some(Waiter::Note(reply, allowed)))
            }
            Request::Call { call, caller, reply } => {
                match self.with_env(|machine, env| machine.call_starts(call, env))? {
                    Ok(path) => _ = self.calls.insert(path, (reply, caller)),
                    // Nothing was recorded that it would have to wait for.
                    Err(failure) => _ = reply.send(CallOutcome::Failed(failure)),
                }
                Ok(None)
            }
        }
    }

    /// What was handed in while the run goes on. Who gets no reply comes again when it has ended.
    fn take_handed(&mut self, Counter(desk): &Counter, waiters: &mut Vec<Waiter>) -> Result<(), Error> {
        for handed in desk.take() {
            waiters.extend(match handed {
                Handed::Answers(answers, reply) => {
                    let taken = self.with_env(|machine, env| machine.answer(answers, env))?;
                    taken.map(|taken| Waiter::Answers(reply, taken))
                }
                Handed::Signal(signal, reply) => {
                    let taken = self.with_env(|machine, env| machine.signal(signal, env))?;
                    taken.map(|taken| Waiter::Signal(reply, taken))
                }
                Handed::Ring(reply) => self.with_env(Machine::ring)?.map(|()| Waiter::Rung(reply)),
            });
        }
        Ok(())
    }

    /// Appends what the machine has recorded: one append, one truth.
    async fn commit(&mut self) -> Result<(), Error> {
        let mut records = self.machine.take_records();
        if records.is_empty() {
            return Ok(());
        }
        let told = self.announcer.of_interest(&records, self.machine.folded());
        if self.keeper.store.is_none() {
            self.machine.reuse(records);
            self.announcer.tell_all(told);
            return Ok(());
        }
        records.retain(|record| record.step_path().is_none_or(|path| self.machine.is_stored(path)));
        let ends = records.iter().any(|record| matches!(record, Record::RunEnded(_)));
        let position = self.keeper.position;
        let mut checkpoints = self.announcer.checkpoints(&records, position);
        match self.keeper.durability {
            Durability::Step => self.keeper.append(&self.machine, records, true).await?,
            Durability::Behind => {
                let at_once = ends || records.iter().any(|record| !is_kept_back(record));
                self.keeper.append(&self.machine, records, at_once).await?;
            }
            Durability::Exit => {
                // What a signal was delivered to stands before that.
                let delivered: HashSet<_> = records.iter().filter_map(Record::delivered_to).collect();
                let is_delivered = |record: &Record| matches!(record, Record::Asked(asked) if delivered.contains(&asked.id));
                let (kept, mut unit): (Vec<_>, Vec<_>) =
                    records.into_iter().partition(|record| is_kept_back(record) && !is_delivered(record));
                self.kept.extend(kept);
                if ends {
                    unit.extend(squash(std::mem::take(&mut self.kept), self.machine.folded()));
                }
                checkpoints = self.announcer.checkpoints(&unit, position);
                self.keeper.append(&self.machine, unit, true).await?;
            }
        }
        self.announcer.tell_all(told);
        self.announcer.tell_all(checkpoints);
        Ok(())
    }

    /// One attempt of a task, ready to run.
    fn attempt(&mut self, start: Box<Start>, common: &Arc<Common>) -> Attempting {
        let (place, node, handled) = (start.place.clone(), start.node, start.handling.is_some());
        let span = self.spans.attempt(&start.task, start.attempt);
        let payload = start.payload.clone();
        self.observer.iter().for_each(|observer| observer.task_begins(&start.task));
        let outer = self.calls.get(&place.path).map(|(_, caller)| Arc::clone(caller));
        let attempt = Arc::new(Attempt::new(Arc::clone(common), start, outer));
        attempt.beat();
        let context = Context { attempt: Arc::clone(&attempt) };
        let runnables = self.runnables.at(&place.path).unwrap_or(&self.runnables).clone();
        let scope = self.machine.folded().scope(&place.path).expect("a graph with a task to start is at work");
        let state = scope.state.clone();
        self.announcer.tell(|| {
            let Start { task, attempt, .. } = &*attempt.start;
            Told::TaskStarted { task: task.clone(), attempt: *attempt, payload: payload.clone(), state: scope.any_state() }
        });
        let started = common.clock.now();
        let run = async move {
            let runnable = &runnables.nodes[node];
            let NodePolicy { timeout: limit, idle, patience, .. } = runnable.policy;
            let uses = if handled { &[][..] } else { &runnable.policy.uses };
            let turns = enter_all(&attempt.run.resources, uses, &*attempt.run.clock).await;
            let left = attempt.start.until.map(|until| Duration::from_millis(until.ms_since(attempt.run.clock.now())));
            let patience = attempt.run.hub.as_ref().and_then(|hub| patience.unwrap_or(hub.patience));
            let times = Times { limit, idle, left, patience };
            let end = if let Err(failure) = &turns {
                TaskEnd::Failed { failure: failure.clone(), retry_after: None, timed_out: false, result: None }
            } else {
                let future = match left {
                    Some(Duration::ZERO) => Err(super::task::too_late()),
                    _ => super::task::guarded_start(|| runnable.for_attempt(handled)(&state, payload, context)),
                };
                let before = runnable.rule.as_ref().filter(|_| !handled).map(|rule| (rule, state.clone()));
                drop(state);
                let end = match future {
                    Ok(future) => super::task::run(future, &attempt, times, runnables.classifiers()).await,
                    Err(end) => end,
                };
                match before {
                    Some((rule, before)) => {
                        let origin = format!("{}:{}", attempt.run.thread, attempt.start.task);
                        super::rule::verified(end, rule, before, &origin, attempt.start.taken.as_deref())
                    }
                    None => end,
                }
            };
            let at = attempt.run.clock.now();
            let cost = Cost { ms: at.ms_since(started), ..attempt.cost() };
            report_all(turns.unwrap_or_default(), &end, at).await;
            Happened::TaskEnded { place, end, cost, at }
        };
        // A span that nobody records costs nothing, wrapping the future in it does.
        if span.is_none() { Box::pin(run) } else { Box::pin(run.instrument(span)) }
    }
}

/// Polls once, and leaves the rest to whoever polls next.
async fn first_poll(mut attempt: Pin<&mut (dyn Future<Output = Happened> + Send)>) -> Option<Happened> {
    poll_fn(|context| {
        Poll::Ready(match attempt.as_mut().poll(context) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        })
    })
    .await
}
