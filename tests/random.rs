//! Random graphs with random failures, questions, effects and fan-outs, continued from behind every append: they end like the undisturbed run.
//!
//! How it could break: anything that the fold forgets, or that is in a snapshot and not in the fold; a merge that depends on who was
//! first; a task, an effect or an answer that is done again. The seed is printed with every failure; `FERRATA_SEED` runs one seed alone.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::clock::{ManualClock, Timestamp};
use ferrata::log::Record;
use ferrata::state::Message;
use ferrata::store::{Append, Appended, InboxQuery, MemoryStore, Pending, Store};
use ferrata::{
    Answer, Ask, Context, Durability, END, Graph, IntoNode, NodeError, Outcome, Position, Retry, Runner, START, State,
    ThreadName, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Work {
    #[state(append)]
    log: Vec<String>,
    #[state(sum)]
    total: i64,
    #[state(max)]
    most: u64,
    #[state(merge)]
    marks: BTreeMap<String, u64>,
    #[state(messages)]
    said: Vec<Message>,
    last: String,
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[derive(Clone, Copy, Debug)]
enum Does {
    Plain,
    Effects,
    Asks,
    FailsOnce,
    FailsForGoodOnce,
    AsksBetweenEffects,
}

/// What really happened in one process.
#[derive(Default)]
struct World {
    performed: Mutex<Vec<String>>,
    fails: AtomicUsize,
}

async fn act(ctx: &Context, world: &World, key: &str) -> Result<u64, NodeError> {
    let perform = |_| async {
        world.performed.lock().expect("not poisoned").push(format!("{} {key}", ctx.task()));
        Ok(key.len() as u64)
    };
    ctx.effect(key, perform).await
}

async fn work(name: String, does: Does, s: View<Work>, ctx: Context, world: Arc<World>) -> ferrata::Result<WorkUpdate> {
    let mut n = s.log.len() as u64;
    match does {
        Does::Plain => {}
        Does::Effects => {
            let (one, two) = tokio::join!(act(&ctx, &world, "one"), act(&ctx, &world, "two"));
            n += one? + two?;
        }
        Does::Asks => n += ctx.ask("n", Ask::<u64>::new(format!("{name}: how many?"))).await?,
        Does::AsksBetweenEffects => {
            n += act(&ctx, &world, "before").await?;
            n += ctx.ask("n", Ask::<u64>::new(format!("{name}: how many?"))).await?;
            n += act(&ctx, &world, "after").await?;
        }
        Does::FailsOnce if ctx.attempt() == 1 => return Err(NodeError::new("busy").transient()),
        Does::FailsForGoodOnce if world.fails.fetch_add(1, Ordering::SeqCst) == 0 => {
            return Err(NodeError::new("broken").deterministic());
        }
        Does::FailsOnce | Does::FailsForGoodOnce => n += 1,
    }
    let said = Message::user(format!("{name} saw {}", s.said.len()));
    let update = Work::update().push_log(format!("{name} {n}")).total(i64::try_from(n)?).most(n).mark(name.as_str(), n);
    Ok(if ctx.task().send.is_none() { update.push_said(said) } else { update })
}

/// Layers of nodes; every node leads to some of the next layer, some layers fan out, the last one leads to a single node.
fn graph(seed: u64, world: &Arc<World>) -> Graph<Work> {
    let mut dice = Dice(seed);
    let mut graph = Graph::<Work>::new("random");
    let mut layer = vec![START.to_owned()];
    let kinds =
        [Does::Plain, Does::Effects, Does::Asks, Does::FailsOnce, Does::FailsForGoodOnce, Does::AsksBetweenEffects, Does::Plain];
    for depth in 0..2 + dice.below(3) {
        let names: Vec<String> = (0..1 + dice.below(3)).map(|n| format!("n{depth}{n}")).collect();
        for name in &names {
            let (does, world, owned) = (kinds[dice.below(7) as usize], Arc::clone(world), name.clone());
            let node = move |s: View<Work>, ctx: Context| work(owned.clone(), does, s, ctx, Arc::clone(&world));
            graph = graph.node(name, node.retry(Retry::transient(3).first_delay(Duration::ZERO)));
        }
        for (place, from) in layer.iter().enumerate() {
            // The first of a layer leads to all of the next one, so that nobody is left out.
            let to = if place == 0 { 0..names.len() } else { 0..1 + dice.below(names.len() as u64) as usize };
            graph = names[to].iter().fold(graph, |graph, name| graph.edge(from, name));
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
    let last = |s: View<Work>| async move { Ok(Work::update().last(format!("{} entries", s.log.len()))) };
    graph = graph.node("last", last);
    for from in &layer {
        graph = graph.edge(from, "last");
    }
    graph.edge("last", END).build().expect("a graph of layers is right")
}

/// Keeps every append, to begin again behind any of them.
#[derive(Debug)]
struct Kept {
    inner: Arc<MemoryStore>,
    reader: Runner<Work>,
    appends: Arc<Mutex<Vec<Vec<Record>>>>,
}

impl Store for Kept {
    ferrata::hand_on_store!(inner);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        self.appends.lock().expect("not poisoned").push(append.records.clone());
        Box::pin(async move {
            let appended = self.inner.append(append).await?;
            // The index of open questions is at no moment behind the log, or ahead of it.
            let open = self.reader.thread("t").questions().await.expect("what was appended is read");
            let open: HashSet<_> = open.iter().map(|question| question.id).collect();
            let rows = self.inner.questions(&InboxQuery::new()).await?;
            assert_eq!(rows.iter().map(|row| row.question.id).collect::<HashSet<_>>(), open);
            Ok(appended)
        })
    }
}

/// Goes on until the thread is done: resumes after failures, answers questions, settles doubts by what the world shows.
async fn finish(runner: &Runner<Work>, durability: Durability, performed: &dyn Fn(&str) -> bool) -> Work {
    let thread = runner.thread("t").durability(durability);
    let mut result = thread.run_once(Work::update().total(1)).await;
    for _ in 0..100 {
        result = match result {
            Ok(Outcome::Done(state)) => {
                let folded = thread.state().await.expect("it is readable").values;
                assert_eq!(*folded, *state, "the fold of the log is the live state");
                return (*state).clone();
            }
            Ok(Outcome::Waiting(questions)) => {
                let question = &questions[0];
                let answer = if question.is_doubt() {
                    let effect = format!("{} {}", question.task, question.key);
                    if performed(&effect) { Answer::performed(question.key.len()) } else { Answer::not_performed() }
                } else {
                    Answer::new(question.text.len())
                };
                thread.answer(question.id, answer).await
            }
            Ok(Outcome::Outside(waits)) => panic!("{waits:?}"),
            Ok(Outcome::Suspended(why)) => panic!("{why}"),
            Err(error) if error.code() == "node-failed" => thread.resume().await,
            Err(error) => panic!("{error}"),
        };
    }
    panic!("it does not end");
}

fn recorded_effects(appends: &[Vec<Record>]) -> HashSet<String> {
    let records = appends.iter().flatten();
    let done = records.filter_map(|record| match record {
        Record::EffectDone(done) => Some(format!("{} {}", done.effect.task, done.effect.key)),
        _ => None,
    });
    done.collect()
}

async fn one(seed: u64, durability: Durability) -> usize {
    let world = Arc::new(World::default());
    let (inner, appends, clock) = (Arc::new(MemoryStore::new()), Arc::default(), ManualClock::at(Timestamp(1_000)));
    let kept = Arc::clone(&appends);
    let reader = Runner::new(graph(seed, &Arc::default()), Arc::clone(&inner));
    let store = Kept { inner, reader, appends };
    let runner = Runner::with_clock(graph(seed, &world), store, clock);
    let undisturbed = finish(&runner, durability, &|_| panic!("nothing is in doubt")).await;
    let appends = kept.lock().expect("not poisoned").clone();
    let first_world = world.performed.lock().expect("not poisoned").clone();
    let different: HashSet<&String> = first_world.iter().collect();
    assert_eq!(different.len(), first_world.len(), "seed {seed}: an effect was performed twice: {first_world:?}");

    for cut in 0..=appends.len() {
        // What another process finds: the first appends, and nothing in memory.
        let store = MemoryStore::new();
        let thread = ThreadName::new("t").expect("a name");
        let mut expected = Position(0);
        for records in &appends[..cut] {
            let count = records.len() as u64;
            let status = ferrata::store::ThreadStatus::Running;
            let (thread, records, at) = (thread.clone(), records.clone(), Timestamp(1_000));
            store
                .append(Append { thread, expected, records, snapshot: None, status, questions: None, alarms: None, at })
                .await
                .expect("it is appended");
            expected.0 += count;
        }
        let world = Arc::new(World::default());
        // Other identifiers than before the cut.
        let clock = ManualClock::at(Timestamp(2_000));
        (0..1_000).for_each(|_| _ = ferrata::clock::Clock::new_id(&clock));
        let runner = Runner::with_clock(graph(seed, &world), store, clock);
        let done = recorded_effects(&appends[..cut]);
        let end = finish(&runner, durability, &|effect| first_world.iter().any(|p| p == effect) && !done.contains(effect)).await;
        let again = world.performed.lock().expect("not poisoned").clone();
        let twice: Vec<_> = again.iter().filter(|effect| done.contains(*effect)).collect();
        assert!(twice.is_empty(), "seed {seed}, {durability:?}, cut {cut}: recorded and performed again: {twice:?}");
        assert_eq!(without_ids(end), without_ids(undisturbed.clone()), "seed {seed}, {durability:?}, cut behind append {cut}");
    }
    appends.len() + 1
}

/// Ids of messages belong to the thread and its tasks, but not to what was said.
fn without_ids(mut state: Work) -> Work {
    state.said.iter_mut().for_each(|message| message.id.clear());
    state
}

#[tokio::test]
async fn random_graphs_continued_from_behind_every_append_end_like_the_undisturbed_run() {
    let seeds = match std::env::var("FERRATA_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..20,
    };
    let mut cuts = 0;
    for seed in seeds {
        for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
            cuts += one(seed, durability).await;
        }
    }
    assert!(cuts > 2, "{cuts} cuts");
}
