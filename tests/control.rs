//! What a graph can say about its control flow: functions that merge, choices of many, goto, deferred nodes, error handlers,
//! breakpoints, and what input, output and nodes see.
//!
//! How it could break: operands that are merged in the order of finishing; a send that loses its payload; a goto that adds to edges;
//! a deferred node that runs early or twice; a handler that runs although an attempt is left; a breakpoint that stops twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata::state::{Field, Rule, Schema, Update, Values};
use ferrata::store::{MemoryStore, ThreadQuery, ThreadStatus};
use ferrata::{
    Class, Context, END, Graph, GraphBuilder, IntoNode, Next, NodeError, Outcome, Retry, Runner, START, Starved, State,
    Suspension, Target, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Tally {
    #[state(sum)]
    total: i64,
    #[state(max)]
    most: u64,
    #[state(min)]
    least: Option<f64>,
    #[state(append)]
    log: Vec<String>,
}

fn graph() -> GraphBuilder<Tally> {
    Graph::<Tally>::new("tally")
}

async fn end(graph: GraphBuilder<Tally>, input: TallyUpdate) -> Tally {
    let runner = Runner::new(graph.build().expect("the graph is right"), MemoryStore::new());
    let outcome = runner.thread("t").run(input).await.expect("it runs");
    let state = outcome.done().expect("it ends");
    assert_eq!(
        *runner.thread("t").state().await.expect("it is readable").values,
        *state,
        "the fold of the log is the live state"
    );
    (*state).clone()
}

fn note(name: &'static str) -> impl IntoNode<Tally, (View<Tally>,)> {
    move |_: View<Tally>| async move { Ok(Tally::update().push_log(name)) }
}

#[tokio::test]
async fn operands_of_parallel_nodes_are_merged_and_an_overwrite_beats_them() {
    let add =
        |n: i64, most: u64, least: f64| move |_: View<Tally>| async move { Ok(Tally::update().total(n).most(most).least(least)) };
    let three = || {
        let g = graph().node("a", add(1, 7, 2.5)).node("b", add(20, 9, -1.0)).node("c", add(-300, 3, 4.0));
        g.edge(START, "a").edge(START, "b").edge(START, "c").edge("a", END).edge("b", END).edge("c", END)
    };
    let state = end(three(), Tally::update().total(1_000).most(8)).await;
    assert_eq!((state.total, state.most, state.least), (721, 9, Some(-1.0)));
    let set = |_: View<Tally>| async move { Ok(Tally::update().set_total(5)) };
    let state = end(three().node("d", set).edge(START, "d").edge("d", END), Tally::update()).await;
    assert_eq!((state.total, state.most), (5, 9));
}

#[tokio::test]
async fn a_sum_that_is_too_large_is_refused_before_it_is_stored() {
    let add = |_: View<Tally>| async move { Ok(Tally::update().total(i64::MAX)) };
    let g = graph().node("a", add).edge(START, "a").edge("a", END);
    let runner = Runner::new(g.build().expect("the graph is right"), MemoryStore::new());
    let error = runner.thread("t").run(Tally::update().total(1)).await.expect_err("too large");
    assert!(error.code() == "merge-conflict" && error.to_string().contains("`total`"), "{error}");
    assert_eq!(runner.thread("t").state().await.expect("it is readable").values.total, 1);
}

#[tokio::test]
async fn a_branch_sends_many_tasks_to_one_node_and_to_others_at_once() {
    let work = |n: u64| async move { Ok(Tally::update().push_log(format!("work {n}"))) };
    let g = graph()
        .node("a", note("a"))
        .node("work", work)
        .node("side", note("side"))
        .node("z", note("z"))
        .edge(START, "a")
        .branch("a", ["work", "side"], |_| {
            Ok(vec![Target::send("work", 1), Target::send("work", 2), Target::node("side"), Target::send("work", 3)])
        })
        .edge("work", "z")
        .edge("side", "z")
        .edge("z", END);
    let state = end(g, Tally::update()).await;
    assert_eq!(state.log, ["a", "side", "work 1", "work 2", "work 3", "z"]);
}

#[tokio::test]
async fn a_node_that_says_itself_where_to_go_keeps_to_what_it_declared() {
    let go = |to: &'static str| {
        move |_: View<Tally>| async move { Ok(Next::update(Tally::update().push_log("a")).goto([Target::node(to)])) }
    };
    let make =
        |to| graph().node("a", go(to).leads_to(["b"])).node("b", note("b")).node("c", note("c")).edge(START, "a").edge("b", "c");
    assert_eq!(end(make("b").edge("c", END), Tally::update()).await.log, ["a", "b", "c"]);
    let runner = Runner::new(make("c").edge("c", END).build().expect("the graph is right"), MemoryStore::new());
    let error = runner.thread("t").run(Tally::update()).await.expect_err("undeclared").to_string();
    assert!(error.contains("goes to \"c\"; declared with `leads_to` are: b"), "{error}");
    let error = make("b").edge("c", END).edge("a", "b").build().expect_err("both").to_string();
    assert!(error.contains("\"a\" has edges and says itself where to go"), "{error}");
}

#[tokio::test]
async fn a_deferred_node_waits_until_nothing_else_is_due() {
    let g = graph()
        .node("s", note("s"))
        .node("last", note("last").deferred())
        .node("l1", note("l1"))
        .node("l2", note("l2"))
        .edge(START, "s")
        .edge("s", "last")
        .edge("s", "l1")
        .edge("l1", "l2")
        .edge("l2", "last")
        .edge("last", END);
    assert_eq!(end(g, Tally::update()).await.log, ["s", "l1", "l2", "last"]);
}

#[tokio::test]
async fn an_error_handler_takes_over_after_the_last_attempt() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let fail = move |_: View<Tally>| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Err::<TallyUpdate, _>(NodeError::new("no paper").transient()) }
    };
    let handle = |_: View<Tally>, ctx: Context| async move {
        let failure = ctx.failure().expect("it has something to handle").message.clone();
        Ok(Next::update(Tally::update().push_log(format!("instead of {failure}"))).goto([Target::node("c")]))
    };
    let retry = Retry::classes(2, &[Class::Transient]).first_delay(Duration::ZERO);
    let g = graph()
        .node("a", fail.retry(retry).on_error(handle.leads_to(["c"])))
        .node("b", note("b"))
        .node("c", note("c"))
        .edge(START, "a")
        .edge("a", "b")
        .edge("b", END)
        .edge("c", END);
    assert_eq!(end(g, Tally::update()).await.log, ["instead of no paper", "c"], "the node's own edges are not taken");
    assert_eq!(tries.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn breakpoints_stop_once_and_the_thread_goes_on_from_there() {
    let g = || graph().node("a", note("a")).node("b", note("b")).edge(START, "a").edge("a", "b").edge("b", END);
    let runner = Runner::new(g().pause_before(["b"]).build().expect("the graph is right"), MemoryStore::new());
    let outcome = runner.thread("t").run(Tally::update()).await.expect("it runs");
    assert!(matches!(outcome, Outcome::Suspended(Suspension::Breakpoint)));
    assert_eq!(runner.thread("t").state().await.expect("it is readable").values.log, ["a"]);
    assert_eq!(runner.thread("t").resume().await.expect("it goes on").done().expect("it ends").log, ["a", "b"]);
    // A run may have other breakpoints than the graph.
    let thread = runner.thread("other").pause_after(["a"]);
    assert!(matches!(thread.run(Tally::update()).await, Ok(Outcome::Suspended(_))));
    assert!(matches!(thread.resume().await, Ok(Outcome::Done(_))));
    let error = g().pause_before(["x"]).build().expect_err("no such node").to_string();
    assert!(error.contains("the pause names \"x\", which is no node"), "{error}");
}

#[tokio::test]
async fn a_thread_that_stopped_behind_its_last_step_is_done_when_it_is_resumed_in_lists_too() {
    let graph = graph().node("a", note("a")).edge(START, "a").edge("a", END).build().expect("it is right");
    let runner = Runner::new(graph, MemoryStore::new());
    let thread = runner.thread("t").pause_after(["a"]);
    let outcome = thread.run(Tally::update()).await.expect("it runs");
    assert!(matches!(outcome, Outcome::Suspended(Suspension::Breakpoint)));
    for _ in 0..2 {
        thread.resume().await.expect("it goes on").done().expect("it ends");
        let listed = runner.threads(ThreadQuery::new()).await.expect("the threads");
        assert_eq!((listed[0].status, thread.state().await.expect("its state").status), (ThreadStatus::Done, ThreadStatus::Done));
    }
    let ends = |entry: &&ferrata::log::Entry| matches!(entry.record, ferrata::log::Record::RunEnded(_));
    assert_eq!(thread.log().await.expect("the log").iter().filter(ends).count(), 2, "and says so once");
}

#[tokio::test]
async fn input_output_and_private_fields_keep_to_their_places() {
    let fields = vec![
        Field::new("x", Rule::Replace),
        Field::new("y", Rule::Replace),
        Field::new("secret", Rule::Replace).private(),
        Field::new("seen", Rule::Append).initial(json!([])),
    ];
    let look = |s: View<Values>| async move {
        let names: Vec<&str> = s.iter().map(|(name, _)| name).collect();
        Ok(Update::new().append("seen", &[json!(names)]).set("secret", &1))
    };
    let graph = GraphBuilder::<Values>::with_schema("g", Schema::new("G", fields, json!({})))
        .node("a", look)
        .node("b", look.into_node().reads(["secret"]))
        .edge(START, "a")
        .edge("a", "b")
        .edge("b", END)
        .input_fields(["x", "seen"])
        .output_fields(["seen"])
        .build()
        .expect("the graph is right");
    let runner = Runner::new(graph, MemoryStore::new());
    let input = Update::new().set("x", &Value::Null).set("y", &2);
    let state = runner.thread("t").run(input).await.expect("it runs").done().expect("it ends");
    assert_eq!(Value::Object(state.to_object()), json!({"seen": [["seen", "x"], ["secret"]]}));
    let all = runner.thread("t").state().await.expect("it is readable").values.to_object();
    assert_eq!(Value::Object(all), json!({"x": null, "secret": 1, "seen": [["seen", "x"], ["secret"]]}));
}

/// A join of `a`, which always runs, and `b`, which runs if the total is positive.
fn maybe_starving(starved: Starved) -> GraphBuilder<Tally> {
    graph()
        .node("split", note("split"))
        .node("a", note("a"))
        .node("b", note("b"))
        .node("joined", note("joined"))
        .edge(START, "split")
        .edge("split", "a")
        .route_to("split", ["b", END], |s: &Tally| if s.total > 0 { "b" } else { END })
        .join_or(["a", "b"], "joined", starved)
        .edge("joined", END)
}

#[tokio::test]
async fn a_join_whose_source_was_skipped_does_what_the_graph_says() {
    for (starved, skipped) in [(Starved::Run, &["split", "a", "joined"][..]), (Starved::Skip, &["split", "a"])] {
        assert_eq!(end(maybe_starving(starved), Tally::update().total(0)).await.log, skipped, "{starved:?}");
        let all = ["split", "a", "b", "joined"];
        assert_eq!(end(maybe_starving(starved), Tally::update().total(1)).await.log, all, "{starved:?}");
    }
    let runner = Runner::new(maybe_starving(Starved::Fail).build().expect("the graph is right"), MemoryStore::new());
    let error = runner.thread("t").run(Tally::update().total(0)).await.expect_err("it starves");
    assert_eq!(error.code(), "join-starved");
    assert!(error.to_string().contains("\"joined\" still waits for \"b\""), "{error}");
    // The step was not made, so that its result is still pending, and the thread stays usable.
    assert_eq!(runner.thread("t").state().await.expect("a state").values.log, ["split", "a"]);
    let state = runner.thread("u").run(Tally::update().total(1)).await.expect("it runs").done().expect("it ends");
    assert_eq!(state.log, ["split", "a", "b", "joined"]);
}

#[tokio::test]
async fn deferred_nodes_go_before_a_starving_join() {
    let graph = graph()
        .node("a", note("a"))
        .node("b", note("b"))
        .node("late", IntoNode::deferred(note("late")))
        .node("joined", note("joined"))
        .edge(START, "a")
        .edge("a", "late")
        .route_to("late", ["b", END], |_: &Tally| "b")
        .join_or(["a", "b"], "joined", Starved::Run)
        .edge("joined", END);
    assert_eq!(end(graph, Tally::update()).await.log, ["a", "late", "b", "joined"]);
}

#[tokio::test]
async fn a_node_knows_how_many_steps_are_left() {
    let count = |ctx: Context| async move { Ok(Tally::update().total(1).most(100 - ctx.steps_left())) };
    let graph =
        graph().node("a", count).edge(START, "a").route_to("a", ["a", END], |s: &Tally| if s.total < 3 { "a" } else { END });
    let runner = Runner::new(graph.build().expect("the graph is right"), MemoryStore::new());
    let state = runner.thread("t").steps_max(50).run(Tally::update()).await.expect("it runs").done().expect("it ends");
    assert_eq!(state.most, 100 - 47, "in its third of 50 steps 47 are left");
}
