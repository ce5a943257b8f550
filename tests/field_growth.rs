//! What people have met with stores that grow old: files that grow with a history, and a clock that goes back.
//!
//! How it could break: a file that grows with the history that was to be forgotten; a history in the order of clocks.

mod support {
    pub(crate) mod common;
    pub(crate) mod field;
}

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrata::clock::{Clock, SystemClock, Timestamp};
use ferrata::store::{RedbStore, ThreadQuery, ThreadStatus};
use ferrata::{Context, Durability, END, Event, Keep, NodeError, Runner, START, View};
use support::field::{Field, Work, graph};

// ---- F18: growth ----

/// A message of 1 KiB each step: added to the state, or in place of the last one.
fn talking(store: RedbStore, adds: bool, until: u64) -> Runner<Work> {
    let talk = move |s: View<Work>| async move {
        let message = format!("{:01024}", s.n);
        let update = Work::update().n(s.n + 1);
        Ok(if adds { update.push_log(message) } else { update.topic(message) })
    };
    let graph = graph().node("talk", talk).edge(START, "talk");
    let graph = graph.route_to("talk", ["talk", END], move |s| if s.n < until { "talk" } else { END });
    Runner::new(graph.build().expect("the graph is right"), store)
}

/// Bytes of the file and of its artifacts.
fn size(path: &Path) -> u64 {
    let artifacts = std::fs::read_dir(path.with_extension("redb.artifacts")).into_iter().flatten();
    let folders = artifacts.map(|folder| folder.expect("an entry").path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
    let bytes: u64 = files.map(|file| file.expect("an entry").metadata().expect("its size").len()).sum();
    bytes + std::fs::metadata(path).expect("the file").len()
}

const STEPS: u64 = 2_000;
const MESSAGE: u64 = 1_024;

/// 300 messages, and then more with the last 5 checkpoints kept. Gives the size and the number of records after each stretch, the first one without.
async fn grown(store: &RedbStore, adds: bool) -> Vec<(u64, usize)> {
    let mut grown = Vec::new();
    for until in [300, 600, 1_000, 1_500, STEPS] {
        let thread = talking(store.clone(), adds, until).thread("t").steps_max(u64::MAX);
        let thread = if until > 300 { thread.keep_last(5) } else { thread };
        assert_eq!(thread.run(Work::update()).await.expect("it runs").done().expect("it ends").n, until);
        grown.push((size(store.path()), thread.log().await.expect("the log").len()));
    }
    grown
}

/// Prunes and compacts. Gives how much smaller that made it, as it says itself.
async fn made_smaller(store: &RedbStore, adds: bool) -> u64 {
    let grown = size(store.path());
    let runner = talking(store.clone(), adds, STEPS);
    let pruned = runner.thread("t").prune(Keep::Last(5)).await.expect("it is pruned");
    assert!(pruned.records > 0 && pruned.snapshots > 0, "{pruned:?}");
    // What stands for the removed records is a snapshot more.
    let before = size(store.path());
    let compacted = store.compact().await.expect("it is compacted");
    let gained = compacted.before - compacted.after + compacted.artifacts;
    assert_eq!(before - gained, size(store.path()), "{compacted:?}");
    assert!(size(store.path()) < grown, "{grown} bytes before");
    let history = runner.thread("t").history().await.expect("the history");
    assert_eq!(history.iter().map(|checkpoint| checkpoint.values.n).collect::<Vec<_>>(), [2_000, 1_999, 1_998, 1_997, 1_996]);
    assert!(store.verify().await.expect("it is looked at").is_sound());
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
    gained
}

#[tokio::test(flavor = "multi_thread")]
async fn f18_growth_of_a_history() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = RedbStore::open(dir.path().join("s.redb")).expect("a store");
    let grown = grown(&store, false).await;
    assert!(grown[0].1 > 600, "without saying so, all is kept: {grown:?}");
    // 1,700 steps more take no more room than the 300 did, and what is kept is what one snapshot allows.
    assert!(grown[1..].iter().all(|(bytes, records)| *bytes <= grown[0].0 && *records < 60), "{grown:?}");
    let gained = made_smaller(&store, false).await;
    let left = size(store.path());
    assert!(left < 64 * 1024 && gained > 4 * left, "{gained} bytes less, {left} are left");
}

#[tokio::test(flavor = "multi_thread")]
async fn f18_growth_of_a_state() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = RedbStore::open(dir.path().join("s.redb")).expect("a store");
    let grown = grown(&store, true).await;
    let bytes: Vec<u64> = grown.iter().map(|(bytes, _)| *bytes).collect();
    // The messages themselves stay: they are the state. Beside them stands one snapshot at most, and what was written since.
    let state = STEPS * MESSAGE;
    assert!(bytes[4] < 3 * state, "{bytes:?}");
    made_smaller(&store, true).await;
    let left = size(store.path());
    assert!((state..state + 128 * 1024).contains(&left), "{left} bytes are left of a state of {state}");
    let messages = talking(store, true, STEPS).thread("t").state().await.expect("a state").values.log.len();
    assert_eq!(messages as u64, STEPS);
}

/// A conversation has a run for each message.
#[tokio::test(flavor = "multi_thread")]
async fn f18_growth_over_many_runs() {
    for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
        let dir = tempfile::tempdir().expect("a folder");
        let store = RedbStore::open(dir.path().join("s.redb")).expect("a store");
        let mut sizes = Vec::new();
        for until in 1..=240 {
            let thread = talking(store.clone(), false, until).thread("t").durability(durability).keep_last(5);
            assert_eq!(thread.run(Work::update()).await.expect("it runs").done().expect("it ends").n, until);
            if until % 80 == 0 {
                assert!(thread.history().await.expect("the history").len() >= 5);
                sizes.push((size(store.path()), thread.log().await.expect("the log").len()));
            }
        }
        assert!(sizes.iter().all(|(bytes, records)| *bytes <= sizes[0].0 && *records < 200), "{durability:?}: {sizes:?}");
        assert!(store.verify().await.expect("it is looked at").is_sound());
    }
}

/// One long run whose steps nobody waits for.
#[tokio::test(flavor = "multi_thread")]
async fn f18_growth_of_a_run_that_is_stored_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = RedbStore::open(dir.path().join("s.redb")).expect("a store");
    let talk = talking(store.clone(), false, 400).thread("t").durability(Durability::Behind).keep_last(5);
    let mut events = talk.stream(Work::update()).expect("it starts");
    let mut most = 0;
    while let Some(event) = events.next().await {
        if let Event::Values { state, .. } = event
            && state.n % 50 == 0
        {
            most = most.max(talk.log().await.expect("the log").len());
        }
    }
    events.outcome().await.expect("it runs").done().expect("it ends");
    assert!(most < 100, "{most} records were kept while it ran");
}

// ---- F19: the clock ----

/// A clock that a test sets, forwards and back.
#[derive(Clone, Debug)]
struct Set(Arc<AtomicU64>);

impl Clock for Set {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn new_id(&self) -> uuid::Uuid {
        SystemClock.new_id()
    }

    fn jitter(&self) -> f64 {
        0.5
    }
}

#[tokio::test]
async fn f19_a_clock_that_is_set_back() {
    const HOUR: u64 = 3_600_000;
    const NOON: u64 = 1_000 * HOUR;
    let field = Field::new();
    let clock = Set(Arc::new(AtomicU64::new(NOON)));
    let open = || {
        let hands = Arc::clone(&clock.0);
        // Each save happens an hour before the one before it.
        let save = move |s: View<Work>, ctx: Context| {
            let hands = Arc::clone(&hands);
            async move {
                let (hands, n) = (&hands, s.n + 1);
                let turn_back = |_| async move {
                    hands.fetch_sub(HOUR, Ordering::SeqCst);
                    if n == 2 { Err(NodeError::new("not yet").transient().not_performed()) } else { Ok(n) }
                };
                let saved: Result<u64, NodeError> = ctx.effect("save", turn_back).await;
                Ok(Work::update().n(n).push_log(format!("{n} {}", saved.is_ok())))
            }
        };
        let graph = graph()
            .node("save", save)
            .edge(START, "save")
            .route_to("save", ["save", END], |s| if s.n % 3 == 0 { END } else { "save" });
        Runner::with_clock(graph.build().expect("the graph is right"), field.store(), clock.clone())
    };
    for run in 1..=2 {
        let runner = open();
        let thread = runner.thread("t");
        assert_eq!(thread.run(Work::update()).await.expect("it runs").done().expect("it ends").n, 3 * run);
        drop((thread, runner));
        // The latest is the one that was written last, also for a new process.
        let runner = open();
        let thread = runner.thread("t");
        assert_eq!(thread.state().await.expect("a state").values.n, 3 * run);
        let history = thread.history().await.expect("the history");
        assert!(history.is_sorted_by(|later, earlier| later.position > earlier.position && later.at <= earlier.at));
        assert_eq!(history.first().expect("a checkpoint").at.0, NOON - 3 * run * HOUR);
        let values: Vec<u64> = history.iter().map(|checkpoint| checkpoint.values.n).collect();
        assert!(values.is_sorted_by(|later, earlier| later >= earlier), "{values:?}");
        let log = thread.log().await.expect("the log");
        assert!(log.iter().enumerate().all(|(position, entry)| entry.position.0 == position as u64));
        let listed = runner.threads(ThreadQuery::new()).await.expect("a list");
        assert_eq!(
            (listed[0].status, listed[0].since.0, listed[0].updated_at.0),
            (ThreadStatus::Done, NOON - 3 * run * HOUR, NOON - 3 * run * HOUR)
        );
        // A duration that went below zero would be a huge one.
        let report = thread.report().await.expect("a report");
        assert!(report.nodes.iter().all(|node| node.ms == 0), "{:?}", report.nodes);
        assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
    }
}
