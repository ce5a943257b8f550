//! The bytes of a store are damaged: nothing panics, hangs or takes all memory, and what is given without an error is what was stored.
//!
//! How it could break: a page that leads somewhere else, so that a thread is gone or ends too early; an older transaction that is taken for the
//! last one; a large value that is another one; redb, which panics over some damage; an index that lists what is not there.
//!
//! The cases run in processes of their own, so that one that dies or hangs is seen. `FERRATA_DAMAGE_CASES` says how many of each kind, for long
//! runs; `FERRATA_DAMAGE_SEED` with which seed they begin.

mod support {
    pub(crate) mod common;
}

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ferrata::clock::{ManualClock, Timestamp};
use ferrata::store::{Order, Reach, RedbOptions, RedbStore, Store, StoreError, ThreadQuery, ThreadStatus};
use ferrata::testing::{DiskFault, DiskOp, FaultyDisk, Unsynced};
use ferrata::{Ask, Context, END, Graph, Keep, NodeError, Outcome, Runner, START, State, ThreadName, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use support::common::tell;

const PAGE: usize = 4096;
/// What redb keeps in front of its pages.
const HEADER: usize = 320;
/// A case takes part of a second.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Paper {
    topic: String,
    rounds: u64,
    document: String,
    #[state(append)]
    log: Vec<String>,
}

/// write, then rounds of lines, a question if the topic is one, end.
fn graph() -> Graph<Paper> {
    let write = |s: View<Paper>| async move {
        if s.topic == "broken" {
            return Err(NodeError::new("out of ink").deterministic());
        }
        let length = if s.topic.starts_with("large") { 70_000 } else { 50 };
        let document: String = (0..length).map(|n: u64| char::from(b'a' + (n * n % 23 + n % 3) as u8)).collect();
        Ok(Paper::update().document(format!("{} {document}", s.topic)))
    };
    let round = |s: View<Paper>| async move {
        Ok(Paper::update().rounds(s.rounds.saturating_sub(1)).push_log(format!("{} {}", s.topic, "line ".repeat(60))))
    };
    let end = |s: View<Paper>, ctx: Context| async move {
        let more = if s.topic == "asks" { ctx.ask("more", Ask::<u64>::new("More?")).await? } else { 0 };
        Ok(Paper::update().push_log(format!("more: {more}")))
    };
    let graph = Graph::<Paper>::new("paper").node("write", write).node("round", round).node("end", end);
    let graph = graph.edge(START, "write").edge("write", "round");
    let graph = graph.route_to("round", ["round", "end"], |s: &Paper| if s.rounds > 0 { "round" } else { "end" });
    graph.edge("end", END).build().expect("the graph is right")
}

fn ended(outcome: Result<Outcome<Paper>, ferrata::Error>) {
    assert!(matches!(outcome, Ok(Outcome::Done(_) | Outcome::Waiting(_))), "{outcome:?}");
}

/// Threads of all kinds.
async fn fill(runner: &Runner<Paper>) {
    let input = |topic: &str, rounds: u64| Paper::update().topic(topic).rounds(rounds);
    for n in 0..8 {
        ended(runner.thread(&format!("done {n}")).run(input("plain", n % 3)).await);
    }
    ended(runner.thread("large").run(input("large", 0)).await);
    ended(runner.thread("asks").run(input("asks", 2)).await);
    runner.thread("broken").run(input("broken", 0)).await.expect_err("it fails");
    // Long enough for snapshots.
    ended(runner.thread("long").run(input("plain", 40)).await);
    ended(runner.thread("pruned").run(input("large too", 40)).await);
    assert!(runner.thread("pruned").prune(Keep::Last(3)).await.expect("it is pruned").records > 0);
    ended(runner.thread("forked").run(input("plain", 2)).await);
    let history = runner.thread("forked").history().await.expect("a history");
    let forked = runner.thread("forked").at(history[2].position);
    forked.update(Paper::update().push_log("another way"), None).await.expect("it is edited");
    ended(runner.thread("forked").resume().await);
}

const NAMES: [&str; 14] = [
    "asks", "broken", "done 0", "done 1", "done 2", "done 3", "done 4", "done 5", "done 6", "done 7", "forked", "large", "long",
    "pruned",
];

/// With a clock and ids of its own, so that a seed always damages the same bytes.
fn runner_over(store: impl Store) -> Runner<Paper> {
    Runner::with_clock(graph(), store, ManualClock::at(Timestamp(1_000)))
}

/// What is seen of a store, or why it is not.
type Seen = BTreeMap<String, Result<Value, String>>;

/// Looks at everything there is.
async fn look(store: &RedbStore, runner: &Runner<Paper>) -> Seen {
    let mut seen = Seen::new();
    let all = ThreadQuery::new();
    let lists = [
        ("by name", all.clone()),
        ("by time", all.clone().order(Order::OldestFirst)),
        ("done, the newest first", all.clone().order(Order::NewestFirst).status(ThreadStatus::Done)),
        ("done 3 to 5", all.prefix("done").after(&listed("done 2")).limit(3)),
    ];
    for (name, query) in lists {
        let list = runner.threads(query).await.map(|found| json!(found)).map_err(|error| error.to_string());
        seen.insert(format!("list {name}"), list);
    }
    for name in NAMES {
        let thread = runner.thread(name);
        let state = thread.state().await.map(|state| json!([*state.values, state.questions])).map_err(|error| error.to_string());
        seen.insert(format!("state of {name}"), state);
        let log = thread.log().await.map(|log| json!(log)).map_err(|error| error.to_string());
        seen.insert(format!("log of {name}"), log);
        let history = thread
            .history()
            .await
            .map(|history| history.iter().map(|c| json!([c.position, c.step, c.at, *c.values, c.next])).collect::<Value>());
        seen.insert(format!("history of {name}"), history.map_err(|error| error.to_string()));
    }
    let nobody = store.load(&ThreadName::new("nobody").expect("a good name"), Reach::Whole).await;
    seen.insert("nobody".to_owned(), nobody.map(|found| json!(found.entries)).map_err(|error| error.to_string()));
    seen
}

fn listed(name: &str) -> ferrata::store::ThreadInfo {
    let (name, at) = (ThreadName::new(name).expect("a good name"), Timestamp(0));
    ferrata::store::ThreadInfo::new(name, ThreadStatus::Done, at, 0, at)
}

/// Goes on with what waits, and begins something new.
async fn go_on(runner: &Runner<Paper>) -> Seen {
    let mut seen = Seen::new();
    let outcome = |outcome: Result<Outcome<Paper>, ferrata::Error>| match outcome {
        Ok(Outcome::Done(state)) => Ok(json!(*state)),
        Ok(other) => Ok(json!(format!("{other:?}"))),
        Err(error) => Err(error.to_string()),
    };
    let asks = runner.thread("asks");
    let answered = match asks.questions().await.map(|questions| questions.first().map(|question| question.id)) {
        Ok(Some(question)) => outcome(asks.answer(question, 5).await),
        Ok(None) => Ok(json!("nothing is asked")),
        Err(error) => Err(error.to_string()),
    };
    seen.insert("asks, answered".to_owned(), answered);
    let broken = runner.thread("broken").resume().await.map(|_| json!("it does not fail"));
    // That it fails is how it should be, but only in that way.
    let broken = match broken {
        Err(error) if error.code() == "node-failed" => Ok(json!("it fails")),
        other => other.map_err(|error| error.to_string()),
    };
    seen.insert("broken, resumed".to_owned(), broken);
    for (name, topic) in [("new", "plain"), ("new and large", "large"), ("done 3", "plain")] {
        let input = Paper::update().topic(topic).rounds(1);
        seen.insert(format!("{name}, run"), outcome(runner.thread(name).run(input).await));
    }
    seen
}

/// Where the cases of a test are made, and what they are compared with.
struct Place(PathBuf);

impl Place {
    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.join(name), bytes).expect("a file");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).expect("a file")
    }

    fn seen(&self, name: &str) -> Seen {
        serde_json::from_slice(&self.read(name)).expect("it was written by the test")
    }

    /// What is seen of this store, before and after going on.
    fn right(&self, name: &str) -> Seen {
        let mut right = self.seen(&format!("{name} seen"));
        right.extend(self.seen(&format!("{name} gone on")));
        right
    }

    fn artifacts(&self) -> PathBuf {
        self.0.join("artifacts")
    }

    fn options(&self) -> RedbOptions {
        RedbOptions::new().cache_bytes(1 << 20).artifacts_in(self.artifacts())
    }

    /// A store that was closed, one that was not, and the one before its last transaction; with what is seen of each.
    async fn make(&self) {
        let (disk, options) = (FaultyDisk::new(), self.options());
        let store = options.clone().open_on(Arc::new(disk.clone())).expect("it opens");
        fill(&runner_over(store.clone())).await;
        self.write("before", &disk.bytes());
        let syncs = disk.counted().of(DiskOp::Sync);
        // One transaction more.
        disk.inject(DiskFault::power_cut_after(DiskOp::Sync, syncs + 1));
        let input = Paper::update().topic("plain").rounds(1);
        runner_over(store).thread("done 0").run(input).await.expect_err("the power goes");
        self.write("unclosed", &disk.after_power_cut(Unsynced::Lost).bytes());

        let closed = FaultyDisk::holding(self.read("before"));
        drop(options.clone().open_on(Arc::new(closed.clone())).expect("it opens"));
        self.write("closed", &closed.bytes());
        for name in ["before", "unclosed", "closed"] {
            let open = || options.clone().open_on(Arc::new(FaultyDisk::holding(self.read(name)))).expect("it opens");
            let store = open();
            let runner = runner_over(store.clone());
            let seen = look(&store, &runner).await;
            assert!(seen.values().all(Result::is_ok), "{seen:?}");
            assert!(store.verify().await.expect("it is read").is_sound());
            self.write(&format!("{name} seen"), &serde_json::to_vec(&seen).expect("JSON"));
            let runner = runner_over(open());
            self.write(&format!("{name} gone on"), &serde_json::to_vec(&go_on(&runner).await).expect("JSON"));
        }
    }
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }
}

/// Damages the bytes of a file. Says how.
fn damage(bytes: &mut Vec<u8>, seed: u64) -> String {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let pages = bytes.len() / PAGE;
    // The first byte tells what a page is.
    let some_page = |dice: &mut Dice, bytes: &[u8], kinds: &[u8]| {
        let of_kind: Vec<usize> = (1..pages).filter(|page| kinds.contains(&bytes[page * PAGE])).collect();
        of_kind[dice.below(of_kind.len())] * PAGE
    };
    let flip = |dice: &mut Dice, bytes: &mut [u8], at: usize, length: usize| {
        for byte in &mut bytes[at..at + length] {
            *byte ^= 1 + dice.below(255) as u8;
        }
        format!("{length} bytes at {at}")
    };
    match seed % 12 {
        0 => {
            let at = dice.below(bytes.len());
            flip(&mut dice, bytes, at, 1)
        }
        1 => {
            let at = dice.below(bytes.len() / 8) * 8;
            flip(&mut dice, bytes, at, 8)
        }
        2 => {
            let at = dice.below(HEADER);
            format!("header: {}", flip(&mut dice, bytes, at, 1))
        }
        // The byte that says which transaction is the last one and whether the file was closed.
        3 => format!("flags: {}", flip(&mut dice, bytes, 9, 1)),
        4 => {
            let at = dice.below(HEADER - 8);
            format!("header: {}", flip(&mut dice, bytes, at, 8))
        }
        5 | 6 => {
            let at = some_page(&mut dice, bytes, &[2]) + dice.below(150);
            format!("a branch: {}", flip(&mut dice, bytes, at, 1))
        }
        7 => {
            let at = some_page(&mut dice, bytes, &[1, 2]) + dice.below(16);
            format!("beginning of a page: {}", flip(&mut dice, bytes, at, 1))
        }
        8 => {
            let at = some_page(&mut dice, bytes, &[1]) + dice.below(PAGE);
            format!("a leaf: {}", flip(&mut dice, bytes, at, 1))
        }
        9 => {
            let at = some_page(&mut dice, bytes, &[1, 2]);
            bytes[at..at + PAGE].fill(0);
            format!("a page of zeros at {at}")
        }
        10 => {
            let (one, two) = (some_page(&mut dice, bytes, &[1, 2]), some_page(&mut dice, bytes, &[1, 2]));
            let page = bytes[one..one + PAGE].to_vec();
            bytes.copy_within(two..two + PAGE, one);
            bytes[two..two + PAGE].copy_from_slice(&page);
            format!("pages exchanged, {one} and {two}")
        }
        _ => {
            let length = dice.below(bytes.len());
            bytes.truncate(length);
            format!("cut at {length}")
        }
    }
}

/// What a case came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Came {
    /// Nothing that is stored was hit.
    Unseen,
    /// The store is refused, as damaged or as none.
    Refused,
    /// Some of it is an error, and the rest is right.
    Told,
    /// All of it is as it was before the last transaction: the store of a machine whose power went looks just like that.
    OneOlder,
    /// Something is wrong, nothing says so where it is read, and verifying finds it.
    OnlyVerified,
    /// Something is wrong, and nobody says so.
    Wrong,
}

/// Compares what is seen with what should be. Nothing if it is equal.
fn different(seen: &Seen, right: &Seen) -> Option<String> {
    let wrong = |(name, seen): (&String, &Result<Value, String>)| match (seen, &right[name]) {
        (Ok(seen), Ok(right)) if seen != right => Some(format!("{name}: {seen}, not {right}")),
        _ => None,
    };
    seen.iter().find_map(wrong)
}

async fn case(place: &Place, file: &str, check_up_to: u64, seed: u64) -> (Came, String) {
    let mut bytes = place.read(file);
    let undamaged = bytes.clone();
    let what = damage(&mut bytes, seed);
    let options = place.options().check_up_to(check_up_to);
    let open = || options.clone().open_on(Arc::new(FaultyDisk::holding(bytes.clone())));
    let store = match open() {
        Ok(store) => store,
        Err(StoreError::Damaged { .. } | StoreError::NoStore { .. } | StoreError::Newer { .. }) => return (Came::Refused, what),
        Err(StoreError::Io { .. }) => return (Came::Refused, what),
        Err(error) => return (Came::Wrong, format!("{what}: {error}")),
    };
    let runner = runner_over(store.clone());
    let seen = look(&store, &runner).await;
    let verified = match (store.verify().await, runner.verify().await) {
        (Ok(verified), Ok(checked)) => verified.is_sound() && checked.faults.is_empty(),
        _ => false,
    };
    drop((runner, store));
    // Again from the same damage, without a look at it before.
    let gone_on = match open() {
        Ok(store) => {
            let runner = runner_over(store.clone());
            let mut gone_on = go_on(&runner).await;
            // The others are as they were.
            let after = look(&store, &runner).await;
            gone_on.extend(after.into_iter().filter(|(name, _)| is_untouched(name)));
            gone_on
        }
        Err(error) => return (Came::Wrong, format!("{what}: opened once and not again: {error}")),
    };
    let wrong = |name: &str| {
        let right = place.right(name);
        different(&seen, &right).or_else(|| different(&gone_on, &right))
    };
    let told = seen.values().chain(gone_on.values()).any(Result::is_err);
    match wrong(file) {
        None if told => (Came::Told, what),
        None if bytes == undamaged || verified => (Came::Unseen, what),
        None => (Came::Told, what),
        Some(_) if file == "unclosed" && wrong("before").is_none() => (Came::OneOlder, what),
        Some(wrong) if !verified => (Came::OnlyVerified, format!("{what}: {}", wrong.chars().take(300).collect::<String>())),
        Some(wrong) => (Came::Wrong, format!("{what}: {}", wrong.chars().take(600).collect::<String>())),
    }
}

/// What going on with others leaves as it is.
fn is_untouched(name: &str) -> bool {
    NAMES.iter().filter(|thread| !["asks", "broken", "done 3"].contains(thread)).any(|thread| name.ends_with(thread))
        && !name.starts_with("list")
}

const PART: &str = "FERRATA_DAMAGE_PART";

/// This process is one of those that do the cases from the first number to the second one.
fn part() -> Option<(Place, u64, u64)> {
    let part = std::env::var(PART).ok()?;
    let mut parts = part.splitn(3, ' ');
    let mut number = || parts.next().and_then(|number| number.parse().ok()).expect("a number");
    let (from, to) = (number(), number());
    Some((Place(parts.next().expect("a path").into()), from, to))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Does the cases, and says of each when it begins and what it came to.
fn do_part((place, from, to): (Place, u64, u64), case: impl AsyncFn(&Place, u64) -> (Came, String)) {
    // A line of its own, past the line that the test harness is in the middle of.
    println!();
    for seed in from..to {
        println!("case {seed}");
        let (came, what) = runtime().block_on(case(&place, seed));
        println!("came {came:?} {}", what.replace('\n', " "));
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// Has the cases done in processes of their own. Gives how many came to what.
fn all(test: &str, cases: u64) -> BTreeMap<String, u64> {
    let dir = tempfile::tempdir().expect("a folder");
    runtime().block_on(Place(dir.path().to_owned()).make());
    let from = setting("FERRATA_DAMAGE_SEED", 0);
    let (mut next, to) = (from, from + setting("FERRATA_DAMAGE_CASES", cases));
    let (mut came, mut faults) = (BTreeMap::<String, u64>::new(), Vec::new());
    while next < to {
        next = one_process(test, dir.path(), next, to, &mut came, &mut faults);
    }
    tell(&format!("{test}, seeds {from} to {to}: {came:?}"));
    assert!(faults.is_empty(), "{test}:\n{}", faults.join("\n"));
    came
}

/// One process goes on until it is through, dies or hangs. Gives the case to go on with.
fn one_process(test: &str, dir: &Path, next: u64, to: u64, came: &mut BTreeMap<String, u64>, faults: &mut Vec<String>) -> u64 {
    // No case needs much: a length that is wrong must not become that much memory.
    let limited = r#"ulimit -v 8000000; exec "$0" "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", limited]).arg(std::env::current_exe().expect("a test has a path"));
    command.args(["--exact", test, "--nocapture"]).env(PART, format!("{next} {to} {}", dir.display())).env("RUST_BACKTRACE", "0");
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let (give, lines) = mpsc::channel();
    let out = BufReader::new(process.stdout.take().expect("a pipe"));
    std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| give.send(line)));
    let mut at = next;
    let hung = loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => match line.split_once(' ') {
                Some(("case", seed)) => at = seed.parse().expect("a number"),
                Some(("came", what)) => {
                    let (kind, what) = what.split_once(' ').unwrap_or((what, ""));
                    *came.entry(kind.to_owned()).or_default() += 1;
                    if kind == "OnlyVerified" {
                        tell(&format!("case {at} is found by verifying only: {what}"));
                    }
                    if kind == "Wrong" {
                        faults.push(format!("case {at}: {what}"));
                    }
                    at += 1;
                }
                _ => {}
            },
            Err(mpsc::RecvTimeoutError::Timeout) => break true,
            Err(mpsc::RecvTimeoutError::Disconnected) => break false,
        }
    };
    let _ = process.kill();
    let status = process.wait().expect("it ends");
    if at < to {
        faults.push(format!("case {at}: the process {}", if hung { "hung".to_owned() } else { format!("ended with {status}") }));
        at += 1;
    }
    at
}

#[test]
fn a_damaged_file_that_was_closed() {
    if let Some(part) = part() {
        return do_part(part, async |place, seed| case(place, "closed", u64::MAX, seed).await);
    }
    let came = all("a_damaged_file_that_was_closed", 180);
    assert!(!came.contains_key("OnlyVerified"), "{came:?}");
}

#[test]
fn a_damaged_file_that_was_not_closed() {
    if let Some(part) = part() {
        return do_part(part, async |place, seed| case(place, "unclosed", u64::MAX, seed).await);
    }
    let came = all("a_damaged_file_that_was_not_closed", 180);
    assert!(!came.contains_key("OnlyVerified"), "{came:?}");
}

#[test]
fn a_damaged_file_that_is_too_large_to_be_looked_through_when_it_is_opened() {
    if let Some(part) = part() {
        return do_part(part, async |place, seed| case(place, "closed", 0, seed).await);
    }
    all("a_damaged_file_that_is_too_large_to_be_looked_through_when_it_is_opened", 180);
}

/// The files of large values.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = entries(folder).flat_map(|inner| entries(&inner).collect::<Vec<_>>()).collect();
    files.sort();
    files
}

#[test]
fn damaged_artifacts_are_errors_of_their_threads_and_can_be_brought_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = Place(dir.path().to_owned());
    runtime().block_on(place.make());
    let (files, right, bytes) = (files(&place.artifacts()), place.right("closed"), place.read("closed"));
    assert!(files.len() >= 2, "{files:?}");
    let contents: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).expect("it is read")).collect();
    let open = || place.options().open_on(Arc::new(FaultyDisk::holding(bytes.clone()))).expect("it opens");
    let (mut cases, mut told) = (0, 0);
    for (number, (file, content)) in files.iter().zip(&contents).enumerate() {
        let mut flipped = content.clone();
        flipped[content.len() / 2] ^= 1;
        let longer = [&content[..], b" "].concat();
        let other = &contents[(number + 1) % contents.len()];
        let damages = [Some(&flipped[..]), Some(&content[..content.len() - 1]), Some(&[]), Some(&longer), Some(other), None];
        for damage in damages {
            match damage {
                Some(bytes) => std::fs::write(file, bytes).expect("it is written"),
                None => std::fs::remove_file(file).expect("it is removed"),
            }
            let seen = runtime().block_on(async {
                let store = open();
                let seen = look(&store, &runner_over(store.clone())).await;
                let verified = store.verify().await.expect("it is read");
                assert!(verified.faults.iter().any(|fault| fault.contains("artifact")), "{verified:?}");
                seen
            });
            assert_eq!(different(&seen, &right), None);
            let errors: Vec<&String> = seen.values().filter_map(|seen| seen.as_ref().err()).collect();
            assert!(errors.iter().all(|error| error.contains("artifact") && error.contains("from a copy")), "{errors:?}");
            // One thread or two have it in their logs or snapshots.
            assert!((1..=6).contains(&errors.len()), "{errors:?}");
            (cases, told) = (cases + 1, told + errors.len());
            std::fs::write(file, content).expect("it is written");
        }
        let seen = runtime().block_on(async {
            let store = open();
            look(&store, &runner_over(store.clone())).await
        });
        assert!(different(&seen, &right).is_none() && seen.values().all(Result::is_ok), "it is brought back");
    }
    // What is stored again mends it.
    std::fs::write(&files[0], b"x").expect("it is written");
    std::fs::remove_file(&files[1]).expect("it is removed");
    runtime().block_on(async {
        let paper = runner_over(open());
        for (name, topic, rounds) in [("again", "large", 0), ("again too", "large too", 40)] {
            ended(paper.thread(name).run(Paper::update().topic(topic).rounds(rounds)).await);
        }
        for thread in ["large", "pruned"] {
            assert!(paper.thread(thread).state().await.is_ok(), "the state of {thread} is mended");
        }
    });
    tell(&format!("{} artifacts, {cases} cases, {told} errors", files.len()));
}
