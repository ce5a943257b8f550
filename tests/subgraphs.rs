//! Graphs inside graphs: whatever is promised of a thread holds for every graph inside it too.
//!
//! How it could break: work inside that was finished and runs again because the node around it does; a question, an answer or an effect that
//! belongs to the wrong call; a graph that goes on from what was never recorded; a state that is one thing in memory and another in the log.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::log::{Doubt, Entry, Record, Source};
use ferrata::store::{Append, Appended, Loaded, MemoryStore, Pending, RedbStore, Store, ThreadInfo, ThreadStatus};
use ferrata::{
    Answer, Ask, Class, Context, Durability, END, Event, Graph, GraphBuilder, IntoNode, Mode, Next, Node, NodeError, Outcome,
    Position, Question, Retry, Runner, START, State, Suspension, Target, Thread, ThreadName, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Work {
    topic: String,
    #[state(append)]
    log: Vec<String>,
    #[state(sum)]
    total: i64,
    #[state(sum)]
    small: u8,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Other {
    n: u64,
}

/// What really happened outside, and what is to go wrong there. It outlives runners and stores.
#[derive(Default)]
struct World {
    /// Names of nodes, and their tasks.
    began: Mutex<Vec<(String, String)>>,
    performed: Mutex<Vec<String>>,
    /// How often something goes wrong at that node.
    faults: Mutex<HashMap<String, u32>>,
    /// An effect is under way that will not end.
    hangs: Notify,
    gate: Notify,
}

impl World {
    fn of(faults: &[(&str, u32)]) -> Arc<Self> {
        let world = Self::default();
        *world.faults.lock().unwrap() = faults.iter().map(|(node, times)| ((*node).to_owned(), *times)).collect();
        Arc::new(world)
    }

    fn fault(&self, node: &str) -> bool {
        let mut faults = self.faults.lock().unwrap();
        faults.get_mut(node).filter(|times| **times > 0).map(|times| *times -= 1).is_some()
    }

    /// Everything that began since it was last asked.
    fn began(&self) -> String {
        let began = std::mem::take(&mut *self.began.lock().unwrap());
        began.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    }

    /// Everything that was performed.
    fn performed(&self) -> Vec<String> {
        self.performed.lock().unwrap().clone()
    }
}

/// A node that does what its script says: `e` performs an effect, `h` one that hangs if a fault is due, `?` asks, `!` fails if a fault is due, `~` so
/// that it may be tried again, `y` lets others go first.
fn node(world: &Arc<World>, name: &str, script: &str) -> Node<Work> {
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

async fn others_first() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Nodes one after the other.
fn line(world: &Arc<World>, name: &str, nodes: &[(&str, &str)]) -> GraphBuilder<Work> {
    let graph = nodes
        .iter()
        .fold(Graph::<Work>::new(name), |graph, (node_name, script)| graph.node(node_name, node(world, node_name, script)));
    chain(graph, &nodes.iter().map(|(name, _)| *name).collect::<Vec<_>>())
}

fn chain(graph: GraphBuilder<Work>, names: &[&str]) -> GraphBuilder<Work> {
    let ends = [&[START], names, &[END]].concat();
    ends.windows(2).fold(graph, |graph, pair| graph.edge(pair[0], pair[1]))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Shared,
    Mapped,
    Called,
}

const DURABILITIES: [Durability; 3] = [Durability::Step, Durability::Behind, Durability::Exit];
const WAYS: [Way; 3] = [Way::Shared, Way::Mapped, Way::Called];

fn down(outer: &Work) -> WorkUpdate {
    Work::update().topic(format!("{}'s", outer.topic))
}

fn up(_: &Work, inner: &Work) -> WorkUpdate {
    Work::update().log(inner.log.clone()).total(inner.total)
}

/// The graph as a node.
fn embed(way: Way, graph: GraphBuilder<Work>, name: &str, inner: Graph<Work>) -> GraphBuilder<Work> {
    match way {
        Way::Shared => graph.node(name, inner.shared()),
        Way::Mapped => graph.node(name, inner.mapped(down, up)),
        Way::Called => graph.callable(&format!("{name}'s"), inner).node(name, caller(name)),
    }
}

/// A node that calls the graph of its name.
fn caller(name: &str) -> Node<Work> {
    let key = format!("{name}'s");
    let call = move |s: View<Work>, ctx: Context| {
        let key = key.clone();
        async move { ctx.call::<Work>(&key, down(&s)).await.map(|inner| up(&s, &inner)) }
    };
    call.into_node()
}

/// before -> child(nodes) -> after
fn around(way: Way, world: &Arc<World>, inner: Graph<Work>) -> Graph<Work> {
    let graph = Graph::new("outer").node("before", node(world, "before", "e")).node("after", node(world, "after", ""));
    chain(embed(way, graph, "child", inner), &["before", "child", "after"]).build().unwrap()
}

fn at(dir: &Path, graph: Graph<Work>) -> Runner<Work> {
    Runner::new(graph, RedbStore::open(dir.join("s.redb")).unwrap())
}

fn in_memory(graph: GraphBuilder<Work>) -> Runner<Work> {
    Runner::new(graph.build().unwrap(), MemoryStore::new())
}

fn input() -> WorkUpdate {
    Work::update().topic("t")
}

fn asked(outcome: Result<Outcome<Work>, ferrata::Error>) -> Vec<Arc<Question>> {
    match outcome.unwrap() {
        Outcome::Waiting(questions) => questions,
        other => panic!("it asks nothing: {other:?}"),
    }
}

fn done(outcome: Result<Outcome<Work>, ferrata::Error>) -> Work {
    (*outcome.unwrap().done().expect("it is done")).clone()
}

/// What hangs fails.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it hangs")
}

#[tokio::test]
async fn a_graph_whose_entry_failed_begins_when_the_thread_is_resumed() {
    for durability in DURABILITIES {
        let (world, dir) = (World::of(&[("entry", 1)]), tempfile::tempdir().unwrap());
        let make = || {
            let entry = Arc::clone(&world);
            let graph = Graph::<Work>::new("inner").node("a", node(&world, "a", "e"));
            let graph = graph.route_to(START, ["a"], move |_| if entry.fault("entry") { "nowhere" } else { "a" });
            at(dir.path(), around(Way::Mapped, &world, graph.edge("a", END).build().unwrap()))
        };
        let runner = make();
        let error = runner.thread("t").durability(durability).run(input()).await.unwrap_err();
        assert_eq!(error.code(), "route", "{error}");
        drop(runner);
        let state = done(make().thread("t").durability(durability).resume().await);
        assert_eq!(state.log, ["before(t)", "a(t's)", "after(t)"], "{durability:?}");
        assert_eq!(world.began(), "before a after");
    }
}

#[tokio::test]
async fn what_a_later_call_of_a_continued_graph_did_is_not_forgotten_at_the_end_of_the_run() {
    let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
    let make = || {
        let inner = chain(Graph::new("inner").node("pay", node(&world, "pay", "e?")), &["pay"]).build().unwrap();
        let child = inner.continued().mapped(down, |_: &Work, inner| Work::update().set_log(inner.log.clone()));
        at(dir.path(), chain(Graph::new("outer").node("child", child), &["child"]).build().unwrap())
    };
    for call in 1..=3 {
        let runner = make();
        let thread = runner.thread("t").durability(Durability::Exit);
        let questions = asked(soon(thread.run(input())).await);
        drop((thread, runner));
        let runner = make();
        let thread = runner.thread("t").durability(Durability::Exit);
        let state = done(soon(thread.answer(questions[0].id, Answer::new(1))).await);
        assert_eq!(state.log.len(), call);
        assert_eq!(world.performed().len(), call, "{:?}", world.performed());
    }
}

#[tokio::test]
async fn a_sum_counts_the_same_whenever_steps_are_stored() {
    for durability in DURABILITIES {
        let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
        let make = || {
            let inner = line(&world, "inner", &[("c1", "e"), ("c2", "?")]).build().unwrap();
            let graph = Graph::new("outer").node("child", inner.shared()).node("other", node(&world, "other", "e"));
            let graph = graph.edge(START, "child").edge(START, "other").edge("child", END).edge("other", END);
            at(dir.path(), graph.build().unwrap())
        };
        let questions = asked(make().thread("t").durability(durability).run(input().total(100)).await);
        let state = done(make().thread("t").durability(durability).answer(questions[0].id, Answer::new(5)).await);
        assert_eq!(state.total, 100 + 11 + 6 + 11, "{durability:?}");
        assert_eq!(state.log, ["c1(t)", "c2(t)", "other(t)"], "{durability:?}");
    }
}

#[tokio::test]
async fn a_call_of_a_continued_graph_does_not_push_an_unfinished_one_aside() {
    for (script, faults) in [("!", [("c2", 1)]), ("?", [("c2", 0)]), ("!y", [("c2", 1)])] {
        let (world, sums) = (World::of(&faults), |_: &Work, inner: &Work| Work::update().total(inner.total));
        let inner = line(&world, "inner", &[("c1", "e"), ("c2", script)]).build().unwrap();
        let child = inner.continued().mapped(down, sums).concurrency(1);
        let sends = |_: &Work| Ok(["a", "b"].map(|topic| Target::send("child", to_state(topic))).to_vec());
        let graph = Graph::new("outer").node("child", child).branch(START, ["child"], sends).edge("child", END);
        let runner = in_memory(graph);
        let thread = runner.thread("t");
        let mut outcome = soon(thread.run(input())).await;
        assert!(!matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
        for _ in 0..2 {
            outcome = match thread.questions().await.unwrap().first() {
                Some(question) => soon(thread.answer(question.id, Answer::new(1))).await,
                None => soon(thread.resume()).await,
            };
        }
        let sums = done(outcome).total;
        assert_eq!((world.performed().len(), sums), if script == "?" { (2, 13 + 26) } else { (2, 12 + 24) }, "{script}");
    }
}

/// The other of two calls at once is refused, and made when the thread is resumed.
#[tokio::test]
async fn two_tasks_cannot_call_one_continued_graph_at_once() {
    let world = World::of(&[]);
    let inner = line(&world, "inner", &[("c1", "ey")]).build().unwrap().continued();
    let sends = |_: &Work| Ok(["a", "b"].map(|topic| Target::send("child", to_state(topic))).to_vec());
    let graph = Graph::new("outer").node("child", inner.mapped(down, up)).branch(START, ["child"], sends).edge("child", END);
    let runner = in_memory(graph);
    let error = soon(runner.thread("t").run(input())).await.unwrap_err();
    assert!(error.to_string().contains("keeps its state and is at work for another task"), "{error}");
    assert_eq!(done(soon(runner.thread("t").resume()).await).log, ["c1(a's)", "c1(a's)", "c1(b's)"]);
    assert_eq!(world.performed().len(), 2, "{:?}", world.performed());
}

fn to_state(topic: &str) -> serde_json::Value {
    serde_json::to_value(Work { topic: topic.to_owned(), ..Work::default() }).unwrap()
}

#[tokio::test]
async fn going_back_inside_keeps_the_state_of_the_graphs_that_keep_it_there() {
    let world = World::of(&[]);
    let kept = line(&world, "kept", &[("k", "e")]).build().unwrap().continued();
    let graph = Graph::new("inner").node("kept", kept.mapped(down, up)).node("c", node(&world, "c", ""));
    // kept, c, kept
    let graph = graph
        .edge(START, "kept")
        .edge("kept", "c")
        .route_to("c", ["kept", END], |s: &Work| if s.log.len() < 4 { "kept" } else { END });
    let runner = in_memory(chain(Graph::new("outer").node("child", graph.build().unwrap().mapped(down, up)), &["child"]));
    let thread = runner.thread("t");
    let state = done(thread.run(input()).await);
    let inside = thread.inside::<Work>(["child"]);
    let history = inside.history().await.unwrap();
    let at = history.iter().rfind(|c| c.next == ["c".into()]).unwrap().position;
    world.began();
    assert_eq!(done(thread.at(at).resume().await), state, "the second call finds the state of the first one");
    assert_eq!(world.began(), "c k c");
}

#[tokio::test]
async fn two_nodes_that_set_one_field_outside_are_in_conflict() {
    let say = |text: &'static str| move || async move { Ok(Next::to_parent(Work::update().topic(text))) };
    let inner = Graph::<Work>::new("inner")
        .node("a", say("a"))
        .node("b", say("b"))
        .edge(START, "a")
        .edge(START, "b")
        .edge("a", END)
        .edge("b", END);
    let runner = in_memory(chain(Graph::new("outer").node("child", inner.build().unwrap().mapped(down, up)), &["child"]));
    let error = runner.thread("t").run(input()).await.unwrap_err();
    assert_eq!(error.code(), "merge-conflict", "{error}");
    assert_eq!(runner.thread("t").state().await.unwrap().values.topic, "t");
}

#[tokio::test]
async fn a_step_that_cannot_be_merged_leaves_the_graph_as_it_was() {
    for (way, durability) in [
        (None, Durability::Step),
        (None, Durability::Exit),
        (Some(Way::Shared), Durability::Step),
        (Some(Way::Shared), Durability::Exit),
    ] {
        let (world, dir) = (World::of(&[("small", 1)]), tempfile::tempdir().unwrap());
        let make = || {
            let small = |name: &'static str, world: &Arc<World>| {
                let world = Arc::clone(world);
                move || {
                    let world = Arc::clone(&world);
                    async move {
                        world.began.lock().unwrap().push((name.to_owned(), String::new()));
                        Ok(Work::update().push_log(name).small(200))
                    }
                }
            };
            let graph = Graph::<Work>::new("g").node("first", node(&world, "first", "")).edge(START, "first");
            let graph = graph.node("a", small("a", &world)).node("b", small("b", &world));
            let graph = graph.edge("first", "a").edge("first", "b").edge("a", END).edge("b", END).build().unwrap();
            let graph = way
                .map_or(graph.clone(), |way| chain(embed(way, Graph::new("outer"), "child", graph), &["child"]).build().unwrap());
            at(dir.path(), graph)
        };
        for _ in 0..3 {
            let runner = make();
            let thread = runner.thread("t").durability(durability);
            let error = thread.run_once(input()).await.unwrap_err();
            assert_eq!(error.code(), "merge-conflict", "{error}");
            let state = thread.state().await.expect("it is readable");
            assert_eq!(state.status, ThreadStatus::Failed);
            let (log, next) = match way {
                Some(_) => {
                    let inside = thread.inside::<Work>(["child"]).state().await.unwrap();
                    (inside.values.log.clone(), inside.next)
                }
                None => (state.values.log.clone(), state.next),
            };
            assert_eq!(log, ["first(t)"], "{way:?} {durability:?} {next:?}");
        }
        assert_eq!(world.began(), "first a b", "{way:?} {durability:?}");
    }
}

/// before -> child(c1 -> c2 -> c3) -> after, where something goes wrong at c2 or behind it: what was finished inside is not done again.
#[tokio::test]
async fn after_a_failure_inside_only_what_failed_runs_again() {
    let cases = [("!", "c2", "node-failed"), ("e!", "c2", "node-failed"), ("", "route", "route"), ("", "steps", "step-limit")];
    for (script, fault, code) in cases {
        for (way, durability) in WAYS.into_iter().flat_map(|way| DURABILITIES.map(|durability| (way, durability))) {
            let (world, dir) = (World::of(&[(fault, 1)]), tempfile::tempdir().unwrap());
            let make = || {
                let route = Arc::clone(&world);
                let graph =
                    Graph::<Work>::new("inner").node("c1", node(&world, "c1", "e")).node("c2", node(&world, "c2", script));
                let graph = graph.node("c3", node(&world, "c3", "")).edge(START, "c1").edge("c1", "c2").edge("c3", END);
                let graph = graph.route_to("c2", ["c3"], move |_| if route.fault("route") { "nowhere" } else { "c3" });
                at(dir.path(), around(way, &world, graph.build().unwrap()))
            };
            let what = format!("{script} {fault} {way:?} {durability:?}");
            let runner = make();
            let steps = if fault == "steps" { 2 } else { 100 };
            let error = runner.thread("t").durability(durability).steps_max(steps).run(input()).await.unwrap_err();
            assert_eq!(error.code(), code, "{what}: {error}");
            let state = runner.thread("t").state().await.unwrap();
            assert_eq!(
                (state.status, &state.next[0], state.tasks[0].error.as_deref()),
                (ThreadStatus::Failed, &"child".into(), Some(code)),
                "{what}"
            );
            let inside = runner.thread("t").inside::<Work>(["child"]).state().await.unwrap();
            assert_eq!(
                inside.values.log.last().map(|entry| &entry[..2]),
                Some(if code == "node-failed" { "c1" } else { "c2" }),
                "{what}"
            );
            world.began();
            drop(runner);
            let state = done(make().thread("t").durability(durability).resume().await);
            let topic = if way == Way::Shared { "t" } else { "t's" };
            let log = [
                "before(t)".to_owned(),
                format!("c1({topic})"),
                format!("c2({topic})"),
                format!("c3({topic})"),
                "after(t)".to_owned(),
            ];
            assert_eq!(state.log, log, "{what}");
            assert_eq!(world.began(), if code == "node-failed" { "c2 c3 after" } else { "c3 after" }, "{what}");
            assert_eq!(world.performed().len(), 2 + script.matches('e').count(), "{what}: {:?}", world.performed());
        }
    }
}

/// Keeps every append, to begin again behind any of them.
#[derive(Debug, Default)]
struct Kept {
    inner: MemoryStore,
    appends: Arc<Mutex<Vec<Vec<Record>>>>,
}

impl Kept {
    /// What another process finds that begins behind these appends.
    async fn cut(appends: &[Vec<Record>]) -> Self {
        let (store, mut expected) = (Self::default(), Position(0));
        for records in appends {
            let (thread, records, count) = (ThreadName::new("t").unwrap(), records.clone(), records.len() as u64);
            let (status, at) = (ThreadStatus::Running, ferrata::clock::Timestamp(1));
            store.append(Append { thread, expected, records, snapshot: None, status, at }).await.unwrap();
            expected.0 += count;
        }
        store
    }
}

impl Store for Kept {
    fn append(&self, append: Append) -> Pending<'_, Appended> {
        self.appends.lock().unwrap().push(append.records.clone());
        self.inner.append(append)
    }
    fn load<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, Loaded> {
        self.inner.load(thread)
    }
    fn read<'a>(&'a self, thread: &'a ThreadName, from: Position) -> Pending<'a, Vec<Entry>> {
        self.inner.read(thread, from)
    }
    fn threads<'a>(&'a self, after: Option<&'a ThreadName>, limit: usize) -> Pending<'a, Vec<ThreadInfo>> {
        self.inner.threads(after, limit)
    }
    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool> {
        self.inner.delete(thread)
    }
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Two or three layers of one or two nodes, some of which are graphs of that kind again.
fn nested(dice: &mut Dice, world: &Arc<World>, prefix: &str, depth: u64) -> GraphBuilder<Work> {
    let mut graph = Graph::<Work>::new(if prefix.is_empty() { "outer" } else { prefix });
    let mut layer = vec![START.to_owned()];
    for row in 0..1 + dice.below(2) {
        let names: Vec<String> = (0..1 + dice.below(2)).map(|n| format!("{prefix}{row}{n}")).collect();
        for name in &names {
            if depth > 0 && dice.below(2) == 0 {
                let way = WAYS[dice.below(3) as usize];
                let inner = nested(dice, world, &format!("{name}."), depth - 1).build().unwrap();
                let inner = match dice.below(3) {
                    0 if way != Way::Shared => inner.continued(),
                    1 => inner.unstored(),
                    _ => inner,
                };
                graph = embed(way, graph, name, inner);
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
async fn finish(runner: &Runner<Work>, durability: Durability) -> Work {
    let thread = runner.thread("t").durability(durability);
    let mut result = thread.run_once(input()).await;
    for _ in 0..200 {
        result = match result {
            Ok(Outcome::Done(state)) => {
                assert_eq!(*thread.state().await.unwrap().values, *state, "the fold of the log is the live state");
                return (*state).clone();
            }
            Ok(Outcome::Waiting(questions)) => {
                let question = &questions[0];
                let answer = if question.is_doubt() { Answer::performed(10) } else { Answer::new(question.text.len()) };
                thread.answer(question.id, answer).await
            }
            Ok(Outcome::Suspended(why)) => panic!("{why}"),
            Err(error) if error.code() == "node-failed" => thread.resume().await,
            Err(error) => panic!("{error}"),
        };
    }
    panic!("it does not end");
}

#[tokio::test]
async fn random_graphs_inside_each_other_continued_from_behind_every_append_end_like_the_undisturbed_run() {
    let one = std::env::var("FERRATA_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut depths = 0;
    for seed in one.map_or(0..8, |seed| seed..seed + 1) {
        for durability in DURABILITIES {
            let world = World::of(&[]);
            let (store, graph) = (Kept::default(), nested(&mut Dice(seed), &world, "", 2).build().unwrap());
            let kept = Arc::clone(&store.appends);
            let undisturbed = soon(finish(&Runner::new(graph, store), durability)).await;
            let (appends, first) = (kept.lock().unwrap().clone(), world.performed());
            assert_eq!(first.iter().collect::<HashSet<_>>().len(), first.len(), "seed {seed} {durability:?}: twice in {first:?}");
            for cut in 0..=appends.len() {
                let (mut tasks, mut effects) = (HashSet::new(), HashSet::new());
                for record in appends[..cut].iter().flatten() {
                    match record {
                        Record::TaskDone(done) => _ = tasks.insert(done.task.to_string()),
                        Record::EffectDone(done) => {
                            _ = effects.insert(format!("{}/{}", done.effect.task, done.effect.occurrence))
                        }
                        _ => {}
                    }
                }
                let (world, store) = (World::of(&[]), Kept::cut(&appends[..cut]).await);
                let graph = nested(&mut Dice(seed), &world, "", 2).build().unwrap();
                let what = format!("seed {seed}, {durability:?}, cut behind append {cut}");
                let end = soon(finish(&Runner::new(graph, store), durability)).await;
                assert_eq!(end, undisturbed, "{what}");
                let twice: Vec<_> = world.performed().into_iter().filter(|effect| effects.contains(effect)).collect();
                assert!(twice.is_empty(), "{what}: recorded and performed again: {twice:?}");
                let again: Vec<_> = world
                    .began
                    .lock()
                    .unwrap()
                    .iter()
                    .map(|(_, task)| task.clone())
                    .filter(|task| tasks.contains(task))
                    .collect();
                assert!(again.is_empty(), "{what}: recorded and run again: {again:?}");
                depths = depths.max(tasks.iter().map(|task| task.matches('/').count()).max().unwrap_or(0));
            }
        }
    }
    assert!(one.is_some() || depths == 2, "{depths}");
}
