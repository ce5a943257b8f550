//! Two hundred threads at once, over one store, killed with SIGKILL again and again: nothing that was acknowledged is lost, nothing that was
//! finished runs again, no effect happens twice, no answer is asked for twice.
//!
//! How it could break: an append that is acknowledged before it is on the disk, or half of which is; a fold that forgets a result; an
//! effect whose start is not recorded; one thread's append that takes another one's place when many share a transaction. The ledger that
//! `examples/crowd.rs` leaves knows nothing of the engine, and all that is in the store is held against it.
//!
//! `FERRATA_SEED` chooses the kills; where exactly a process is hit that does not stand still is the machine's choice. With `FERRATA_KILLS` there are
//! at least so many, over a fresh store and with the next seed after every hundred or so: `FERRATA_KILLS=10000` takes hours.

#[path = "../examples/crowd_cli/line.rs"]
mod line;
mod support {
    pub(crate) mod common;
    pub(crate) mod witness;
}

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use ferrata::log::{Entry, Record};
use ferrata::store::{Reach, RedbStore, Store, ThreadQuery};
use ferrata::{Question, QuestionId, ThreadName};
use line::digest;
use serde_json::{Value, json};
use support::common::{Process, example, tell, text};
use support::witness::Witness;
use tempfile::TempDir;

const THREADS: u64 = 200;

/// How long to wait for what has to come.
const PATIENCE: Duration = Duration::from_secs(120);

/// Kinds of records, and up to the how-many-th of them in a process it is killed at.
const KINDS: [(&str, u64); 12] = [
    ("run_started", 200),
    ("input", 20),
    ("task_done", 300),
    ("stepped", 200),
    ("asked", 20),
    ("answered", 20),
    ("effect_started", 60),
    ("effect_done", 100),
    ("attempt_failed", 15),
    ("task_failed", 10),
    ("effect_failed", 8),
    ("run_ended", 40),
];

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// When a process is killed.
#[derive(Clone, Debug)]
enum Moment {
    /// So long after its start, whatever it is doing.
    AfterStart(Duration),
    /// So long after it has opened the store.
    AfterOpening(Duration),
    /// When it comes to this place for the n-th time, where it stands still.
    At(String, u64),
}

impl Moment {
    fn at(place: impl Into<String>, nth: u64) -> Self {
        Self::At(place.into(), nth)
    }

    /// The kind of window, for the report.
    fn window(&self) -> String {
        match self {
            Self::AfterStart(_) => "at random, from the start on".to_owned(),
            Self::AfterOpening(_) => "at random, at work".to_owned(),
            Self::At(place, _) => match place.split_once(':') {
                Some((when, kind)) => format!("{when} the append of a record: {kind}"),
                None => match place.as_str() {
                    "effect" => "between an effect and its record".to_owned(),
                    "repeatable" => "between a repeatable effect and its record".to_owned(),
                    "written" => "in a shared transaction: after a write".to_owned(),
                    "sync" => "in a shared transaction: before a sync".to_owned(),
                    _ => "in a shared transaction: after a sync".to_owned(),
                },
            },
        }
    }
}

/// The kills of one round of all windows, in an order of the dice.
fn plan(dice: &mut Dice) -> Vec<Moment> {
    let mut groups: Vec<Vec<Moment>> = Vec::new();
    for (kind, most) in KINDS {
        for when in ["before", "after"] {
            groups.push(vec![Moment::at(format!("{when}:{kind}"), 1 + dice.below(most))]);
        }
    }
    for when in ["before", "after"] {
        // In the process behind it, the doubt about that effect is sure to come.
        groups.push(vec![Moment::at("effect", 1 + dice.below(60)), Moment::at(format!("{when}:effect_doubted"), 1)]);
    }
    groups.extend((0..6).map(|_| vec![Moment::at("effect", 1 + dice.below(60))]));
    groups.extend((0..2).map(|_| vec![Moment::at("repeatable", 1 + dice.below(60))]));
    groups.extend((0..8).map(|_| vec![Moment::at("written", 1 + dice.below(300))]));
    for place in ["sync", "synced"] {
        groups.extend((0..4).map(|_| vec![Moment::at(place, 1 + dice.below(30))]));
    }
    groups.extend((0..40).map(|_| vec![Moment::AfterOpening(Duration::from_micros(dice.below(400_000)))]));
    for most_us in [10_000, 150_000] {
        groups.extend((0..6).map(|_| vec![Moment::AfterStart(Duration::from_micros(dice.below(most_us)))]));
    }
    for last in (1..groups.len()).rev() {
        groups.swap(last, usize::try_from(dice.below(last as u64 + 1)).expect("it is small"));
    }
    groups.concat()
}

struct Crowd {
    dir: TempDir,
    program: PathBuf,
    /// How much of the ledger was read.
    heard: u64,
    witness: Witness,
    expected: HashMap<(String, u64), u64>,
}

impl Crowd {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        Self { dir, program: example("crowd"), heard: 0, witness: Witness::default(), expected: HashMap::new() }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("crowd.redb")
    }

    fn ledger(&self) -> PathBuf {
        self.dir.path().join("ledger.txt")
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--store").arg(self.store()).arg("--ledger").arg(self.ledger());
        command.args(["--threads", &THREADS.to_string()]).args(options);
        command
    }

    /// Starts a process, and kills it with SIGKILL at that moment. Gives whether it had opened the store, and how many appends were under way.
    fn kill(&mut self, moment: &Moment) -> (bool, usize) {
        let mut command = self.command(&["--rounds", "1000000"]);
        if let Moment::At(place, nth) = moment {
            command.arg("--halt").arg(format!("{place}:{nth}"));
        }
        let mut process = Process::start(&mut command);
        let (say, said) = mpsc::channel();
        let stdout = BufReader::new(process.stdout());
        // It ends with the process.
        let reader = std::thread::spawn(move || stdout.lines().map_while(Result::ok).for_each(|line| _ = say.send(line)));
        let mut waits_for = |word: &str, patience: Duration| loop {
            match said.recv_timeout(patience) {
                Ok(line) if line == word => return true,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => panic!("it ended before {moment:?}: {}", process.complaint()),
            }
        };
        match moment {
            Moment::AfterStart(time) => _ = waits_for("halted", *time),
            Moment::AfterOpening(time) => {
                assert!(waits_for("open", PATIENCE), "it opens the store");
                waits_for("halted", *time);
            }
            Moment::At(..) => {
                let came = waits_for("halted", PATIENCE);
                assert!(came, "it comes to {moment:?}; it has written {} bytes meanwhile", self.ledger_bytes() - self.heard);
            }
        }
        process.kill();
        reader.join().expect("what it said was read");
        self.hear()
    }

    fn ledger_bytes(&self) -> u64 {
        std::fs::metadata(self.ledger()).map_or(0, |ledger| ledger.len())
    }

    /// Reads what has come to the ledger.
    fn hear(&mut self) -> (bool, usize) {
        let mut new = String::new();
        // A process that was killed early has written nothing yet.
        if let Ok(mut ledger) = std::fs::File::open(self.ledger()) {
            ledger.seek(SeekFrom::Start(self.heard)).expect("it is a file");
            self.heard += ledger.read_to_string(&mut new).expect("it is text") as u64;
        }
        let expected = &mut self.expected;
        let mut state = |thread: &str, round: u64| {
            *expected.entry((thread.to_owned(), round)).or_insert_with(|| digest(&state_after(number_of(thread), round)))
        };
        self.witness.hear(&new, &mut state)
    }

    /// Holds what is in the store against the ledger, for some of the threads. Gives their logs.
    async fn look(&mut self, store: &RedbStore, chosen: &mut dyn FnMut() -> bool) -> Vec<Vec<Entry>> {
        let query = ThreadQuery::new().limit(2 * THREADS as usize);
        let found: BTreeMap<String, u64> = store
            .threads(&query)
            .await
            .expect("the threads are listed")
            .iter()
            .map(|thread| (thread.name.to_string(), thread.records))
            .collect();
        let mut logs = Vec::new();
        for thread in self.witness.threads() {
            let found = found.get(&thread).copied().unwrap_or(0);
            if chosen() {
                let name = ThreadName::new(&thread).expect("a name");
                let entries = store.load(&name, Reach::Whole).await.expect("the log is read").entries;
                assert_eq!(entries.len() as u64, found, "{thread}: the store says how many records there are");
                self.witness.compare(&thread, &entries);
                logs.push(entries);
            }
        }
        logs
    }
}

fn number_of(thread: &str) -> u64 {
    thread.rsplit('-').next().and_then(|number| number.parse().ok()).expect("a thread of the crowd")
}

/// The state of a thread after a round, worked out from what the nodes do.
fn state_after(number: u64, round: u64) -> Value {
    let mut log = Vec::new();
    for round in 1..=round {
        let mut did: Vec<String> = vec!["plan".to_owned(), format!("charge {round}")];
        did.push(if number % 5 == 1 { "saw nothing" } else { "look" }.to_owned());
        did.push(if number % 4 == 1 { format!("news {round}") } else { "nobody asked".to_owned() });
        did.extend((0..=number % 3).map(|page| format!("page {page}")));
        did.push("gather".to_owned());
        did.extend((0..=number % 3).map(|_| "polish".to_owned()));
        let rejected = number.is_multiple_of(4) && round.is_multiple_of(3);
        if rejected {
            did.push("not good".to_owned());
        }
        if number.is_multiple_of(2) && !rejected {
            did.extend(["open".to_owned(), format!("stamp {round}"), "close".to_owned()]);
        }
        did.push("file".to_owned());
        log.extend(did.into_iter().map(|what| format!("{round} {what}")));
    }
    let scan = if number % 40 == 3 { round.to_string().repeat(70_000) } else { String::new() };
    json!({"number": number, "round": round, "polished": number % 3 + 1, "scan": scan, "log": log})
}

/// What must hold in each log by itself. Gives how many questions were asked, how many effects were in doubt, and how many of these had happened.
fn read(logs: &[Vec<Entry>]) -> (usize, usize, usize) {
    let (mut questions, mut doubts, mut performed) = (0, 0, 0);
    for log in logs {
        let mut results = HashSet::new();
        let mut asked: HashMap<QuestionId, &Question> = HashMap::new();
        let (mut subjects, mut answered) = (HashSet::new(), HashSet::new());
        for entry in log {
            match &entry.record {
                Record::TaskDone(done) => assert!(results.insert(done.task.to_string()), "{} has two results", done.task),
                Record::EffectDone(done) => assert!(results.insert(done.effect.to_string()), "{} has two", done.effect),
                Record::Asked(question) => {
                    let subject = (question.task.to_string(), question.key.to_string(), question.occurrence);
                    // A doubt may come again: when it was answered that nothing had happened, and the process died again.
                    assert!(question.is_doubt() || subjects.insert(subject), "{} was asked twice", question.text);
                    asked.insert(question.id, question);
                    *(if question.is_doubt() { &mut doubts } else { &mut questions }) += 1;
                }
                Record::Answered(answer) => {
                    let question = asked[&answer.question];
                    assert!(answered.insert(answer.question), "{} was answered twice", question.text);
                    performed += usize::from(question.is_doubt() && answer.value["performed"] == json!(true));
                }
                _ => {}
            }
        }
        assert_eq!(asked.len(), answered.len(), "all questions were answered");
    }
    (questions, doubts, performed)
}

fn number_from(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{variable} takes a number")))
}

/// What the kills hit.
#[derive(Debug, Default)]
struct Coverage {
    windows: BTreeMap<String, usize>,
    while_opening: usize,
    /// Kills with appends of several threads under way.
    shared: usize,
    most_under_way: usize,
}

#[tokio::test]
async fn two_hundred_threads_survive_a_hundred_kills() {
    let (mut seed, kills) = (number_from("FERRATA_SEED", 1), number_from("FERRATA_KILLS", 100));
    let mut done = 0;
    while done < kills {
        done += one(seed).await as u64;
        seed += 1;
    }
}

/// All windows, over one store. Gives how many kills that were.
async fn one(seed: u64) -> usize {
    tell(&format!("seed {seed}"));
    let (mut dice, mut crowd, mut coverage) = (Dice(seed), Crowd::new(), Coverage::default());
    // Threads are fresh only once.
    let mut moments = vec![Moment::at("before:opened", 1 + dice.below(100))];
    moments.extend(plan(&mut dice));
    for (number, moment) in moments.iter().enumerate() {
        let (had_opened, under_way) = crowd.kill(moment);
        crowd.witness.assert_well(&format!("seed {seed}, kill {number}, {moment:?}"));
        *coverage.windows.entry(moment.window()).or_default() += 1;
        coverage.while_opening += usize::from(!had_opened);
        coverage.shared += usize::from(under_way >= 2);
        coverage.most_under_way = coverage.most_under_way.max(under_way);
        if number % 10 == 9 {
            let store = RedbStore::open(crowd.store()).expect("the store opens");
            crowd.look(&store, &mut || dice.below(20) == 0).await;
            crowd.witness.assert_well(&format!("seed {seed}, in the store after kill {number}, {moment:?}"));
        }
    }
    bring_to_the_end(&mut crowd, seed).await;
    report(&crowd, &coverage, moments.len());
    moments.len()
}

/// Lets all threads come to the end of their rounds, and looks at everything.
async fn bring_to_the_end(crowd: &mut Crowd, seed: u64) {
    let output = crowd.command(&["--rounds", "1"]).output().expect("it runs");
    assert!(output.status.success(), "seed {seed}: {}", text(&output));
    crowd.hear();
    let store = RedbStore::open(crowd.store()).expect("the store opens");
    let logs = crowd.look(&store, &mut || true).await;
    crowd.witness.assert_well(&format!("seed {seed}, at the end"));
    assert_eq!(logs.len() as u64, THREADS);
    let verified = store.verify().await.expect("the store can be verified");
    assert!(verified.is_sound(), "seed {seed}: {:?}", verified.faults);
    drop(store);
    let output = crowd.command(&["--check"]).output().expect("it runs");
    assert!(output.status.success(), "seed {seed}: {}", text(&output));
    tell(String::from_utf8_lossy(&output.stdout).trim());
    for (thread, round) in crowd.witness.rounds() {
        assert!(round > 0, "seed {seed}: {thread} has ended");
        assert_eq!(crowd.witness.deeds(&thread, "charge") as u64, round, "seed {seed}: {thread} has paid once in each round");
    }
    let (questions, doubts, performed) = read(&logs);
    tell(&format!("questions: {questions}, effects in doubt: {doubts}, of these performed: {performed}"));
}

fn report(crowd: &Crowd, coverage: &Coverage, kills: usize) {
    let count = &crowd.witness.count;
    tell(&format!("kills: {kills}\n{coverage:#?}\n{count:#?}"));
    let kinds = ["task_done", "stepped", "effect_started", "effect_done", "effect_doubted", "asked", "answered", "run_ended"];
    let stored: Vec<String> = kinds.iter().map(|kind| format!("{kind} {}", crowd.witness.stored(kind))).collect();
    tell(&format!("records: {}", stored.join(", ")));
    assert!(count.torn <= kills, "a kill tears a line now and then");
    let (doubts, answers) = (crowd.witness.stored("effect_doubted"), crowd.witness.stored("answered"));
    let hit = [coverage.while_opening, coverage.shared, count.kept_unheard, count.gone_unheard, doubts, answers];
    assert!(kills >= 100 && hit.iter().all(|times| *times > 0), "all that a kill can hit was hit: {hit:?}");
}
