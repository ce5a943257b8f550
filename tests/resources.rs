//! Resources that tasks share: how many use one at once, how fast, and what happens when it fails.
//!
//! How it could break: workers that come back in step, or that had a time to begin before they were told to wait, and begin all the same; a breaker that
//! holds up branches that have nothing to do with it; a turn that is lost with a run that was cut off.
//!
//! The services are mocks in this process; `throttled.rs` has a server. Time is tokio's paused one.

mod support {
    pub(crate) mod tokio_clock;
}

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::clock::ManualClock;
use ferrata::store::MemoryStore;
use ferrata::{
    Breaker, Context, END, Graph, GraphBuilder, IntoNode, NodeError, Outcome, Resource, Retry, Runner, START, State, Suspension,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::tokio_clock::{TokioClock, tokio_now};
use tokio::time::Instant;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Job {
    records: u64,
    #[state(sum)]
    done: u64,
    #[state(append)]
    log: Vec<String>,
}

const SECOND: Duration = Duration::from_secs(1);

fn runner(graph: GraphBuilder<Job>) -> Runner<Job> {
    Runner::with_clock(
        graph.build().expect("the graph is right"),
        MemoryStore::new(),
        TokioClock { is_jittery: true, ..TokioClock::new() },
    )
}

/// Twenty tasks that wait for a service of five a second, which answers as told: `answer` gets the number of the call, from 1. Gives the times of the calls, in
/// milliseconds since the first one.
async fn twenty(resource: Resource, answer: fn(usize) -> ferrata::Result<()>) -> Vec<u128> {
    let called: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let calls = Arc::clone(&called);
    let send = move |_: u64| {
        let calls = Arc::clone(&calls);
        async move {
            let number = {
                let mut calls = calls.lock().expect("no panic");
                calls.push(tokio_now());
                calls.len()
            };
            // It takes a moment, in which others call.
            tokio::task::yield_now().await;
            answer(number).map(|()| Job::update().done(1))
        }
    };
    let graph = Graph::<Job>::new("job")
        .node("list", || async { Ok(Job::update()) })
        .fan_out("list", "send", |job: &Job| (0..job.records).collect::<Vec<_>>())
        .node("send", send.retry(Retry::transient(5).first_delay(SECOND)).uses("service"))
        .edge(START, "list")
        .edge("send", END);
    let runner = runner(graph).resource(resource);
    let state = runner.thread("t").run(Job::update().records(20)).await.expect("it works").done().expect("it ends");
    assert_eq!(state.done, 20);
    let called = called.lock().expect("no panic");
    called.iter().map(|at| at.duration_since(called[0]).as_millis()).collect()
}

#[tokio::test(start_paused = true)]
async fn who_has_a_time_to_begin_waits_for_a_pause_and_for_an_open_breaker_too() {
    let rate = || Resource::new("service").rate(5, SECOND);
    let calls = twenty(rate(), |number| match number {
        3 => Err(NodeError::http(429, "slow down").retry_after(60 * SECOND)),
        _ => Ok(()),
    });
    let calls = calls.await;
    assert!(calls[2] < 1_000 && calls[3] >= calls[2] + 60_000, "{calls:?}");
    assert!(calls.windows(2).all(|pair| pair[1] - pair[0] >= 200), "{calls:?}");

    let breaker = Breaker::new().calls_min(3).open_for(60 * SECOND).probes(2);
    let calls = twenty(rate().breaker(breaker), |number| if number <= 3 { Err(NodeError::http(503, "down")) } else { Ok(()) });
    let calls = calls.await;
    assert!(calls[2] < 1_000 && calls[3] >= calls[2] + 60_000, "{calls:?}");
    assert!(calls.windows(2).all(|pair| pair[1] - pair[0] >= 200), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rate_may_be_finer_than_the_clock_and_the_clock_may_stand_still() {
    let calls = twenty(Resource::new("service").rate(5_000, SECOND), |_| Ok(())).await;
    assert!((3..=7).contains(&calls[19]), "{calls:?}");

    let graph = Graph::<Job>::new("job")
        .node("list", || async { Ok(Job::update()) })
        .fan_out("list", "send", |job: &Job| (0..job.records).collect::<Vec<_>>())
        .node("send", (|_: u64| async { Ok(Job::update().done(1)) }).uses("service"))
        .edge(START, "list")
        .edge("send", END);
    let runner = Runner::with_clock(graph.build().expect("the graph is right"), MemoryStore::new(), ManualClock::default());
    let (runner, begun) = (runner.resource(Resource::new("service").rate(5, SECOND)), tokio_now());
    let state = runner.thread("t").run(Job::update().records(6)).await.expect("it works").done().expect("it ends");
    assert_eq!((state.done, begun.elapsed().as_secs()), (6, 1), "five gaps");
}

#[tokio::test(start_paused = true)]
async fn nobody_comes_back_in_step() {
    // Without a breaker nothing is known of how fast it may be, but that it was too much at once.
    let refuse = |number| match number {
        ..=20 => Err(NodeError::http(429, "slow down").retry_after(10 * SECOND)),
        _ => Ok(()),
    };
    let calls = twenty(Resource::new("service"), refuse).await;
    let back: BTreeSet<u128> = calls[20..].iter().copied().collect();
    assert!(calls[19] == 0 && back.len() > 10 && back.first() >= Some(&10_000) && back.last() < Some(&11_100), "{calls:?}");

    // Behind a breaker that closes they come one after the other, each a little sooner than the one before.
    let calls = twenty(Resource::new("service").breaker(Breaker::new().open_for(10 * SECOND)), refuse).await;
    let gaps: Vec<u128> = calls[20..].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(calls[20] >= 10_000 && gaps.iter().all(|gap| (300..=1_100).contains(gap)), "{gaps:?}");
    assert!(gaps[..5].iter().sum::<u128>() > gaps[14..].iter().sum::<u128>() + 1_000, "{gaps:?}");
}

/// A service that fails until it is mended.
fn failing(breaker: Breaker, waits: bool, service: &Arc<Mutex<(u32, bool)>>) -> Runner<Job> {
    let service = Arc::clone(service);
    let call = move || {
        let service = Arc::clone(&service);
        async move {
            let mut service = service.lock().expect("no panic");
            service.0 += 1;
            if service.1 { Ok(Job::update().push_log("called")) } else { Err(NodeError::http(503, "down")) }
        }
    };
    let call = call.retry(Retry::transient(20).first_delay(SECOND).delay_max(SECOND));
    let call = if waits { call.uses("service") } else { call.uses_or_fails("service") };
    let call = if waits { call } else { call.fallback(|_: &Job, failure| Job::update().push_log(failure.message.clone())) };
    let other = || async { Ok(Job::update().push_log("other")) };
    let graph = Graph::<Job>::new("job").node("call", call).node("other", other);
    let graph = graph.edge(START, "call").edge(START, "other").edge("call", END).edge("other", END);
    runner(graph).resource(Resource::new("service").breaker(breaker))
}

#[tokio::test(start_paused = true)]
async fn while_the_breaker_is_open_nobody_calls_other_branches_go_on_and_the_state_is_visible() {
    let service = Arc::new(Mutex::new((0, false)));
    let runner = failing(Breaker::new().calls_min(3).open_for(60 * SECOND), true, &service);
    let mut events = runner.thread("t").stream(Job::update()).expect("it begins");
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(service.lock().expect("no panic").0, 3, "the third failure opened it");
    let state = &runner.resources()[0];
    assert_eq!((state.name.as_str(), state.in_use, state.waiting), ("service", 0, 1));
    assert!(state.paused_until.is_some() && !state.half_open, "{state:?}");
    // The other branch has a result on record.
    assert_eq!(runner.thread("t").progress().await.expect("it is there").done.len(), 1);

    service.lock().expect("no panic").1 = true;
    while events.next().await.is_some() {}
    let state = events.outcome().await.expect("it works").done().expect("it ends");
    assert_eq!(state.log, ["called", "other"]);
    assert_eq!(service.lock().expect("no panic").0, 4, "one probe");
    assert_eq!(runner.resources()[0].paused_until, None);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_want_to_wait_takes_the_fallback() {
    let service = Arc::new(Mutex::new((0, false)));
    let runner = failing(Breaker::new().calls_min(3).open_for(60 * SECOND), false, &service);
    let state = runner.thread("t").run(Job::update()).await.expect("it falls back").done().expect("it ends");
    assert!(state.log[0].contains("\"service\" is not available"), "{:?}", state.log);
    assert_eq!(service.lock().expect("no panic").0, 3);
    // Another thread of the same runner knows of it at once.
    runner.thread("u").run(Job::update()).await.expect("it falls back").done().expect("it ends");
    assert_eq!(service.lock().expect("no panic").0, 3);
}

#[tokio::test(start_paused = true)]
async fn a_resource_has_so_many_places_for_all_threads_together() {
    let most = Arc::new(Mutex::new((0_u32, 0_u32)));
    let counted = Arc::clone(&most);
    let work = move |_: u64| {
        let most = Arc::clone(&counted);
        async move {
            {
                let mut most = most.lock().expect("no panic");
                most.0 += 1;
                most.1 = most.1.max(most.0);
            }
            tokio::time::sleep(SECOND).await;
            most.lock().expect("no panic").0 -= 1;
            Ok(Job::update().done(1))
        }
    };
    let graph = Graph::<Job>::new("job")
        .node("list", || async { Ok(Job::update()) })
        .fan_out("list", "work", |job: &Job| (0..job.records).collect::<Vec<_>>())
        .node("work", work.uses("printer"))
        .edge(START, "list")
        .edge("work", END);
    let runner = runner(graph).resource(Resource::new("printer").concurrency(3));
    // A run that is cut off gives its places back.
    let cut = runner.thread("cut").deadline(SECOND / 2).run(Job::update().records(5)).await;
    assert!(matches!(cut, Ok(Outcome::Suspended(Suspension::Deadline))), "{cut:?}");
    most.lock().expect("no panic").0 = 0;
    let begun = tokio_now();
    let threads = ["a", "b"].map(|name| {
        let thread = runner.thread(name);
        tokio::spawn(async move { thread.run(Job::update().records(6)).await })
    });
    for thread in threads {
        assert_eq!(thread.await.expect("no panic").expect("it works").done().expect("it ends").done, 6);
    }
    assert_eq!(most.lock().expect("no panic").1, 3);
    assert_eq!(begun.elapsed().as_secs(), 4, "twelve tasks, three at a time");
}

#[tokio::test]
async fn a_resource_that_is_not_there_or_cannot_work_is_told_before_anything_runs() {
    let graph = || {
        let node = |_: Context| async { Ok(Job::update()) };
        Graph::<Job>::new("job").node("work", node.uses("bank")).edge(START, "work").edge("work", END)
    };
    let refused = |runner: Runner<Job>| async move {
        let error = runner.thread("t").run(Job::update()).await.expect_err("it cannot run");
        assert_eq!(error.code(), "resource", "{error}");
        assert!(runner.thread("t").log().await.expect("a log").is_empty(), "nothing was recorded");
        error.to_string()
    };
    assert!(refused(runner(graph())).await.contains(".resource(Resource::new(\"bank\"))"));
    let wrong = [
        Resource::new("bank").concurrency(0),
        Resource::new("bank").rate(0, SECOND),
        Resource::new("bank").rate(5, Duration::ZERO),
        Resource::new("bank").breaker(Breaker::new().failure_rate(2.0)),
    ];
    for resource in wrong {
        assert!(refused(runner(graph()).resource(resource)).await.contains("\"bank\" cannot work"));
    }
    let right = runner(graph()).resource(Resource::new("bank"));
    assert!(right.thread("t").run(Job::update()).await.expect("it works").done().is_some());
}
