//! A small real model: a history of a thousand tokens is summarised under a budget, answered as a stream, and followed by a decision of a given form; the
//! process is killed in the middle of the stream, and no answer that was complete is asked for again.
//!
//! How it could break: a summary or a decision is paid for twice, a stream that broke off passes for an answer, a real server says something else than the
//! bodies that were written by hand.
//!
//! The model is SmolLM2-135M on one core, served by llama.cpp; `FERRATA_TEST_PYTHON` names a Python that has both (see `.ci/run`).

mod support {
    pub(crate) mod common;
    pub(crate) mod proxy;
}

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::common::{Process, example, tell, wait_until};
use support::proxy::{Passed, Proxy};
use tempfile::TempDir;

/// The server's process. It ends with its standard input.
struct SmallModel {
    process: Child,
    port: u16,
}

impl SmallModel {
    /// `None`: there is none here, and that is said.
    fn start() -> Option<Self> {
        let Ok(python) = std::env::var("FERRATA_TEST_PYTHON") else {
            assert!(std::env::var("CI").is_err(), "CI has a small model: `.ci/run` sets FERRATA_TEST_PYTHON");
            tell("skipped: FERRATA_TEST_PYTHON names no Python with a small model; `.ci/run` prepares one");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/small_model.py");
        let mut command = Command::new(python);
        command.arg(script).arg(port.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("the Python of FERRATA_TEST_PYTHON starts");
        let lines = BufReader::new(process.stdout.take().expect("stdout is a pipe")).lines().map_while(Result::ok);
        assert!(lines.into_iter().any(|line| line == "ready"), "the model server is up");
        Some(Self { process, port })
    }
}

impl Drop for SmallModel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn triage(proxy: &Proxy, dir: &TempDir) -> Command {
    let mut command = Command::new(example("triage"));
    command.args(["--base-url", &proxy.url, "--model", "smollm2", "--store"]).arg(dir.path().join("triage.redb"));
    command
}

#[test]
fn a_real_model_is_never_asked_again_for_what_it_has_answered() {
    let Some(model) = SmallModel::start() else { return };
    let (proxy, dir) = (Proxy::start(model.port), tempfile::tempdir().expect("a folder"));
    proxy.hold_streams(true);
    let mut process = Process::start(&mut triage(&proxy, &dir));
    let is_streaming = |passed: &Passed| passed.streams() && passed.bytes > 0;
    assert!(wait_until(&mut process, || proxy.log().iter().any(is_streaming)), "{}", process.complaint());
    process.kill();
    proxy.hold_streams(false);

    let output = triage(&proxy, &dir).output().expect("the process runs");
    let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complaint}");
    let told: Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");

    // Each finished call once; the one that was cut off once more.
    let log = proxy.log();
    let mut whole: BTreeMap<String, usize> = BTreeMap::new();
    log.iter().filter(|passed| passed.is_whole).for_each(|passed| *whole.entry(passed.body.to_string()).or_default() += 1);
    assert!(whole.values().all(|times| *times == 1), "{whole:?}");
    let count = |holds: &dyn Fn(&Passed) -> bool| log.iter().filter(|passed| holds(passed)).count();
    assert_eq!(count(&|passed| passed.streams() && passed.is_whole), 1);
    assert_eq!(count(&|passed| passed.streams() && !passed.is_whole), 1);
    assert!(count(&|passed| passed.has_schema()) >= 1 && count(&|passed| !passed.streams() && !passed.has_schema()) >= 1);

    // The history was brought under its budget, and the answer that was forced into a form decided the way.
    assert!(told["summary"].as_str().is_some_and(|summary| summary.lines().count() > 1), "{told}");
    let acted = match told["next"].as_str() {
        Some("refund") => "the second charge goes back",
        Some("escalate") => "a person takes over",
        Some("close") => "nothing is left to do",
        other => panic!("{other:?}: {told}"),
    };
    assert_eq!(told["log"], serde_json::json!([acted]));
    // What it cost is known, and what was cut off is in no record.
    let calls: u64 = told["costs"].as_array().expect("a list").iter().filter_map(|cost| cost["calls"].as_u64()).sum();
    assert_eq!(calls as usize, whole.len());
    tell(&format!("{} requests, {} of them whole; {}", log.len(), whole.len(), told["costs"]));
}
