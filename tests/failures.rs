//! What is tried again, what is not, and for how long: each class under each policy, also with a restart in between.
//!
//! How it could break: attempts that begin anew with each process; a wait that is over because the process died; attempts that multiply because a graph
//! inside tries again too; a node that is silent for hours; a failure taken for another one because of what its text says.
//!
//! Time is tokio's paused one, and a clock that follows it: nothing waits really.

mod support {
    pub(crate) mod tokio_clock;
    pub(crate) mod work;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata::log::Record;
use ferrata::{Class, Context, Error, IntoNode, Node, NodeError, Outcome, Retry, Suspension, Thread};
use support::tokio_clock::tokio_now;
use support::work::{Desk, SECOND, Work, WorkUpdate, one};

/// A node that fails in this class so many times, and counts.
fn fails(class: Class, times: u32, tries: &Arc<AtomicU32>) -> Node<Work> {
    let tries = Arc::clone(tries);
    let node = move || {
        let nth = tries.fetch_add(1, Ordering::SeqCst);
        async move {
            // The text says nothing: it speaks of another class.
            if nth < times {
                Err(NodeError::new("a terminal, transient time-out").with_class(class))
            } else {
                Ok(Work::update().push_log("done"))
            }
        }
    };
    node.into_node()
}

async fn attempts(thread: &Thread<Work>) -> usize {
    let log = thread.log().await.expect("the log");
    log.iter().filter(|e| matches!(e.record, Record::AttemptFailed(_) | Record::TaskFailed(_) | Record::TaskDone(_))).count()
}

const CLASSES: [Class; 5] = [Class::Transient, Class::Deterministic, Class::Violation, Class::Terminal, Class::Unclassified];

#[tokio::test(start_paused = true)]
async fn each_class_is_tried_as_its_policy_says_and_a_restart_goes_on_counting() {
    let any = Retry::any(3).first_delay(SECOND);
    let all = Retry::classes(3, &CLASSES).first_delay(SECOND);
    let policies =
        [("none", None), ("transient", Some(Retry::transient(3).first_delay(SECOND))), ("any", Some(any)), ("all", Some(all))];
    for class in CLASSES {
        for (name, policy) in policies {
            for restarts in [false, true] {
                let (desk, tries) = (Desk::new(), Arc::new(AtomicU32::new(0)));
                let graph = || {
                    let node = fails(class, u32::MAX, &tries);
                    one(if let Some(policy) = policy { node.retry(policy) } else { node })
                };
                let is_retried = match name {
                    "none" => false,
                    "transient" => class == Class::Transient,
                    "any" => matches!(class, Class::Transient | Class::Unclassified),
                    _ => class != Class::Terminal,
                };
                let expected = if is_retried { 3 } else { 1 };
                let mut thread = desk.thread(graph());
                let mut result = if restarts { cut(&thread, is_retried).await } else { thread.run(Work::update()).await };
                if restarts && is_retried {
                    drop(thread);
                    thread = desk.thread(graph());
                    result = thread.resume().await;
                }
                let case = format!("{class}, {name}, restarted: {restarts}");
                let error = result.expect_err("it fails each time");
                assert_eq!(error.node_failure().expect("a node").1.class, class, "{case}");
                assert_eq!(tries.load(Ordering::SeqCst), expected, "{case}");
                assert_eq!(attempts(&thread).await, expected as usize, "{case}");
            }
        }
    }
}

/// Runs, and cuts the run off while it waits for its second attempt, if there is to be one.
async fn cut(thread: &Thread<Work>, waits: bool) -> Result<Outcome<Work>, Error> {
    if !waits {
        return thread.run(Work::update()).await;
    }
    let limited = thread.clone().deadline(SECOND / 2);
    let outcome = limited.run(Work::update()).await;
    assert!(matches!(outcome, Ok(Outcome::Suspended(Suspension::Deadline))), "{outcome:?}");
    outcome
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_wait_is_waited_for_after_a_restart() {
    let (desk, tries) = (Desk::new(), Arc::new(AtomicU32::new(0)));
    let graph = || one(fails(Class::Transient, 1, &tries).retry(Retry::transient(2).first_delay(10 * SECOND)));
    let begun = tokio_now();
    assert!(cut(&desk.thread(graph()), true).await.is_ok());
    assert_eq!(tries.load(Ordering::SeqCst), 1);
    tokio::time::sleep(3 * SECOND).await;
    assert!(desk.thread(graph()).resume().await.expect("it works the second time").done().is_some());
    let took = begun.elapsed();
    assert!(took >= 10 * SECOND && took < 11 * SECOND, "{took:?}");

    // And when the time is long over, nothing waits.
    let (desk, tries) = (Desk::new(), Arc::new(AtomicU32::new(0)));
    let graph = || one(fails(Class::Transient, 1, &tries).retry(Retry::transient(2).first_delay(10 * SECOND)));
    assert!(cut(&desk.thread(graph()), true).await.is_ok());
    tokio::time::sleep(60 * SECOND).await;
    let begun = tokio_now();
    assert!(desk.thread(graph()).resume().await.expect("it works the second time").done().is_some());
    assert!(begun.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_was_asked_for_is_kept_up_to_the_longest_one() {
    let year = Duration::from_secs(366 * 24 * 3600);
    for (asked, waits) in [(Duration::ZERO, SECOND), (5 * SECOND, 5 * SECOND), (year, 30 * SECOND), (Duration::MAX, 30 * SECOND)]
    {
        let (desk, tries) = (Desk::new(), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&tries);
        let node = move || {
            let nth = counted.fetch_add(1, Ordering::SeqCst);
            async move { if nth == 0 { Err(NodeError::http(429, "too many").retry_after(asked)) } else { Ok(Work::update()) } }
        };
        let node = node.retry(Retry::transient(2).first_delay(SECOND).delay_max(30 * SECOND));
        let begun = tokio_now();
        assert!(desk.thread(one(node)).run(Work::update()).await.expect("it works the second time").done().is_some());
        let took = begun.elapsed();
        assert!(took >= waits && took < waits + SECOND, "asked for {asked:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_attempt_ends_and_one_that_shows_life_goes_on() {
    let work = |beats: bool| {
        move |ctx: Context| async move {
            for _ in 0..10 {
                tokio::time::sleep(6 * SECOND).await;
                if beats {
                    ctx.heartbeat();
                }
            }
            Ok(Work::update().push_log("done"))
        }
    };
    let silent = Desk::new().thread(one(work(false).idle_timeout(10 * SECOND)));
    let begun = tokio_now();
    let error = silent.run(Work::update()).await.expect_err("nothing is heard of it");
    assert!(error.to_string().contains("no sign of life for 10000 ms") && error.is_transient(), "{error}");
    assert!(begun.elapsed() < 21 * SECOND, "{:?}", begun.elapsed());
    let alive = Desk::new().thread(one(work(true).idle_timeout(10 * SECOND)));
    assert!(alive.run(Work::update()).await.expect("it shows life").done().is_some());
    // Life is no excuse for taking for ever.
    let slow = Desk::new().thread(one(work(true).idle_timeout(10 * SECOND).timeout(20 * SECOND)));
    let error = slow.run(Work::update()).await.expect_err("it takes too long");
    assert!(error.to_string().contains("longer than its 20000 ms"), "{error}");

    // Marks and effects are signs of life too.
    let marking = |ctx: Context| async move {
        for row in 0..4 {
            tokio::time::sleep(6 * SECOND).await;
            ctx.mark("row", &row).await?;
            tokio::time::sleep(6 * SECOND).await;
            ctx.effect("act", |_key| async { Ok(()) }).await?;
        }
        Ok(Work::update())
    };
    assert!(
        Desk::new().thread(one(marking.idle_timeout(10 * SECOND))).run(Work::update()).await.expect("it lives").done().is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_for_all_attempts_counts_over_restarts() {
    let (desk, tries) = (Desk::new(), Arc::new(AtomicU32::new(0)));
    // Waits of 10, 20, 40, .. seconds: the fourth attempt would begin after 70.
    let retry = Retry::transient(100).first_delay(10 * SECOND).delay_max(1_000 * SECOND);
    let graph = || one(fails(Class::Transient, u32::MAX, &tries).retry(retry).total_timeout(60 * SECOND));
    let limited = desk.thread(graph()).deadline(15 * SECOND);
    assert!(matches!(limited.run(Work::update()).await, Ok(Outcome::Suspended(Suspension::Deadline))));
    desk.thread(graph()).resume().await.expect_err("it fails each time");
    assert_eq!(tries.load(Ordering::SeqCst), 3);

    // One attempt gets what is left, and no more.
    let hang = || async { std::future::pending::<ferrata::Result<WorkUpdate>>().await };
    let begun = tokio_now();
    let error = Desk::new().thread(one(hang.total_timeout(60 * SECOND))).run(Work::update()).await.expect_err("it hangs");
    assert!(error.to_string().contains("the time for all of its attempts is over"), "{error}");
    assert!(begun.elapsed() < 61 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn attempts_never_multiply_across_layers() {
    let tries = Arc::new(AtomicU32::new(0));
    let inner =
        |retry: Retry| one(fails(Class::Transient, u32::MAX, &tries).retry(retry)).build().expect("the graph is right").shared();
    for (inside, outside, expected) in [(3, 4, 3), (1, 4, 4)] {
        tries.store(0, Ordering::SeqCst);
        let node = inner(Retry::transient(inside).first_delay(SECOND)).retry(Retry::transient(outside).first_delay(SECOND));
        let error = Desk::new().thread(one(node)).run(Work::update()).await.expect_err("it fails each time");
        assert_eq!(tries.load(Ordering::SeqCst), expected, "{inside} inside, {outside} outside: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_graph_says_holds_for_nodes_that_say_nothing() {
    let tries = Arc::new(AtomicU32::new(0));
    let defaults =
        |node: Node<Work>| one(node).default_retry(Retry::transient(5).first_delay(SECOND)).default_timeout(30 * SECOND);
    Desk::new().thread(defaults(fails(Class::Transient, u32::MAX, &tries))).run(Work::update()).await.expect_err("it fails");
    assert_eq!(tries.swap(0, Ordering::SeqCst), 5);
    let own = fails(Class::Transient, u32::MAX, &tries).retry(Retry::NEVER);
    Desk::new().thread(defaults(own)).run(Work::update()).await.expect_err("it fails");
    assert_eq!(tries.load(Ordering::SeqCst), 1, "it has said that it is not to be tried again");
    let hang = || async { std::future::pending::<ferrata::Result<WorkUpdate>>().await };
    let error = Desk::new().thread(defaults(hang.retry(Retry::NEVER))).run(Work::update()).await.expect_err("it hangs");
    assert!(error.to_string().contains("longer than its 30000 ms"), "{error}");
}

#[test]
fn policies_that_nothing_can_come_of_are_refused() {
    let node = || fails(Class::Transient, 0, &Arc::default());
    let year = Duration::from_secs(400 * 24 * 3600);
    let wrong = [
        one(node().retry(Retry::transient(0))),
        one(node().retry(Retry::transient(2).delay_max(Duration::MAX))),
        one(node().retry(Retry::transient(2).first_delay(year))),
        one(node().timeout(Duration::ZERO)),
        one(node().idle_timeout(Duration::ZERO)),
        one(node().total_timeout(Duration::MAX)),
        one(node()).default_retry(Retry::any(0)),
        one(node()).default_timeout(year),
    ];
    for graph in wrong {
        let error = graph.build().expect_err("it cannot be meant");
        assert_eq!(error.mistakes().iter().map(ferrata::Mistake::code).collect::<Vec<_>>(), ["policy"], "{error}");
    }
}

/// An error that says that it will pass, and never does: the number of attempts is what bounds it.
#[tokio::test(start_paused = true)]
async fn an_error_that_lies_about_its_class_is_bounded_by_the_attempts() {
    #[derive(Debug, thiserror::Error)]
    #[error("I promise that this is fine")]
    struct Liar;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let lie = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err::<WorkUpdate, _>(NodeError::from(Liar)) }
    };
    let graph = one(lie.retry(Retry::transient(4).first_delay(SECOND))).classify(|_: &Liar| Class::Transient);
    Desk::new().thread(graph).run(Work::update()).await.expect_err("it was a lie");
    assert_eq!(tries.load(Ordering::SeqCst), 4);
}
