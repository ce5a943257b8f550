//! Graphs inside graphs for tests: nodes by script, a world that outlives stores, and stores that begin behind any append.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::log::Record;
use ferrata::store::{Append, Appended, InboxQuery, MemoryStore, OpenQuestion, Pending, RedbStore, Store, ThreadStatus};
use ferrata::{
    Answer, Ask, Context, Durability, END, Graph, GraphBuilder, IntoNode, Node, NodeError, Outcome, Position, Question, Retry,
    Runner, START, State, ThreadName, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
pub(crate) struct Work {
    pub(crate) topic: String,
    #[state(append)]
    pub(crate) log: Vec<String>,
    #[state(sum)]
    pub(crate) total: i64,
    #[state(sum)]
    pub(crate) small: u8,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
pub(crate) struct Other {
    pub(crate) n: u64,
}

/// What really happened outside, and what is to go wrong there. It outlives runners and stores.
#[derive(Default)]
pub(crate) struct World {
    /// Names of nodes, and their tasks.
    pub(crate) began: Mutex<Vec<(String, String)>>,
    pub(crate) performed: Mutex<Vec<String>>,
    /// How often something goes wrong at that node.
    pub(crate) faults: Mutex<HashMap<String, u32>>,
    /// An effect is under way that will not end.
    pub(crate) hangs: Notify,
    pub(crate) gate: Notify,
}

impl World {
    pub(crate) fn of(faults: &[(&str, u32)]) -> Arc<Self> {
        let world = Self::default();
        *world.faults.lock().unwrap() = faults.iter().map(|(node, times)| ((*node).to_owned(), *times)).collect();
        Arc::new(world)
    }

    pub(crate) fn fault(&self, node: &str) -> bool {
        let mut faults = self.faults.lock().unwrap();
        faults.get_mut(node).filter(|times| **times > 0).map(|times| *times -= 1).is_some()
    }

    /// Everything that began since it was last asked.
    pub(crate) fn began(&self) -> String {
        let began = std::mem::take(&mut *self.began.lock().unwrap());
        began.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    }

    /// The tasks that began since it was last asked.
    pub(crate) fn began_tasks(&self) -> Vec<String> {
        std::mem::take(&mut *self.began.lock().unwrap()).into_iter().map(|(_, task)| task).collect()
    }

    /// Everything that was performed.
    pub(crate) fn performed(&self) -> Vec<String> {
        self.performed.lock().unwrap().clone()
    }
}

/// A node that does what its script says: `e` performs an effect, `h` one that hangs if a fault is due, `?` asks, `!` fails if a fault is due, `~` so
/// that it may be tried again, `y` lets others go first.
pub(crate) fn node(world: &Arc<World>, name: &str, script: &str) -> Node<Work> {
    let (world, name, script) = (Arc::clone(world), name.to_owned(), script.to_owned());
    let run = move |s: View<Work>, ctx: Context| {
        let (world, name, script) = (Arc::clone(&world), name.clone(), script.clone());
        async move {
            world.began.lock().unwrap().push((name.clone(), ctx.task().to_string()));
            let (mut n, mut effects) = (1, 0);
            for does in script.chars() {
                match does {
                    'e' | 'h' => {
                        let perform = |_| async {
                            world.performed.lock().unwrap().push(format!("{}/{effects}", ctx.task()));
                            if does == 'h' && world.fault(&name) {
                                world.hangs.notify_one();
                                std::future::pending::<()>().await;
                            }
                            Ok(10)
                        };
                        n += ctx.effect("e", perform).await?;
                        effects += 1;
                    }
                    '?' => n += ctx.ask("n", Ask::<i64>::new(format!("{name}: how many?"))).await?,
                    '!' if world.fault(&name) => return Err(NodeError::new("broken").deterministic()),
                    '~' if world.fault(&name) => return Err(NodeError::new("busy").transient()),
                    'y' => others_first().await,
                    _ => {}
                }
            }
            Ok(Work::update().push_log(format!("{name}({})", s.topic)).total(n))
        }
    };
    run.into_node()
}

pub(crate) async fn others_first() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Nodes one after the other.
pub(crate) fn line(world: &Arc<World>, name: &str, nodes: &[(&str, &str)]) -> GraphBuilder<Work> {
    let graph = nodes
        .iter()
        .fold(Graph::<Work>::new(name), |graph, (node_name, script)| graph.node(node_name, node(world, node_name, script)));
    chain(graph, &nodes.iter().map(|(name, _)| *name).collect::<Vec<_>>())
}

pub(crate) fn chain(graph: GraphBuilder<Work>, names: &[&str]) -> GraphBuilder<Work> {
    let ends = [&[START], names, &[END]].concat();
    ends.windows(2).fold(graph, |graph, pair| graph.edge(pair[0], pair[1]))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    Shared,
    Mapped,
    Called,
}

pub(crate) const DURABILITIES: [Durability; 3] = [Durability::Step, Durability::Behind, Durability::Exit];
pub(crate) const WAYS: [Way; 3] = [Way::Shared, Way::Mapped, Way::Called];

pub(crate) fn down(outer: &Work) -> WorkUpdate {
    Work::update().topic(format!("{}'s", outer.topic))
}

pub(crate) fn up(_: &Work, inner: &Work) -> WorkUpdate {
    Work::update().log(inner.log.clone()).total(inner.total)
}

/// The graph as a node.
pub(crate) fn embed(way: Way, graph: GraphBuilder<Work>, name: &str, inner: Graph<Work>) -> GraphBuilder<Work> {
    match way {
        Way::Shared => graph.node(name, inner.shared()),
        Way::Mapped => graph.node(name, inner.mapped(down, up)),
        Way::Called => graph.callable(&format!("{name}'s"), inner).node(name, caller(name)),
    }
}

/// A node that calls the graph of its name.
pub(crate) fn caller(name: &str) -> Node<Work> {
    let key = format!("{name}'s");
    let call = move |s: View<Work>, ctx: Context| {
        let key = key.clone();
        async move { ctx.call::<Work>(&key, down(&s)).await.map(|inner| up(&s, &inner)) }
    };
    call.into_node()
}

/// A node that calls the graph of its name twice at once.
pub(crate) fn caller_of_two(name: &str) -> Node<Work> {
    let key = format!("{name}'s");
    let call = move |s: View<Work>, ctx: Context| {
        let key = key.clone();
        async move {
            let (one, two) = tokio::join!(ctx.call::<Work>(&key, down(&s)), ctx.call::<Work>(&key, down(&s)));
            let (one, two) = (one?, two?);
            Ok(Work::update().log([&one.log[..], &two.log[..]].concat()).total(one.total + two.total))
        }
    };
    call.into_node()
}

/// before -> child(nodes) -> after
pub(crate) fn around(way: Way, world: &Arc<World>, inner: Graph<Work>) -> Graph<Work> {
    let graph = Graph::new("outer").node("before", node(world, "before", "e")).node("after", node(world, "after", ""));
    chain(embed(way, graph, "child", inner), &["before", "child", "after"]).build().unwrap()
}

pub(crate) fn at(dir: &Path, graph: Graph<Work>) -> Runner<Work> {
    Runner::new(graph, RedbStore::open(dir.join("s.redb")).unwrap())
}

pub(crate) fn in_memory(graph: GraphBuilder<Work>) -> Runner<Work> {
    Runner::new(graph.build().unwrap(), MemoryStore::new())
}

pub(crate) fn input() -> WorkUpdate {
    Work::update().topic("t")
}

pub(crate) fn asked(outcome: Result<Outcome<Work>, ferrata::Error>) -> Vec<Arc<Question>> {
    match outcome.unwrap() {
        Outcome::Waiting(questions) => questions,
        other => panic!("it asks nothing: {other:?}"),
    }
}

pub(crate) fn done(outcome: Result<Outcome<Work>, ferrata::Error>) -> Work {
    (*outcome.unwrap().done().expect("it is done")).clone()
}

/// What hangs fails.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it hangs")
}

pub(crate) fn to_state(topic: &str) -> serde_json::Value {
    serde_json::to_value(Work { topic: topic.to_owned(), ..Work::default() }).unwrap()
}

/// Keeps every append, to begin again behind any of them.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    inner: MemoryStore,
    pub(crate) appends: Arc<Mutex<Vec<Vec<Record>>>>,
}

impl Kept {
    /// What another process finds that begins behind these appends.
    pub(crate) async fn cut(appends: &[Vec<Record>]) -> Self {
        let (store, mut expected, mut open) = (Self::default(), Position(0), Vec::new());
        for records in appends {
            let (thread, records, count) = (ThreadName::new("t").unwrap(), records.clone(), records.len() as u64);
            for record in &records {
                match record {
                    Record::Asked(question) => open.push(OpenQuestion::from(&**question)),
                    Record::Answered(answered) => open.retain(|question| question.id != answered.question),
                    Record::Closed(closed) => open.retain(|question| !closed.questions.contains(&question.id)),
                    Record::Forked(_) => open.clear(),
                    _ => {}
                }
            }
            let questions = Some(open.clone());
            let (status, at) = (ThreadStatus::Running, ferrata::clock::Timestamp(1));
            store
                .append(Append { thread, expected, records, snapshot: None, status, questions, alarms: None, at })
                .await
                .unwrap();
            expected.0 += count;
        }
        store
    }
}

impl Store for Kept {
    ferrata::hand_on_store!(inner);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        self.appends.lock().unwrap().push(append.records.clone());
        self.inner.append(append)
    }
}

/// Numbers from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Two or three layers of one or two nodes, some of which are graphs of that kind again.
pub(crate) fn nested(dice: &mut Dice, world: &Arc<World>, prefix: &str, depth: u64) -> GraphBuilder<Work> {
    let mut graph = Graph::<Work>::new(if prefix.is_empty() { "outer" } else { prefix });
    let mut layer = vec![START.to_owned()];
    for row in 0..1 + dice.below(2) {
        let names: Vec<String> = (0..1 + dice.below(2)).map(|n| format!("{prefix}{row}{n}")).collect();
        for name in &names {
            if depth > 0 && dice.below(3) > 0 {
                let way = WAYS[dice.below(3) as usize];
                let inner = nested(dice, world, &format!("{name}."), depth - 1).build().unwrap();
                let inner = match dice.below(3) {
                    0 if way != Way::Shared => inner.continued(),
                    1 => inner.unstored(),
                    _ => inner,
                };
                graph = match way {
                    Way::Called if dice.below(2) == 0 => {
                        graph.callable(&format!("{name}'s"), inner).node(name, caller_of_two(name))
                    }
                    way => embed(way, graph, name, inner),
                };
            } else {
                let script = ["", "e", "?", "~", "!", "e?e", "e!e"][dice.below(7) as usize];
                world.faults.lock().unwrap().insert(name.clone(), 1);
                graph = graph.node(name, node(world, name, script).retry(Retry::transient(3).first_delay(Duration::ZERO)));
            }
        }
        for from in &layer {
            graph = names.iter().fold(graph, |graph, name| graph.edge(from, name));
        }
        layer = names;
    }
    let last = format!("{prefix}last");
    graph = layer.iter().fold(graph.node(&last, node(world, &last, "")), |graph, from| graph.edge(from, &last));
    let (first, rounds) = (format!("{prefix}00"), if prefix.is_empty() { 2 } else { 1 });
    let to = first.clone();
    graph.route_to(&last, [&*first, END], move |s: &Work| {
        let ended = s.log.iter().filter(|entry| entry.starts_with("last(")).count();
        if ended < rounds && rounds > 1 { to.clone() } else { END.to_owned() }
    })
}

/// Goes on until the thread is done: resumes after failures, answers what is asked.
pub(crate) async fn finish(runner: &Runner<Work>, durability: Durability) -> Work {
    let thread = runner.thread("t").durability(durability);
    let mut result = thread.run_once(input()).await;
    for round in 0..200 {
        result = match result {
            Ok(Outcome::Done(state)) => {
                assert_eq!(*thread.state().await.unwrap().values, *state, "the fold of the log is the live state");
                return (*state).clone();
            }
            Ok(Outcome::Waiting(questions)) => {
                // Now and then: it folds the thread once more.
                if round % 8 == 0 {
                    let inbox = runner.inbox(InboxQuery::new()).await.unwrap().items;
                    let ids = |open: &mut dyn Iterator<Item = &Arc<Question>>| open.map(|q| q.id).collect::<BTreeSet<_>>();
                    assert_eq!(ids(&mut inbox.iter().map(|item| &item.question)), ids(&mut questions.iter()));
                }
                let question = &questions[0];
                let answer = if question.is_doubt() { Answer::performed(10) } else { Answer::new(question.text.len()) };
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
