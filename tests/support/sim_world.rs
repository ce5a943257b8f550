//! A world for the simulation: random graphs, a store that is slow, fails and kills, a clock that is set back, people. All of it from a seed.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ferrata::clock::{Clock, Timestamp};
use ferrata::log::Record;
use ferrata::store::{Append, Appended, AtWork, InboxQuery, MemoryStore, Pending, Store, StoreError};
use ferrata::{
    Answer, Ask, Context, END, Event, Events, Graph, GraphBuilder, IntoNode, NodeError, Outcome, Question, Retry, Runner, START,
    State, Thread, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::sim_laws::{LAWS, Moment, Observed, Told};

const TASKS_MAX: usize = 4;
const ATTEMPTS_MAX: u32 = 3;
const STEPS_MAX: u64 = 40;
/// After so many deaths and failures the world is at peace, so that it ends.
const TROUBLES_MAX: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trouble {
    None,
    Some,
    /// The store says now and then that it has stored what it has not.
    Lies,
}

/// What the simulation has gone through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) worlds: u64,
    pub(crate) lives: u64,
    pub(crate) appends: u64,
    pub(crate) died_before: u64,
    pub(crate) died_after: u64,
    pub(crate) failed_before: u64,
    pub(crate) failed_after: u64,
    pub(crate) effects: u64,
    pub(crate) doubts: u64,
    pub(crate) answers: u64,
    pub(crate) refused: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.lives += other.lives;
        self.appends += other.appends;
        self.died_before += other.died_before;
        self.died_after += other.died_after;
        self.failed_before += other.failed_before;
        self.failed_after += other.failed_after;
        self.effects += other.effects;
        self.doubts += other.doubts;
        self.answers += other.answers;
        self.refused += other.refused;
    }
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Work {
    #[state(append)]
    log: Vec<String>,
    #[state(sum)]
    total: i64,
    #[state(max)]
    most: u64,
    last: String,
}

#[derive(Debug)]
struct Dice(Mutex<u64>);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1))
    }

    fn below(&self, n: u64) -> u64 {
        let mut state = self.0.lock().expect("no panic");
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % n
    }
}

/// What outlives the processes.
#[derive(Debug)]
struct World {
    kept: Arc<MemoryStore>,
    seen: Mutex<Observed>,
    timing: Dice,
    broken: AtomicUsize,
    at_work: AtomicUsize,
}

impl World {
    fn seen(&self) -> MutexGuard<'_, Observed> {
        self.seen.lock().expect("no panic")
    }

    fn stored(&self) -> usize {
        self.seen().appends.iter().map(Vec::len).sum()
    }

    fn began(self: &Arc<Self>, ctx: &Context) -> AtWorkNow {
        let stored = self.stored();
        let at_work = self.at_work.fetch_add(1, Ordering::SeqCst) + 1;
        let mut seen = self.seen();
        seen.at_work_max = seen.at_work_max.max(at_work);
        seen.began.push(Moment { what: ctx.task().to_string(), stored });
        AtWorkNow(Arc::clone(self))
    }

    fn told(&self, told: Told) {
        let stored = self.stored();
        self.seen().told.push((told, stored));
    }
}

/// A body of a node that goes on.
struct AtWorkNow(Arc<World>);

impl Drop for AtWorkNow {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy, Debug)]
enum Does {
    Plain,
    Effects,
    Asks,
    FailsOnce,
    BreaksOnce,
    AsksBetweenEffects,
}

const KINDS: [Does; 7] =
    [Does::Plain, Does::Effects, Does::Asks, Does::FailsOnce, Does::BreaksOnce, Does::AsksBetweenEffects, Does::Plain];

async fn act(ctx: &Context, world: &World, key: &str) -> Result<u64, NodeError> {
    let perform = |_| async {
        tokio::time::sleep(Duration::from_millis(world.timing.below(3))).await;
        let (what, stored) = (format!("{} {key}", ctx.task()), world.stored());
        world.seen().performed.push(Moment { what, stored });
        tokio::time::sleep(Duration::from_millis(world.timing.below(3))).await;
        Ok(key.len() as u64)
    };
    ctx.effect(key, perform).await
}

async fn ask(ctx: &Context, name: &str) -> Result<u64, NodeError> {
    ctx.ask("n", Ask::<u64>::new(format!("{name}: how many?"))).await
}

async fn work(name: String, does: Does, s: View<Work>, ctx: Context, world: Arc<World>) -> ferrata::Result<WorkUpdate> {
    let _at_work = world.began(&ctx);
    tokio::time::sleep(Duration::from_millis(world.timing.below(5))).await;
    let mut n = s.log.len() as u64;
    match does {
        Does::Plain => {}
        Does::Effects => {
            let (one, two) = tokio::join!(act(&ctx, &world, "one"), act(&ctx, &world, "two"));
            n += one? + two?;
        }
        Does::Asks => n += ask(&ctx, &name).await?,
        Does::AsksBetweenEffects => {
            n += act(&ctx, &world, "before").await? + ask(&ctx, &name).await? + act(&ctx, &world, "after").await?;
        }
        Does::FailsOnce if ctx.attempt() == 1 => return Err(NodeError::new("busy").transient()),
        Does::BreaksOnce if world.broken.fetch_add(1, Ordering::SeqCst) == 0 => {
            return Err(NodeError::new("broken").deterministic());
        }
        Does::FailsOnce | Does::BreaksOnce => n += 1,
    }
    Ok(Work::update().push_log(format!("{name} {n} of a hundred words or so")).total(i64::try_from(n)?).most(n))
}

fn node(graph: GraphBuilder<Work>, name: &str, dice: &Dice, world: &Arc<World>) -> GraphBuilder<Work> {
    let (does, world, owned) = (KINDS[dice.below(7) as usize], Arc::clone(world), name.to_owned());
    let node = move |s: View<Work>, ctx: Context| work(owned.clone(), does, s, ctx, Arc::clone(&world));
    graph.node(name, node.retry(Retry::transient(ATTEMPTS_MAX).first_delay(Duration::from_millis(5))))
}

/// Layers of nodes, with fan-outs, graphs inside, and a loop at the end.
fn graph(seed: u64, world: &Arc<World>) -> Graph<Work> {
    let dice = Dice::new(seed);
    let mut graph = Graph::<Work>::new("random");
    let mut layer = vec![START.to_owned()];
    for depth in 0..1 + dice.below(3) {
        let names: Vec<String> = (0..1 + dice.below(3)).map(|n| format!("n{depth}{n}")).collect();
        for (place, name) in names.iter().enumerate() {
            graph = if place == 0 && dice.below(4) == 0 {
                let inner = node(Graph::<Work>::new("inner"), "a", &dice, world);
                let inner = node(inner, "b", &dice, world).edge(START, "a").edge("a", "b").edge("b", END);
                graph.node(name, inner.build().expect("a line is right").shared())
            } else {
                node(graph, name, &dice, world)
            };
        }
        for (place, from) in layer.iter().enumerate() {
            // The first of a layer leads to all of the next one, so that nobody is left out.
            let to = if place == 0 { names.len() } else { 1 + dice.below(names.len() as u64) as usize };
            graph = names[..to].iter().fold(graph, |graph, name| graph.edge(from, name));
        }
        layer = names;
        if dice.below(3) == 0 {
            let (items, each, world) = (dice.below(4), format!("each{depth}"), Arc::clone(world));
            let owned = each.clone();
            let node = move |n: u64, s: View<Work>, ctx: Context| {
                work(format!("{owned}.{n}"), Does::Effects, s, ctx, Arc::clone(&world))
            };
            graph = graph.node(&each, node.concurrency(2)).fan_out(&layer[0], &each, move |_| 0..items);
            layer.push(each);
        }
    }
    let rounds = 1 + dice.below(3) as usize;
    let last = move |s: View<Work>| async move { Ok(Work::update().last(format!("{}.", s.last)).push_log("a round")) };
    let graph = layer.iter().fold(graph.node("last", last), |graph, from| graph.edge(from, "last"));
    let again = move |s: &Work| if s.last.len() < rounds { "last" } else { END };
    graph.route_to("last", ["last", END], again).build().expect("a graph of layers is right")
}

/// A clock that goes on with each look, and is set back now and then.
#[derive(Debug)]
struct SimClock {
    now: AtomicU64,
    ids: AtomicU64,
    dice: Dice,
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        if self.dice.below(50) == 0 {
            self.now.fetch_sub(5_000, Ordering::SeqCst);
        }
        Timestamp(self.now.fetch_add(7, Ordering::SeqCst))
    }

    fn new_id(&self) -> uuid::Uuid {
        uuid::Uuid::from_u128(u128::from(self.ids.fetch_add(1, Ordering::SeqCst)) + 1)
    }

    fn jitter(&self) -> f64 {
        self.dice.below(100) as f64 / 100.0
    }
}

/// The store as one process sees it.
#[derive(Debug)]
struct SimStore {
    world: Arc<World>,
    trouble: Arc<Mutex<TroubleMaker>>,
    died: Arc<Notify>,
    reader: Runner<Work>,
}

#[derive(Debug)]
struct TroubleMaker {
    kind: Trouble,
    dice: Dice,
    left: u32,
    counts: Counts,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Fine,
    DiesBefore,
    DiesAfter,
    FailsBefore,
    FailsAfter,
    Lie,
}

impl TroubleMaker {
    fn fate(&mut self) -> Fate {
        if self.kind == Trouble::None || self.left == 0 || self.dice.below(4) > 0 {
            return Fate::Fine;
        }
        self.left -= 1;
        if self.kind == Trouble::Lies {
            return Fate::Lie;
        }
        let counts = &mut self.counts;
        let (fate, count) = match self.dice.below(4) {
            0 => (Fate::DiesBefore, &mut counts.died_before),
            1 => (Fate::DiesAfter, &mut counts.died_after),
            2 => (Fate::FailsBefore, &mut counts.failed_before),
            _ => (Fate::FailsAfter, &mut counts.failed_after),
        };
        *count += 1;
        fate
    }
}

impl SimStore {
    async fn do_append(&self, append: Append) -> Result<Appended, StoreError> {
        let fate = self.trouble.lock().expect("no panic").fate();
        tokio::time::sleep(Duration::from_millis(self.world.timing.below(4))).await;
        match fate {
            Fate::DiesBefore => return self.die().await,
            Fate::FailsBefore => return Err(StoreError::Closed),
            Fate::Lie => return Ok(Appended { record_bytes: 1, snapshot_bytes: None }),
            Fate::Fine | Fate::DiesAfter | Fate::FailsAfter => {}
        }
        let records = append.records.clone();
        let appended = self.world.kept.append(append).await?;
        self.took_place(records);
        self.indexes_what_is_open().await;
        match fate {
            Fate::DiesAfter => self.die().await,
            Fate::FailsAfter => Err(StoreError::Closed),
            _ => Ok(appended),
        }
    }

    /// The moment of truth.
    fn took_place(&self, records: Vec<Record>) {
        let mut seen = self.world.seen();
        seen.read = seen.appends.iter().map(Vec::len).sum();
        seen.appends.push(records);
        let mut trouble = self.trouble.lock().expect("no panic");
        trouble.counts.appends += 1;
        if trouble.kind == Trouble::Lies {
            return;
        }
        drop(trouble);
        for (name, law) in LAWS {
            if let Err(breach) = law(&seen) {
                panic!("{name}: {breach}");
            }
        }
    }

    /// The index of open questions is at no moment behind the log, or ahead of it.
    async fn indexes_what_is_open(&self) {
        let open = self.reader.thread("t").questions().await.expect("what was appended is read");
        let rows = self.world.kept.questions(&InboxQuery::new()).await.expect("the index is read");
        let sorted = |mut all: Vec<_>| {
            all.sort();
            all
        };
        let open = sorted(open.iter().map(|question| (question.id, question.deadline)).collect());
        let rows = sorted(rows.iter().map(|row| (row.question.id, row.question.deadline)).collect());
        assert_eq!(rows, open, "the index of open questions, and the log");
    }

    async fn die(&self) -> Result<Appended, StoreError> {
        self.died.notify_one();
        std::future::pending().await
    }
}

impl Store for SimStore {
    ferrata::hand_on_store!(world.kept);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        Box::pin(self.do_append(append))
    }

    fn at_work(&self) -> Option<&AtWork> {
        None
    }
}

/// A thread from its input to its end, however many processes that takes.
pub(crate) fn live(seed: u64, timing: u64, kind: Trouble, counts: &mut Counts) -> Observed {
    let dice = |salt: u64| Dice::new(seed.wrapping_mul(31) + timing * 7 + salt);
    let limits = Observed { tasks_max: TASKS_MAX, attempts_max: ATTEMPTS_MAX, steps_max: STEPS_MAX, ..Observed::default() };
    let world = Arc::new(World {
        kept: Arc::default(),
        seen: Mutex::new(limits),
        timing: dice(1),
        broken: AtomicUsize::new(0),
        at_work: AtomicUsize::new(0),
    });
    let clock = Arc::new(SimClock { now: AtomicU64::new(1_000_000), ids: AtomicU64::new(0), dice: dice(2) });
    let trouble = TroubleMaker { kind, dice: dice(3), left: TROUBLES_MAX, counts: Counts::default() };
    let trouble = Arc::new(Mutex::new(trouble));
    for life in 0..200 {
        assert!(life < 199, "seed {seed}: it does not end");
        counts.lives += 1;
        let died = Arc::new(Notify::new());
        let reader = Runner::new(graph(seed, &world), Arc::clone(&world.kept));
        let store = SimStore { world: Arc::clone(&world), trouble: Arc::clone(&trouble), died: Arc::clone(&died), reader };
        let runner = Runner::with_clock(graph(seed, &world), store, Shared(Arc::clone(&clock)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let ended = runtime.block_on(async {
            tokio::select! {
                biased;
                () = died.notified() => false,
                ended = one_life(&runner, &world, counts) => ended,
            }
        });
        // Whatever still ran in this process is gone.
        drop(runtime);
        if ended || kind == Trouble::Lies && life > 3 {
            break;
        }
    }
    counts.add(&trouble.lock().expect("no panic").counts);
    let mut seen = world.seen().clone();
    seen.read = 0;
    counts.effects += seen.performed.len() as u64;
    seen
}

/// A clock that several processes look at.
#[derive(Debug)]
struct Shared(Arc<SimClock>);

impl Clock for Shared {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn new_id(&self) -> uuid::Uuid {
        self.0.new_id()
    }

    fn jitter(&self) -> f64 {
        self.0.jitter()
    }
}

/// Goes on with the thread. True if it came to its end; false if the process is to be started again.
async fn one_life(runner: &Runner<Work>, world: &Arc<World>, counts: &mut Counts) -> bool {
    let thread = runner.thread("t").tasks_max(TASKS_MAX).steps_max(STEPS_MAX);
    let mut events = if world.stored() == 0 {
        thread.stream(Work::update().total(1)).expect("it begins")
    } else {
        thread.stream_resume().expect("it begins")
    };
    for _ in 0..100 {
        match watch(events, world).await {
            Ok(Outcome::Done(state)) => {
                world.told(Told::Outcome("done"));
                end(runner, &thread, world, &state).await;
                return true;
            }
            Ok(Outcome::Waiting(questions)) => {
                world.told(Told::Outcome("waiting"));
                let question = &questions[world.timing.below(questions.len() as u64) as usize];
                match answer(&thread, question, world, counts).await {
                    Some(next) => events = next,
                    None => return false,
                }
            }
            Ok(Outcome::Outside(waits)) => panic!("nothing in this graph waits outside: {waits:?}"),
            Ok(Outcome::Suspended(_)) => {
                world.told(Told::Outcome("suspended"));
                events = thread.stream_resume().expect("it goes on");
            }
            Err(error) => {
                world.told(Told::Failed);
                if error.code() != "node-failed" {
                    // The store failed: the program is started again.
                    return false;
                }
                events = thread.stream_resume().expect("it goes on");
            }
        }
    }
    panic!("it does not end");
}

/// Everything that a watcher hears of a run.
async fn watch(mut events: Events<Work>, world: &World) -> Result<Outcome<Work>, ferrata::Error> {
    while let Some(event) = events.next().await {
        match event {
            Event::Update { task, .. } => world.told(Told::Result(task.to_string())),
            Event::Asked(question) => world.told(Told::Question(question.id.to_string())),
            _ => {}
        }
    }
    events.outcome().await
}

/// A person answers, wrongly first. Nothing if the store fails meanwhile.
async fn answer(thread: &Thread<Work>, question: &Question, world: &World, counts: &mut Counts) -> Option<Events<Work>> {
    if question.is_doubt() {
        counts.doubts += 1;
        let effect = format!("{} {}", question.task, question.key);
        let performed = world.seen().performed.iter().any(|moment| moment.what == effect);
        let answer = if performed { Answer::performed(question.key.len()) } else { Answer::not_performed() };
        return thread.stream_answer(question.id, answer.by("a clerk")).ok();
    }
    if world.timing.below(2) == 0 {
        world.seen().wrong_answers.push(json!("many"));
        let refused = thread.answer(question.id, Answer::new("many").by("a joker")).await.expect_err("it does not fit");
        if refused.code() != "answer-misfit" {
            return None;
        }
        counts.refused += 1;
    }
    counts.answers += 1;
    thread.stream_answer(question.id, Answer::new(question.text.len()).by("dana")).ok()
}

/// What is compared when the thread has ended: the live state, its fold, and the end.
async fn end(runner: &Runner<Work>, thread: &Thread<Work>, world: &World, state: &Work) {
    let live = serde_json::to_value(state).expect("a state is JSON");
    let folded: Option<Value> = match thread.state().await {
        Ok(folded) => Some(serde_json::to_value(&*folded.values).expect("a state is JSON")),
        Err(_) => None,
    };
    let checked = runner.verify().await.expect("it can be read");
    let mut seen = world.seen();
    seen.faults.extend(checked.faults.iter().map(|(thread, fault)| format!("{thread}: {fault}")));
    seen.ends.push(live.clone());
    seen.states.push((live, folded.unwrap_or_default()));
}
