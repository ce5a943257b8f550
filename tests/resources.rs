//! Resources that tasks share: how many use one at once, how fast, and what happens when it fails.
//!
//! How it could break: workers that come back in step; a server that asks to be left alone by one of them and is stormed by the others; a breaker that
//! holds up branches that have nothing to do with it; a turn that is lost with a run that was cut off.
//!
//! The service is a mock in this process, and time is tokio's paused one: two thousand requests at five a second take no time here.

mod support {
    pub(crate) mod tokio_clock;
}

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

/// A service that takes five requests a second, refuses the others, and bans who has been refused fifty times.
#[derive(Clone, Default)]
struct Service(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    recent: VecDeque<Instant>,
    served: Vec<Instant>,
    refused: u32,
}

const BAN_AT: u32 = 50;

impl Service {
    fn request(&self) -> ferrata::Result<()> {
        let (mut counts, now) = (self.0.lock().expect("no panic"), tokio_now());
        if counts.refused >= BAN_AT {
            return Err(NodeError::http(403, "banned"));
        }
        while counts.recent.front().is_some_and(|at| now.duration_since(*at) >= SECOND) {
            counts.recent.pop_front();
        }
        if counts.recent.len() >= 5 {
            counts.refused += 1;
            return Err(NodeError::http(429, "slow down").retry_after(SECOND));
        }
        counts.recent.push_back(now);
        counts.served.push(now);
        Ok(())
    }

    fn refused(&self) -> u32 {
        self.0.lock().expect("no panic").refused
    }

    /// The times between requests that were served.
    fn spaces(&self) -> Vec<Duration> {
        self.0.lock().expect("no panic").served.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect()
    }

    /// Twenty workers send all records.
    fn job(&self, uses: bool) -> GraphBuilder<Job> {
        let service = self.clone();
        let send = move |_record: u64| {
            let service = service.clone();
            async move {
                service.request()?;
                Ok(Job::update().done(1))
            }
        };
        let send = send.concurrency(20).retry(Retry::transient(10).first_delay(SECOND));
        let send = if uses { send.uses("service") } else { send };
        Graph::<Job>::new("job")
            .node("list", || async { Ok(Job::update()) })
            .fan_out("list", "send", |job: &Job| (0..job.records).collect::<Vec<_>>())
            .node("send", send)
            .edge(START, "list")
            .edge("send", END)
    }
}

/// "A provider throttled us; every worker retried in step, and the account was blocked."
#[tokio::test(start_paused = true)]
async fn a_throttled_service_is_not_stormed_and_nobody_is_banned() {
    let service = Service::default();
    let breaker = Breaker::new().calls_min(5).open_for(5 * SECOND);
    let resource = Resource::new("service").concurrency(20).rate(5, SECOND).breaker(breaker);
    let runner = runner(service.job(true)).resource(resource);
    let thread = runner.thread("t").tasks_max(20);
    let state = thread.run(Job::update().records(2_000)).await.expect("nobody is banned").done().expect("it ends");
    assert_eq!(state.done, 2_000);
    println!("refused {} times", service.refused());
    assert!(service.refused() < 5, "{}", service.refused());
    let spaces = service.spaces();
    let burst = spaces.iter().filter(|space| **space < SECOND / 10).count();
    assert!(burst < 20, "they are spread: {burst} of {} come close behind another one", spaces.len());
    let kinds: std::collections::BTreeSet<u128> = spaces.iter().map(Duration::as_millis).collect();
    assert!(kinds.len() > 10, "and with jitter: {kinds:?}");

    // Each worker for itself is banned, however politely it retries.
    let service = Service::default();
    let error = self::runner(service.job(false)).thread("t").run(Job::update().records(2_000)).await.expect_err("it is banned");
    assert!(error.to_string().contains("HTTP 403: banned"), "{error}");
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
