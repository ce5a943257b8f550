//! A killed process leaves no secret in the file, and the next one has it again where the program kept it.
//!
//! How it could break: a value that is stored plain until something tidies up; a reference that is stored before its value is safe; a process that
//! goes on with an empty token.

#[path = "support"]
mod support {
    pub(crate) mod common;
}

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output};

use support::common::{Process, example, log_of, recorded, text};
use tempfile::TempDir;

const TOKEN: &str = "key-to-the-hut-behind-the-glacier";
const NODES: [&str; 3] = ["check", "upload", "tell"];

struct Job {
    dir: TempDir,
    keeps: bool,
}

impl Job {
    fn new(keeps: bool) -> Self {
        Self { dir: tempfile::tempdir().expect("a folder"), keeps }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("s.redb")
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(example("vault"));
        command.arg("--store").arg(self.store()).args(options);
        if self.keeps {
            command.arg("--vault").arg(self.dir.path().join("vault.json"))
        } else {
            command.arg("--forget")
        };
        command
    }

    fn output(&self, options: &[&str]) -> Output {
        self.command(options).output().expect("the process runs")
    }

    /// Kills the process inside that node.
    fn kill_in(&self, node: &str) {
        let mut process = Process::start(&mut self.command(&["--token", TOKEN, "--pause-at", node]));
        let mut seen = Vec::new();
        let mut lines = BufReader::new(process.stdout()).lines();
        while !seen.iter().any(|line| line == node) {
            let Some(line) = lines.next() else {
                let complaint = std::io::read_to_string(process.stderr()).expect("it is text");
                panic!("it ends before {node}, after {seen:?}: {complaint}");
            };
            seen.push(line.expect("it is text"));
        }
        assert!(!process.has_ended());
        process.kill();
    }

    fn assert_no_token(&self) {
        let bytes = std::fs::read(self.store()).expect("the file is there");
        let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(holds("$secret") && !holds(TOKEN), "the file is searched, and the token is not in it");
    }
}

#[test]
fn the_token_is_in_the_vault_and_the_next_process_has_it() {
    for (done, node) in NODES.iter().enumerate() {
        let job = Job::new(true);
        job.kill_in(node);
        job.assert_no_token();
        assert_eq!(recorded(&log_of(&job.store(), "upload")).0, NODES[..done]);
        let output = job.output(&[]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let lines: Vec<&str> = std::str::from_utf8(&output.stdout).expect("it is text").lines().collect();
        assert_eq!(lines[..lines.len() - 1], NODES[done..], "what was recorded does not run again");
        assert!(lines[lines.len() - 1].contains(&format!("tell with a token of {} bytes", TOKEN.len())), "{}", text(&output));
        job.assert_no_token();
    }
}

#[test]
fn a_token_that_nobody_kept_is_asked_for_and_nothing_runs_without_it() {
    let job = Job::new(false);
    job.kill_in("upload");
    job.assert_no_token();
    let before = log_of(&job.store(), "upload");
    let output = job.output(&[]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
    assert!(output.stdout.is_empty(), "no node runs: {}", text(&output));
    assert!(text(&output).contains("thread \"upload\" cannot go on without the secret values of `token`"), "{}", text(&output));
    assert_eq!(log_of(&job.store(), "upload"), before, "nothing is recorded");
    let output = job.output(&["--token", TOKEN]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains(&format!("upload with a token of {} bytes", TOKEN.len())), "{}", text(&output));
    job.assert_no_token();
}
