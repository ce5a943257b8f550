//! The disk fails, at each thing that a run does with it in turn: syncs, writes, reads, changes of length. What was acknowledged is there
//! afterwards, and the run comes to the same end without doing anything twice.
//!
//! How it could break: an answer, a task or an effect that is acknowledged before it is durable; a file that cannot be opened after a torn write;
//! a store that stays broken when its disk is well again; half an append.
//!
//! Each fault is followed by several ends: the process starts again on the same machine; the power goes, and what was not synced is lost, or there,
//! or there in part with a torn write; or the disk is well again and the same store goes on. Syncs are all covered; of writes and reads some, unless
//! `FERRATA_DISK_ALL=1`.

mod support {
    pub(crate) mod common;
    pub(crate) mod nested;
}

use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::log::{Entry, QuestionKind, Record};
use ferrata::store::{Append, Appended, AtWork, Block, Pending, Reach, RedbOptions, RedbStore, Store, StoreError, ThreadQuery};
use ferrata::testing::{DiskFault, DiskOp, FaultyDisk, Unsynced};
use ferrata::{Answer, Durability, END, Error, Event, Graph, Outcome, Position, Question, Retry, Runner, START, ThreadName};
use support::common::tell;
use support::nested::{Way, Work, World, caller_of_two, embed, line, node};

const NAMES: [&str; 2] = ["one", "two"];

/// What it stands on is what the store acknowledged.
#[derive(Clone, Debug)]
struct Watched {
    store: RedbStore,
    acknowledged: Arc<Mutex<Acknowledged>>,
}

type Acknowledged = BTreeMap<(ThreadName, Position), Record>;

impl Watched {
    fn note(acknowledged: &Mutex<Acknowledged>, thread: &ThreadName, expected: Position, records: Vec<Record>) {
        let numbered = (expected.0..).zip(records);
        let rows = numbered.map(|(position, record)| ((thread.clone(), Position(position)), record));
        acknowledged.lock().expect("no panic").extend(rows);
    }
}

impl Store for Watched {
    ferrata::hand_on_store!(store);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        let (thread, expected, records) = (append.thread.clone(), append.expected, append.records.clone());
        let (appending, acknowledged) = (self.store.append(append), Arc::clone(&self.acknowledged));
        Box::pin(async move {
            let appended = appending.await?;
            Self::note(&acknowledged, &thread, expected, records);
            Ok(appended)
        })
    }

    fn append_here(&self, append: Append, block: Option<Block<'_>>) -> Result<Result<Appended, StoreError>, Append> {
        let (thread, expected, records) = (append.thread.clone(), append.expected, append.records.clone());
        let appended = self.store.append_here(append, block)?;
        if appended.is_ok() {
            Self::note(&self.acknowledged, &thread, expected, records);
        }
        Ok(appended)
    }

    fn at_work(&self) -> Option<&AtWork> {
        self.store.at_work()
    }
}

/// Tasks at once, some of which are graphs; effects before and after questions; failures that are tried again and such that end the run.
fn graph(world: &Arc<World>) -> Graph<Work> {
    let retried = |name: &str, script: &str| node(world, name, script).retry(Retry::transient(3).first_delay(Duration::ZERO));
    let inner = line(world, "inner", &[("in", "e?e"), ("side", "!e")]).build().expect("the graph is right");
    let called = line(world, "called", &[("deep", "e")]).build().expect("the graph is right");
    let graph = Graph::<Work>::new("faulty").node("a", retried("a", "ye~e")).node("b", retried("b", "?ye"));
    let graph = embed(Way::Shared, graph, "inside", inner);
    let graph = graph.callable("pair's", called).node("pair", caller_of_two("pair")).node("last", node(world, "last", "e"));
    let graph = graph.edge(START, "a").edge(START, "b").edge(START, "inside").edge("a", "pair").edge("b", "pair");
    graph.edge("inside", "pair").edge("pair", "last").edge("last", END).build().expect("the graph is right")
}

/// The world outside, of both threads: it outlives stores and processes.
struct Outside {
    worlds: [Arc<World>; 2],
    durability: Durability,
    /// Events that were told, and where they must be found.
    told: Mutex<Vec<(usize, Told)>>,
}

/// What a caller or a watcher was told.
#[derive(Debug)]
enum Told {
    Asked(Arc<Question>),
    Checkpoint(Position),
    TaskDone(String),
    Done,
}

impl Outside {
    fn new(durability: Durability) -> Self {
        let world = || World::of(&[("a", 1), ("side", 1)]);
        Self { worlds: [world(), world()], durability, told: Mutex::default() }
    }

    /// Runs both threads at once as far as they get.
    async fn go_on(&self, store: &Watched) -> [Result<Work, Error>; 2] {
        let (one, two) = tokio::join!(self.finish(0, store), self.finish(1, store));
        [one, two]
    }

    fn runner(&self, thread: usize, store: &Watched) -> Runner<Work> {
        Runner::new(graph(&self.worlds[thread]), store.clone())
    }

    fn tell(&self, thread: usize, told: Told) {
        self.told.lock().expect("no panic").push((thread, told));
    }

    async fn finish(&self, number: usize, store: &Watched) -> Result<Work, Error> {
        let runner = self.runner(number, store);
        let thread = runner.thread(NAMES[number]).durability(self.durability);
        let mut events = match thread.state().await {
            Err(error) if error.is_unknown_thread() => thread.stream(Work::update().topic("t".repeat(1_500)))?,
            Err(error) => return Err(error),
            Ok(_) => thread.stream_resume()?,
        };
        for _ in 0..100 {
            while let Some(event) = events.next().await {
                match event {
                    Event::Asked(question) => self.tell(number, Told::Asked(question)),
                    Event::Checkpoint { position, .. } => self.tell(number, Told::Checkpoint(position)),
                    Event::Update { task, .. } => self.tell(number, Told::TaskDone(task.to_string())),
                    Event::Missed(missed) => panic!("{missed} events were missed"),
                    _ => {}
                }
            }
            events = match events.outcome().await {
                Ok(Outcome::Done(state)) => {
                    self.tell(number, Told::Done);
                    return Ok((*state).clone());
                }
                Ok(Outcome::Waiting(questions)) => {
                    questions.iter().for_each(|question| self.tell(number, Told::Asked(Arc::clone(question))));
                    let answer = self.answer(number, &questions[0]);
                    thread.stream_answer(questions[0].id, answer)?
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) if error.code() == "node-failed" => thread.stream_resume()?,
                Err(error) => return Err(error),
            };
        }
        panic!("it does not end");
    }

    /// In doubt, what the world shows.
    fn answer(&self, number: usize, question: &Question) -> Answer {
        match &question.kind {
            QuestionKind::Doubt(effect) => {
                let performed = format!("{}/{}", effect.task, effect.occurrence);
                if self.worlds[number].performed().contains(&performed) { Answer::performed(10) } else { Answer::not_performed() }
            }
            _ => Answer::new(question.text.len()),
        }
    }

    /// What was acknowledged and told is in the store that was found.
    async fn is_all_there(&self, found: &RedbStore, acknowledged: &Acknowledged, case: &str) {
        let mut logs: Vec<Vec<Entry>> = Vec::new();
        for name in NAMES {
            let thread = ThreadName::new(name).expect("a good name");
            logs.push(found.load(&thread, Reach::Whole).await.expect("the log is read").entries);
        }
        for ((thread, position), record) in acknowledged {
            let log = &logs[usize::from(thread.as_str() == NAMES[1])];
            let entry = log.get(position.0 as usize);
            assert_eq!(entry.map(|entry| &entry.record), Some(record), "{case}: {thread} {position:?} was acknowledged");
        }
        if self.durability != Durability::Step {
            return;
        }
        for (number, told) in self.told.lock().expect("no panic").iter() {
            let log = &logs[*number];
            let is_there = match told {
                Told::Asked(question) => log.iter().any(|entry| matches!(&entry.record, Record::Asked(q) if q.id == question.id)),
                Told::Checkpoint(position) => {
                    let entry = log.get(position.0 as usize);
                    entry.is_some_and(|entry| matches!(&entry.record, Record::Stepped(_) | Record::Input(_)))
                }
                Told::TaskDone(task) => {
                    log.iter().any(|entry| matches!(&entry.record, Record::TaskDone(done) if done.task.to_string() == *task))
                }
                Told::Done => matches!(&log.last().expect("a log").record, Record::RunEnded(_)),
            };
            assert!(is_there, "{case}: {} was told {told:?}, and it is not there", NAMES[*number]);
        }
    }
}

/// What the process finds that comes after the fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// The same machine: what was written is there.
    Restart,
    /// Another one after the power went.
    PowerCut(Unsynced),
    /// The same store on the same disk, which is well again.
    GoesOn,
}

fn open(disk: &FaultyDisk) -> Result<Watched, StoreError> {
    // A small cache, so that pages are read and written while it runs, and not only at its beginning and end.
    let store = RedbOptions::new().cache_bytes(64 * 1024).open_on(Arc::new(disk.clone()))?;
    Ok(Watched { store, acknowledged: Arc::default() })
}

/// Where a run is made: on one thread, so that the store has a thread of its own that writes, or on several, so that the runner writes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum On {
    One,
    Several,
}

impl On {
    fn run<T>(self, work: impl Future<Output = T>) -> T {
        let mut runtime = match self {
            Self::One => tokio::runtime::Builder::new_current_thread(),
            Self::Several => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await.expect("it hangs") })
    }
}

/// An undisturbed run: its end, and how often it did what with the disk.
fn undisturbed(durability: Durability, on: On) -> ([Work; 2], BTreeMap<DiskOp, u64>) {
    let (disk, outside) = (FaultyDisk::new(), Outside::new(durability));
    let ends = on.run(async { outside.go_on(&open(&disk).expect("it opens")).await.map(|end| end.expect("it ends")) });
    let counted = disk.counted();
    for world in &outside.worlds {
        let performed = world.performed();
        assert_eq!(performed.iter().collect::<HashSet<_>>().len(), performed.len(), "an effect was performed twice");
    }
    (ends, DiskOp::ALL.into_iter().map(|op| (op, counted.of(op))).collect())
}

/// One run into a fault, and what comes after it. False: the fault was never reached.
async fn case(fault: DiskFault, then: Then, durability: Durability, ends: &[Work; 2]) -> bool {
    let case = format!("{fault:?}, {then:?}, {durability:?}");
    let (disk, outside) = (FaultyDisk::new(), Outside::new(durability));
    disk.inject(fault);
    let mut acknowledged = Acknowledged::new();
    let mut same = None;
    if let Ok(store) = open(&disk) {
        for (end, undisturbed) in outside.go_on(&store).await.iter().zip(ends) {
            match end {
                Ok(end) => assert_eq!(end, undisturbed, "{case}"),
                Err(error) => assert_eq!(error.code(), "store", "{case}: {error}"),
            }
        }
        // What nobody waits for any more may still be on its way.
        let _ = store.store.threads(&ThreadQuery::new()).await;
        acknowledged = store.acknowledged.lock().expect("no panic").clone();
        same = Some(store);
    }
    let hits = disk.hits();
    disk.heal();
    let store = match (then, same) {
        (Then::GoesOn, Some(store)) => store,
        (then, same) => {
            let cut = match then {
                Then::PowerCut(unsynced) => disk.after_power_cut(unsynced),
                // The process dies before it has closed anything.
                _ => FaultyDisk::holding(disk.bytes()),
            };
            drop(same);
            open(&cut).unwrap_or_else(|error| panic!("{case}: it cannot be opened again: {error}"))
        }
    };
    outside.is_all_there(&store.store, &acknowledged, &case).await;
    let verified = store.store.verify().await.unwrap_or_else(|error| panic!("{case}: {error}"));
    assert!(verified.is_sound(), "{case}: {:?}", verified.faults);
    let finished = finished(&store.store).await;
    outside.worlds.iter().for_each(|world| _ = world.began());
    let went_on = outside.go_on(&store).await;
    for (number, end) in went_on.into_iter().enumerate() {
        let end = end.unwrap_or_else(|error| panic!("{case}: it does not go on: {error}"));
        assert_eq!(end, ends[number], "{case}: another end");
        let performed = outside.worlds[number].performed();
        let once: HashSet<&String> = performed.iter().collect();
        assert_eq!(once.len(), performed.len(), "{case}: an effect was performed twice: {performed:?}");
        let began = outside.worlds[number].began_tasks();
        let again: Vec<_> = began.iter().filter(|task| finished[number].contains(*task)).collect();
        assert!(again.is_empty(), "{case}: finished, and run again: {again:?}");
    }
    // One graph, so that either runner folds both threads.
    let checked = outside.runner(0, &store).verify().await.unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!((checked.threads, checked.faults), (2, Vec::new()), "{case}");
    hits > 0
}

/// The tasks whose results are recorded.
async fn finished(store: &RedbStore) -> [HashSet<String>; 2] {
    let mut finished = [HashSet::new(), HashSet::new()];
    for (name, tasks) in NAMES.into_iter().zip(&mut finished) {
        let thread = ThreadName::new(name).expect("a good name");
        for entry in store.load(&thread, Reach::Whole).await.expect("the log is read").entries {
            if let Record::TaskDone(done) = entry.record {
                tasks.insert(done.task.to_string());
            }
        }
    }
    finished
}

fn everything() -> bool {
    std::env::var_os("FERRATA_DISK_ALL").is_some_and(|value| value == "1")
}

/// Numbers from 1 to `n`, about `cases` of them, evenly apart.
fn thinned(n: u64, cases: u64, offset: u64) -> impl Iterator<Item = u64> {
    let step = if everything() { 1 } else { n.div_ceil(cases).max(1) };
    (1 + offset % step..=n).step_by(step as usize)
}

/// Goes through the faults, and tells how many of them were reached.
fn all(
    what: &str,
    windows: u64,
    durability: Durability,
    on: On,
    ends: &[Work; 2],
    cases: impl Iterator<Item = (DiskFault, Then)>,
) {
    let (mut reached, mut missed) = (0_u64, 0_u64);
    for (fault, then) in cases {
        if on.run(case(fault, then, durability, ends)) { reached += 1 } else { missed += 1 }
    }
    tell(&format!("{what} ({durability:?}, {on:?}): {windows} windows, {reached} cases reached, {missed} not"));
    // Two threads do not always share their syncs, so that the last ones of one run may be missing in another.
    assert!(reached > 0 && missed * 2 <= reached, "{what}: only {reached} of {} faults were reached", reached + missed);
}

#[test]
fn power_cuts_behind_every_sync() {
    let kinds = [
        (Durability::Step, On::One),
        (Durability::Step, On::Several),
        (Durability::Behind, On::One),
        (Durability::Exit, On::One),
    ];
    for (durability, on) in kinds {
        let (ends, counted) = undisturbed(durability, on);
        let syncs = counted[&DiskOp::Sync];
        let cases = if durability == Durability::Step { syncs } else { 20 };
        let cases =
            thinned(syncs, cases, 0).map(|n| (DiskFault::power_cut_after(DiskOp::Sync, n), Then::PowerCut(Unsynced::Lost)));
        all("power cut behind a sync", syncs, durability, on, &ends, cases);
    }
}

#[test]
fn power_cuts_within_syncs_writes_and_changes_of_length() {
    let seeds = if everything() { 8 } else { 2 };
    let (ends, counted) = undisturbed(Durability::Step, On::One);
    let some = |n: u64| (0..seeds).map(move |seed| Then::PowerCut(Unsynced::Some(n * 1_000 + seed)));
    let within = |op: DiskOp, n: u64| {
        // With nothing left of it, it would be a cut behind the sync before.
        let kept = (op == DiskOp::Sync).then_some(Then::PowerCut(Unsynced::Kept));
        kept.into_iter().chain(some(n)).map(move |then| (DiskFault::power_cut(op, n), then))
    };
    for op in [DiskOp::Sync, DiskOp::Write, DiskOp::SetLen] {
        let n = counted[&op];
        let cases = thinned(n, if op == DiskOp::Write { 25 } else { n }, 3).flat_map(|n| within(op, n));
        all(&format!("power cut within {op:?}"), n, Durability::Step, On::One, &ends, cases);
    }
}

/// What a failure can be, and what comes after it.
fn failures(op: DiskOp, n: u64) -> Vec<(DiskFault, Then)> {
    let once = DiskFault::fails(op, n);
    let full = DiskFault::fails(op, n).saying(ErrorKind::StorageFull).from_then_on();
    let ends = [Then::GoesOn, Then::Restart, Then::PowerCut(Unsynced::Lost), Then::PowerCut(Unsynced::Some(n))];
    let faults = [once, full, once.short()];
    let all = faults.into_iter().flat_map(|fault| ends.map(|then| (fault, then)));
    // Each fault, and each end: not each of one with each of the other.
    if everything() {
        all.collect()
    } else {
        all.enumerate().filter(|(i, _)| (i + n as usize).is_multiple_of(6)).map(|(_, case)| case).collect()
    }
}

#[test]
fn failing_syncs_and_lengths() {
    let (ends, counted) = undisturbed(Durability::Step, On::One);
    for op in [DiskOp::Sync, DiskOp::SetLen] {
        let cases = (1..=counted[&op]).flat_map(|n| failures(op, n));
        all(&format!("failing {op:?}"), counted[&op], Durability::Step, On::One, &ends, cases);
    }
    let (ends, counted) = undisturbed(Durability::Behind, On::Several);
    let syncs = counted[&DiskOp::Sync];
    let cases = thinned(syncs, 20, 2).map(|n| (DiskFault::fails(DiskOp::Sync, n), Then::GoesOn));
    all("failing Sync", syncs, Durability::Behind, On::Several, &ends, cases);
}

#[test]
fn failing_writes_and_reads() {
    let (ends, counted) = undisturbed(Durability::Step, On::One);
    for op in [DiskOp::Write, DiskOp::Read] {
        let cases = thinned(counted[&op], 25, 1).flat_map(|n| failures(op, n));
        all(&format!("failing {op:?}"), counted[&op], Durability::Step, On::One, &ends, cases);
    }
}

#[test]
fn a_file_that_was_only_begun_begins_anew_and_others_are_left_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let (mut begun, mut n) = (0, 1);
    // What each moment of making a file leaves behind.
    for op in [DiskOp::SetLen, DiskOp::Write, DiskOp::Sync] {
        loop {
            let disk = FaultyDisk::new();
            disk.inject(DiskFault::power_cut(op, n));
            let opened = open(&disk);
            for unsynced in [Unsynced::Lost, Unsynced::Kept] {
                std::fs::write(&path, disk.after_power_cut(unsynced).bytes()).expect("it is written");
                let store = RedbStore::open(&path).unwrap_or_else(|error| panic!("{op:?} {n}, {unsynced:?}: {error}"));
                drop(store);
                assert!(RedbStore::open(&path).is_ok(), "it is a store now");
                begun += 1;
            }
            if opened.is_ok() {
                break;
            }
            n += 1;
        }
        n = 1;
    }
    assert!(begun > 10, "{begun} files");
    let zeros = |len: usize, other: usize| {
        let mut bytes = vec![0; len];
        bytes[other] = 7;
        bytes
    };
    for other in [
        zeros(5_000, 4_000),
        zeros(5_000, 8),
        zeros(5_000, 20),
        b"\0\0\0\0 a text of somebody's".to_vec(),
        zeros(2 << 20, 2_000_000),
    ] {
        std::fs::write(&path, &other).expect("it is written");
        let error = RedbStore::open(&path).expect_err("it is somebody else's");
        assert!(error.to_string().contains("something else"), "{error}");
        assert_eq!(std::fs::read(&path).expect("it is there"), other, "it was not touched");
    }
}
