//! Finished work is never done twice, whenever the process is killed.
//!
//! How the promise could break: a result that was recorded too late or in two appends, so that its node runs again; a sibling
//! dropped because another one was cut off; an input lost before the first node; an effect repeated because only its result is
//! recorded, not its start; an answer asked for twice. Each of these shows in the trace that `examples/steps.rs` leaves, which is
//! written by the nodes and effects themselves and knows nothing of the engine.

mod support {
    pub(crate) mod common;
}

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use support::common::{Process, example, lines, log_of, recorded, tell, text, wait_until};
use tempfile::TempDir;

struct Bench {
    graph: &'static str,
    dir: TempDir,
}

impl Bench {
    fn new(graph: &'static str) -> Self {
        Self { graph, dir: tempfile::tempdir().expect("a folder") }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("steps.redb")
    }

    fn trace(&self) -> Vec<String> {
        lines(&self.dir.path().join("trace.txt"))
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(example("steps"));
        command.args(["--graph", self.graph, "--store"]).arg(self.store());
        command.arg("--trace").arg(self.dir.path().join("trace.txt")).args(options);
        command
    }

    /// Starts, kills with SIGKILL when the trace holds all of `wanted`, and says whether the process was still there to be killed.
    fn kill_when(&self, options: &[&str], wanted: &[&str]) -> bool {
        let mut process = Process::start(&mut self.command(options));
        let seen = || {
            let trace = self.trace();
            wanted.iter().all(|line| trace.iter().any(|seen| seen == line))
        };
        wait_until(&mut process, seen);
        let alive = !process.has_ended();
        process.kill();
        alive
    }

    fn output(&self, options: &[&str]) -> Output {
        self.command(options).output().expect("the process runs")
    }

    /// Continues in new processes until the thread is done. In doubt, says what the trace shows; else approves.
    fn go_on(&self) -> Value {
        for _ in 0..4 {
            let output = self.output(&[]);
            let performed = self.count("charge effect") > 0;
            let answered = match output.status.code() {
                Some(0) => return json_line(&output),
                Some(3) => self.output(&["--answer", "true"]),
                Some(4) => self.output(&["--answer", if performed { "true" } else { "false" }]),
                _ => panic!("{}", text(&output)),
            };
            if answered.status.code() == Some(0) {
                return json_line(&answered);
            }
        }
        panic!("the thread does not end: {:?}", self.trace());
    }

    fn count(&self, line: &str) -> usize {
        self.trace().iter().filter(|seen| *seen == line).count()
    }

    /// What was recorded when the process died must not show up in the trace again.
    fn assert_nothing_twice(&self, done_nodes: &[String], done_effects: &[String], trace_before: usize) {
        let after = self.trace().split_off(trace_before);
        for node in done_nodes {
            assert!(!after.contains(&format!("{node} start")), "{}: {node} was recorded and ran again: {after:?}", self.graph);
        }
        for effect in done_effects {
            assert!(!after.contains(&format!("{effect} effect")), "{}: {effect} was recorded and performed again", self.graph);
        }
        assert!(self.count("charge effect") <= 1, "{}: charged twice: {:?}", self.graph, self.trace());
    }
}

fn json_line(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(output)))
}

const GRAPHS: [(&str, &[&str]); 5] = [
    ("line", &["a", "b", "c"]),
    ("diamond", &["a", "p1", "p2", "p3", "j"]),
    ("ask", &["a", "b"]),
    ("effect", &["a", "pay", "b"]),
    ("nested", &["a", "c", "pay", "d", "b"]),
];

/// The state that an undisturbed run ends with.
fn undisturbed(graph: &'static str) -> Value {
    let bench = Bench::new(graph);
    let state = bench.go_on()["state"].clone();
    let trace = bench.trace();
    for line in &trace {
        assert_eq!(bench.count(line), 1, "{graph}: {trace:?}");
    }
    state
}

#[test]
fn killed_inside_each_node_in_turn() {
    let mut kills = 0;
    for (graph, nodes) in GRAPHS {
        let expected = undisturbed(graph);
        for &node in nodes {
            let bench = Bench::new(graph);
            let options = ["--pause-at", node, "--pause-ms", "600000", "--answer", "true"];
            assert!(bench.kill_when(&options, &[&format!("{node} start")]), "{graph}: killed inside {node}");
            kills += 1;
            let before = bench.trace().len();
            let (done, effects) = recorded(&log_of(&bench.store(), "steps"));
            assert!(!done.contains(&node.to_owned()));
            let end = bench.go_on();
            bench.assert_nothing_twice(&done, &effects, before);
            assert_eq!(bench.count(&format!("{node} start")), 2, "{graph}: {node} was cut off and runs again");
            assert_eq!(end["state"], expected, "{graph}, killed in {node}");
        }
    }
    tell(&format!("kills inside a node: {kills}"));
    assert_eq!(kills, 18);
}

#[test]
fn finished_siblings_stay_finished() {
    let bench = Bench::new("diamond");
    let options = ["--pause-at", "p2", "--pause-ms", "120000", "--trace-records"];
    assert!(bench.kill_when(&options, &["p1 recorded", "p3 recorded", "p2 start"]));
    let before = bench.trace().len();
    let end = bench.go_on();
    assert_eq!(bench.trace().split_off(before), ["p2 start", "p2 done", "j start", "j done"], "p2 and j only");
    assert_eq!(end["state"]["log"], serde_json::json!(["a", "p1", "p2", "p3", "j"]));
}

#[test]
fn the_input_survives_a_kill_in_the_first_node() {
    let bench = Bench::new("line");
    assert!(bench.kill_when(&["--pause-at", "a", "--pause-ms", "600000"], &["a start"]));
    let kinds: Vec<String> = log_of(&bench.store(), "steps")
        .iter()
        .map(|entry| {
            serde_json::to_value(&entry.record)
                .expect("a record is JSON")
                .as_object()
                .expect("tagged")
                .keys()
                .next()
                .expect("tagged")
                .clone()
        })
        .collect();
    assert_eq!(kinds, ["opened", "run_started", "input", "stepped"]);
    assert_eq!(bench.go_on()["state"]["log"], serde_json::json!(["a", "b", "c"]));
}

#[test]
fn killed_before_and_after_every_append_in_turn() {
    let mut windows: BTreeMap<String, usize> = BTreeMap::new();
    for (graph, _) in GRAPHS {
        let expected = undisturbed(graph);
        for when in ["before", "after"] {
            for number in 1.. {
                let bench = Bench::new(graph);
                let halt = format!("{when}:{number}");
                if !bench.kill_when(&["--halt", &halt, "--answer", "true"], &["halted"]) {
                    break;
                }
                *windows.entry(format!("{graph}, {when} an append")).or_default() += 1;
                let before = bench.trace().len();
                let (done, effects) = recorded(&log_of(&bench.store(), "steps"));
                let end = bench.go_on();
                bench.assert_nothing_twice(&done, &effects, before);
                assert_eq!(end["state"], expected, "{graph}, {when} append {number}");
            }
        }
    }
    tell(&format!("kills by window: {windows:#?}"));
    let least = [("line", 4), ("diamond", 4), ("ask", 5), ("effect", 7), ("nested", 11)];
    for (graph, appends) in least {
        for when in ["before", "after"] {
            let kills = windows.get(&format!("{graph}, {when} an append")).copied().unwrap_or(0);
            assert!(kills >= appends, "{graph} makes at least {appends} appends; {kills} kills {when} them");
        }
    }
}

#[test]
fn an_effect_that_may_have_happened_waits_for_a_person() {
    for (happened, answer) in [(true, "true"), (false, "false")] {
        let bench = Bench::new("effect");
        let killed = if happened {
            bench.kill_when(&["--pause-at", "charge", "--pause-ms", "600000"], &["charge effect"])
        } else {
            // Append 4 is the start of the effect: input, a, quote, charge.
            bench.kill_when(&["--halt", "after:4"], &["halted"])
        };
        assert!(killed, "killed between the effect and its record");
        let before = bench.trace().len();
        for _ in 0..2 {
            let output = bench.output(&[]);
            assert_eq!(output.status.code(), Some(4), "{}", text(&output));
            let line = json_line(&output);
            assert_eq!(line["outcome"], "in_doubt");
            assert!(line["questions"][0]["text"].as_str().is_some_and(|text| text.contains("\"charge\"")), "{line}");
            assert_eq!(bench.trace().len(), before, "nothing runs while it is in doubt");
        }
        let output = bench.output(&["--answer", answer]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert_eq!(bench.count("charge effect"), 1, "{:?}", bench.trace());
        assert_eq!(bench.count("quote effect"), 1, "its result was recorded");
    }
    tell("kills between an effect and its record: 2");
}

#[test]
fn an_answer_that_was_recorded_is_not_asked_for_again() {
    let bench = Bench::new("ask");
    assert_eq!(bench.output(&[]).status.code(), Some(3));
    assert_eq!(bench.output(&[]).status.code(), Some(3), "it still waits");
    // The first append of the second process records the answer.
    assert!(bench.kill_when(&["--answer", "true", "--halt", "before:1"], &["halted"]), "killed while the answer was given");
    assert_eq!(bench.output(&[]).status.code(), Some(3), "an answer that was not recorded is asked for again");
    let halts = bench.count("halted");
    let mut process = Process::start(&mut bench.command(&["--answer", "true", "--halt", "after:1"]));
    wait_until(&mut process, || bench.count("halted") > halts);
    process.kill();
    let output = bench.output(&[]);
    assert_eq!(output.status.code(), Some(0), "the answer is there: {}", text(&output));
    assert_eq!(bench.count("b start"), 1);
    tell("kills around an answer: 2");
}
