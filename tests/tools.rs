//! The examples `tools` and `mcp` as people run them: real processes, an approval, and SIGKILL inside of a call.
//!
//! How it could break: a call that is performed again after the kill, an approval that does not reach the next process, a call without a result.

#[path = "support"]
mod support {
    pub(crate) mod common;
}

use std::io::{BufRead, BufReader};
use std::process::Command;

use support::common::{Process, example, text};
use tempfile::TempDir;

struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(example("tools"));
        command.arg("--store").arg(self.0.path().join("s.redb")).args(options);
        command
    }

    /// Its exit code and its lines.
    fn run(&self, options: &[&str]) -> (Option<i32>, Vec<String>) {
        let output = self.command(options).output().expect("the process runs");
        (output.status.code(), text(&output).lines().map(str::to_owned).collect())
    }
}

fn did(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.strip_prefix("did: ")).collect()
}

#[test]
fn an_edited_call_is_performed_once_and_every_call_has_a_result() {
    let desk = Desk::new();
    let (code, lines) = desk.run(&[]);
    assert_eq!((code, did(&lines)), (Some(3), vec!["look_up A-7", "note A-7 arrived broken"]), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("open: May the tool \"refund\" be called with ")), "{lines:?}");

    let (code, lines) = desk.run(&["--answer", r#"edit={"order":"A-7","cents":50000}"#]);
    assert_eq!((code, did(&lines).len()), (Some(1), 0), "more than the tool takes: {lines:?}");
    let (code, lines) = desk.run(&["--answer", r#"edit={"order":"A-7","cents":500}"#]);
    assert_eq!((code, did(&lines)), (Some(0), vec!["refund A-7 500"]), "{lines:?}");
    let (code, lines) = desk.run(&["--answer", "approve"]);
    assert_eq!((code, did(&lines).len()), (Some(0), 0), "it is done");
    let results: Vec<_> = lines.iter().filter(|line| line.starts_with("Tool ")).collect();
    let told = [
        "Tool c1: {",
        "Tool c2: Nothing was done: the tool \"send_flowers\" does not exist. The tools are: look_up, note, refund.",
        "Tool c3: noted",
        "Tool c4: Nothing was done: the arguments of \"refund\" do not fit: at /cents: ",
        "Tool c5: [A person changed the arguments to ",
    ];
    assert!(results.len() == told.len() && results.iter().zip(told).all(|(line, told)| line.starts_with(told)), "{lines:?}");
}

#[test]
fn a_refused_call_is_not_performed() {
    let (code, lines) = Desk::new().run(&["--answer", "reject"]);
    assert_eq!((code, did(&lines).len()), (Some(0), 2), "{lines:?}");
    let told = "Tool c5: Nothing was done: a person refused this call, and says why: not without the broken parts";
    assert!(lines.iter().any(|line| line == told), "{lines:?}");
}

#[test]
fn a_call_that_was_killed_is_in_doubt_and_not_repeated() {
    let desk = Desk::new();
    let mut process = Process::start(&mut desk.command(&["--pause"]));
    let mut before = Vec::new();
    for line in BufReader::new(process.stdout()).lines() {
        before.push(line.expect("it is text"));
        if before.last().is_some_and(|line| line == "in note") {
            break;
        }
    }
    process.kill();
    assert!(did(&before).contains(&"note A-7 arrived broken"), "{before:?}");

    let (code, lines) = desk.run(&[]);
    assert!(code == Some(4) && !did(&lines).iter().any(|line| line.starts_with("note")), "{code:?} {lines:?}");
    let (code, lines) = desk.run(&["--performed", "it is in the file", "--answer", "approve"]);
    assert_eq!((code, did(&lines)), (Some(0), vec!["refund A-7 4200"]), "{lines:?}");
    assert!(lines.iter().any(|line| line == "Tool c3: it is in the file"), "{lines:?}");
}

#[test]
fn wrong_options_are_told() {
    let desk = Desk::new();
    for options in [&["--answer", "maybe"][..], &["--answer", "edit={"], &["--nonsense"], &["--thread"]] {
        assert_eq!(desk.run(options).0, Some(2), "{options:?}");
    }
}

#[test]
fn tools_of_an_mcp_server_are_called_from_the_example() {
    let output = Command::new(example("mcp")).output().expect("the process runs");
    let lines: Vec<String> = text(&output).lines().map(str::to_owned).collect();
    assert!(output.status.success(), "{lines:?}");
    // Calls of one turn run beside each other.
    let mut added: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("    note ")).collect();
    added.sort_unstable();
    assert_eq!(added, ["1 added", "2 added"], "{lines:?}");
    assert!(
        lines.iter().any(|line| line.contains("do not fit") && line.contains("\"text\" is a required property")),
        "{lines:?}"
    );
    assert!(lines.iter().any(|line| line == "    bread, milk"), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("notes_clear")), "the model was not told of what is not allowed: {lines:?}");
    // Any other server shows what it has.
    let shown = Command::new(example("mcp")).arg(example("mcp")).arg("--serve").output().expect("the process runs");
    assert!(text(&shown).contains("clear: Forgets all notes."), "{}", text(&shown));
}
