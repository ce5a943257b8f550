//! A desk that drafts, asks, and pays: a store in a file, what was done in the world with which key, and nodes that can be held or made to fail.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::clock::{Clock, SystemClock, Timestamp};
use ferrata::store::{RedbStore, Store, ThreadInfo};
use ferrata::{Approval, Checkpoint, Context, END, Graph, NodeError, Outcome, QuestionId, Runner, START, State, Thread, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::sync::Notify;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) topic: String,
    pub(crate) n: u64,
    #[state(append)]
    pub(crate) log: Vec<String>,
    /// As large as a test likes.
    pub(crate) paper: String,
}

/// A clock of which no two readings are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticking(Arc<AtomicU64>);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp(1_000 + self.0.fetch_add(1, Ordering::SeqCst))
    }

    fn new_id(&self) -> uuid::Uuid {
        SystemClock.new_id()
    }

    fn jitter(&self) -> f64 {
        0.5
    }
}

/// A node that stands still, once.
#[derive(Clone, Default)]
pub(crate) struct Held {
    reached: Arc<Notify>,
    go: Arc<Notify>,
}

impl Held {
    pub(crate) async fn reached(&self) {
        self.reached.notified().await;
    }

    pub(crate) fn let_go(&self) {
        self.go.notify_one();
    }
}

#[derive(Clone, Default)]
struct World {
    performed: Arc<Mutex<Vec<(String, String)>>>,
    faults: Arc<Mutex<HashSet<&'static str>>>,
    held: Arc<Mutex<HashMap<&'static str, Held>>>,
}

impl World {
    fn is_due_to_fail(&self, what: &'static str) -> bool {
        self.faults.lock().expect("no panic").remove(what)
    }

    /// What a node does: an effect with its name and the topic, and a line in the log.
    async fn work(&self, name: &'static str, state: View<Case>, ctx: Context) -> ferrata::Result<CaseUpdate> {
        let held = self.held.lock().expect("no panic").remove(name);
        if let Some(held) = held {
            held.reached.notify_one();
            held.go.notified().await;
        }
        let what = format!("{name} {}", state.topic);
        let perform = |key: String| async {
            if name == "pay" && self.is_due_to_fail("the line") {
                return Err(NodeError::new("the line is dead"));
            }
            self.performed.lock().expect("no panic").push((what.clone(), key));
            Ok(())
        };
        ctx.effect(name, perform).await?;
        if self.is_due_to_fail(name) {
            return Err(NodeError::new(format!("{name} is out of luck")));
        }
        Ok(Case::update().push_log(what))
    }
}

pub(crate) struct Desk {
    dir: TempDir,
    world: World,
    clock: Ticking,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder"), world: World::default(), clock: Ticking::default() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("desk.redb")
    }

    /// Opens the store, as a new process would: the one before must be gone.
    pub(crate) fn open(&self) -> Runner<Case> {
        self.over(RedbStore::open(self.path()).expect("the store opens"))
    }

    /// draft, a question that is due in `n` milliseconds, if that is not 0, and pay if it is approved.
    pub(crate) fn over(&self, store: impl Store) -> Runner<Case> {
        let (drafting, paying) = (self.world.clone(), self.world.clone());
        let draft = move |s: View<Case>, ctx: Context| {
            let world = drafting.clone();
            async move { world.work("draft", s, ctx).await }
        };
        let pay = move |s: View<Case>, ctx: Context| {
            let world = paying.clone();
            async move { world.work("pay", s, ctx).await }
        };
        let graph = Graph::<Case>::new("desk").node("draft", draft).node("pay", pay);
        let graph = graph
            .question("approve", |s: &Case| {
                let ask = Approval::ask(format!("Pay for {}?", s.topic));
                if s.n > 0 { ask.deadline(Duration::from_millis(s.n)) } else { ask }
            })
            .edge(START, "draft")
            .edge("draft", "approve")
            .approved("approve", "pay")
            .rejected("approve", END)
            .edge("pay", END);
        Runner::with_clock(graph.build().expect("the graph is right"), store, self.clock.clone())
    }

    /// What was done in the world, each with its key.
    pub(crate) fn performed(&self) -> Vec<(String, String)> {
        self.world.performed.lock().expect("no panic").clone()
    }

    /// That node fails the next time, behind its effect; `the line` leaves a payment in doubt.
    pub(crate) fn fails(&self, what: &'static str) {
        self.world.faults.lock().expect("no panic").insert(what);
    }

    /// That node stands still the next time, before its effect.
    pub(crate) fn hold(&self, node: &'static str) -> Held {
        let held = Held::default();
        self.world.held.lock().expect("no panic").insert(node, held.clone());
        held
    }
}

/// A node that counts, each time with a line of 200 bytes.
pub(crate) fn counting(store: impl Store, until: u64) -> Runner<Case> {
    let count = |s: View<Case>| async move { Ok(Case::update().n(s.n + 1).push_log(format!("{:0200}", s.n + 1))) };
    let graph = Graph::<Case>::new("counting").node("count", count).edge(START, "count");
    let graph = graph.route_to("count", ["count", END], move |s| if s.n < until { "count" } else { END });
    Runner::new(graph.build().expect("the graph is right"), store)
}

pub(crate) async fn exported(thread: &Thread<Case>) -> String {
    let mut lines = Vec::new();
    thread.export(&mut lines).await.expect("it is exported");
    String::from_utf8(lines).expect("it is text")
}

/// A copy of a file, in a folder that goes with the test.
pub(crate) fn copied(file: &Path, folder: &Path) -> PathBuf {
    let to = folder.join(file.file_name().expect("a name"));
    std::fs::copy(file, &to).expect("a copy");
    to
}

pub(crate) fn done(outcome: Result<Outcome<Case>, ferrata::Error>) -> Case {
    (*outcome.expect("it runs").done().expect("it ends")).clone()
}

/// Runs until it asks, and gives the question.
pub(crate) async fn asked(runner: &Runner<Case>, thread: &str, input: CaseUpdate) -> QuestionId {
    let outcome = runner.thread(thread).run(input).await.expect("it runs");
    let [question] = outcome.questions() else { panic!("it asks once: {outcome:?}") };
    question.id
}

pub(crate) fn names(threads: &[ThreadInfo]) -> Vec<&str> {
    threads.iter().map(|thread| thread.name.as_str()).collect()
}

/// What a history shows of each checkpoint.
pub(crate) fn seen(history: &[Checkpoint<Case>]) -> Vec<(u64, u32, i64, u64, Vec<String>)> {
    let line =
        |c: &Checkpoint<Case>| (c.position.0, c.branch.0, c.step.0, c.values.n, c.next.iter().map(ToString::to_string).collect());
    history.iter().map(line).collect()
}

pub(crate) async fn history(thread: &Thread<Case>) -> Vec<Checkpoint<Case>> {
    thread.history().await.expect("the history")
}
