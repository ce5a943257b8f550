//! `examples/service.rs` as real processes, one after the other over one store, and what its ledger tells.
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ferrata::ThreadName;
use ferrata::log::{Entry, Record};
use ferrata::store::{Reach, RedbStore, Store, ThreadQuery, ThreadStatus};
use serde_json::Value;
use tempfile::TempDir;

use super::common::{Process, example, lines};

/// How long to wait for what has to come.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// The files of a service, from process to process.
pub(crate) struct Place {
    dir: TempDir,
    program: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder"), program: example("service") }
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("service.redb")
    }

    pub(crate) fn start(&self, options: &str) -> Service {
        let mut command = Command::new(&self.program);
        command.arg("--store").arg(self.store()).arg("--ledger").arg(self.dir.path().join("ledger.txt"));
        let mut process = Process::start_with_keyboard(command.args(options.split_whitespace()));
        let said: Arc<Mutex<Vec<Value>>> = Arc::default();
        let complaint: Arc<Mutex<String>> = Arc::default();
        let (stdout, mut stderr) = (BufReader::new(process.stdout()), process.stderr());
        let (hears, keeps) = (Arc::clone(&said), Arc::clone(&complaint));
        let out = std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // A line that a kill has torn says nothing.
                let Ok(value) = serde_json::from_str(&line) else { continue };
                hears.lock().expect("no panic").push(value);
            }
        });
        let err = std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(read @ 1..) = stderr.read(&mut bytes) {
                keeps.lock().expect("no panic").push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Service { process, began: Instant::now(), said, complaint, readers: vec![out, err] }
    }

    /// What stands in the ledger.
    pub(crate) fn ledger(&self) -> Ledger {
        let lines = lines(&self.dir.path().join("ledger.txt"));
        Ledger(lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// The threads as they are stored. There is no process that has the store.
    pub(crate) fn threads(&self) -> Stored {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let store = RedbStore::open(self.store()).expect("the store opens");
            let found = store.threads(&ThreadQuery::new().limit(10_000)).await.expect("the threads are listed");
            let mut threads = BTreeMap::new();
            for thread in found {
                let name = ThreadName::new(thread.name.as_str()).expect("a name");
                let log = store.load(&name, Reach::Whole).await.expect("the log is read").entries;
                threads.insert(thread.name.to_string(), (thread.status, log));
            }
            Stored(threads)
        })
    }
}

/// Threads by name, each with what it does and its log.
pub(crate) struct Stored(pub(crate) BTreeMap<String, (ThreadStatus, Vec<Entry>)>);

impl Stored {
    /// How many are in which status.
    pub(crate) fn statuses(&self) -> BTreeMap<ThreadStatus, usize> {
        let mut statuses = BTreeMap::new();
        self.0.values().for_each(|(status, _)| *statuses.entry(*status).or_default() += 1);
        statuses
    }

    pub(crate) fn status(&self, thread: &str) -> ThreadStatus {
        self.0[thread].0
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (&str, &Record)> {
        self.0.iter().flat_map(|(thread, (_, log))| log.iter().map(move |entry| (thread.as_str(), &entry.record)))
    }

    /// Tasks whose result is recorded, with their threads. None has two.
    pub(crate) fn finished(&self) -> BTreeSet<(String, String)> {
        let mut finished = BTreeSet::new();
        for (thread, record) in self.records() {
            if let Record::TaskDone(done) = record {
                let is_new = finished.insert((thread.to_owned(), done.task.to_string()));
                assert!(is_new, "{} of {thread} has two results", done.task);
            }
        }
        finished
    }
}

/// The lines of the ledger that are whole.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(Vec<Value>);

impl Ledger {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// What came behind so many lines.
    pub(crate) fn behind(&self, lines: usize) -> Self {
        Self(self.0[lines..].to_vec())
    }

    /// Tasks that began, with their threads, as often as they did.
    pub(crate) fn begun(&self) -> Vec<(String, String)> {
        self.of("begins")
    }

    /// Effects that were performed by their key, with their threads, as often as they were.
    pub(crate) fn performed(&self) -> Vec<(String, String)> {
        self.of("performs")
    }

    /// How many times a thread began that node.
    pub(crate) fn times(&self, thread: &str, node: &str) -> usize {
        self.begun().iter().filter(|(of, task)| of == thread && task.contains(node)).count()
    }

    fn of(&self, what: &str) -> Vec<(String, String)> {
        let text = |line: &Value, key: &str| line[key].as_str().map(str::to_owned);
        self.0.iter().filter_map(|line| Some((text(line, "thread")?, text(line, what)?))).collect()
    }

    /// Nothing was done twice, and everything for each of these threads.
    pub(crate) fn assert_once<'t>(&self, threads: impl IntoIterator<Item = &'t String>) {
        let performed = self.performed();
        let keys: BTreeSet<&String> = performed.iter().map(|(_, key)| key).collect();
        assert_eq!(keys.len(), performed.len(), "nothing was done twice");
        for thread in threads {
            assert_eq!(performed.iter().filter(|(of, _)| of == thread).count(), 2, "{thread} has charged and delivered");
        }
    }
}

/// A process. It is killed when the test is through with it.
pub(crate) struct Service {
    process: Process,
    pub(crate) began: Instant,
    said: Arc<Mutex<Vec<Value>>>,
    complaint: Arc<Mutex<String>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

/// What a process leaves behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) after: Duration,
    said: Vec<Value>,
    pub(crate) complaint: String,
}

impl Service {
    /// Waits until it has come to that. Fails with what is known, when it ends before or it takes too long.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&Said) -> bool) {
        let begins = Instant::now();
        loop {
            let (said, has_ended) = (self.said(), self.process.has_ended());
            if holds(&said) {
                return;
            }
            let known = || format!("it said {said:?} and complained {:?}", self.complaint.lock().expect("no panic"));
            assert!(!has_ended, "it ended before this: {what}; {}", known());
            assert!(begins.elapsed() < LONG, "it does not come to this: {what}; {}", known());
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    pub(crate) fn said(&self) -> Said {
        Said(self.said.lock().expect("no panic").clone())
    }

    pub(crate) fn enter(&mut self, line: &str) {
        self.process.enter(line);
    }

    pub(crate) fn terminate(&self) {
        self.process.terminate();
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) -> Said {
        self.process.kill();
        self.heard()
    }

    fn heard(&mut self) -> Said {
        self.readers.drain(..).for_each(|reader| reader.join().expect("what it said was read"));
        self.said()
    }

    /// Waits until it has ended by itself, so long at most.
    pub(crate) fn ended(mut self, within: Duration) -> Ended {
        let begins = Instant::now();
        let status = loop {
            if let Some(status) = self.process.status() {
                break status;
            }
            let complaint = self.complaint.lock().expect("no panic").clone();
            assert!(begins.elapsed() < within, "it goes on after {within:?}: {:?}, {complaint:?}", self.said());
            std::thread::park_timeout(Duration::from_millis(2));
        };
        let (after, Said(said)) = (begins.elapsed(), self.heard());
        let complaint = self.complaint.lock().expect("no panic").clone();
        Ended { status, after, said, complaint }
    }
}

impl Ended {
    pub(crate) fn said(&self) -> Said {
        Said(self.said.clone())
    }

    /// It ended well. Gives what became of the runs: those that ended, that were cut off, that are stuck.
    pub(crate) fn well(&self) -> [Vec<String>; 3] {
        assert!(self.status.success(), "{self:?}");
        let down = self.said.last().expect("it says what became of the runs");
        ["ended", "cut", "stuck"].map(|which| serde_json::from_value(down[which].clone()).expect("a list of threads"))
    }
}

/// What a process said.
#[derive(Clone, Debug)]
pub(crate) struct Said(Vec<Value>);

impl Said {
    /// Notices of that kind.
    pub(crate) fn notices(&self, kind: &str) -> Vec<&Value> {
        self.0.iter().filter(|line| line["kind"] == kind).collect()
    }

    /// The threads that those notices are about.
    pub(crate) fn about(&self, kind: &str) -> Vec<String> {
        self.notices(kind).iter().filter_map(|notice| notice["thread"].as_str().map(str::to_owned)).collect()
    }
}
