//! The main job survives whatever happens: the digest is killed again and again, against no server, a failing server and bad input.
//!
//! How it could break: a document that was read is read again; a model call that was paid for is paid for again; a budget that is
//! counted by guess; a digest published without an answer, or after a no; a dead end that tells nobody what to do.

mod support {
    pub(crate) mod common;
    pub(crate) mod model_server;
}

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ferrata::log::{Entry, Record};
use ferrata::state::{Message, Op};
use ferrata_nodes::{Tiktoken, TokenCounter};
use support::common::{Process, example, log_of, tell, text};
use support::model_server::{Act, ModelServer};
use tempfile::TempDir;

struct Desk {
    dir: TempDir,
    documents: Vec<PathBuf>,
}

impl Desk {
    /// A folder with so many documents of 20 KB or more, all different.
    fn with(documents: usize) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let documents = (0..documents).map(|n| write_document(dir.path(), n)).collect();
        Self { dir, documents }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(example("digest"));
        command.current_dir(self.dir.path()).args(&self.documents).args(options);
        for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, options: &[&str]) -> Output {
        self.command(options).output().expect("the process runs")
    }

    /// The digest, without the folder's name, which differs from test to test.
    fn digest(&self) -> String {
        let text = std::fs::read_to_string(self.path("digest.md")).expect("it was published");
        text.replace(&self.dir.path().canonicalize().expect("a folder").display().to_string(), "")
    }
}

const SUBJECTS: [&str; 10] = [
    "The log",
    "A checkpoint",
    "The runner",
    "An effect",
    "The question",
    "A person",
    "The graph",
    "A node",
    "The state",
    "The disk",
];
const VERBS: [&str; 8] = ["records", "keeps", "refuses", "asks for", "answers", "writes", "merges", "stops"];
const OBJECTS: [&str; 9] = [
    "every change",
    "the finished work",
    "a damaged record",
    "the open step",
    "its budget",
    "the payment",
    "a second writer",
    "old history",
    "the mail",
];

fn write_document(dir: &Path, number: usize) -> PathBuf {
    let mut seed = number as u64 + 1;
    let mut pick = |words: &[&'static str]| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        words[(seed >> 33) as usize % words.len()]
    };
    let mut text = format!("# Document {number}\n");
    while text.len() < 21_000 {
        text.push('\n');
        for _ in 0..6 {
            let clause = format!("{} {} {}", pick(&SUBJECTS), pick(&VERBS), pick(&OBJECTS));
            text.push_str(&format!("{clause} when {} {} {}. ", pick(&SUBJECTS).to_lowercase(), pick(&VERBS), pick(&OBJECTS)));
        }
    }
    let path = dir.join(format!("document-{number}.md"));
    std::fs::write(&path, text).expect("a document");
    path
}

/// Whether a line of the digest's output tells of something that is recorded.
fn is_recorded(line: &str) -> bool {
    ["list", "read ", "summary", "draft"].iter().any(|word| line.starts_with(word))
}

const DOCUMENTS: usize = 11;

#[test]
fn killed_at_ten_recorded_positions_it_ends_with_the_same_digest_and_reads_each_document_once() {
    let options = ["--parallel", "1", "--answer", "approve"];
    // More documents than kills, so that every kill falls into work that is going on.
    let undisturbed = Desk::with(DOCUMENTS);
    let output = undisturbed.run(&options);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));

    let desk = Desk::with(DOCUMENTS);
    let (mut kills, mut read) = (0, Vec::new());
    while kills < 10 {
        let mut process = Process::start(&mut desk.command(&options));
        let mut lines = BufReader::new(process.stdout()).lines().map_while(Result::ok);
        // Kill at the first thing that this process has recorded.
        let recorded = lines
            .by_ref()
            .inspect(|line| read.extend(line.strip_prefix("reading ").map(str::to_owned)))
            .find(|line| is_recorded(line));
        let alive = !process.has_ended();
        process.kill();
        // What it said before it was gone counts too.
        read.extend(lines.filter_map(|line| line.strip_prefix("reading ").map(str::to_owned)));
        assert!(recorded.is_some() && alive, "there are ten positions: list, and nine of the documents");
        kills += 1;
    }
    let output = desk.run(&options);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    read.extend(
        String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.strip_prefix("reading ").map(str::to_owned)),
    );
    assert_eq!(desk.digest(), undisturbed.digest());

    // A document is read again only if the kill came before its text was on record, never after.
    let entries = log_of(&desk.path("ferrata.redb"), "digest");
    let mut records: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in &entries {
        if let Record::EffectDone(done) = &entry.record {
            *records.entry(&*done.effect.key).or_default() += 1;
        }
    }
    assert_eq!(records["read"], DOCUMENTS, "every document was read and recorded once");
    tell(&format!("kills at recorded positions: {kills}; documents opened: {} times", read.len()));
    assert!(read.len() <= DOCUMENTS + kills, "{read:?}");
}

/// Answers every request but these.
fn but(exceptions: &[(usize, Act)]) -> impl Fn(usize) -> Act + Send + Sync + 'static {
    let exceptions = exceptions.to_vec();
    move |n| exceptions.iter().find(|(number, _)| *number == n).map_or(Act::Answer, |(_, act)| *act)
}

fn with_model(desk: &Desk, server: &ModelServer, options: &[&str]) -> Command {
    let mut command = desk.command(options);
    command.env("OPENAI_BASE_URL", &server.url).env("OPENAI_MODEL", "loopback-1").env("OPENAI_API_KEY", "sk-secret");
    command
}

#[test]
fn against_a_server_that_refuses_and_dies_every_finished_call_is_made_once() {
    let options = ["--parallel", "1", "--budget", "600", "--answer", "approve"];
    let calm = (Desk::with(5), ModelServer::start(but(&[])));
    let output = with_model(&calm.0, &calm.1, &options).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let calls = calm.1.log().len();
    assert!(calls >= 10, "five documents in two pieces each, a summary, a draft: {calls} calls");

    let (desk, server) = (Desk::with(5), ModelServer::start(but(&[(2, Act::Refuse), (5, Act::Die), (8, Act::Hold)])));
    let mut process = Process::start(&mut with_model(&desk, &server, &options));
    assert!(support::common::wait_until(&mut process, || server.log().len() == 8), "the eighth request is held");
    process.kill();
    let output = with_model(&desk, &server, &options).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(desk.digest(), calm.0.digest());

    let mut finished: BTreeMap<String, usize> = BTreeMap::new();
    for request in server.log().into_iter().filter(|request| request.act == Act::Answer) {
        *finished.entry(request.body).or_default() += 1;
    }
    assert_eq!(finished.len(), calls, "as many calls as undisturbed");
    assert!(finished.values().all(|times| *times == 1), "a finished call was made again");
    assert!(!text(&output).contains("sk-secret"));
    let log = std::fs::read(desk.path("ferrata.redb")).expect("the store");
    assert!(!log.windows(9).any(|window| window == b"sk-secret"), "the key is in no record");
}

/// The messages once the summary has folded them.
fn after_summary(log: Vec<Entry>) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for entry in log {
        let (changes, is_summary) = match entry.record {
            Record::Input(input) => (input.changes, false),
            Record::TaskDone(done) => (done.changes.clone(), done.task.node.as_str() == "summary"),
            _ => continue,
        };
        for change in changes {
            match change.op {
                Op::Put(put) => {
                    for message in put {
                        let message: Message = serde_json::from_value(message).expect("a message");
                        messages.retain(|known| known.id != message.id);
                        messages.push(message);
                    }
                }
                Op::Remove(ids) => messages.retain(|message| !ids.contains(&message.id)),
                _ => {}
            }
        }
        if is_summary {
            return messages;
        }
    }
    panic!("six findings are over the budget")
}

#[test]
fn the_findings_stay_under_the_budget_as_counted() {
    let desk = Desk::with(6);
    let output = desk.run(&["--budget", "700", "--answer", "approve"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let messages = after_summary(log_of(&desk.path("ferrata.redb"), "digest"));
    let counter = Tiktoken::default();
    let tokens: usize = messages.iter().map(|message| counter.count_message(message)).sum();
    assert!(tokens <= 700, "{tokens} tokens");
    let is_there = |id: &str| messages.iter().any(|message| message.id == id);
    assert!(is_there("instructions") && is_there("task"), "both stay word for word");
    assert!(messages.len() < 8, "something is folded");
    tell(&format!("findings under a budget of 700: {tokens} tokens"));
}

#[test]
fn it_asks_before_it_publishes_and_does_what_it_is_told() {
    for (answer, published) in
        [("approve", Some("# Digest of 1 document")), ("reject", None), ("edit=My own words", Some("My own words"))]
    {
        let desk = Desk::with(1);
        for _ in 0..2 {
            let output = desk.run(&[]);
            assert_eq!(output.status.code(), Some(3), "{}", text(&output));
            assert!(text(&output).contains("--answer approve"), "it says how to go on");
        }
        assert!(!desk.path("digest.md").exists());
        let output = desk.run(&["--answer", answer]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert!(text(&output).contains("attempts"), "it prints what each node cost");
        match published {
            Some(start) => assert!(desk.digest().starts_with(start)),
            None => assert!(!desk.path("digest.md").exists()),
        }
        let again = desk.run(&["--answer", "approve"]);
        assert_eq!(again.status.code(), Some(0));
        assert!(text(&again).contains("is finished") && text(&again).contains("--new"), "{}", text(&again));
        assert_eq!(desk.path("digest.md").exists(), published.is_some(), "a finished thread does nothing");
        let new = desk.run(&["--new"]);
        assert_eq!(new.status.code(), Some(3), "{}", text(&new));
    }
}

#[test]
fn a_document_that_cannot_be_read_is_named_and_costs_only_itself() {
    let cases: [(&[u8], &str); 3] =
        [(b"  \n", "is empty"), (b"\xff\xfe\x00binary", "is no text in UTF-8"), (b"a\0b", "is no text in UTF-8")];
    for (bytes, why) in cases {
        let mut desk = Desk::with(2);
        let bad = desk.path("bad.txt");
        std::fs::write(&bad, bytes).expect("a file");
        desk.documents.insert(1, bad.clone());
        let output = desk.run(&["--answer", "approve"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(why) && text(&output).contains("bad.txt"), "{}", text(&output));
        std::fs::write(&bad, "A short note that is fine.").expect("a file");
        let output = desk.run(&["--answer", "approve"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout).matches("reading ").count(), 1, "the others were read before");
        assert!(desk.digest().contains("A short note that is fine."));
    }
    let mut desk = Desk::with(1);
    desk.documents.push(desk.path("missing.md"));
    let output = desk.run(&[]);
    assert!(output.status.code() == Some(1) && text(&output).contains("missing.md"), "{}", text(&output));
}

#[test]
fn other_documents_than_those_the_thread_began_with_are_an_error_that_names_both() {
    let mut desk = Desk::with(2);
    assert_eq!(desk.run(&[]).status.code(), Some(3));
    desk.documents.pop();
    let output = desk.run(&["--answer", "approve"]);
    assert_eq!(output.status.code(), Some(1));
    for word in ["document-0.md", "document-1.md", "--new", "--thread"] {
        assert!(text(&output).contains(word), "{}", text(&output));
    }
    assert_eq!(desk.run(&["--thread", "other"]).status.code(), Some(3), "another thread is free to");
}

#[test]
fn an_endpoint_that_is_down_and_an_output_that_cannot_be_written_lose_nothing() {
    let desk = Desk::with(1);
    let server = ModelServer::start(but(&[]));
    // Nobody listens on the discard port.
    let output = with_model(&desk, &server, &[]).env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1").output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("127.0.0.1:9"), "{}", text(&output));
    let output = with_model(&desk, &server, &["--answer", "approve", "--out", "no/such/folder/d.md"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("no/such/folder/d.md") && text(&output).contains("run again"), "{}", text(&output));
    let calls = server.log().len();
    let output = with_model(&desk, &server, &[]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "the answer was kept: {}", text(&output));
    assert_eq!(server.log().len(), calls, "nothing is paid for again");
    server.follow(|_| Act::Refuse);
    let refused = Desk::with(1);
    let output = with_model(&refused, &server, &[]).output().expect("it runs");
    assert_eq!(
        (output.status.code(), server.log().len() - calls),
        (Some(1), 4),
        "four attempts, no hidden ones: {}",
        text(&output)
    );
}

#[test]
fn wrong_options_say_what_is_right() {
    let desk = Desk::with(1);
    for options in [&["--answer", "maybe"][..], &["--budget", "many"], &["--speed", "9"], &["--store"], &["--answer", "edit="]] {
        let output = desk.run(options);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", text(&output));
        assert!(text(&output).contains("usage: digest"), "{}", text(&output));
    }
}
