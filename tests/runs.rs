//! What a run promises beyond surviving: order, joins, fan-outs, limits, failures, and errors that say what to do.
//!
//! How it could break: an order that depends on which task finished first; a join that fires early or never; a fan-out that drops a
//! task or ends in silence when there is nothing to do; a failing sibling that takes finished work with it; a panic that takes the
//! process with it; a conflict that is stored and breaks the thread for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata::log::{Record, Source};
use ferrata::store::{Append, Appended, MemoryStore, Pending, RedbStore, Store, ThreadQuery, ThreadStatus};
use ferrata::{
    Class, Context, END, Error, Event, Graph, GraphBuilder, IntoNode, NodeError, Outcome, Retry, Route, Runner, START, State,
    View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Work {
    n: u64,
    limit: u64,
    #[state(append)]
    log: Vec<String>,
}

/// A node that notes its name.
fn note(name: &'static str) -> impl IntoNode<Work, (View<Work>,)> {
    move |_: View<Work>| async move { Ok(Work::update().push_log(name)) }
}

/// A node that notes its name after letting others go first.
fn slow(name: &'static str, turns: usize) -> impl IntoNode<Work, (View<Work>,)> {
    move |_: View<Work>| async move {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        Ok(Work::update().push_log(name))
    }
}

fn graph() -> GraphBuilder<Work> {
    Graph::<Work>::new("work")
}

fn runner(graph: GraphBuilder<Work>) -> Runner<Work> {
    Runner::new(graph.build().expect("the graph is right"), MemoryStore::new())
}

async fn end(runner: &Runner<Work>, thread: &str) -> Result<Work, Error> {
    let outcome = runner.thread(thread).run(Work::update()).await?;
    Ok((*outcome.done().expect("nothing asks")).clone())
}

#[tokio::test]
async fn parallel_results_are_merged_in_declared_order_whoever_is_first() {
    for turns in [[0, 50, 100], [100, 50, 0], [50, 0, 100]] {
        let graph = graph()
            .node("z", slow("z", turns[0]))
            .node("a", slow("a", turns[1]))
            .node("m", slow("m", turns[2]))
            .node("j", note("j"))
            .edge(START, "a")
            .edge(START, "m")
            .edge(START, "z")
            .join(["a", "m", "z"], "j")
            .edge("j", END);
        assert_eq!(end(&runner(graph), "t").await.expect("it runs").log, ["z", "a", "m", "j"]);
    }
}

#[tokio::test]
async fn a_join_waits_for_branches_of_different_length() {
    let graph = graph()
        .node("s", note("s"))
        .node("l1", note("l1"))
        .node("l2", note("l2"))
        .node("r", note("r"))
        .node("j", note("j"))
        .edge(START, "s")
        .edge("s", "l1")
        .edge("l1", "l2")
        .edge("s", "r")
        .join(["l2", "r"], "j")
        .edge("j", END);
    assert_eq!(end(&runner(graph), "t").await.expect("it runs").log, ["s", "l1", "r", "l2", "j"]);
}

#[derive(Route)]
enum Again {
    Round,
    End,
}

fn loop_graph() -> GraphBuilder<Work> {
    let round = |s: View<Work>| async move { Ok(Work::update().n(s.n + 1).push_log(format!("round {}", s.n + 1))) };
    graph()
        .node("round", round)
        .edge(START, "round")
        .route("round", |s: &Work| if s.n < s.limit { Again::Round } else { Again::End })
}

#[tokio::test]
async fn the_step_limit_is_exact_and_what_is_done_stays_done() {
    let runner = runner(loop_graph());
    let thread = runner.thread("t");
    let error = thread.clone().steps_max(3).run(Work::update().limit(10)).await.expect_err("the limit");
    assert!(error.is_step_limit() && error.to_string().contains("limit of 3 steps"), "{error}");
    let state = thread.state().await.expect("it is readable");
    assert_eq!((state.values.n, state.status), (3, ThreadStatus::Failed));
    let state = thread.clone().steps_max(20).resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!(state.log.len(), 10);
    // A run that needs exactly its limit is no error.
    let exact = runner.thread("exact").steps_max(10).run(Work::update().limit(10)).await.expect("ten steps");
    assert_eq!(exact.done().expect("it ends").n, 10);
}

#[derive(Serialize, Deserialize)]
struct Item {
    number: u64,
}

fn fan_out(items: u64, work: impl IntoNode<Work, (Item,)>) -> GraphBuilder<Work> {
    graph()
        .node("list", note("list"))
        .fan_out("list", "work", move |_| (0..items).map(|number| Item { number }))
        .node("work", work)
        .edge(START, "list")
        .edge("work", "sum")
        .node("sum", note("sum"))
        .edge("sum", END)
}

#[tokio::test]
async fn a_fan_out_runs_each_item_once_under_its_cap_and_merges_in_order() {
    static AT_WORK: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    async fn work(item: Item) -> ferrata::Result<WorkUpdate> {
        MOST.fetch_max(AT_WORK.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        for _ in 0..(7 - item.number % 7) {
            tokio::task::yield_now().await;
        }
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
        Ok(Work::update().push_log(item.number.to_string()))
    }
    let graph = graph()
        .node("list", note("list"))
        .fan_out("list", "work", |_| (0..50).map(|number| Item { number }))
        .node("work", work.concurrency(3))
        .edge(START, "list")
        .edge("work", "sum")
        .node("sum", note("sum"))
        .edge("sum", END);
    let log = end(&runner(graph), "t").await.expect("it runs").log;
    let expected: Vec<String> =
        ["list".to_owned()].into_iter().chain((0..50).map(|n: u64| n.to_string())).chain(["sum".to_owned()]).collect();
    assert_eq!(log, expected);
    assert_eq!(MOST.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_fan_out_over_nothing_goes_on_behind_it() {
    let graph = fan_out(0, |item: Item| async move { Ok(Work::update().push_log(item.number.to_string())) });
    assert_eq!(end(&runner(graph), "t").await.expect("it runs").log, ["list", "sum"]);
}

#[tokio::test]
async fn fan_outs_over_nothing_that_lead_in_a_circle_end() {
    let graph = graph()
        .node("list", note("list"))
        .fan_out("list", "work", |_| Vec::<Item>::new())
        .node("work", |item: Item| async move { Ok(Work::update().n(item.number)) })
        .fan_out("work", "work", |_| Vec::<Item>::new())
        .edge(START, "list")
        .edge("work", "sum")
        .node("sum", note("sum"))
        .edge("sum", END);
    assert_eq!(end(&runner(graph), "t").await.expect("it runs").log, ["list", "sum"]);
}

#[tokio::test]
async fn every_change_of_an_update_is_checked() {
    let wrong = |_: View<Work>| async move {
        let update: ferrata::state::Update = Work::update().push_log("a").into();
        Ok(update.set("nowhere", &1))
    };
    let runner = runner(graph().node("a", wrong).edge(START, "a").edge("a", END));
    let error = runner.thread("t").run(Work::update()).await.expect_err("no such field").to_string();
    assert!(error.contains("no field `nowhere`; it has: n, limit, log"), "{error}");
}

#[tokio::test]
async fn one_failing_sibling_of_eight_runs_again_alone() {
    let fails = Arc::new(AtomicUsize::new(1));
    let runs = Arc::new(AtomicUsize::new(0));
    let (left, count) = (Arc::clone(&fails), Arc::clone(&runs));
    let work = move |item: Item| {
        let (left, count) = (Arc::clone(&left), Arc::clone(&count));
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            if item.number == 5 && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
                return Err(NodeError::new("no paper"));
            }
            Ok(Work::update().push_log(item.number.to_string()))
        }
    };
    let runner = runner(fan_out(8, work));
    let error = runner.thread("t").run(Work::update()).await.expect_err("one fails");
    let (node, failure) = error.node_failure().expect("a node failed");
    assert_eq!((node.as_str(), failure.message.as_str(), failure.class), ("work", "no paper", Class::Unclassified));
    let state = runner.thread("t").state().await.expect("it is readable");
    assert_eq!(state.values.log.len(), 8, "list and the seven that finished");
    assert_eq!(state.next.iter().map(|n| n.as_str()).collect::<Vec<_>>(), ["work"]);
    let end = runner.thread("t").resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!(end.log, ["list", "0", "1", "2", "3", "4", "5", "6", "7", "sum"]);
    assert_eq!(runs.load(Ordering::SeqCst), 9);
    // A thread that failed once and then passed reports success, and nothing runs on another resume.
    let records = runner.thread("t").log().await.expect("the log").len();
    assert!(matches!(runner.thread("t").resume().await, Ok(Outcome::Done(_))));
    assert_eq!(runner.thread("t").log().await.expect("the log").len(), records);
}

#[tokio::test]
async fn a_conflict_is_refused_before_it_is_stored_and_names_both_writers() {
    let write = |n: u64| move |_: View<Work>| async move { Ok(Work::update().n(n)) };
    let graph = graph().node("b", write(1)).node("c", write(2)).edge(START, "b").edge(START, "c").edge("b", END).edge("c", END);
    let runner = runner(graph);
    let error = runner.thread("t").run(Work::update()).await.expect_err("a conflict");
    assert_eq!(error.code(), "merge-conflict");
    for word in ["`n`", "\"b\"", "\"c\"", "same step"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(runner.thread("t").state().await.expect("it is readable").values.n, 0);
    // The thread stays usable.
    assert_eq!(runner.thread("t").run(Work::update()).await.expect_err("unfinished").code(), "thread-unfinished");
    assert_eq!(runner.thread("t").supersede().run(Work::update()).await.expect_err("again").code(), "merge-conflict");
}

#[tokio::test]
async fn router_trouble_names_the_node_what_it_gave_and_what_is_allowed() {
    for (gives, text) in [("nowhere", "gave \"nowhere\""), ("panic", "panicked: no idea")] {
        let choose = move |_: &Work| -> &'static str { if gives == "panic" { panic!("no idea") } else { gives } };
        let graph = graph().node("a", note("a")).edge(START, "a").route_to("a", ["a", END], choose);
        let runner = runner(graph);
        let error = runner.thread("t").run(Work::update()).await.expect_err("no such node");
        assert_eq!(error.code(), "route");
        for word in ["\"a\"", text, "it may lead to: a, END"] {
            assert!(error.to_string().contains(word), "{error}");
        }
        let state = runner.thread("t").state().await.expect("it is readable");
        assert_eq!(state.values.log, ["a"], "what the node did is kept");
        assert_eq!(runner.thread("t").resume().await.expect_err("still wrong").code(), "route");
        let log = runner.thread("t").log().await.expect("the log");
        let done = log.iter().filter(|e| matches!(e.record, Record::TaskDone(_))).count();
        assert_eq!(done, 1, "the node did not run again");
    }
}

#[tokio::test(start_paused = true)]
async fn transient_errors_are_retried_with_growing_delays_and_others_are_not() {
    let cases: [(Retry, Class, usize); 5] = [
        (Retry::transient(3), Class::Transient, 3),
        (Retry::transient(3), Class::Unclassified, 1),
        (Retry::any(3), Class::Unclassified, 3),
        (Retry::any(3), Class::Deterministic, 1),
        (Retry::any(3), Class::Terminal, 1),
    ];
    for (retry, class, expected) in cases {
        let tries = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&tries);
        let fail = move |_: View<Work>| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { Err::<WorkUpdate, _>(NodeError::new("busy").with_class(class)) }
        };
        let retry = retry.first_delay(Duration::from_secs(10));
        let runner = runner(graph().node("a", fail.retry(retry)).edge(START, "a").edge("a", END));
        #[allow(clippy::disallowed_methods, reason = "the paused clock of the test's own runtime")]
        let before = tokio::time::Instant::now();
        runner.thread("t").run(Work::update()).await.expect_err("it fails");
        assert_eq!(tries.load(Ordering::SeqCst), expected, "{class}");
        let waited = before.elapsed().as_secs();
        assert!(if expected == 3 { (30..=46).contains(&waited) } else { waited == 0 }, "{class}: waited {waited} s");
        let log = runner.thread("t").log().await.expect("the log");
        let failed = log.iter().filter(|e| matches!(e.record, Record::AttemptFailed(_) | Record::TaskFailed(_))).count();
        assert_eq!(failed, expected, "each attempt is on record");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_failed_for_good_has_all_its_attempts_again_when_resumed() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let fail = move || {
        count.fetch_add(1, Ordering::SeqCst);
        async { Err::<WorkUpdate, _>(NodeError::new("busy").transient()) }
    };
    let runner = runner(graph().node("a", fail.retry(Retry::transient(3))).edge(START, "a").edge("a", END));
    for runs in 1..=3 {
        let thread = runner.thread("t");
        let result = if runs == 1 { thread.run(Work::update()).await } else { thread.resume().await };
        result.expect_err("it fails");
        assert_eq!(tries.load(Ordering::SeqCst), 3 * runs);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_attempt_writes_nothing() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let node = move |_: View<Work>| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                tokio::time::sleep(Duration::from_millis(500)).await;
                return Ok(Work::update().push_log("late"));
            }
            Ok(Work::update().push_log("good"))
        }
    };
    let node = node.timeout(Duration::from_millis(200)).retry(Retry::transient(2));
    let runner = runner(graph().node("a", node).edge(START, "a").edge("a", END));
    assert_eq!(end(&runner, "t").await.expect("the second attempt").log, ["good"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(runner.thread("t").state().await.expect("it is readable").values.log, ["good"]);
    let log = runner.thread("t").log().await.expect("the log");
    let failure = log.iter().find_map(|e| if let Record::AttemptFailed(f) = &e.record { Some(&f.failure) } else { None });
    assert!(failure.expect("attempt 1 is on record").message.contains("longer than its 200 ms"));
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_task_and_siblings_finish() {
    async fn bad(_: View<Work>) -> ferrata::Result<WorkUpdate> {
        panic!("index out of luck")
    }
    let graph = graph().node("bad", bad).node("good", slow("good", 20)).edge(START, "bad").edge(START, "good");
    let runner = runner(graph.edge("bad", END).edge("good", END));
    let error = runner.thread("t").run(Work::update()).await.expect_err("it panics");
    assert!(error.to_string().contains("\"bad\"") && error.to_string().contains("index out of luck"), "{error}");
    assert_eq!(runner.thread("t").state().await.expect("it is readable").values.log, ["good"]);
}

/// A store of one's own that does not say what is at work.
#[derive(Debug)]
struct Apart(RedbStore);

impl Store for Apart {
    ferrata::hand_on_store!(0);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        self.0.append(append)
    }
}

#[tokio::test]
async fn one_run_per_thread_and_the_others_are_told() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let wait = Arc::clone(&gate);
    let node = move |_: View<Work>| {
        let wait = Arc::clone(&wait);
        async move {
            wait.acquire().await?.forget();
            Ok(Work::update().push_log("once"))
        }
    };
    let dir = tempfile::tempdir().expect("a folder");
    let store = RedbStore::open(dir.path().join("s.redb")).expect("a store");
    let graph = || graph().node("a", node.clone()).edge(START, "a").edge("a", END).build().expect("the graph is right");
    let (one, two) = (Runner::new(graph(), Apart(store.clone())), Runner::new(graph(), Apart(store)));
    let mut events = one.thread("t").stream(Work::update()).expect("it starts");
    while !matches!(events.next().await, Some(Event::TaskStarted { .. })) {}
    for _ in 0..4 {
        let error = one.thread("t").resume().await.expect_err("it is busy");
        assert_eq!((error.code(), error.is_busy()), ("thread-busy", true));
    }
    // Another runner over a store that does not tell them apart begins too, and then of two writers one loses.
    let other = tokio::spawn(async move { two.thread("t").resume().await });
    while one.thread("t").log().await.expect("the log").len() < 5 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(2);
    let other = other.await.expect("it ends");
    let first = events.outcome().await;
    let (won, lost) = if first.is_ok() { (first, other) } else { (other, first) };
    assert_eq!(won.expect("one wins").done().expect("it ends").log, ["once"]);
    assert_eq!(lost.expect_err("one loses").code(), "thread-moved");
}

#[tokio::test]
async fn a_dropped_run_ends_what_is_under_way_and_can_be_resumed() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let wait = Arc::clone(&gate);
    let node = move |_: View<Work>, ctx: Context| {
        let wait = Arc::clone(&wait);
        async move {
            ctx.effect("mail", |_| async {
                wait.acquire().await?.forget();
                Ok(())
            })
            .await?;
            Ok(Work::update().push_log("a"))
        }
    };
    let runner = runner(graph().node("a", node).node("b", note("b")).edge(START, "a").edge("a", "b").edge("b", END));
    let mut events = runner.thread("t").stream(Work::update()).expect("it starts");
    while !matches!(events.next().await, Some(Event::TaskStarted { .. })) {}
    drop(events);
    gate.add_permits(1);
    while runner.thread("t").state().await.expect("it is readable").status != ThreadStatus::Suspended {
        tokio::task::yield_now().await;
    }
    let state = runner.thread("t").state().await.expect("it is readable");
    assert_eq!(state.values.log, ["a"], "what was under way was recorded");
    assert_eq!(runner.thread("t").resume().await.expect("it goes on").done().expect("it ends").log, ["a", "b"]);
}

#[tokio::test]
async fn a_dropped_run_stops_although_its_nodes_never_wait() {
    let runner = runner(loop_graph());
    let thread = runner.thread("t").steps_max(u64::MAX);
    let mut events = thread.stream(Work::update().limit(u64::MAX)).expect("it starts");
    while !matches!(events.next().await, Some(Event::Values { .. })) {}
    drop(events);
    while runner.thread("t").state().await.expect("it is readable").status != ThreadStatus::Suspended {
        tokio::task::yield_now().await;
    }
    assert!(runner.thread("t").state().await.expect("it is readable").values.n > 0);
}

#[tokio::test]
async fn a_stream_tells_what_is_durable_and_ends_with_the_outcome() {
    let told = |_: View<Work>, ctx: Context| async move {
        ctx.emit("half way")?;
        Ok(Work::update().push_log("a"))
    };
    let runner = runner(graph().node("a", told).edge(START, "a").edge("a", END));
    let mut events = runner.thread("t").stream(Work::update().n(7)).expect("it starts");
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        seen.push(match event {
            Event::TaskStarted { task, attempt, .. } => format!("{} starts, attempt {attempt}", task.node),
            Event::Custom { task, value } => format!("{} tells {value}", task.node),
            Event::Update { task, changes, .. } => format!("{} writes {}", task.node, changes[0].field),
            Event::Checkpoint { position, step, .. } => format!("checkpoint {} at {}", step.0, position.0),
            Event::Values { step, state } => format!("step {}: n {}, {:?}", step.0, state.n, state.log),
            other => format!("{other:?}"),
        });
    }
    let expected = [
        "step 0: n 7, []",
        "checkpoint -1 at 2",
        "checkpoint 0 at 3",
        "a starts, attempt 1",
        "a tells \"half way\"",
        "a writes log",
        "step 1: n 7, [\"a\"]",
        "checkpoint 1 at 5",
    ]
    .map(str::to_owned);
    assert_eq!(seen, expected);
    assert!(matches!(events.outcome().await, Ok(Outcome::Done(_))));
}

#[tokio::test]
async fn history_tells_every_checkpoint_and_state_is_a_fold_of_the_log() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || RedbStore::open(dir.path().join("s.redb")).expect("a store");
    let graph = || loop_graph().build().expect("the graph is right");
    let first = Runner::new(graph(), open());
    let live = first.thread("t").run(Work::update().limit(400)).await.expect("it runs").done().expect("it ends");
    drop(first);
    // A new process reads a snapshot and what follows; the history folds every record from the first one on.
    let second = Runner::new(graph(), open());
    assert_eq!(*second.thread("t").state().await.expect("it is readable").values, *live);
    let history = second.thread("t").history().await.expect("the history");
    assert_eq!(history.len(), 402);
    assert_eq!(*history[0].values, *live);
    assert_eq!((history[0].step.0, history[400].step.0, history[401].step.0), (400, 0, -1));
    assert_eq!(history[401].source, Source::Input);
    for (n, checkpoint) in history.iter().rev().skip(1).enumerate() {
        assert_eq!(checkpoint.values.n, n as u64);
    }
    // What a thread takes is linear in what was written: twice the rounds, about twice the bytes.
    let size = std::fs::metadata(dir.path().join("s.redb")).expect("the file").len();
    assert!(size < 4_000_000, "400 small steps took {size} bytes");
}

#[tokio::test]
async fn threads_are_apart_and_listed() {
    let runner = runner(loop_graph());
    for (name, limit) in [("t1", 1), ("t10", 10), ("a:b", 2)] {
        runner.thread(name).run(Work::update().limit(limit)).await.expect("it runs").done().expect("it ends");
    }
    let names = |infos: Vec<ferrata::store::ThreadInfo>| infos.into_iter().map(|i| i.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(runner.threads(ThreadQuery::new()).await.expect("a list")), ["a:b", "t1", "t10"]);
    let page = runner.threads(ThreadQuery::new().limit(2)).await.expect("a page");
    assert_eq!(names(runner.threads(ThreadQuery::new().limit(2).after(&page[1])).await.expect("the next")), ["t10"]);
    assert!(runner.thread("t1").delete().await.expect("it is deleted"));
    assert!(!runner.thread("t1").delete().await.expect("there is none"));
    assert_eq!(runner.thread("t10").state().await.expect("it is readable").values.n, 10);
    assert!(runner.thread("t1").state().await.expect_err("it is gone").is_unknown_thread());
    assert_eq!(runner.thread("").resume().await.expect_err("no name").code(), "thread-name");
}

#[tokio::test]
async fn a_second_input_goes_on_with_the_same_state() {
    let runner = runner(loop_graph());
    runner.thread("t").run(Work::update().limit(2)).await.expect("it runs").done().expect("it ends");
    let state = runner.thread("t").run(Work::update().limit(3)).await.expect("it runs").done().expect("it ends");
    assert_eq!(state.log, ["round 1", "round 2", "round 3"]);
    // Called again, `run_once` runs nothing.
    let records = runner.thread("t").log().await.expect("the log").len();
    runner.thread("t").run_once(Work::update().limit(9)).await.expect("it is done").done().expect("it ends");
    assert_eq!(runner.thread("t").log().await.expect("the log").len(), records);
}

#[tokio::test]
async fn a_runner_without_a_store_runs_and_says_what_it_cannot_do() {
    let runner = Runner::without_store(loop_graph().build().expect("the graph is right"));
    let state = runner.thread("t").run(Work::update().limit(5)).await.expect("it runs").done().expect("it ends");
    assert_eq!(state.n, 5);
    assert_eq!(runner.thread("t").log().await.expect_err("nothing is kept").code(), "no-store");
}
