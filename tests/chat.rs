//! The chat in the terminal is killed and goes on, stays under its budget, forgets nothing, and goes back in time.
//!
//! How it could break: an answer that was shown is gone after a kill; a turn that was cut off is lost or done twice; a long conversation fails at the budget; a
//! fork removes what was there; a fact that was pinned is summed up; a turn that failed makes all others fail.

mod support {
    pub(crate) mod common;
}

use std::io::{BufRead, BufReader};
use std::process::Command;

use ferrata::log::Record;
use support::common::{Process, example, log_of, text};
use tempfile::TempDir;

fn command(dir: &TempDir) -> Command {
    let mut command = Command::new(example("chat"));
    command.current_dir(dir.path()).args(["--budget", "600"]);
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"] {
        command.env_remove(name);
    }
    command
}

/// What the chat says to these lines.
fn says(dir: &TempDir, lines: &[&str]) -> String {
    let mut process = Process::start_with_keyboard(&mut command(dir));
    lines.iter().for_each(|line| process.enter(line));
    let output = process.output();
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

#[test]
fn a_chat_that_is_killed_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    for round in 0..4 {
        let mut process = Process::start_with_keyboard(&mut command(&dir));
        let mut lines = BufReader::new(process.stdout()).lines().map(|line| line.expect("text"));
        let greeting = lines.next().expect("it greets");
        assert!(if round == 0 { greeting == "A new conversation." } else { greeting.contains("goes on") }, "{greeting}");
        process.enter(&format!("Message {round}"));
        let answer = lines.find(|line| line.contains(&format!("The last one was: Message {round}"))).expect("it answers");
        assert!(answer.starts_with(&format!("< I see {} of", 2 * round + 1)), "{answer}");
        // One more, cut off wherever it is.
        process.enter(&format!("Cut off {round}"));
        if round % 2 == 0 {
            lines.find(|line| line.contains("Cut off")).expect("it answers");
            process.kill();
        } else {
            process.kill();
            // It may not have been heard: then it is said again, so that every round has two.
            if !says(&dir, &["/history"]).contains(&format!(": Cut off {round}")) {
                says(&dir, &[&format!("Cut off {round}")]);
            }
        }
    }
    let history = says(&dir, &["/history"]);
    assert_eq!(history.lines().filter(|line| line.contains("line 0")).count(), 8, "{history}");
}

#[test]
fn a_long_chat_stays_under_its_budget_and_forgets_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut lines = vec!["The code word is PLOVER.".to_owned(), "/pin I am allergic to peanuts.".to_owned()];
    lines.extend((0..40).map(|n| format!("Remark {n}: the Heron has no table for six people at this hour of the evening.")));
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain(["/history", "/recall which code word was it"]).collect();
    let said = says(&dir, &lines);
    assert!(!said.contains("failed"), "{said}");
    assert!(said.contains("summed up: Remark 39"), "{said}");
    assert!(said.contains("User: The code word is PLOVER."), "{said}");

    // What was summed up cost calls, and the log says how many.
    let log = log_of(&dir.path().join("chat.redb"), "chat");
    let calls = |name: &str| {
        log.iter().filter(|entry| matches!(&entry.record, Record::EffectDone(done) if &*done.effect.key == name)).count()
    };
    assert_eq!(calls("chat"), 42);
    assert!((3..30).contains(&calls("summary")), "{}", calls("summary"));
}

#[test]
fn a_fork_goes_on_from_there_and_removes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    says(&dir, &["one", "two", "three", "/quit", "never said"]);
    let said = says(&dir, &["/fork 9", "/fork x", "/fork 1", "another two", "/history"]);
    assert_eq!(said.matches("There is no such turn").count(), 2, "{said}");
    assert!(said.contains("< I see 2 of your messages. The last one was: another two"), "{said}");
    for line in ["line 0, 2 messages: one", "line 1, 4 messages: another two"] {
        assert!(said.contains(line), "{line} in {said}");
    }
    assert!(!said.contains("never said"), "{said}");
    let said = says(&dir, &["/frok 1", "and on"]);
    assert!(said.contains("There are /history") && said.contains("< I see 3 of"), "{said}");
    let recalled = says(&dir, &["/recall three"]);
    assert!(recalled.contains("User: three"), "{recalled}");
}

#[test]
fn a_turn_that_fails_does_not_end_the_chat() {
    let dir = tempfile::tempdir().expect("a folder");
    let long = "word ".repeat(2_000);
    let said = says(&dir, &["/pin", "/history", &long, "hello", "/quit"]);
    assert!(said.starts_with("A new conversation.\nWhat is to be kept?"), "{said}");
    assert_eq!(said.matches("That failed").count(), 2, "{said}");
    assert_eq!(said.matches("the largest part is the first task").count(), 2, "not for the work that failed before: {said}");
    // As the error says: with a larger budget it goes on, and nothing is lost.
    let mut larger = command(&dir);
    let mut process = Process::start_with_keyboard(larger.args(["--budget", "8000"]));
    process.enter("and now?");
    let said = text(&process.output());
    assert!(said.contains("< I see 2 of your messages. The last one was: hello"), "{said}");
    assert!(said.contains("< I see 3 of your messages. The last one was: and now?"), "{said}");
}
