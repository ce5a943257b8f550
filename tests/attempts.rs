//! Attempts and their time, classes and layers, and what takes over when a node has failed.
//!
//! How it could break: an error handler without time because the node has used it up; a clock that was set back, and waits of a year; work inside a graph that
//! is taken for silence; attempts that multiply by way of an error handler.

mod support {
    pub(crate) mod tokio_clock;
    pub(crate) mod work;
    pub(crate) mod world;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrata::clock::{ManualClock, Timestamp};
use ferrata::store::MemoryStore;
use ferrata::testing::crash_everywhere_in;
use ferrata::{
    Approval, Class, Context, Durability, END, Error, Graph, IntoNode, Next, NodeError, Outcome, Performed, Retry, Runner, START,
    Suspension, Target,
};
use support::tokio_clock::tokio_now;
use support::work::{Desk, SECOND, Work, WorkUpdate, one};
use support::world::{World, asked, at_least_3, ended};

/// Cut off while it waits for something.
fn cut_off(outcome: Result<Outcome<Work>, Error>) {
    assert!(matches!(outcome, Ok(Outcome::Suspended(Suspension::Deadline))), "{outcome:?}");
}

/// Promised: when the time for all attempts is used up, the error handler takes over. It broke: the handler got what was left of that time, which is nothing.
#[tokio::test(start_paused = true)]
async fn an_error_handler_has_time_when_the_nodes_own_is_over() {
    let hang = || async { std::future::pending::<ferrata::Result<WorkUpdate>>().await };
    let handler = || async {
        tokio::time::sleep(SECOND).await;
        Ok(Work::update().push_log("handled"))
    };
    let state = ended(Desk::new().thread(one(hang.total_timeout(60 * SECOND).on_error(handler))).run(Work::update()).await);
    assert_eq!(state.log, ["handled"]);
}

/// Promised: a person has the time they need. It broke: what they needed was taken from the time for all attempts, and their word came to nothing.
#[tokio::test(start_paused = true)]
async fn the_time_that_a_person_takes_is_not_the_nodes() {
    for verdict in [Approval::approve(), Approval::reject("more")] {
        let desk = Desk::new();
        let graph = || {
            let work = |ctx: Context| async move {
                tokio::time::sleep(SECOND).await;
                Ok(Work::update().n(i64::from(ctx.feedback().is_some_and(|wrong| wrong.message == "more")) * 3))
            };
            one(work.verify(at_least_3).rounds(1).total_timeout(60 * SECOND))
        };
        let question = asked(desk.thread(graph()).run(Work::update()).await);
        tokio::time::sleep(3600 * SECOND).await;
        ended(desk.thread(graph()).answer(question, verdict).await);
    }
}

/// The same with a question of the node's own that is answered in a live run: after a restart the node has all its time, and so it has here.
#[tokio::test(start_paused = true)]
async fn an_answer_in_a_live_run_finds_the_node_with_time() {
    let ask = |ctx: Context| async move {
        let said = ctx.ask("go", ferrata::Ask::<String>::new("Go?")).await?;
        tokio::time::sleep(SECOND).await;
        Ok(Work::update().push_log(said))
    };
    let slow = || async {
        tokio::time::sleep(7200 * SECOND).await;
        Ok(Work::update().push_log("slow"))
    };
    let graph = Graph::<Work>::new("two").node("ask", ask.total_timeout(60 * SECOND)).node("slow", slow);
    let graph = graph.edge(START, "ask").edge(START, "slow").edge("ask", END).edge("slow", END);
    let thread = Desk::new().thread(graph);
    let run = tokio::spawn({
        let thread = thread.clone();
        async move { thread.run(Work::update()).await }
    });
    tokio::time::sleep(3600 * SECOND).await;
    let question = thread.state().await.expect("a state").questions[0].id;
    let _ = thread.answer(question, "go").await.expect("it is taken");
    assert_eq!(ended(run.await.expect("no panic")).log, ["go", "slow"]);
}

/// Promised: when the time for all attempts is over, the task fails for good. It broke: after a restart the node was begun with no time left, and an effect that
/// it came to was in doubt at once, though nobody had performed it.
#[tokio::test(start_paused = true)]
async fn no_attempt_begins_when_the_time_is_over() {
    let (desk, world) = (Desk::new(), World::new());
    let graph = || {
        let world = world.clone();
        let work = move |ctx: Context| {
            let world = world.clone();
            async move {
                if world.act("attempt") == 1 {
                    return Err(NodeError::new("not now").transient());
                }
                ctx.effect("pay", |_key| async { Ok(()) }).await?;
                Ok(Work::update())
            }
        };
        one(work.retry(Retry::transient(2).first_delay(10 * SECOND)).total_timeout(60 * SECOND))
    };
    cut_off(desk.thread(graph()).deadline(5 * SECOND).run(Work::update()).await);
    tokio::time::sleep(100 * SECOND).await;
    let result = desk.thread(graph()).resume().await;
    assert_eq!((result.expect_err("its time is over").code(), world.done().len()), ("node-failed", 1));
    ended(desk.thread(graph()).resume().await);
}

/// Promised: what is left of the wait is waited for. It broke: a clock that was set back in between makes a wait of a second one of a year.
#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_does_not_make_a_wait_longer() {
    let (desk, world) = (Desk::new(), World::new());
    let graph = || {
        let n = world.clone();
        let work = move || {
            let n = n.act("attempt");
            async move { if n == 1 { Err(NodeError::new("not now").transient()) } else { Ok(Work::update()) } }
        };
        one(work.retry(Retry::transient(2).first_delay(10 * SECOND)))
    };
    let year_ms = 365 * 24 * 3_600_000;
    desk.clock.ahead_ms.store(year_ms, Ordering::SeqCst);
    cut_off(desk.thread(graph()).deadline(5 * SECOND).run(Work::update()).await);
    desk.clock.ahead_ms.store(0, Ordering::SeqCst);
    let begun = tokio_now();
    ended(desk.thread(graph()).resume().await);
    assert!(begun.elapsed() <= 60 * SECOND, "{:?}", begun.elapsed());
}

/// A clock that stands still makes nothing wait for ever, also not several tasks of which only some may run at once.
#[tokio::test(start_paused = true)]
async fn a_clock_that_stands_still_holds_nobody_up() {
    let (store, world) = (Arc::new(MemoryStore::new()), World::new());
    let thread = || {
        let world = world.clone();
        let split = || async { Ok(Next::update(Work::update()).goto((0..6_i64).map(|n| Target::send("part", n)))) };
        let part = move |n: i64, ctx: Context| {
            world.act(format!("part {n}"));
            async move {
                if ctx.attempt() < 3 {
                    Err(NodeError::new("busy").transient())
                } else {
                    Ok(Work::update().push_log(n.to_string()))
                }
            }
        };
        let part = part.retry(Retry::transient(3).first_delay(10 * SECOND)).concurrency(2);
        let graph = Graph::<Work>::new("fan")
            .node("split", split.leads_to(["part"]))
            .node("part", part)
            .edge(START, "split")
            .edge("part", END);
        Runner::with_clock(graph.build().expect("right"), Arc::clone(&store), ManualClock::at(Timestamp(7))).thread("t")
    };
    let run = thread();
    let (_, stopped) = tokio::join!(run.run(Work::update()), async {
        tokio::time::sleep(5 * SECOND).await;
        run.cancel().await
    });
    stopped.expect("it is cancelled");
    let resumed = tokio::time::timeout(600 * SECOND, async { thread().resume().await }).await.expect("it does not hang");
    assert_eq!((ended(resumed).log.len(), world.done().len()), (6, 18));
}

/// Promised: an effect that begins or ends is a sign of life. It broke: the beginning of a repeatable one was none, nor was the end of one that failed.
#[tokio::test(start_paused = true)]
async fn repeatable_effects_are_signs_of_life() {
    let work = |ctx: Context| async move {
        for _ in 0..3 {
            tokio::time::sleep(7 * SECOND).await;
            let ask = |_key| async {
                tokio::time::sleep(7 * SECOND).await;
                Err::<(), _>(NodeError::new("no"))
            };
            ctx.effect("model", ask).repeatable().await.expect_err("it fails");
        }
        Ok(Work::update())
    };
    ended(Desk::new().thread(one(work.idle_timeout(10 * SECOND))).run(Work::update()).await);
}

/// What happens in a graph inside is a sign of life of the node that called it. It broke: the node failed as silent while its graph made steps.
#[tokio::test(start_paused = true)]
async fn a_graph_inside_that_works_is_a_sign_of_life() {
    let step = || async {
        tokio::time::sleep(6 * SECOND).await;
        Ok(Work::update().push_log("step"))
    };
    let mut inner = Graph::<Work>::new("inner").edge(START, "0").edge("5", END);
    for n in 0..6 {
        inner = inner.node(&n.to_string(), step);
        inner = if n > 0 { inner.edge(&(n - 1).to_string(), &n.to_string()) } else { inner };
    }
    let node = inner.build().expect("right").shared().idle_timeout(10 * SECOND);
    assert_eq!(ended(Desk::new().thread(one(node)).run(Work::update()).await).log.len(), 6);
}

/// Promised: attempts never multiply across layers. It broke: an error handler that passes the failure on made the attempts before it forgotten.
#[tokio::test(start_paused = true)]
async fn attempts_do_not_multiply_by_way_of_an_error_handler() {
    let world = World::new();
    let seen = world.clone();
    let fails = move || {
        seen.act("attempt");
        async { Err::<WorkUpdate, _>(NodeError::new("busy").transient()) }
    };
    let pass_on =
        |ctx: Context| async move { Err::<WorkUpdate, _>(NodeError::new(ctx.failure().expect("one").to_string()).transient()) };
    let retry = |n| Retry::transient(n).first_delay(SECOND);
    let inner = one(fails.retry(retry(3)).on_error(pass_on)).build().expect("right").shared();
    let middle = one(inner.retry(retry(4))).build().expect("right").shared();
    Desk::new().thread(one(middle.retry(retry(5)))).run(Work::update()).await.expect_err("it fails each time");
    assert_eq!(world.done().len(), 3);
}

#[derive(Debug, thiserror::Error)]
#[error("the database answers {0}")]
struct Database(u32);

/// Promised: a bug fails the node, with node and text. It broke: a classifier that panics took the run with it, and nothing was on record.
#[tokio::test(start_paused = true)]
async fn a_classifier_that_panics_fails_the_node() {
    let work = || async { Err::<WorkUpdate, _>(NodeError::from(Database(7))) };
    let handler = |ctx: Context| async move { Ok(Work::update().push_log(ctx.failure().expect("one").to_string())) };
    let graph = one(work.on_error(handler)).classify(|_: &Database| panic!("no such case"));
    let state = ended(Desk::new().thread(graph).run(Work::update()).await);
    assert!(state.log[0].contains("no such case"), "{:?}", state.log);
}

/// Errors with words in front are classified by what is in them, and the first classifier that knows a type decides.
#[tokio::test(start_paused = true)]
async fn classifiers_look_through_an_error_and_the_first_one_counts() {
    let work = || async { Err::<WorkUpdate, _>(NodeError::from(Database(7)).context("reading").context("working")) };
    let graph = one(work.into_node()).classify(|_: &Database| Class::Terminal).classify(|_: &Database| Class::Transient);
    let error = Desk::new().thread(graph).run(Work::update()).await.expect_err("it fails");
    assert_eq!(error.node_failure().expect("a node").1.class, Class::Terminal);
}

#[derive(Debug, thiserror::Error)]
#[error("the upload failed")]
struct Upload(#[source] std::io::Error);

/// Promised: the graph says which class errors of a type are. It broke: an `io::Error` in such an error had decided before the graph was asked.
#[tokio::test(start_paused = true)]
async fn a_classifier_goes_before_the_io_error_inside_and_what_the_node_said_before_both() {
    let timed_out = || NodeError::from(Upload(std::io::ErrorKind::TimedOut.into()));
    let class_of = |error: NodeError, said: Option<Class>| async move {
        let error = Arc::new(std::sync::Mutex::new(Some(error)));
        let work = move || {
            let error = error.lock().expect("no panic").take().expect("one attempt");
            async { Err::<WorkUpdate, _>(error) }
        };
        let graph = one(work.into_node());
        let graph = if let Some(said) = said { graph.classify(move |_: &Upload| said) } else { graph };
        let error = Desk::new().thread(graph).run(Work::update()).await.expect_err("it fails");
        error.node_failure().expect("a node").1.class
    };
    use Class::{Deterministic, Terminal, Transient, Unclassified};
    assert_eq!(class_of(timed_out(), None).await, Transient);
    assert_eq!(class_of(timed_out(), Some(Terminal)).await, Terminal);
    assert_eq!(class_of(timed_out().context("sending"), Some(Deterministic)).await, Deterministic);
    // Who does not know leaves it to the rule.
    assert_eq!(class_of(timed_out(), Some(Unclassified)).await, Transient);
    assert_eq!(class_of(timed_out().terminal(), Some(Deterministic)).await, Terminal);
    assert_eq!(class_of(timed_out().transient(), Some(Deterministic)).await, Transient);
}

/// Promised: errors of that type are in that class, in the nodes of the graph; and a check that fails of something transient is tried again. It broke: the
/// check's error was looked at before it had its class, and a person was asked.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_check_has_its_class() {
    let checks = Arc::new(AtomicU32::new(0));
    let work = move |ctx: Context| {
        let checks = Arc::clone(&checks);
        async move {
            let check = |_key| async {
                match checks.fetch_add(1, Ordering::SeqCst) {
                    0 => Err(NodeError::from(Database(7))),
                    _ => Ok(Performed::Yes(3_i64)),
                }
            };
            let pay = |_key| async { Err(NodeError::new("the line went dead")) };
            Ok(Work::update().n(ctx.effect("pay", pay).check(check).await?))
        }
    };
    let graph = one(work.retry(Retry::transient(3).first_delay(SECOND))).classify(|_: &Database| Class::Transient);
    assert_eq!(ended(Desk::new().thread(graph).run(Work::update()).await).n, 3);
}

/// Promised: what an error handler returns is the node's result, and it may go where it declares. It broke: behind an earlier fallback it was taken for one.
#[tokio::test(start_paused = true)]
async fn the_last_of_fallback_and_error_handler_counts() {
    let fails = || async { Err::<WorkUpdate, _>(NodeError::new("no")) };
    let handler = || async { Ok(Next::update(Work::update().push_log("handled")).goto([Target::node("other")])) };
    let node = fails.fallback(|_: &Work, _| Work::update().push_log("fallback")).on_error(handler.leads_to(["other"]));
    let other = || async { Ok(Work::update().push_log("other")) };
    let next = || async { Ok(Work::update().push_log("next")) };
    let graph = Graph::<Work>::new("g").node("work", node).node("other", other).node("next", next);
    let graph = graph.edge(START, "work").edge("work", "next").edge("next", END).edge("other", END);
    assert_eq!(ended(Desk::new().thread(graph).run(Work::update()).await).log, ["handled", "other"]);
}

/// Promised: after a deterministic failure, an update or a way that does not fit among them, the error handler takes over. It broke: for these it did not.
#[tokio::test(start_paused = true)]
async fn an_error_handler_takes_over_where_the_node_goes_astray() {
    let astray = || async { Ok(Next::update(Work::update()).goto([Target::node("nowhere")])) };
    let handler = |ctx: Context| async move { Ok(Work::update().push_log(ctx.failure().expect("one").to_string())) };
    let graph = Graph::<Work>::new("g").node("work", astray.leads_to([END]).on_error(handler)).edge(START, "work");
    let state = ended(Desk::new().thread(graph).run(Work::update()).await);
    assert!(state.log[0].contains("nowhere"), "{:?}", state.log);
}

/// A fallback that panics fails the node, once. Promised of one that works: the thread goes on. It broke: in a fan-out the payload was taken for the state that
/// the fallback sees.
#[tokio::test(start_paused = true)]
async fn fallbacks_fail_the_node_or_let_the_thread_go_on() {
    let fails = || async { Err::<WorkUpdate, _>(NodeError::new("no")) };
    fn panics(_: &Work, _: &ferrata::Failure) -> WorkUpdate {
        panic!("nor this")
    }
    let error = Desk::new().thread(one(fails.fallback(panics))).run(Work::update()).await.expect_err("it fails");
    assert!(error.to_string().contains("nor this"), "{error}");

    let graph = |_: &World| {
        let split = || async { Ok(Next::update(Work::update()).goto((0..2_i64).map(|n| Target::send("part", n)))) };
        let part = |n: i64| async move { Err::<WorkUpdate, _>(NodeError::new(n.to_string())) };
        let part = part.fallback(|_: &Work, failure| Work::update().push_log(format!("without {failure}")));
        let last = || async { Ok(Work::update().push_log("last")) };
        let graph = Graph::<Work>::new("fan").node("split", split.leads_to(["part"])).node("part", part).node("last", last);
        graph.edge(START, "split").edge("part", "last").edge("last", END).build()
    };
    for durability in [Durability::Step, Durability::Exit] {
        let test = crash_everywhere_in(World::new, graph, Work::update()).thread(move |thread| thread.durability(durability));
        let test = test.after_each(|_, state| assert_eq!(state.log, ["without 0", "without 1", "last"]));
        test.await.unwrap_or_else(|faults| panic!("{faults}"));
    }
}
