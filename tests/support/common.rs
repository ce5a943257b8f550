//! What several tests share: examples as real processes, and waiting for what they do.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use ferrata::ThreadName;
use ferrata::log::{Entry, Record};
use ferrata::store::{Reach, RedbStore, Store};

/// The built example of that name. Built here, so that `cargo test --test kill` never runs an old one.
pub(crate) fn example(name: &'static str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--examples"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the examples are built");
    });
    let tests = std::env::current_exe().expect("a test has a path");
    tests.ancestors().nth(2).expect("target/debug/deps/test").join("examples").join(name)
}

/// A process that is killed when the test is through with it, whatever way it ends.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts"))
    }

    /// Starts it with somebody at the keyboard.
    pub(crate) fn start_with_keyboard(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the process starts"))
    }

    /// A line that is typed.
    pub(crate) fn enter(&mut self, line: &str) {
        let keyboard = self.0.stdin.as_mut().expect("stdin is a pipe");
        writeln!(keyboard, "{line}").expect("the process listens");
    }

    /// Waits until it has ended by itself, with nobody at the keyboard any more.
    pub(crate) fn output(mut self) -> Output {
        drop(self.0.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.stdout().read_to_end(&mut stdout).expect("stdout can be read");
        self.stderr().read_to_end(&mut stderr).expect("stderr can be read");
        Output { status: self.0.wait().expect("the process ends"), stdout, stderr }
    }

    /// What the process says; once.
    pub(crate) fn stdout(&mut self) -> ChildStdout {
        self.0.stdout.take().expect("stdout is a pipe")
    }

    /// What it has complained of, when it has ended.
    pub(crate) fn complaint(&mut self) -> String {
        let mut text = String::new();
        let mut stderr = self.0.stderr.take().expect("stderr is a pipe");
        stderr.read_to_string(&mut text).expect("stderr is text");
        text
    }

    /// What it complains of; once.
    pub(crate) fn stderr(&mut self) -> ChildStderr {
        self.0.stderr.take().expect("stderr is a pipe")
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("the process can be asked").is_some()
    }

    /// How it has ended, if it has.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("the process can be asked")
    }

    /// SIGTERM.
    #[cfg(unix)]
    pub(crate) fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().expect("kill runs");
        assert!(sent.success(), "the process is there");
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("the process can be killed");
        self.0.wait().expect("the process ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the condition holds. Panics after a minute.
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if holds() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    panic!("what the test waits for has not happened within a minute");
}

/// Waits until the condition holds; false if `process` ended before. Panics after a minute.
pub(crate) fn wait_until(process: &mut Process, mut holds: impl FnMut() -> bool) -> bool {
    for _ in 0..30_000 {
        if holds() {
            return true;
        }
        if process.has_ended() {
            return holds();
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    panic!("what the test waits for has not happened within a minute");
}

/// Says something that shows although the test passes.
pub(crate) fn tell(what: &str) {
    // Written past the test harness, which keeps what a passing test prints to itself.
    let _ = writeln!(std::io::stderr(), "{what}");
}

pub(crate) fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Every record of a thread, read from the file as a new process would.
pub(crate) fn log_of(store: &Path, thread: &str) -> Vec<Entry> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let thread = ThreadName::new(thread).expect("a good name");
    runtime.block_on(async {
        let store = RedbStore::open(store).expect("the store opens");
        store.load(&thread, Reach::Whole).await.expect("the log is read").entries
    })
}

/// The nodes whose result is recorded, and the effects whose result is.
pub(crate) fn recorded(entries: &[Entry]) -> (Vec<String>, Vec<String>) {
    let (mut nodes, mut effects) = (Vec::new(), Vec::new());
    for entry in entries {
        match &entry.record {
            Record::TaskDone(done) => nodes.push(done.task.node.to_string()),
            Record::EffectDone(done) => effects.push(done.effect.key.to_string()),
            _ => {}
        }
    }
    (nodes, effects)
}
