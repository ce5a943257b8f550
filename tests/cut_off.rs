//! What is cut off stays cut off, and what belongs to one call is not taken for another's.
//!
//! How it could break: a graph that starts although its caller has ended; a node that runs after the end of its run is stored; a question
//! that is closed by a task which never asked it; a stream that waits for somebody who holds a context.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferrata::store::MemoryStore;
use ferrata::{Answer, Ask, Context, END, Graph, GraphBuilder, Mode, Outcome, Runner, START, State, Suspension, Target, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Job {
    n: u64,
    #[state(sum)]
    total: u64,
    #[state(append)]
    log: Vec<String>,
}

fn graph(name: &str) -> GraphBuilder<Job> {
    Graph::<Job>::new(name)
}

fn memory(graph: GraphBuilder<Job>) -> Runner<Job> {
    Runner::new(graph.build().expect("the graph is right"), MemoryStore::new())
}

/// One node that counts how often it began.
fn counting(began: &Arc<AtomicU64>) -> Graph<Job> {
    let began = Arc::clone(began);
    let node = move || {
        began.fetch_add(1, Ordering::SeqCst);
        async { Ok(Job::update().push_log("inside")) }
    };
    graph("inner").node("inside", node).edge(START, "inside").edge("inside", END).build().expect("the graph is right")
}

#[tokio::test]
async fn a_graph_whose_caller_does_not_wait_for_it_does_not_start() {
    let began = Arc::new(AtomicU64::new(0));
    let caller = |ctx: Context| async move {
        tokio::task::yield_now().await;
        let mut call = std::pin::pin!(ctx.call::<Job>("inner", Job::update()));
        // Called, and dropped in the same breath.
        let polled = std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context).is_pending())).await;
        Ok(Job::update().push_log(format!("went on: {polled}")))
    };
    let runner = memory(
        graph("outer").callable("inner", counting(&began)).node("caller", caller).edge(START, "caller").edge("caller", END),
    );
    let state = runner.thread("t").run(Job::update()).await.expect("it runs").done().expect("it ends");
    assert_eq!(state.log, ["went on: true"]);
    assert_eq!(began.load(Ordering::SeqCst), 0, "nobody waited for it");
}

#[tokio::test]
async fn nothing_starts_after_a_run_was_cut() {
    let began = Arc::new(AtomicU64::new(0));
    let count = {
        let began = Arc::clone(&began);
        move |s: View<Job>| {
            began.fetch_add(1, Ordering::SeqCst);
            async move { Ok(Job::update().n(s.n + 1)) }
        }
    };
    let runner = memory(graph("endless").node("count", count).edge(START, "count").route_to("count", ["count"], |_| "count"));
    let thread = runner.thread("t").steps_max(u64::MAX).deadline(Duration::from_millis(10));
    let outcome = thread.run(Job::update()).await.expect("a deadline is no error");
    assert!(matches!(outcome, Outcome::Suspended(Suspension::Deadline)), "{outcome:?}");
    let recorded = runner.thread("t").state().await.expect("a state").values.n;
    assert_eq!(began.load(Ordering::SeqCst), recorded, "each that began is recorded");
}

#[tokio::test]
async fn a_task_that_never_called_a_graph_does_not_close_its_question() {
    let ask = |ctx: Context| async move {
        let n = ctx.ask("n", Ask::<u64>::new("How many?")).await?;
        Ok(Job::update().total(n))
    };
    let inner = graph("inner").node("ask", ask).edge(START, "ask").edge("ask", END).build().expect("the graph is right");
    let asked = Arc::new(tokio::sync::Notify::new());
    let gate = Arc::clone(&asked);
    let worker = move |s: View<Job>, ctx: Context| {
        let gate = Arc::clone(&gate);
        async move {
            if s.n == 1 {
                gate.notified().await;
                return Ok(Job::update().push_log("did not ask"));
            }
            let inside = ctx.call::<Job>("inner", Job::update()).await?;
            Ok(Job::update().push_log(format!("asked: {}", inside.total)))
        }
    };
    let send = |n: u64| Target::send("worker", json!({"n": n, "total": 0, "log": []}));
    let outer = graph("outer").callable("inner", inner.continued()).node("worker", worker);
    let runner = memory(outer.branch(START, ["worker"], move |_: &Job| Ok(vec![send(0), send(1)])).edge("worker", END));
    let mut events = runner.thread("t").stream(Job::update()).expect("it starts");
    while let Some(event) = events.next().await {
        if matches!(event, ferrata::Event::Asked(_)) {
            // Only now the other one ends.
            asked.notify_one();
        }
    }
    let outcome = events.outcome().await.expect("it runs");
    let Outcome::Waiting(questions) = &outcome else { panic!("{outcome:?}") };
    let state = runner.thread("t").answer(questions[0].id, Answer::new(5)).await.expect("it runs").done().expect("it ends");
    assert_eq!(state.log, ["asked: 5", "did not ask"]);
}

#[tokio::test]
async fn a_node_inside_that_is_gone_is_an_error_and_no_breakpoint() {
    let make = |name: &'static str, store: Arc<MemoryStore>| {
        let ask = |ctx: Context| async move { ctx.ask("n", Ask::<u64>::new("How many?")).await.map(|n| Job::update().total(n)) };
        let inner = graph("inner").node(name, ask).edge(START, name).edge(name, END).build().expect("the graph is right");
        let outer = graph("outer").node("s", inner.shared()).edge(START, "s").edge("s", END);
        Runner::new(outer.build().expect("the graph is right"), store)
    };
    let store = Arc::new(MemoryStore::new());
    let old = make("ask", Arc::clone(&store));
    let outcome = old.thread("t").run(Job::update()).await.expect("it runs");
    let question = outcome.questions()[0].id;
    let error = make("renamed", Arc::clone(&store)).thread("t").answer(question, Answer::new(1)).await.expect_err("it is gone");
    assert!(error.to_string().contains("\"ask\"") && error.to_string().contains("there are: renamed"), "{error}");
    assert_eq!(error.code(), "node-gone");
    // Nothing was changed: the old program takes the answer.
    let outcome = old.thread("t").answer(question, Answer::new(1)).await.expect("it runs");
    assert_eq!(outcome.done().expect("it ends").total, 1);
}

#[tokio::test]
async fn a_stream_ends_with_its_run_whoever_holds_a_context() {
    let (give, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let keep = move |ctx: Context| {
        let give = give.clone();
        async move {
            give.send(ctx).expect("somebody takes it");
            Ok(Job::update().push_log("kept"))
        }
    };
    let runner = memory(graph("g").node("keep", keep).edge(START, "keep").edge("keep", END));
    let mut events = runner.thread("t").stream(Job::update()).expect("it starts").only([Mode::Updates]);
    let mut seen = 0;
    while events.next().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 1);
    let late = taken.recv().await.expect("a context");
    late.emit("nobody hears it").expect("it may be told");
    assert!(events.next().await.is_none());
    assert!(matches!(events.outcome().await, Ok(Outcome::Done(_))));
}

#[tokio::test]
async fn an_answer_cannot_go_back_in_time() {
    let ask = |ctx: Context| async move { ctx.ask("n", Ask::<u64>::new("How many?")).await.map(|n| Job::update().total(n)) };
    let first = || async { Ok(Job::update().push_log("first")) };
    let runner =
        memory(graph("g").node("first", first).node("ask", ask).edge(START, "first").edge("first", "ask").edge("ask", END));
    let outcome = runner.thread("t").run(Job::update()).await.expect("it runs");
    let question = outcome.questions()[0].id;
    let history = runner.thread("t").history().await.expect("a history");
    let at = history.iter().find(|checkpoint| checkpoint.next[0].as_str() == "first").expect("a checkpoint").position;
    let before = runner.thread("t").log().await.expect("a log").len();
    let error = runner.thread("t").at(at).answer(question, Answer::new(1)).await.expect_err("it was not asked then");
    assert_eq!(error.code(), "not-waiting", "{error}");
    assert_eq!(runner.thread("t").log().await.expect("a log").len(), before);
    assert_eq!(runner.thread("t").answer(question, Answer::new(1)).await.expect("it runs").done().expect("it ends").total, 1);
}

#[tokio::test]
async fn a_sum_of_whole_numbers_stays_whole_to_the_last_bit() {
    let add = || async { Ok(Job::update().total(1)) };
    let runner = memory(graph("g").node("add", add).edge(START, "add").edge("add", END));
    let most = u64::try_from(i64::MAX).expect("it fits");
    let state = runner.thread("t").run(Job::update().total(most)).await.expect("it runs").done().expect("it ends");
    assert_eq!(state.total, most + 1);
    let error = runner.thread("u").run(Job::update().total(u64::MAX)).await.expect_err("it is too large");
    assert_eq!(error.code(), "merge-conflict");
}
