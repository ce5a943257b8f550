//! The graph changes between two versions of a program, while threads stand in the middle of it.
//!
//! How it could break: a thread whose node is gone ends in silence, or loses what has arrived at a join; a node that has another name performs its
//! effects again, or under another key; a graph inside is not found again, and with it the state it kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ferrata::clock::Timestamp;
use ferrata::log::Record;
use ferrata::state::{Field, Rule, Schema, Update, Values};
use ferrata::store::{Append, MemoryStore, Reach, Store, ThreadStatus};
use ferrata::{
    Answer, Ask, Context, Durability, END, Error, Graph, GraphBuilder, IntoNode, Next, Node, NodeError, Outcome, Position,
    Runner, START, Starved, Suspension, Target, ThreadName,
};
use serde_json::json;

/// What really happened outside, and what is to go wrong there.
#[derive(Default)]
struct World {
    /// The idempotency keys of effects, each time one was performed or tried.
    effects: Mutex<Vec<String>>,
    /// How often the node that is called so fails, by its task's name.
    faults: Mutex<HashMap<&'static str, u32>>,
}

impl World {
    fn fails(&self, what: &str) -> bool {
        let mut faults = self.faults.lock().expect("no panic");
        faults.get_mut(what).filter(|times| **times > 0).map(|times| *times -= 1).is_some()
    }

    fn fault(self: Arc<Self>, what: &'static str) -> Arc<Self> {
        self.faults.lock().expect("no panic").insert(what, 1);
        self
    }

    fn effects(&self) -> Vec<String> {
        self.effects.lock().expect("no panic").clone()
    }
}

fn schema() -> Schema {
    let fields = vec![Field::new("log", Rule::Append).initial(json!([])), Field::new("way", Rule::Replace)];
    Schema::new("Work", fields, json!({"type": "object"}))
}

fn graph(name: &str) -> GraphBuilder<Values> {
    GraphBuilder::with_schema(name, schema())
}

fn note(text: &str) -> Update {
    Update::new().append("log", &[text])
}

/// Performs an effect called "pay", and notes it. Fails in it, or behind it, if the world says so.
fn pay(world: &Arc<World>) -> Node<Values> {
    let world = Arc::clone(world);
    let run = move |ctx: Context| {
        let world = Arc::clone(&world);
        async move {
            let outside = Arc::clone(&world);
            let effect = ctx.effect("pay", |key| async move {
                outside.effects.lock().expect("no panic").push(key);
                if outside.fails("line") {
                    return Err(NodeError::new("the line went dead"));
                }
                if outside.fails("bank") { Err(NodeError::new("closed").not_performed()) } else { Ok(7) }
            });
            let paid: u64 = effect.await?;
            if world.fails("pay") {
                return Err(NodeError::new("the power is out"));
            }
            Ok(note(&format!("paid {paid} in {}", ctx.node())))
        }
    };
    run.into_node()
}

/// Notes its name, and asks before if it is called "ask..".
fn noted() -> Node<Values> {
    let run = |ctx: Context| async move {
        if ctx.node().starts_with("ask") {
            ctx.ask("sure", Ask::<bool>::new("Sure?")).await?;
        }
        Ok(note(ctx.node()))
    };
    run.into_node()
}

fn runner(graph: GraphBuilder<Values>, store: &Arc<MemoryStore>) -> Runner<Values> {
    Runner::new(graph.build().expect("the graph is right"), Arc::clone(store))
}

/// Nodes in a line, each noted.
fn line(nodes: &[&str]) -> GraphBuilder<Values> {
    let mut builder = nodes.iter().fold(graph("work"), |builder, node| builder.node(node, noted()));
    for pair in nodes.windows(2) {
        builder = builder.edge(pair[0], pair[1]);
    }
    builder.edge(START, nodes[0]).edge(nodes[nodes.len() - 1], END)
}

async fn answer(runner: &Runner<Values>) -> Result<Outcome<Values>, Error> {
    let thread = runner.thread("t");
    let question = thread.questions().await.expect("questions can be read").first().expect("one is open").id;
    thread.answer(question, true).await
}

fn log_of(outcome: Outcome<Values>) -> serde_json::Value {
    outcome.done().expect("it ends").get("log").cloned().expect("there is a log")
}

fn one(node: &str, pay: Node<Values>) -> GraphBuilder<Values> {
    graph("work").node(node, pay).edge(START, node).edge(node, END)
}

/// The thread is refused as gone, with these words, by every way to go on; and nothing is written.
async fn is_gone(runner: &Runner<Values>, words: &[&str]) {
    let thread = runner.thread("t");
    let before = thread.log().await.expect("the log");
    let mut errors = vec![thread.resume().await.expect_err("something is gone")];
    for question in thread.questions().await.expect("questions can be read") {
        let answer = if question.is_doubt() { Answer::performed(json!(7)) } else { Answer::new(true) };
        errors.push(thread.answer(question.id, answer).await.expect_err("something is gone"));
    }
    for error in errors {
        assert_eq!(error.code(), "node-gone", "{error}");
        for word in ["thread \"t\"", "there are: ", "nothing was changed", runner.graph().fingerprint()].iter().chain(words) {
            assert!(error.to_string().contains(word), "no {word} in: {error}");
        }
    }
    assert_eq!(thread.log().await.expect("the log"), before);
    thread.state().await.expect("it can be looked at");
    thread.history().await.expect("it can be listed");
}

#[tokio::test]
async fn a_node_of_another_name_finds_what_it_did_and_keeps_its_keys() {
    let (store, world) = (Arc::new(MemoryStore::new()), Arc::new(World::default()).fault("pay"));
    runner(one("pay", pay(&world)), &store).thread("t").run(Update::new()).await.expect_err("it fails behind the effect");
    assert_eq!(world.effects().len(), 1);
    is_gone(&runner(one("pay_out", pay(&world)), &store), &["node \"pay\"", "there are: pay_out", ".renamed(\"pay\", ..)"]).await;
    let renamed = runner(one("pay_out", pay(&world)).renamed("pay", "pay_out"), &store);
    assert_eq!(renamed.thread("t").state().await.expect("the state").next[0].as_str(), "pay_out");
    let outcome = renamed.thread("t").resume().await.expect("it goes on");
    assert_eq!(log_of(outcome), json!(["paid 7 in pay_out"]));
    assert_eq!(world.effects().len(), 1, "finished work is never done twice");

    // One that was certainly not performed is tried again, under the same key.
    let (store, world) = (Arc::new(MemoryStore::new()), Arc::new(World::default()).fault("bank"));
    runner(one("pay", pay(&world)), &store).thread("t").run(Update::new()).await.expect_err("the bank is closed");
    let renamed = runner(one("pay_out", pay(&world)).renamed("pay", "pay_out"), &store);
    let outcome = renamed.thread("t").resume().await.expect("it goes on");
    assert_eq!(log_of(outcome), json!(["paid 7 in pay_out"]));
    let keys = world.effects();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1], "the outside system sees one payment");

    // One in doubt stays in doubt.
    let (store, world) = (Arc::new(MemoryStore::new()), Arc::new(World::default()).fault("line"));
    let waits = runner(one("pay", pay(&world)), &store).thread("t").run(Update::new()).await.expect("it asks");
    assert!(waits.questions()[0].is_doubt());
    is_gone(&runner(one("pay_out", pay(&world)), &store), &["node \"pay\""]).await;
    let renamed = runner(one("pay_out", pay(&world)).renamed("pay", "pay_out"), &store);
    let thread = renamed.thread("t");
    let outcome = thread.answer(waits.questions()[0].id, Answer::performed(json!(7))).await.expect("it goes on");
    assert_eq!(log_of(outcome), json!(["paid 7 in pay_out"]));
    assert_eq!(world.effects().len(), 1);
    // What the next run does is done under the new name.
    thread.run(Update::new()).await.expect("it runs").done().expect("it ends");
    assert_ne!(world.effects()[0], world.effects()[1]);
}

/// The store as a process leaves it that is killed right behind that record.
async fn killed_behind(store: &MemoryStore, last: impl Fn(&Record) -> bool) -> Arc<MemoryStore> {
    let thread = ThreadName::new("t").expect("a name");
    let log = store.load(&thread, Reach::Whole).await.expect("the log").entries;
    let end = log.iter().position(|entry| last(&entry.record)).expect("there is one");
    let records = log.into_iter().take(end + 1).map(|entry| entry.record).collect();
    let (killed, status, at) = (MemoryStore::new(), ThreadStatus::Running, Timestamp(0));
    killed
        .append(Append { thread, expected: Position(0), records, snapshot: None, status, questions: None, alarms: None, at })
        .await
        .expect("it is stored");
    Arc::new(killed)
}

#[tokio::test]
async fn an_effect_of_a_killed_process_is_found_by_a_node_of_another_name() {
    for durability in [Durability::Step, Durability::Exit] {
        let (store, world) = (Arc::new(MemoryStore::new()), Arc::new(World::default()));
        // In the durability at the end, the step before is lost, and is made again under the new names.
        let graph = |first: &str, then: &str| {
            let graph = graph("work").node(first, noted()).node(then, pay(&world));
            graph.edge(START, first).edge(first, then).edge(then, END)
        };
        let run = runner(graph("a", "pay"), &store).thread("t").durability(durability).run(Update::new()).await;
        run.expect("it runs").done().expect("it ends");
        let started = killed_behind(&store, |record| matches!(record, Record::EffectStarted(_))).await;
        let done = killed_behind(&store, |record| matches!(record, Record::EffectDone(_))).await;
        let lacking = graph("b", "pay_out");
        is_gone(&runner(lacking, &done), &["node \""]).await;
        let renamed = || graph("b", "pay_out").renamed("a", "b").renamed("pay", "pay_out");
        let first = if durability == Durability::Exit { "b" } else { "a" };
        let outcome = runner(renamed(), &done).thread("t").resume().await.expect("it goes on");
        assert_eq!(log_of(outcome), json!([first, "paid 7 in pay_out"]));
        // One that was under way is asked about.
        let asked = runner(renamed(), &started).thread("t").resume().await.expect("it asks");
        let question = asked.questions()[0].id;
        assert!(asked.questions()[0].is_doubt());
        let outcome = runner(renamed(), &started).thread("t").answer(question, Answer::not_performed()).await;
        assert_eq!(log_of(outcome.expect("it goes on")), json!([first, "paid 7 in pay_out"]));
        let keys = world.effects();
        assert_eq!(keys.len(), 2, "once in the beginning, and once since somebody said that it was not performed");
        assert_eq!(keys[0], keys[1]);
    }
}

#[tokio::test]
async fn results_at_a_node_of_another_name_count() {
    for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
        let store = Arc::new(MemoryStore::new());
        let both = |a: &str, ask: &str, end: &str| {
            let nodes = [a, ask, end].iter().fold(graph("work"), |graph, node| graph.node(node, noted()));
            nodes.edge(START, a).edge(START, ask).join([a, ask], end).edge(end, END)
        };
        let first = runner(both("a", "ask", "end"), &store);
        assert_eq!(first.thread("t").durability(durability).run(Update::new()).await.expect("it asks").questions().len(), 1);
        is_gone(&runner(both("a2", "ask", "end"), &store), &["node \"a\""]).await;
        let renamed = both("a2", "ask2", "end2").renamed("a", "a2").renamed("ask", "ask2").renamed("end", "end2");
        let renamed = runner(renamed, &store);
        let question = renamed.thread("t").questions().await.expect("questions")[0].id;
        let outcome = renamed.thread("t").durability(durability).answer(question, true).await.expect("it goes on");
        assert_eq!(log_of(outcome), json!(["a", "ask2", "end2"]));
    }
}

/// `quick` has arrived at the join when `ask` asks in the next step.
fn arriving(quick: &str, ask: &str, end: &str, join: &[&str]) -> GraphBuilder<Values> {
    let nodes = [quick, "slow", ask, end].iter().fold(graph("work"), |graph, node| graph.node(node, noted()));
    let nodes = nodes.edge(START, quick).edge(START, "slow").edge("slow", ask).edge(end, END);
    nodes.join_or(join.iter().copied(), end, Starved::Fail)
}

#[tokio::test]
async fn what_has_arrived_at_a_join_is_not_forgotten() {
    let store = Arc::new(MemoryStore::new());
    let first = runner(arriving("quick", "ask", "end", &["quick", "ask"]), &store);
    assert_eq!(first.thread("t").run(Update::new()).await.expect("it asks").questions().len(), 1);
    is_gone(&runner(arriving("fast", "ask", "end", &["fast", "ask"]), &store), &["node \"quick\"", "fast"]).await;
    let other = arriving("quick", "ask", "end", &["quick", "ask", "slow"]);
    is_gone(&runner(other, &store), &["the join \"quick+ask>end\"", "there are: quick+ask+slow>end"]).await;
    let renamed = arriving("fast", "ask_me", "last", &["fast", "ask_me"]);
    let renamed = renamed.renamed("quick", "fast").renamed("ask", "ask_me").renamed("end", "last");
    assert_eq!(log_of(answer(&runner(renamed, &store)).await.expect("it goes on")), json!(["quick", "slow", "ask_me", "last"]));
}

#[tokio::test]
async fn deferred_nodes_and_targets_of_results_are_looked_for_too() {
    let store = Arc::new(MemoryStore::new());
    let graph_with = |last: &str, goal: &'static str| {
        let aim = || async move { Ok(Next::update(note("aim")).goto([Target::node("goal")])) };
        let aim = if goal == "goal" { aim.leads_to(["goal"]) } else { noted().leads_to([goal]) };
        let nodes = graph("work").node("aim", aim).node("ask", noted()).node(goal, noted()).node(last, noted().deferred());
        let nodes = nodes.edge(START, "aim").edge(START, "ask").edge(START, last);
        nodes.edge("ask", END).edge(goal, END).edge(last, END)
    };
    assert_eq!(
        runner(graph_with("last", "goal"), &store).thread("t").run(Update::new()).await.expect("it asks").questions().len(),
        1
    );
    is_gone(&runner(graph_with("final", "goal"), &store), &["node \"last\"", "there are: aim, ask, goal, final"]).await;
    is_gone(&runner(graph_with("last", "target"), &store), &["node \"goal\"", "there are: aim, ask, target, last"]).await;
    let renamed = runner(graph_with("final", "target").renamed("last", "final").renamed("goal", "target"), &store);
    assert_eq!(log_of(answer(&renamed).await.expect("it goes on")), json!(["aim", "ask", "target", "final"]));
    // New input may take the place of what is gone.
    let gone = runner(line(&["other"]), &store);
    gone.thread("u").run(Update::new()).await.expect("it runs").done().expect("it ends");
}

#[tokio::test]
async fn new_input_may_supersede_what_is_gone() {
    let store = Arc::new(MemoryStore::new());
    assert_eq!(runner(line(&["ask"]), &store).thread("t").run(Update::new()).await.expect("it asks").questions().len(), 1);
    let other = runner(line(&["other"]), &store);
    is_gone(&other, &["node \"ask\"", "there are: other"]).await;
    let outcome = other.thread("t").supersede().run(Update::new()).await.expect("it begins anew");
    assert_eq!(log_of(outcome), json!(["other"]));
}

/// A graph inside, as the node of that name.
fn outside(node: &str, inner: &Graph<Values>) -> GraphBuilder<Values> {
    let child = inner.clone().mapped(
        |_: &Values| Update::new(),
        |_: &Values, inner: &Values| {
            Update::new().append("log", &[inner.get("log").map(ToString::to_string).unwrap_or_default()])
        },
    );
    graph("outer").node(node, child).edge(START, node).edge(node, END)
}

#[tokio::test]
async fn a_graph_inside_goes_on_under_another_name_and_with_other_nodes() {
    for durability in [Durability::Step, Durability::Exit] {
        let store = Arc::new(MemoryStore::new());
        let inner = line(&["before", "ask", "after"]).build().expect("it is right");
        let first = runner(outside("inner", &inner), &store);
        assert_eq!(first.thread("t").durability(durability).run(Update::new()).await.expect("it asks").questions().len(), 1);
        let changed = line(&["before", "ask_me", "after"]).renamed("ask", "ask_me").build().expect("it is right");
        let lacking = line(&["before", "ask_me", "after"]).build().expect("it is right");
        let words = ["node \"ask\"", "in the graph at inner@1/", "there are: before, ask_me, after"];
        is_gone(&runner(outside("inner", &lacking), &store), &words).await;
        is_gone(&runner(outside("work", &changed), &store), &["node \"inner\"", "there are: work"]).await;
        let plain = graph("outer").node("inner", noted()).edge(START, "inner").edge("inner", END);
        is_gone(&runner(plain, &store), &["the graph \"inner\", which is at work", "there are: none"]).await;
        let renamed = runner(outside("work", &changed).renamed("inner", "work"), &store);
        let inside = renamed.thread("t").inside::<Values>(["work"]);
        assert_eq!(inside.state().await.expect("it is found").next[0].as_str(), "ask_me");
        if durability == Durability::Step {
            assert_eq!(inside.history().await.expect("it is found").len(), 3);
        }
        assert_eq!(log_of(answer(&renamed).await.expect("it goes on")), json!([r#"["before","ask_me","after"]"#]));
    }
}

#[tokio::test]
async fn effects_of_a_graph_that_is_not_stored_are_found_under_another_name() {
    let (store, world) = (Arc::new(MemoryStore::new()), Arc::new(World::default()).fault("pay"));
    let inner = |node: &str| one(node, pay(&world)).build().expect("it is right").unstored();
    runner(outside("inner", &inner("pay")), &store).thread("t").run(Update::new()).await.expect_err("it fails");
    is_gone(&runner(outside("inner", &inner("pay_out")), &store), &["node \"pay\"", "there are: pay_out"]).await;
    let renamed = one("pay_out", pay(&world)).renamed("pay", "pay_out").build().expect("it is right").unstored();
    // Its task is made anew under the new name, so what was done has to be found where it stands.
    let outcome = runner(outside("inner", &renamed), &store).thread("t").resume().await.expect("it goes on");
    assert_eq!(log_of(outcome), json!([r#"["paid 7 in pay_out"]"#]));
    assert_eq!(world.effects().len(), 1, "finished work is never done twice");
}

#[tokio::test]
async fn a_graph_that_keeps_its_state_keeps_it_under_another_name() {
    // Called twice in each run.
    let graph = |node: &'static str| {
        let inner = line(&["a"]).build().expect("it is right").continued();
        let output = |_: &Values, inner: &Values| Update::new().append("log", &[inner.get("log").cloned()]);
        let graph = graph("outer").node(node, inner.mapped(|_: &Values| Update::new(), output)).edge(START, node);
        let is_odd = |s: &Values| s.get("log").and_then(|log| log.as_array()).is_some_and(|log| log.len() % 2 == 1);
        graph.route_to(node, [node, END], move |s: &Values| if is_odd(s) { node } else { END })
    };
    for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
        let store = Arc::new(MemoryStore::new());
        let first = runner(graph("inner"), &store);
        first.thread("t").durability(durability).run(Update::new()).await.expect("it runs").done().expect("it ends");
        let renamed = runner(graph("work").renamed("inner", "work"), &store);
        for calls in [4, 6] {
            renamed.thread("t").durability(durability).run(Update::new()).await.expect("it runs").done().expect("it ends");
            let state = renamed.thread("t").inside::<Values>(["work"]).state().await.expect("it is kept");
            assert_eq!(state.values.get("log"), Some(&json!(vec!["a"; calls])));
        }
        // It has moved: the declaration is not needed any more.
        let outcome = runner(graph("work"), &store).thread("t").run(Update::new()).await.expect("it runs");
        assert_eq!(log_of(outcome)[7], json!(vec!["a"; 8]));
    }
}

#[tokio::test]
async fn breakpoints_and_forks_know_the_new_name() {
    let store = Arc::new(MemoryStore::new());
    let first = runner(line(&["a", "b", "c"]).pause_before(["b"]), &store);
    let paused = first.thread("t").run(Update::new()).await.expect("it stops");
    assert!(matches!(paused, Outcome::Suspended(Suspension::Breakpoint)));
    let renamed = runner(line(&["a", "b2", "c"]).renamed("b", "b2").pause_before(["b2"]), &store);
    let history = renamed.thread("t").history().await.expect("the history");
    assert_eq!(history[0].next[0].as_str(), "b2");
    assert_eq!(log_of(renamed.thread("t").resume().await.expect("it goes on")), json!(["a", "b2", "c"]));
    let again = renamed.thread("t").at(history[0].position).resume().await.expect("it stops at the copy or runs");
    let again =
        if matches!(again, Outcome::Suspended(_)) { renamed.thread("t").resume().await.expect("it goes on") } else { again };
    assert_eq!(log_of(again), json!(["a", "b2", "c"]));
    // An edit may stand for the old name, too.
    renamed.thread("t").update(note("by hand"), Some("b")).await.expect("it is known");
    assert_eq!(renamed.thread("t").state().await.expect("the state").next[0].as_str(), "c");
}

#[tokio::test]
async fn each_run_tells_the_graph_it_was_made_with() {
    let store = Arc::new(MemoryStore::new());
    let (first, second) = (runner(line(&["a"]), &store), runner(line(&["a", "b"]), &store));
    for runner in [&first, &second] {
        runner.thread("t").run(Update::new()).await.expect("it runs").done().expect("it ends");
    }
    let log = second.thread("t").log().await.expect("the log");
    let told = log.iter().filter_map(|entry| match &entry.record {
        Record::RunStarted(run) => run.graph.as_deref(),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [first.graph().fingerprint(), second.graph().fingerprint()]);
    assert_ne!(first.graph().fingerprint(), second.graph().fingerprint());
    assert_eq!(first.graph().fingerprint(), runner(line(&["a"]).renamed("old", "a"), &store).graph().fingerprint());
}

#[test]
fn a_past_that_cannot_be_is_a_mistake() {
    let codes = |graph: GraphBuilder<Values>| {
        let error = graph.build().expect_err("it is wrong");
        error.mistakes().iter().map(ferrata::Mistake::code).collect::<Vec<_>>()
    };
    assert_eq!(codes(line(&["a"]).renamed("old", "b")), ["unknown-node"]);
    assert_eq!(codes(line(&["a", "b"]).renamed("a", "b")), ["renamed-node"]);
    assert_eq!(codes(line(&["a", "b"]).renamed("old", "b").renamed("old", "a")), ["renamed-node"]);
    assert_eq!(codes(line(&["a"]).upgrade(1, |_| Ok(()))), ["unused-upgrade"]);
    assert_eq!(codes(line(&["a"]).upgrade(0, |_| Ok(()))), ["unused-upgrade"]);
    let two = GraphBuilder::<Values>::with_schema("work", schema().with_version(2)).node("a", noted());
    let two = two.edge(START, "a").edge("a", END).upgrade(1, |_| Ok(())).upgrade(1, |_| Ok(()));
    assert_eq!(codes(two), ["duplicate-upgrade"]);
}
