//! What people have met with store files: a second process, wrong paths, a full disk, thread names.
//!
//! How it could break: a process that waits for ever for a store, or empties it; a full disk that takes acknowledged work with it, or that is not
//! forgotten once there is room; a thread that is found under another one's name.

mod support {
    pub(crate) mod common;
    pub(crate) mod field;
    pub(crate) mod volume;
}

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrata::clock::{Clock, SystemClock, Timestamp};
use ferrata::store::{RedbOptions, RedbStore, Store, StoreError, ThreadQuery, ThreadStatus};
use ferrata::{END, Event, Runner, START, Thread, View};
use support::common::{Process, example, lines, text, wait_until};
use support::field::{Field, Work, as_process, graph, process_dir};
use support::volume::{Volume, on_a_volume};

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
