//! What people have met with stores: numbers that JSON does not have, deep values, a second process, wrong paths, a full disk, thread names,
//! growth, and a clock that goes back.
//!
//! How it could break: a value that is saved and never read again; a process that waits for ever for a store, or empties it; a full disk that
//! takes acknowledged work with it, or that is not forgotten once there is room; a thread that is found under another one's name; a file that grows with
//! the history that was to be forgotten; a history in the order of clocks.

mod support {
    pub(crate) mod common;
    pub(crate) mod field;
    pub(crate) mod volume;
}

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrata::clock::{Clock, SystemClock, Timestamp};
use ferrata::state::{Change, Op, Update};
use ferrata::store::{RedbOptions, RedbStore, Store, StoreError, ThreadQuery, ThreadStatus};
use ferrata::{Context, Durability, END, Event, Graph, Keep, NodeError, Outcome, Runner, START, State, Thread, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use support::common::{Process, example, lines, text, wait_until};
use support::field::{Field, Work, as_process, graph, process_dir};
use support::volume::{Volume, on_a_volume};

// ---- F11, F12: values ----

#[derive(Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Tree {
    inner: Option<Box<Tree>>,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Reading {
    score: f64,
    #[state(append)]
    scores: Vec<f64>,
    table: BTreeMap<String, Vec<f32>>,
    tree: Tree,
    any: Value,
}

fn trees(levels: usize) -> Tree {
    (0..levels).fold(Tree::default(), |inner, _| Tree { inner: Some(Box::new(inner)) })
}

fn lists(levels: usize) -> Value {
    (0..levels).fold(json!("the bottom"), |inner, _| Value::Array(vec![inner]))
}

type Writes = Box<dyn Fn() -> ReadingUpdate + Send + Sync>;

/// A graph of one node that does what it is told.
fn reading<F, R>(path: &Path, node: F) -> Runner<Reading>
where
    F: Fn(View<Reading>, Context) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ferrata::Result<ReadingUpdate>> + Send + 'static,
{
    let graph = Graph::<Reading>::new("reading").node("read", node).edge(START, "read").edge("read", END);
    Runner::new(graph.build().expect("the graph is right"), RedbStore::open(path).expect("a store"))
}

/// What the input and the node write, one after the other.
async fn written(path: &Path, input: ReadingUpdate, node: ReadingUpdate) -> Result<Outcome<Reading>, ferrata::Error> {
    let changes = Update::from(node).into_changes().expect("they are checked when they are written");
    let node = move |_: View<Reading>, _: Context| {
        let changes = changes.clone();
        async move { Ok(Update::from_changes(changes)) }
    };
    let graph = Graph::<Reading>::new("reading").node("read", node).edge(START, "read").edge("read", END);
    let runner = Runner::new(graph.build().expect("the graph is right"), RedbStore::open(path).expect("a store"));
    runner.thread("t").run(input).await
}

#[tokio::test]
async fn f11_numbers_that_json_does_not_have() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        #[allow(clippy::cast_possible_truncation, reason = "these three have no digits")]
        let table = move || BTreeMap::from([("k".to_owned(), vec![0.5, number as f32])]);
        let places: [(&str, Writes); 3] = [
            ("`score`", Box::new(move || Reading::update().score(number))),
            ("`scores[2]`", Box::new(move || Reading::update().scores(vec![0.5, 1.0, number]))),
            ("`table.k[1]`", Box::new(move || Reading::update().table(table()))),
        ];
        for (place, update) in places {
            let update = Arc::new(update);
            let in_node = Arc::clone(&update);
            let runner = reading(&path, move |s: View<Reading>, ctx: Context| {
                let in_node = Arc::clone(&in_node);
                async move {
                    match s.any.as_str() {
                        Some("node") => Ok(in_node()),
                        Some("effect") => {
                            let measured: f64 = ctx.effect("measure", |_| async move { Ok(number) }).repeatable().await?;
                            Ok(Reading::update().score(measured))
                        }
                        _ => Ok(Reading::update().score(1.5)),
                    }
                }
            });
            let error = runner.thread("input").run(update()).await.expect_err("not finite");
            assert!(error.code() == "value" && error.to_string().contains(place), "{error:?}");
            assert!(runner.thread("input").state().await.expect_err("nothing was stored").is_unknown_thread());
            for by in ["node", "effect"] {
                let thread = runner.thread(by).supersede();
                let error = thread.run(Reading::update().any(json!(by))).await.expect_err("not finite").to_string();
                let place = if by == "node" { place } else { "no finite number" };
                assert!(error.contains("\"read\"") && error.contains(place) && error.contains("no finite number"), "{error}");
                let state = thread.state().await.expect("it is readable");
                assert_eq!((state.status, state.values.score, state.values.scores.len()), (ThreadStatus::Failed, 0.0, 0));
            }
            drop(runner);
        }
    }
    // What JSON has is read back to the last bit, by another process.
    let numbers = [0.1 + 0.2, f64::MAX, f64::MIN_POSITIVE, 5e-324, -0.0, 1.0 / 3.0, 19.95];
    let (input, output) = (Reading::update().scores(numbers.to_vec()), Reading::update().scores(numbers.to_vec()));
    written(&path, input, output).await.expect("it runs").done().expect("it ends");
    let runner = reading(&path, |_: View<Reading>, _: Context| async { Ok(Reading::update()) });
    let state = runner.thread("t").state().await.expect("a state");
    let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&state.values.scores), bits(&[numbers, numbers].concat()));
}

#[tokio::test]
async fn f12_deep_values() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    for levels in [200, 5_000] {
        for deep in [Reading::update().any(lists(levels)), Reading::update().tree(trees(levels))] {
            let error = Update::from(deep).into_changes().expect_err("too deep").to_string();
            assert!(error.contains("nested deeper than 100 levels"), "{error}");
        }
        // Also past the types, as a tool might hand it in.
        let raw = move || Update::from_changes(vec![Change::new("any", Op::Set(lists(levels)))]);
        let runner = reading(&path, move |s: View<Reading>, ctx: Context| async move {
            match s.any.as_str() {
                Some("effect") => {
                    let found: Value = ctx.effect("search", |_| async move { Ok(lists(levels)) }).repeatable().await?;
                    Ok(Reading::update().any(found))
                }
                Some("node") => Ok(Reading::update().any(lists(levels))),
                _ => Ok(Reading::update()),
            }
        });
        let thread = runner.thread("input");
        let error = thread.run(raw()).await.expect_err("too deep");
        assert!(error.code() == "value" && error.to_string().contains("`any`"), "{error:?}");
        assert!(thread.state().await.expect_err("nothing was stored").is_unknown_thread());
        for by in ["node", "effect"] {
            let thread = runner.thread(by).supersede();
            let error = thread.run(Reading::update().any(json!(by))).await.expect_err("too deep").to_string();
            assert!(error.contains("\"read\"") && error.contains("nested deeper than 100 levels"), "{error}");
            assert_eq!(thread.state().await.expect("it is readable").values.any, json!(by));
        }
        drop(runner);
    }
    // The deepest that is saved is read back, by another process.
    let deepest = || Reading::update().any(lists(100)).tree(trees(99));
    written(&path, deepest(), Reading::update().any(lists(99))).await.expect("it runs").done().expect("it ends");
    let runner = reading(&path, |_: View<Reading>, _: Context| async { Ok(Reading::update()) });
    let history = runner.thread("t").history().await.expect("the history");
    assert_eq!((&history[0].values.any, &history[0].values.tree), (&lists(99), &trees(99)));
    assert_eq!(history[1].values.any, lists(100));
}

// ---- F14, F15: the path ----

fn now() -> Timestamp {
    SystemClock.now()
}

/// What a process says that cannot have the store, and how long it took.
fn told(command: &mut Command, path: &Path) {
    let begun = now();
    let output: Output = command.output().expect("it runs");
    assert!(now().ms_since(begun) < 2_000, "it took {} ms", now().ms_since(begun));
    assert_ne!(output.status.code(), Some(0));
    let said = text(&output);
    assert!(said.contains("in use by another process") && said.contains(&path.display().to_string()), "{said}");
}

#[test]
fn f14_a_second_process() {
    if let Some(dir) = process_dir() {
        // This is the process that wants to list.
        let list = async {
            let store = RedbStore::open(dir.join("s.redb"))?;
            store.threads(&ThreadQuery::new()).await
        };
        let listed = tokio::runtime::Runtime::new().expect("a runtime").block_on(list);
        // What a program that lists would say, and end with.
        match &listed {
            Ok(threads) => println!("{} threads", threads.len()),
            Err(error) => eprintln!("{error}"),
        }
        std::process::exit(i32::from(listed.is_err()));
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (store, trace) = (dir.path().join("s.redb"), dir.path().join("trace.txt"));
    let run = || {
        let mut command = Command::new(example("steps"));
        command.args(["--graph", "line", "--store"]).arg(&store).arg("--trace").arg(&trace);
        command
    };
    let list = || as_process("f14_a_second_process", dir.path());
    let mut first = Process::start(run().args(["--pause-at", "b", "--pause-ms", "600000"]));
    assert!(wait_until(&mut first, || lines(&trace).contains(&"b start".to_owned())));
    let bytes = std::fs::metadata(&store).expect("the file").len();
    for _ in 0..2 {
        told(&mut run(), &store);
        told(&mut list(), &store);
    }
    assert_eq!(std::fs::metadata(&store).expect("the file").len(), bytes);
    assert!(!first.has_ended(), "the first one was not hindered");
    first.kill();
    let listed = list().output().expect("it runs");
    assert!(listed.status.success() && text(&listed).contains("1 threads"), "{}", text(&listed));
    assert_eq!(run().output().expect("it runs").status.code(), Some(0));
    assert_eq!(lines(&trace), ["a start", "a done", "b start", "b start", "b done", "c start", "c done"], "nothing was lost");
}

#[track_caller]
fn refused(path: &Path, why: &str) {
    let error = RedbStore::open(path).expect_err("no store");
    assert!(matches!(error, StoreError::NoStore { .. }), "{error:?}");
    assert!(error.to_string().contains(why) && error.to_string().contains(&path.display().to_string()), "{error}");
}

#[test]
fn f15_a_wrong_path() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, content) in [
        ("notes.txt", &b"dear diary"[..]),
        ("short", b"r"),
        ("zeros and more", &[&[0; 5_000][..], b"x"].concat()),
        ("cut", b"redb\x1A\x0A\xA9\x0D\x0A"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, content).expect("a file");
        refused(&path, if name == "cut" { "" } else { "it holds something else; it was not touched" });
        assert_eq!(std::fs::read(&path).expect("it is there"), content, "{name} is untouched");
    }
    refused(dir.path(), "it is a directory; name a file in it");
    refused(&dir.path().join("missing/s.redb"), "its directory does not exist; make it first");
    refused(&dir.path().join("notes.txt/s.redb"), "its directory does not exist; make it first");
    assert!(!dir.path().join("missing").exists());
    let empty = dir.path().join("empty.redb");
    std::fs::write(&empty, "").expect("a file");
    RedbStore::open(&empty).expect("an empty file becomes a store");
    RedbStore::open(&empty).expect("and stays one");
}

#[test]
fn f15_a_mount_that_can_only_be_read() {
    on_a_volume("f15_a_mount_that_can_only_be_read", 4 << 20, async |volume| {
        let path = volume.path().join("s.redb");
        let graph = || graph().node("a", || async { Ok(Work::update().n(7)) }).edge(START, "a").edge("a", END);
        let runner =
            |path: &Path| Runner::new(graph().build().expect("the graph is right"), RedbStore::open(path).expect("a store"));
        runner(&path).thread("t").run(Work::update()).await.expect("it runs").done().expect("it ends");
        let bytes = std::fs::read(&path).expect("the file");
        volume.set_read_only(true);
        refused(&path, "Read-only file system");
        refused(&volume.path().join("new.redb"), "Read-only file system");
        assert!(!volume.path().join("new.redb").exists());
        assert_eq!(std::fs::read(&path).expect("the file"), bytes);
        volume.set_read_only(false);
        assert_eq!(runner(&path).thread("t").state().await.expect("a state").values.n, 7);
    });
}

// ---- F16: a full disk ----

/// 1 MB, of which a file that can go takes 300 KB. A store of a few threads needs about 500 KB, so nothing smaller would do.
const VOLUME: u64 = 1 << 20;
const FILLER: usize = 300_000;

/// Saves 20 KB a step until there is enough of it.
fn saving(store: RedbStore, enough: &Arc<AtomicU64>, bytes: usize) -> Runner<Work> {
    let save = move |s: View<Work>| async move { Ok(Work::update().n(s.n + 1).push_log(format!("{:0bytes$}", s.n))) };
    let enough = Arc::clone(enough);
    let graph = graph().node("save", save).edge(START, "save");
    let graph = graph.route_to("save", ["save", END], move |s| if s.n < enough.load(Ordering::SeqCst) { "save" } else { END });
    Runner::new(graph.build().expect("the graph is right"), store)
}

/// Runs until it fails. Gives the last step that was told, and the error.
async fn until_it_fails(thread: &Thread<Work>) -> (u64, ferrata::Error) {
    let mut events = thread.stream(Work::update()).expect("it starts");
    let mut told = 0;
    while let Some(event) = events.next().await {
        if let Event::Values { state, .. } = event {
            told = state.n;
        }
    }
    (told, events.outcome().await.expect_err("the disk is full"))
}

async fn fills_up(volume: &Volume, open: impl Fn() -> RedbStore, bytes: usize) {
    let filler = volume.path().join("filler");
    std::fs::write(&filler, vec![1; FILLER]).expect("there is room");
    let enough = Arc::new(AtomicU64::new(u64::MAX));
    let store = open();
    let runner = saving(store.clone(), &enough, bytes);
    let thread = runner.thread("t").steps_max(u64::MAX);
    let (told, error) = until_it_fails(&thread).await;
    let full = |error: &ferrata::Error| {
        assert_eq!(error.code(), "store", "{error}");
        for word in [
            "could not be written",
            "No space left on device",
            &store.path().display().to_string(),
            "what was stored before is safe",
        ] {
            assert_eq!(error.to_string().matches(word).count(), 1, "{word}: {error}");
        }
    };
    full(&error);
    assert!(told > 3, "some steps were saved: {told}");
    for round in 0..3 {
        // Whatever was told is there, and whatever was saved can be read.
        let state = thread.state().await.expect("it is readable");
        assert!(
            state.values.n >= told && state.values.log.len() as u64 == state.values.n,
            "round {round}: {told} steps were told"
        );
        let history = thread.history().await.expect("it is readable");
        assert_eq!(history.len() as u64, state.values.n + 2);
        assert!(history.iter().rev().skip(1).enumerate().all(|(step, checkpoint)| checkpoint.values.n == step as u64));
        assert_eq!(store.threads(&ThreadQuery::new()).await.expect("it is readable").len(), 1);
        // It is not at work any more, and still full.
        full(&thread.resume().await.expect_err("the disk is full"));
        assert!(!runner.thread("t").cancel().await.expect("nothing runs"));
    }
    std::fs::remove_file(&filler).expect("it was there");
    let saved = thread.state().await.expect("it is readable").values.n;
    enough.store(saved + 3, Ordering::SeqCst);
    let end = thread.resume().await.expect("there is room, in the same process").done().expect("it ends");
    let expected: Vec<String> = (0..saved + 3).map(|n| format!("{n:0bytes$}")).collect();
    assert!(end.log == expected, "{} of {} texts", end.log.len(), expected.len());
    assert_eq!(thread.state().await.expect("a state").status, ThreadStatus::Done);
    let verified = store.verify().await.expect("it is looked at");
    assert!(verified.is_sound(), "{verified:?}");
    drop((thread, runner, store));
    let runner = saving(open(), &enough, bytes);
    assert_eq!(runner.thread("t").state().await.expect("a state").values.log, expected);
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
}

#[test]
fn f16_a_full_disk() {
    on_a_volume("f16_a_full_disk", VOLUME, async |volume| {
        fills_up(volume, || RedbStore::open(volume.path().join("s.redb")).expect("a store"), 20_000).await;
    });
}

#[test]
fn f16_a_full_disk_under_the_file_alone() {
    on_a_volume("f16_a_full_disk_under_the_file_alone", VOLUME, async |volume| {
        let other = tempfile::tempdir().expect("a folder");
        let open = || RedbOptions::new().artifacts_in(other.path()).open(volume.path().join("s.redb")).expect("a store");
        fills_up(volume, open, 20_000).await;
    });
}

#[test]
fn f16_a_full_disk_under_the_artifacts_alone() {
    on_a_volume("f16_a_full_disk_under_the_artifacts_alone", VOLUME, async |volume| {
        let other = tempfile::tempdir().expect("a folder");
        let path = other.path().join("s.redb");
        // Each text is an artifact.
        let open =
            || RedbOptions::new().artifacts_above(10_000).artifacts_in(volume.path().join("large")).open(&path).expect("a store");
        fills_up(volume, open, 20_000).await;
    });
}

#[test]
fn f16_a_store_that_is_opened_on_a_full_disk() {
    on_a_volume("f16_a_store_that_is_opened_on_a_full_disk", VOLUME, async |volume| {
        let filler = volume.path().join("filler");
        let all = std::iter::successors(Some(VOLUME), |size| Some(size - 4096))
            .map(|size| vec![1; usize::try_from(size).expect("it is small")]);
        // As much as there is room for.
        let written = all.take_while(|bytes| !bytes.is_empty()).any(|bytes| std::fs::write(&filler, bytes).is_ok());
        assert!(written, "the volume is full");
        let path: PathBuf = volume.path().join("s.redb");
        refused(&path, "No space left on device");
        refused(&path, "No space left on device");
        // What it left is no store yet, and nothing that would be in the way of one. So would a kill at that moment.
        let left = std::fs::read(&path).expect("the file");
        let copy = tempfile::tempdir().expect("a folder");
        for bytes in [left.clone(), vec![0; left.len()]] {
            std::fs::write(copy.path().join("s.redb"), bytes).expect("there is room");
            let begun = RedbStore::open(copy.path().join("s.redb")).expect("it is made anew");
            assert!(begun.threads(&ThreadQuery::new()).await.expect("a list").is_empty());
        }
        assert!(!left.is_empty());
        std::fs::remove_file(&filler).expect("it was there");
        let runner = saving(RedbStore::open(&path).expect("there is room"), &Arc::new(AtomicU64::new(3)), 100);
        assert_eq!(runner.thread("t").run(Work::update()).await.expect("it runs").done().expect("it ends").n, 3);
    });
}

// ---- F17: names ----

const NAMES: [&str; 26] = [
    "t1",
    "t10",
    "t",
    "a",
    "a:b",
    "a:b:c",
    "b:c",
    "b",
    "../x",
    "..",
    "a/b",
    "A",
    "t1 ",
    " t1",
    "é",
    "e\u{301}",
    "É",
    "🔥",
    "👩\u{200d}💻",
    "👩",
    "检查点",
    "%",
    "t_",
    "'; drop",
    "a\\b",
    "\u{feff}t1",
];

#[tokio::test]
async fn f17_thread_names() {
    let field = Field::new();
    let open = || {
        field.open(
            graph()
                .node("note", |s: View<Work>| async move { Ok(Work::update().push_log(s.topic.clone())) })
                .edge(START, "note")
                .edge("note", END),
        )
    };
    let long = ["n".repeat(300), "n".repeat(299), "n".repeat(512), "é".repeat(256)];
    let names: Vec<&str> = NAMES.into_iter().chain(long.iter().map(String::as_str)).collect();
    let runner = open();
    for name in &names {
        runner.thread(name).run(Work::update().topic(*name)).await.expect("it runs").done().expect("it ends");
    }
    for (bad, why) in [
        ("", "it is empty"),
        (&*"n".repeat(513), "longer than 512 bytes"),
        ("a\nb", "control character"),
        ("a\0", "control character"),
    ] {
        for error in [
            runner.thread(bad).run(Work::update()).await.expect_err("no name"),
            runner.thread(bad).state().await.expect_err("no name"),
            runner.thread(bad).delete().await.expect_err("no name"),
            runner.thread("t1").copy_to(bad).await.expect_err("no name"),
        ] {
            assert!(error.code() == "thread-name" && error.to_string().contains(why), "{error:?}");
        }
    }
    drop(runner);
    let runner = open();
    let mut left: Vec<&str> = names.clone();
    // They go one by one, and those that are left are as they were.
    for gone in names {
        assert!(runner.thread(gone).delete().await.expect("it is deleted"), "{gone}");
        assert!(!runner.thread(gone).delete().await.expect("there is none"), "{gone}");
        left.retain(|name| *name != gone);
        let listed = runner.threads(ThreadQuery::new()).await.expect("a list");
        let mut sorted = left.clone();
        sorted.sort_unstable();
        assert_eq!(listed.iter().map(|thread| thread.name.as_str()).collect::<Vec<_>>(), sorted);
        for name in &left {
            assert_eq!(runner.thread(name).state().await.expect("a state").values.log, [*name], "{gone:?} was deleted");
        }
    }
    let files: Vec<_> =
        std::fs::read_dir(field.dir()).expect("the folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(files, ["field.redb"], "no name became a path");
}

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
