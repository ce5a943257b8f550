//! How runs end before their time, and what a run is told and handed: cancel, deadline, shutdown, limits of steps, tags, dependencies.
//!
//! How it could break: a cancelled effect that is repeated in silence; a run that goes on after it was stopped; work that was under way
//! when a runner drained and is not recorded; a limit of the thread that a restart forgets; a node that starts without what it needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata::log::{Doubt, Record};
use ferrata::store::{MemoryStore, RedbStore, ThreadStatus};
use ferrata::{
    Answer, Context, Dep, END, Graph, GraphBuilder, IntoNode, Outcome, QuestionKind, Runner, START, State, Suspension, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Job {
    n: u64,
    #[state(append)]
    log: Vec<String>,
}

fn graph() -> GraphBuilder<Job> {
    Graph::<Job>::new("job")
}

/// Counts for ever.
fn endless() -> GraphBuilder<Job> {
    let count = |s: View<Job>| async move { Ok(Job::update().n(s.n + 1)) };
    graph().node("count", count).edge(START, "count").route_to("count", ["count"], |_| "count")
}

/// Lets tests know when a node is in the middle of its work, and the node go on.
#[derive(Clone, Default)]
struct Gate {
    reached: Arc<Notify>,
    open: Arc<Notify>,
    passed: Arc<AtomicUsize>,
}

impl Gate {
    async fn pass(&self) -> ferrata::Result<u64> {
        self.reached.notify_one();
        self.open.notified().await;
        self.passed.fetch_add(1, Ordering::SeqCst);
        Ok(7)
    }
}

/// first, then pay with an effect that waits at the gate.
fn paying(gate: &Gate) -> GraphBuilder<Job> {
    let gate = gate.clone();
    let pay = move |ctx: Context| {
        let gate = gate.clone();
        async move {
            let n: u64 = ctx.effect("pay", |_| async move { gate.pass().await }).await?;
            Ok(Job::update().n(n).push_log("pay"))
        }
    };
    let first = || async { Ok(Job::update().push_log("first")) };
    graph().node("first", first).node("pay", pay).edge(START, "first").edge("first", "pay").edge("pay", END)
}

fn memory(graph: GraphBuilder<Job>) -> Runner<Job> {
    Runner::new(graph.build().expect("the graph is right"), MemoryStore::new())
}

#[tokio::test]
async fn a_cancelled_run_leaves_its_effect_in_doubt_and_does_not_repeat_it() {
    let gate = Gate::default();
    let runner = memory(paying(&gate));
    let run = tokio::spawn({
        let thread = runner.thread("t");
        async move { thread.run(Job::update()).await }
    });
    gate.reached.notified().await;
    assert!(runner.thread("t").cancel().await.expect("it is cancelled"));
    // The only task of the step waits for a person now.
    let outcome = run.await.expect("it ends").expect("no error");
    let Outcome::Waiting(questions) = &outcome else { panic!("{outcome:?}") };
    assert!(matches!(&questions[0].kind, QuestionKind::Doubt(effect) if &*effect.key == "pay"));
    let log = runner.thread("t").log().await.expect("the log");
    assert!(log.iter().any(|e| matches!(&e.record, Record::EffectDoubted(d) if d.why == Doubt::Cancelled)));
    assert_eq!(gate.passed.load(Ordering::SeqCst), 0);
    // The person says that it was performed: the node goes on with that.
    let outcome = runner.thread("t").answer(questions[0].id, Answer::performed(9)).await.expect("it runs");
    assert_eq!((outcome.done().expect("it ends").n, gate.passed.load(Ordering::SeqCst)), (9, 0));
    assert!(!runner.thread("t").cancel().await.expect("nothing goes on"));
}

#[tokio::test]
async fn a_cancelled_run_without_effects_is_suspended_and_goes_on_where_it_was() {
    let gate = Gate::default();
    let wait = {
        let gate = gate.clone();
        move || {
            let gate = gate.clone();
            async move { gate.pass().await.map(|_| Job::update().push_log("wait")) }
        }
    };
    let first = || async { Ok(Job::update().push_log("first")) };
    let runner =
        memory(graph().node("first", first).node("wait", wait).edge(START, "first").edge("first", "wait").edge("wait", END));
    let run = tokio::spawn({
        let thread = runner.thread("t");
        async move { thread.run(Job::update()).await }
    });
    gate.reached.notified().await;
    assert!(runner.thread("t").cancel().await.expect("it is cancelled"));
    let outcome = run.await.expect("it ends");
    assert!(matches!(outcome, Ok(Outcome::Suspended(Suspension::Cancelled))), "{outcome:?}");
    assert_eq!(runner.thread("t").state().await.expect("a state").status, ThreadStatus::Suspended);
    gate.open.notify_one();
    let state = runner.thread("t").resume().await.expect("it runs").done().expect("it ends");
    assert_eq!(state.log, ["first", "wait"]);
}

#[tokio::test]
async fn a_run_ends_at_its_deadline_also_if_its_nodes_never_wait() {
    let gate = Gate::default();
    for (name, graph) in [("never waits", endless()), ("waits", paying(&gate))] {
        let runner = memory(graph);
        let thread = runner.thread(name).steps_max(u64::MAX).deadline(Duration::from_millis(20));
        let outcome = thread.run(Job::update()).await.expect("a deadline is no error");
        match (name, &outcome) {
            ("never waits", Outcome::Suspended(Suspension::Deadline)) => {}
            ("waits", Outcome::Waiting(questions)) => assert!(questions[0].is_doubt()),
            _ => panic!("{name}: {outcome:?}"),
        }
        let log = runner.thread(name).log().await.expect("the log");
        let started = log.iter().find_map(|e| if let Record::RunStarted(run) = &e.record { Some(run.clone()) } else { None });
        let started = started.expect("a run");
        assert_eq!(started.deadline.expect("a deadline").0 - started.at.0, 20);
    }
}

// Time stands still while there is anything to do.
#[tokio::test(start_paused = true)]
async fn a_runner_that_shuts_down_lets_work_end_cuts_the_rest_and_begins_nothing() {
    let (quick, slow) = (Gate::default(), Gate::default());
    let work = {
        let (quick, slow) = (quick.clone(), slow.clone());
        move |ctx: Context| {
            let gate = if ctx.thread().as_str() == "quick" { quick.clone() } else { slow.clone() };
            async move { ctx.effect("pay", |_| async move { gate.pass().await }).await.map(|n: u64| Job::update().n(n)) }
        }
    };
    let after = || async { Ok(Job::update().push_log("after")) };
    let runner =
        memory(graph().node("work", work).node("after", after).edge(START, "work").edge("work", "after").edge("after", END));
    let run = |name: &'static str| {
        let thread = runner.thread(name);
        tokio::spawn(async move { thread.run(Job::update()).await })
    };
    let (first, second) = (run("quick"), run("slow"));
    quick.reached.notified().await;
    slow.reached.notified().await;
    let meanwhile = async {
        // It begins nothing as soon as it was told.
        let refused = runner.thread("late").run(Job::update()).await.expect_err("it shuts down");
        assert_eq!(refused.code(), "shut-down");
        quick.open.notify_one();
    };
    let (down, ()) = tokio::join!(runner.shut_down(Duration::from_secs(200)), meanwhile);
    assert_eq!((down.ended[0].as_str(), down.cut[0].as_str(), down.stuck.len()), ("quick", "slow", 0));
    let outcome = first.await.expect("it ends");
    assert!(matches!(outcome, Ok(Outcome::Suspended(Suspension::ShutDown))), "{outcome:?}");
    assert!(matches!(second.await.expect("it ends"), Ok(Outcome::Waiting(questions)) if questions[0].is_doubt()));
    let state = runner.thread("quick").state().await.expect("a state");
    assert_eq!((state.values.n, state.next[0].as_str()), (7, "after"), "what was under way is recorded");
    assert_eq!(runner.thread("late").run(Job::update()).await.expect_err("it is down").code(), "shut-down");
}

#[tokio::test]
async fn the_limit_of_a_thread_counts_over_runs_and_restarts() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || {
        let store = RedbStore::open(dir.path().join("s.redb")).expect("a store");
        Runner::new(endless().build().expect("the graph is right"), store)
    };
    let runner = open();
    let error = runner.thread("t").steps_max(4).thread_steps_max(10).run(Job::update()).await.expect_err("it is endless");
    assert!(error.is_step_limit() && error.to_string().contains("4 steps for one run"), "{error}");
    drop(runner);
    let runner = open();
    let error = runner.thread("t").steps_max(100).thread_steps_max(10).resume().await.expect_err("it is endless");
    assert!(error.is_step_limit() && error.to_string().contains("10 steps for the thread"), "{error}");
    assert_eq!(runner.thread("t").state().await.expect("a state").values.n, 10, "exactly ten");
    // A higher limit lets it go on.
    let error = runner.thread("t").thread_steps_max(13).resume().await.expect_err("it is endless");
    assert!(error.is_step_limit());
    assert_eq!(runner.thread("t").state().await.expect("a state").values.n, 13);
}

#[tokio::test]
async fn tags_stand_in_the_log_with_their_run() {
    let gate = Gate::default();
    gate.open.notify_one();
    let runner = memory(paying(&gate));
    runner
        .thread("t")
        .tag("job", "nightly")
        .tag("by", "dana")
        .run(Job::update())
        .await
        .expect("it runs")
        .done()
        .expect("it ends");
    let log = runner.thread("t").log().await.expect("the log");
    let tags = log.iter().find_map(|e| if let Record::RunStarted(run) = &e.record { Some(run.tags.clone()) } else { None });
    let tags: Vec<_> = tags.expect("a run").into_iter().collect();
    assert_eq!(tags, [("by".to_owned(), "dana".to_owned()), ("job".to_owned(), "nightly".to_owned())]);
}

struct Prices(u64);

async fn price(ctx: Context, prices: Dep<Prices>) -> ferrata::Result<JobUpdate> {
    Ok(Job::update().n(prices.0 + ctx.dependency::<Prices>()?.0))
}

#[tokio::test]
async fn what_a_node_needs_is_handed_in_or_nothing_begins() {
    let inner = graph().node("price", price).edge(START, "price").edge("price", END).build().expect("the graph is right");
    let runner = memory(graph().node("inside", inner.shared()).edge(START, "inside").edge("inside", END));
    // A node of a subgraph needs it, and nobody handed it in.
    let error = runner.thread("t").run(Job::update()).await.expect_err("it lacks something");
    assert_eq!(error.code(), "dependency-missing");
    assert!(error.to_string().contains("\"price\"") && error.to_string().contains("Prices"), "{error}");
    assert!(runner.thread("t").log().await.expect("a log").is_empty(), "nothing was recorded");
    let runner = runner.provide(Prices(10));
    let state = runner.thread("t").run(Job::update()).await.expect("it runs").done().expect("it ends");
    assert_eq!(state.n, 20);
    // A run's own takes the place of the runner's, for that run.
    let state = runner.thread("u").provide(Prices(3)).run(Job::update()).await.expect("it runs").done().expect("it ends");
    assert_eq!(state.n, 6);
    assert_eq!(runner.thread("v").run(Job::update()).await.expect("it runs").done().expect("it ends").n, 20);
}

#[tokio::test]
async fn an_error_handler_says_what_it_needs_too() {
    let fails = || async { Err::<JobUpdate, _>(ferrata::NodeError::new("no")) };
    let runner = memory(graph().node("a", fails.on_error(price)).edge(START, "a").edge("a", END));
    assert_eq!(runner.thread("t").run(Job::update()).await.expect_err("it lacks something").code(), "dependency-missing");
    let state = runner.provide(Prices(2)).thread("t").run(Job::update()).await.expect("it runs").done().expect("it ends");
    assert_eq!(state.n, 4);
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_before_anything_begins() {
    let runner = memory(endless());
    let error = runner.thread("t").pause_before(["cuont"]).run(Job::update()).await.expect_err("no such node");
    assert_eq!(error.code(), "unknown-node");
    assert!(error.to_string().contains("there are: count"), "{error}");
    let none: [(ferrata::QuestionId, Answer); 0] = [];
    assert!(runner.thread("t").answer_all(none).await.expect_err("no such thread").is_unknown_thread());
    assert!(runner.thread("t").inside::<Job>(["count"]).state().await.expect_err("no such thread").is_unknown_thread());
    assert!(runner.thread("t").log().await.expect("a log").is_empty());
}
