//! What is known of a resource outlives the process: an open breaker stays open, a pause is waited for, and nobody waits longer than is said.
//!
//! How it could break: a new process that storms a service of which the last one knew that it is down; a clock that was set back and makes it wait for a year;
//! a store that cannot keep it and fails the run; a write for each call. A process that ends is here a runner that is dropped with its store.

mod support {
    pub(crate) mod tokio_clock;
}

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::store::{
    Append, Appended, BreakerKept, MemoryStore, Pending, RedbOptions, RedbStore, ResourceKept, Store, StoreError,
};
use ferrata::{Breaker, END, Graph, IntoNode, NodeError, Resource, Runner, START, State};
use redb::{Database, TableDefinition};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::tokio_clock::{TokioClock, tokio_now};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Job {
    #[state(append)]
    log: Vec<String>,
}

const SECOND: Duration = Duration::from_secs(1);
const YEAR_MS: u64 = 365 * 24 * 3_600_000;
/// As the breaker of these tests says.
const OPEN_FOR: u64 = 60;

/// How the service answers.
#[derive(Clone, Copy, Default)]
enum Answer {
    #[default]
    Works,
    Down,
    /// It asks to be left alone.
    Later(Duration),
}

/// A service, and the clock of all processes that use it.
#[derive(Clone)]
struct World {
    threads: Arc<AtomicU64>,
    calls: Arc<Mutex<u32>>,
    answer: Arc<Mutex<Answer>>,
    clock: TokioClock,
}

impl World {
    fn new() -> Self {
        let clock = TokioClock::new();
        clock.ahead_ms.store(10 * YEAR_MS, Ordering::SeqCst);
        Self { threads: Arc::default(), calls: Arc::default(), answer: Arc::default(), clock }
    }

    fn answers(&self, answer: Answer) {
        *self.answer.lock().expect("no panic") = answer;
    }

    /// How often it was called since somebody asked last.
    fn calls(&self) -> u32 {
        std::mem::take(&mut *self.calls.lock().expect("no panic"))
    }

    fn call(&self) -> ferrata::Result<JobUpdate> {
        *self.calls.lock().expect("no panic") += 1;
        match *self.answer.lock().expect("no panic") {
            Answer::Works => Ok(Job::update().push_log("called")),
            Answer::Down => Err(NodeError::http(503, "down")),
            Answer::Later(pause) => Err(NodeError::http(429, "later").retry_after(pause)),
        }
    }

    /// A process over that store.
    fn process(&self, store: impl Store, resource: &str, waits: bool) -> Runner<Job> {
        let world = self.clone();
        let call = move || std::future::ready(world.call());
        let call = if waits { call.uses(resource) } else { call.uses_or_fails(resource) };
        let call = if waits { call } else { call.fallback(|_: &Job, _| Job::update().push_log("fallback")) };
        let graph = Graph::<Job>::new("job").node("call", call).edge(START, "call").edge("call", END);
        let breaker = Breaker::new().calls_min(3).open_for(Duration::from_secs(OPEN_FOR));
        Runner::with_clock(graph.build().expect("the graph is right"), store, self.clock.clone())
            .resource(Resource::new(resource).breaker(breaker))
    }

    /// Runs a new thread.
    async fn run(&self, process: &Runner<Job>) -> Result<Vec<String>, ferrata::Error> {
        let name = format!("{}", self.threads.fetch_add(1, Ordering::SeqCst));
        let outcome = process.thread(&name).run(Job::update()).await?;
        Ok(outcome.done().expect("nothing asks").log.clone())
    }

    /// The service is down until the breaker has opened; then it works again.
    async fn opens(&self, store: impl Store, resource: &str) {
        self.answers(Answer::Down);
        let process = self.process(store, resource, true);
        for _ in 0..3 {
            let error = self.run(&process).await.expect_err("it is down");
            assert!(error.to_string().contains("HTTP 503"), "{error}");
        }
        assert!(process.resources()[0].paused_until.is_some());
        assert_eq!(self.calls(), 3);
        self.answers(Answer::Works);
    }

    /// How many seconds the next process waits before it calls the service, once.
    async fn waits(&self, store: impl Store, resource: &str) -> u64 {
        let begun = tokio_now();
        let process = self.process(store, resource, true);
        let log = self.run(&process).await.expect("it works");
        assert_eq!((log.last().map(String::as_str), self.calls()), (Some("called"), 1));
        begun.elapsed().as_secs()
    }
}

fn open(path: &Path) -> RedbStore {
    RedbStore::open(path).expect("the last process has left it")
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("job.redb");
    (dir, path)
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_is_open_stays_open_in_the_next_process_and_one_that_has_closed_is_closed() {
    let (_dir, path) = file();
    let world = World::new();
    world.opens(open(&path), "service").await;
    tokio::time::advance(20 * SECOND).await;

    // Who does not want to wait does not call it either.
    let process = world.process(open(&path), "service", false);
    let log = world.run(&process).await.expect("it falls back");
    assert_eq!((log, world.calls()), (vec!["fallback".to_owned()], 0));
    assert!(process.resources()[0].paused_until.is_some());
    drop(process);

    assert_eq!(world.waits(open(&path), "service").await, OPEN_FOR - 20, "what is left of it");
    assert!(world.waits(open(&path), "service").await <= 1, "the probe has worked");
    let kept = open(&path).resource("service").await.expect("it is read").expect("it is kept");
    assert_eq!(kept.breaker, BreakerKept::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_with_a_probe_under_way_leaves_a_breaker_that_is_half_open() {
    let (_dir, path) = file();
    let world = World::new();
    world.opens(open(&path), "service").await;
    tokio::time::advance(2 * OPEN_FOR as u32 * SECOND).await;
    world.answers(Answer::Down);
    let process = world.process(open(&path), "service", true);
    world.run(&process).await.expect_err("it is down");
    drop(process);
    assert_eq!(world.calls(), 1);
    world.answers(Answer::Works);
    assert_eq!(world.waits(open(&path), "service").await, OPEN_FOR, "the probe has failed");

    let store = open(&path);
    let mut kept = ResourceKept::default();
    kept.breaker = BreakerKept::HalfOpen;
    store.keep_resource("service", &kept).await.expect("it is kept");
    let process = world.process(store, "service", false);
    world.run(&process).await.expect("it probes");
    assert_eq!((world.calls(), process.resources()[0].half_open), (1, false));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_is_said_whatever_the_clock_does() {
    let (_dir, path) = file();
    let world = World::new();
    let set = |years: u64| world.clock.ahead_ms.store(years * YEAR_MS, Ordering::SeqCst);
    // Set back, the time begins anew, and only once.
    world.opens(open(&path), "service").await;
    set(9);
    let process = world.process(open(&path), "service", false);
    world.run(&process).await.expect("it falls back");
    drop(process);
    tokio::time::advance(40 * SECOND).await;
    assert_eq!(world.waits(open(&path), "service").await, OPEN_FOR - 40);
    // Set forward, it is over.
    world.opens(open(&path), "service").await;
    set(11);
    assert_eq!(world.waits(open(&path), "service").await, 0);
    // The same in one process.
    world.opens(open(&path), "service").await;
    let process = world.process(open(&path), "service", true);
    let (begun, (of, runs)) = (tokio_now(), (world.clone(), process.clone()));
    let run = tokio::spawn(async move { of.run(&runs).await });
    while process.resources()[0].paused_until.is_none() {
        tokio::task::yield_now().await;
    }
    set(10);
    run.await.expect("no panic").expect("it works");
    assert_eq!((begun.elapsed().as_secs(), world.calls()), (OPEN_FOR, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_waited_for_in_the_next_process_and_five_minutes_at_most() {
    let (_dir, path) = file();
    let world = World::new();
    for (asked, clock, waits) in [(90, 10, 90), (3_600, 10, 300), (90, 9, 300), (90, 11, 0)] {
        world.clock.ahead_ms.store(10 * YEAR_MS, Ordering::SeqCst);
        world.answers(Answer::Later(Duration::from_secs(asked)));
        let process = world.process(open(&path), "service", true);
        world.run(&process).await.expect_err("it is told to come back later");
        world.calls();
        drop(process);
        world.answers(Answer::Works);
        world.clock.ahead_ms.store(clock * YEAR_MS, Ordering::SeqCst);
        assert_eq!(world.waits(open(&path), "service").await, waits, "asked for {asked} s, the clock in year {clock}");
    }
}

#[tokio::test(start_paused = true)]
async fn stores_and_resources_do_not_mix() {
    let (_dir, path) = file();
    let (_other_dir, other) = file();
    let world = World::new();
    world.opens(open(&path), "service").await;
    assert_eq!(world.waits(open(&other), "service").await, 0, "another store");
    assert_eq!(world.waits(open(&path), "Service").await, 0, "another resource");
    // What is kept is no matter of what keeps it: two runners over one store in memory.
    let store = Arc::new(MemoryStore::new());
    world.opens(Arc::clone(&store), "service").await;
    assert_eq!(world.waits(store, "service").await, OPEN_FOR);
}

#[tokio::test(start_paused = true)]
async fn the_next_process_is_no_faster_than_the_last_one_had_to_be() {
    let (_dir, path) = file();
    let world = World::new();
    let store = open(&path);
    let mut kept = ResourceKept::default();
    kept.gap_ms = 700;
    store.keep_resource("service", &kept).await.expect("it is kept");
    let (process, begun) = (world.process(store, "service", true), tokio_now());
    for gaps in 0..3 {
        world.run(&process).await.expect("it works");
        assert!(begun.elapsed() >= Duration::from_millis(600 * gaps), "{:?}", begun.elapsed());
    }
}

/// A store that counts what it keeps of resources, or cannot.
#[derive(Clone, Debug, Default)]
struct Keeps {
    inner: Arc<MemoryStore>,
    kept: Arc<AtomicU64>,
    fails: bool,
}

impl Keeps {
    fn failure<T>(&self) -> Result<T, StoreError> {
        Err(StoreError::Closed)
    }
}

impl Store for Keeps {
    ferrata::hand_on_store!(inner; load, threads, questions, delete, restore, prune, alarms, note, keep_note, notes);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        self.inner.append(append)
    }

    fn resource<'a>(&'a self, name: &'a str) -> Pending<'a, Option<ResourceKept>> {
        if self.fails { Box::pin(std::future::ready(self.failure())) } else { self.inner.resource(name) }
    }

    fn keep_resource<'a>(&'a self, name: &'a str, kept: &'a ResourceKept) -> Pending<'a, ()> {
        self.kept.fetch_add(1, Ordering::SeqCst);
        if self.fails { Box::pin(std::future::ready(self.failure())) } else { self.inner.keep_resource(name, kept) }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_kept_when_something_changes_and_not_for_each_call() {
    let (world, store) = (World::new(), Keeps::default());
    let process = world.process(store.clone(), "service", true);
    let kept = || store.kept.swap(0, Ordering::SeqCst);
    let call = || async { world.run(&process).await.is_ok() };
    for _ in 0..50 {
        assert!(call().await);
    }
    assert_eq!(kept(), 0, "nothing has changed");
    world.answers(Answer::Down);
    for _ in 0..49 {
        assert!(!call().await);
    }
    assert_eq!(kept(), 0, "half of them work");
    assert!(!call().await);
    assert_eq!((kept(), process.resources()[0].paused_until.is_some()), (1, true), "it opens");
    world.answers(Answer::Works);
    assert!(call().await);
    assert_eq!(kept(), 2, "it lets a probe through, and closes");
    world.answers(Answer::Later(SECOND));
    assert!(!call().await);
    assert_eq!(kept(), 1, "it asks for a pause");
    world.answers(Answer::Works);
    for _ in 0..8 {
        assert!(call().await);
    }
    assert_eq!(kept(), 0, "that it is over is no news");
}

/// Hears warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().expect("no panic").push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_keep_it_fails_no_run() {
    let (world, warnings) = (World::new(), Warnings::default());
    let _heard = tracing::subscriber::set_default(warnings.clone());
    let store = Keeps { fails: true, ..Keeps::default() };
    world.opens(store.clone(), "service").await;
    assert_eq!(world.waits(store, "service").await, 0, "nothing is known");
    let warnings = warnings.0.lock().expect("no panic");
    let told = |what: &str| warnings.iter().filter(|warning| warning.contains(what) && warning.contains("service")).count();
    assert_eq!((told("cannot be read"), told("cannot be kept")), (2, 1), "{warnings:?}");
}

#[tokio::test(start_paused = true)]
async fn files_of_every_format_keep_it_and_damage_is_told() {
    for format in ["format-1.redb", "format-2.redb", "format-3.redb"] {
        let (_dir, path) = file();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format);
        std::fs::copy(fixture, &path).expect("a copy");
        assert_eq!(open(&path).resource("service").await.expect("it is read"), None, "{format}");
        let world = World::new();
        world.opens(open(&path), "service").await;
        assert_eq!(world.waits(open(&path), "service").await, OPEN_FOR, "{format}");

        // Bytes that make no sense are told, and the run begins anew.
        let table: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("resources");
        let database = Database::open(&path).expect("it opens");
        let transaction = database.begin_write().expect("a transaction");
        transaction.open_table(table).expect("the table").insert("service", &[1, 2, 3][..]).expect("it is written");
        transaction.commit().expect("it is committed");
        drop(database);
        let store = RedbOptions::new().check_up_to(0).open(&path).expect("it opens");
        let faults = store.verify().await.expect("it is looked at").faults;
        assert!(faults.iter().any(|fault| fault.contains("the resource \"service\" is cut")), "{faults:?}");
        assert_eq!(world.waits(store, "service").await, 0, "{format}");
    }
}

#[tokio::test]
async fn a_run_that_was_cut_off_keeps_no_file_open() {
    let (_dir, path) = file();
    let world = World::new();
    world.opens(open(&path), "service").await;
    let process = world.process(open(&path), "service", true);
    let cut = process.thread("cut").deadline(Duration::from_millis(20)).run(Job::update()).await;
    assert!(cut.is_ok_and(|outcome| outcome.done().is_none()) && world.calls() == 0);
    drop(process);
    assert!(open(&path).resource("service").await.expect("it is read").is_some());
}
