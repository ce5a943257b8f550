//! Crashes a graph at every moment of its run, and compares how it ends.

mod check;
mod course;
mod given;
mod point;
mod report;
mod seen;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::graph::{Answer, Graph};
use crate::log::Question;
use crate::runner::{Runner, Thread, apart};
use crate::state::{State, Update, panic_text};
use crate::store::{MemoryStore, Store};
use course::{End, NoEnd, Played, play};
pub use given::{IntoFound, IntoGraph};
pub use point::CrashPoint;
use report::counted;
pub use report::{CrashFault, CrashFaults, CrashReport};
use seen::Inside;

/// How long a life may take if nobody says otherwise.
const WITHIN: Duration = Duration::from_secs(60);

type GiveAnswer = Box<dyn Fn(&Question) -> Answer + Send + Sync>;
type MakeGraph<S, W> = Box<dyn Fn(&W) -> Result<Graph<S>, String> + Send + Sync>;
type ChangeRunner<S, W> = Box<dyn Fn(Runner<S>, &W) -> Runner<S> + Send + Sync>;
type ChangeThread<S> = Box<dyn Fn(Thread<S>) -> Thread<S> + Send + Sync>;
type Check<S, W> = Box<dyn Fn(&W, &S) -> Result<(), String> + Send + Sync>;

/// What is to be played.
struct Plan<S, W> {
    world: Box<dyn Fn() -> W + Send + Sync>,
    graph: MakeGraph<S, W>,
    input: Update,
    answers: BTreeMap<String, GiveAnswer>,
    signals: BTreeMap<String, serde_json::Value>,
    once: BTreeSet<String>,
    runner: ChangeRunner<S, W>,
    thread: ChangeThread<S>,
    check: Check<S, W>,
    store: Box<dyn Fn() -> Arc<dyn Store> + Send + Sync>,
    only: Option<CrashPoint>,
    within: Duration,
    real_time: bool,
    may_fail: bool,
}

/// Crashes a graph at every moment of its run, and holds it to the same end.
///
/// `graph` makes a new graph for each process. It is run undisturbed first. Then each moment has a *course* of its own, from the same input: it
/// crashes there, goes on in a new process with the same store, and is played to its end.
///
/// ```
/// use ferrata::testing::crash_everywhere;
/// use ferrata::{Approval, Context, END, Graph, START, State};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// # struct Refund { order: String, paid: bool }
/// async fn pay(ctx: Context) -> ferrata::Result<RefundUpdate> {
///     ctx.effect("pay", |_key| async { Ok(()) }).await?;
///     Ok(Refund::update().paid(true))
/// }
///
/// fn refund() -> Result<Graph<Refund>, ferrata::BuildError> {
///     Graph::<Refund>::new("refund")
///         .question("approve", |s: &Refund| Approval::ask(format!("Refund {}?", s.order)))
///         .node("pay", pay)
///         .edge(START, "approve")
///         .approved("approve", "pay")
///         .rejected("approve", END)
///         .edge("pay", END)
///         .build()
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let report = crash_everywhere(refund, Refund::update().order("42")).answer("approve", Approval::approve()).await.unwrap();
/// assert_eq!(report.crashes.len() as u64, 2 * (report.appends + report.effects));
/// # }
/// ```
///
/// For a world outside that a course changes, and that has to be made anew for each, see [`crash_everywhere_in`].
pub fn crash_everywhere<G: IntoGraph>(
    graph: impl Fn() -> G + Send + Sync + 'static,
    input: impl Into<Update>,
) -> CrashTest<G::State> {
    crash_everywhere_in(|| (), move |()| graph(), input)
}

/// As [`crash_everywhere`], in a world outside: a bank, a mailbox, files. `world` makes it anew for each course, and the crash of a process leaves it as
/// it is. The graph works with it, and [`CrashTest::after_each`] looks at it.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use ferrata::testing::crash_everywhere_in;
/// use ferrata::{Context, END, Graph, START, State};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// # struct Order { mailed: bool }
/// type Mails = Arc<Mutex<Vec<String>>>;
///
/// fn order(mails: &Mails) -> Result<Graph<Order>, ferrata::BuildError> {
///     let mails = mails.clone();
///     let mail = move |ctx: Context| {
///         let mails = mails.clone();
///         async move {
///             mails.lock().unwrap().push("shipped".to_owned()); // not in an effect
///             ctx.effect("log", |_key| async { Ok(()) }).await?;
///             Ok(Order::update().mailed(true))
///         }
///     };
///     Graph::<Order>::new("order").node("mail", mail).edge(START, "mail").edge("mail", END).build()
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let faults = crash_everywhere_in(Mails::default, order, Order::update())
///     .after_each(|mails, _| match mails.lock().unwrap().len() {
///         1 => Ok(()),
///         n => Err(format!("{n} mails were sent")),
///     })
///     .await
///     .unwrap_err();
/// assert!(faults.to_string().contains("2 mails were sent"), "{faults}");
/// # }
/// ```
pub fn crash_everywhere_in<W, G>(
    world: impl Fn() -> W + Send + Sync + 'static,
    graph: impl Fn(&W) -> G + Send + Sync + 'static,
    input: impl Into<Update>,
) -> CrashTest<G::State, W>
where
    W: Send + Sync + 'static,
    G: IntoGraph,
{
    CrashTest {
        plan: Plan {
            world: Box::new(world),
            graph: Box::new(move |world| graph(world).into_graph()),
            input: input.into(),
            answers: BTreeMap::new(),
            signals: BTreeMap::new(),
            once: BTreeSet::new(),
            runner: Box::new(|runner, _| runner),
            thread: Box::new(|thread| thread),
            check: Box::new(|_, _| Ok(())),
            store: Box::new(|| Arc::new(MemoryStore::new())),
            only: None,
            within: WITHIN,
            real_time: false,
            may_fail: false,
        },
    }
}

/// A graph that is to be crashed at every moment. Made by [`crash_everywhere`]; await it.
///
/// # The moments
///
/// Just before and just after every append, and just before and just after every effect, each counted in the course itself: see [`CrashPoint`]. A run
/// of n appends is run about 4 n times, so that the time it takes grows with the square of n. One course crashes once. If nobody awaits the test any
/// more, it ends with the course that is being played.
///
/// # The crash
///
/// Each process is a runtime of its own in a thread of its own. At the moment of the crash the store does not come back to it any more, no effect
/// begins, and the runtime is dropped with everything in it. The store survives. Effects that are under way in parallel come to their end before,
/// and nothing of it is recorded: so it is known whether they were performed.
///
/// # What is checked
///
/// - The end is the same as undisturbed: done with the same state, waiting with the same questions, or failed with the same code.
/// - No effect was performed twice, unless it is [`repeatable`](crate::Effect::repeatable) and not named with [`once`](Self::once); none was performed whose result
///   was on record.
/// - The same effects were performed, by task and key.
/// - No task began again whose result was on record.
/// - The history folds to the state, and the log is whole.
/// - Whatever [`after_each`](Self::after_each) says.
///
/// # Questions
///
/// Those with an [`answer`](Self::answer) get it. Whether an effect in doubt was performed is answered as it was: one that failed, or could not come to an
/// end, was not. A thread with nothing but other questions has come to its end. One that stops at a breakpoint is resumed.
///
/// # Time
///
/// Waits take no time: where all wait for tokio's timers, time jumps. A graph that waits for something else, such as a socket, needs
/// [`real_time`](Self::real_time), or its time-outs come too early.
///
/// # Not checked
///
/// What happens outside of effects, unless `after_each` looks for it. What depends on the real disk: that is for the store's own tests. Crashes between
/// two polls of a node with neither append nor effect between them: to the log they are all the same one.
#[must_use = "a crash test is run when it is awaited"]
pub struct CrashTest<S, W = ()> {
    plan: Plan<S, W>,
}

impl<S: State, W: Send + Sync + 'static> CrashTest<S, W> {
    /// The answer to questions with that key, each time they are asked. If none is given, the course waits for the question's deadline, where the
    /// thread goes on then; without one it has come to its end.
    pub fn answer(self, key: impl Into<String>, answer: impl Into<Answer>) -> Self {
        let answer = answer.into();
        self.answer_with(key, move |_| answer.clone())
    }

    /// As [`answer`](Self::answer), with an answer that depends on the question, and on nothing else.
    pub fn answer_with(mut self, key: impl Into<String>, answer: impl Fn(&Question) -> Answer + Send + Sync + 'static) -> Self {
        self.plan.answers.insert(key.into(), Box::new(answer));
        self
    }

    /// What a signal of that name says, each time it is waited for. If none is given, the course waits for the wait's deadline; without one it has come to its end.
    pub fn signal(mut self, name: impl Into<String>, says: impl Into<serde_json::Value>) -> Self {
        self.plan.signals.insert(name.into(), says.into());
        self
    }

    /// Effects with that key may be performed once for each use in a task, also if they are declared repeatable.
    pub fn once(mut self, key: impl Into<String>) -> Self {
        self.plan.once.insert(key.into());
        self
    }

    /// Looks at the world and the state at the end of each course. `Err` is a fault, and so is a panic, as of an `assert!`. With a second one, only that is made.
    pub fn after_each<F: IntoFound>(mut self, check: impl Fn(&W, &S) -> F + Send + Sync + 'static) -> Self {
        self.plan.check = Box::new(move |world, state| check(world, state).into_found());
        self
    }

    /// Changes the runner of each process: hands something in, or says what becomes of secrets.
    pub fn runner(mut self, with: impl Fn(Runner<S>, &W) -> Runner<S> + Send + Sync + 'static) -> Self {
        self.plan.runner = Box::new(with);
        self
    }

    /// Changes the handle to the thread in each process: limits, durability.
    pub fn thread(mut self, with: impl Fn(Thread<S>) -> Thread<S> + Send + Sync + 'static) -> Self {
        self.plan.thread = Box::new(with);
        self
    }

    /// Uses another store than one in memory: for each course a new and empty one, which survives the crash. A store that works in threads of its own
    /// needs [`real_time`](Self::real_time).
    pub fn store<K: Store>(mut self, store: impl Fn() -> K + Send + Sync + 'static) -> Self {
        self.plan.store = Box::new(move || Arc::new(store()));
        self
    }

    /// Plays the undisturbed run and that moment alone: to look into one fault.
    pub fn only(mut self, point: CrashPoint) -> Self {
        self.plan.only = Some(point);
        self
    }

    /// How long a process may take, by the clock on the wall; 60 seconds if not set. How many steps it may make is said with [`thread`](Self::thread).
    pub fn within(mut self, limit: Duration) -> Self {
        self.plan.within = limit;
        self
    }

    /// Lets waits take the time they take, for graphs that wait for something outside of tokio's timers.
    pub fn real_time(mut self) -> Self {
        self.plan.real_time = true;
        self
    }

    /// Takes a run that fails for an end like any other. Without this, an undisturbed run that fails is a fault.
    pub fn may_fail(mut self) -> Self {
        self.plan.may_fail = true;
        self
    }
}

impl<S: State, W: Send + Sync + 'static> IntoFuture for CrashTest<S, W> {
    type Output = Result<CrashReport, CrashFaults>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let plan = Arc::new(self.plan);
        Box::pin(apart(move |is_awaited| play_all(&plan, is_awaited)))
    }
}

impl<S, W> fmt::Debug for CrashTest<S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashTest")
            .field("answers", &self.plan.answers.keys())
            .field("once", &self.plan.once)
            .finish_non_exhaustive()
    }
}

fn play_all<S: State, W: Send + Sync + 'static>(
    plan: &Arc<Plan<S, W>>,
    is_awaited: &dyn Fn() -> bool,
) -> Result<CrashReport, CrashFaults> {
    let mut faults = CrashFaults::default();
    let undisturbed = match play(plan, None) {
        Ok(played) => played,
        Err(NoEnd { what, seen }) => {
            faults.graph = seen.graph.as_ref().map(|(name, _)| name.clone());
            faults.add(vec![what], None);
            return Err(faults);
        }
    };
    let (name, schema) = undisturbed.seen.graph.clone().unzip();
    faults.graph = name;
    faults.add(undisturbed_faults(plan, &undisturbed), None);
    if !faults.faults.is_empty() {
        return Err(faults);
    }
    let (ended, seen) = (&undisturbed.ended, &undisturbed.seen);
    let mut report = CrashReport {
        end: ended.end.to_string(),
        appends: seen.appends,
        effects: seen.begun,
        crashes: Vec::new(),
        missed: Vec::new(),
        doubts: seen.doubts,
    };
    let points = match plan.only {
        Some(point) => vec![point],
        None => CrashPoint::all(seen.appends, seen.begun).collect(),
    };
    for point in points.into_iter().take_while(|_| is_awaited()) {
        match play(plan, Some(point)) {
            Err(NoEnd { what, seen }) => faults.add(vec![what], Some((point, hit(&seen)))),
            Ok(played) => {
                let mut wrong = own_faults(plan, &played);
                wrong.extend(check::beside((ended, seen), (&played.ended, &played.seen), schema.as_deref()));
                let came = if played.seen.hit.is_some() { &mut report.crashes } else { &mut report.missed };
                came.push(point);
                if plan.only.is_some() && played.seen.hit.is_none() {
                    let (appends, effects) = (counted(report.appends, "append"), counted(report.effects, "effect"));
                    wrong.push(format!("the moment {point} did not come: the run has {appends} and {effects}"));
                }
                report.doubts += played.seen.doubts;
                faults.add(wrong, Some((point, hit(&played.seen))));
            }
        }
    }
    if faults.faults.is_empty() { Ok(report) } else { Err(faults) }
}

/// What stood where a course crashed.
fn hit(seen: &Inside) -> String {
    seen.hit.clone().unwrap_or_else(|| "which did not come".to_owned())
}

/// What is wrong with a course whatever the others did.
fn own_faults<S, W>(plan: &Plan<S, W>, played: &Played<S, W>) -> Vec<String> {
    let mut wrong = check::by_itself(&played.seen, &plan.once);
    wrong.extend(played.ended.unlike_log.iter().cloned());
    if let Some(state) = &played.ended.state {
        let found = catch_unwind(AssertUnwindSafe(|| (plan.check)(&played.world, state)));
        wrong.extend(found.unwrap_or_else(|panic| Err(panic_text(&*panic))).err());
    }
    wrong
}

/// What is wrong without any crash, and with what was asked for.
fn undisturbed_faults<S, W>(plan: &Plan<S, W>, played: &Played<S, W>) -> Vec<String> {
    let mut wrong = Vec::new();
    if let (End::Failed(..), false) = (&played.ended.end, plan.may_fail) {
        let end = check::at_length(&played.ended.end);
        wrong.push(format!("the run {end}; if it is meant to fail, say so with `may_fail`"));
    }
    let (asked, keys) = (&played.seen.asked, &played.seen.keys);
    let listed = |known: &BTreeSet<Arc<str>>| match known.is_empty() {
        true => "none".to_owned(),
        false => known.iter().map(|key| format!("\"{key}\"")).collect::<Vec<_>>().join(", "),
    };
    let unasked = plan.answers.keys().filter(|key| !asked.contains(key.as_str()));
    wrong.extend(
        unasked.map(|key| format!("there is an answer for \"{key}\", which is not asked; asked were: {}", listed(asked))),
    );
    let unknown = plan.once.iter().filter(|key| !keys.contains(key.as_str()));
    wrong.extend(
        unknown.map(|key| format!("`once` names \"{key}\", which is no effect of the run; performed were: {}", listed(keys))),
    );
    wrong.extend(own_faults(plan, played));
    wrong
}
