//! Five small graphs to be killed: every node and every effect leaves a line in a trace file, so that what really ran can be told
//! from outside. The same command again continues the thread.
//!
//! ```sh
//! cargo run --example steps -- --graph effect --store /tmp/steps.redb --trace /tmp/steps.txt --pause-ms 500
//! ```
//!
//! | graph | nodes |
//! | --- | --- |
//! | `line` | a, b, c |
//! | `diamond` | a, then p1, p2 and p3 together (p2 pauses five times as long), then j |
//! | `ask` | a, a question, b if it is approved |
//! | `effect` | a, then pay with the repeatable effect `quote` and the effect `charge`, then b |
//! | `nested` | a, then a graph inside of c, pay and d, then b |
//!
//! Exit code 0: done; 3: it waits for an answer (`--answer true|false`); 4: an effect is in doubt (`--answer true`: it was performed).
//!
//! For tests: `--pause-at NAME` lets only that node or effect pause; `--halt before:N|after:N` stands still before or after the
//! N-th append of this process, after the line `halted` in the trace; `--trace-records` adds a line `NAME recorded` once a
//! node's result is durable.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferrata::log::Record;
use ferrata::store::{Append, Appended, AtWork, Pending, RedbStore, Store};
use ferrata::{Answer, Approval, BuildError, Context, END, Graph, IntoNode, NodeError, Outcome, Runner, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Steps {
    #[state(append)]
    log: Vec<String>,
    quote: Option<u64>,
    receipt: Option<String>,
}

/// What `charge` gives, or who answers for it.
const RECEIPT: &str = "charged";

/// What the nodes share: where they write, and how long they pause.
#[derive(Debug)]
struct Bench {
    trace: PathBuf,
    pause: Duration,
    pause_at: Option<String>,
}

impl Bench {
    fn trace(&self, line: &str) -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.trace)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()
    }

    async fn pause(&self, name: &str, times: u32) {
        if self.pause_at.as_deref().is_none_or(|only| only == name) {
            tokio::time::sleep(self.pause * times).await;
        }
    }

    /// The whole work of a plain node.
    async fn step(&self, name: &'static str, times: u32) -> ferrata::Result<StepsUpdate> {
        self.trace(&format!("{name} start"))?;
        self.pause(name, times).await;
        self.trace(&format!("{name} done"))?;
        Ok(Steps::update().push_log(name))
    }

    /// An effect: the line in the trace is what it does to the world.
    async fn act(&self, name: &str) -> Result<(), NodeError> {
        self.trace(&format!("{name} effect"))?;
        self.pause(name, 1).await;
        Ok(())
    }
}

fn step(bench: &Arc<Bench>, name: &'static str, times: u32) -> impl IntoNode<Steps, (View<Steps>,)> {
    let bench = Arc::clone(bench);
    move |_: View<Steps>| {
        let bench = Arc::clone(&bench);
        async move { bench.step(name, times).await }
    }
}

fn pay(bench: &Arc<Bench>) -> impl IntoNode<Steps, (Context,)> {
    let bench = Arc::clone(bench);
    move |ctx: Context| {
        let bench = Arc::clone(&bench);
        async move {
            bench.trace("pay start")?;
            bench.pause("pay", 1).await;
            let quote: u64 = ctx.effect("quote", |_| async { bench.act("quote").await.map(|()| 4_200) }).repeatable().await?;
            // A real one would hand the key on; here the same end must come out of every run.
            let charge = |_key: String| async { bench.act("charge").await.map(|()| RECEIPT.to_owned()) };
            let receipt: String = ctx.effect("charge", charge).await?;
            bench.trace("pay done")?;
            Ok(Steps::update().push_log("pay").quote(quote).receipt(receipt))
        }
    }
}

fn inner(bench: &Arc<Bench>) -> Result<Graph<Steps>, BuildError> {
    let graph =
        Graph::<Steps>::new("inner").node("c", step(bench, "c", 1)).node("pay", pay(bench)).node("d", step(bench, "d", 1));
    graph.edge(START, "c").edge("c", "pay").edge("pay", "d").edge("d", END).build()
}

fn graph(name: &str, bench: &Arc<Bench>) -> Result<Graph<Steps>, String> {
    let graph = Graph::<Steps>::new(name).node("a", step(bench, "a", 1)).edge(START, "a");
    let built: Result<Graph<Steps>, BuildError> = match name {
        "line" => graph
            .node("b", step(bench, "b", 1))
            .node("c", step(bench, "c", 1))
            .edge("a", "b")
            .edge("b", "c")
            .edge("c", END)
            .build(),
        "diamond" => graph
            .node("p1", step(bench, "p1", 1))
            .node("p2", step(bench, "p2", 5))
            .node("p3", step(bench, "p3", 1))
            .node("j", step(bench, "j", 1))
            .edge("a", "p1")
            .edge("a", "p2")
            .edge("a", "p3")
            .join(["p1", "p2", "p3"], "j")
            .edge("j", END)
            .build(),
        "ask" => graph
            .question("question", |s: &Steps| Approval::ask("Shall b run?").show(&s.log))
            .node("b", step(bench, "b", 1))
            .edge("a", "question")
            .approved("question", "b")
            .rejected("question", END)
            .edge("b", END)
            .build(),
        "effect" => {
            graph.node("pay", pay(bench)).node("b", step(bench, "b", 1)).edge("a", "pay").edge("pay", "b").edge("b", END).build()
        }
        "nested" => inner(bench).and_then(|inner| {
            graph
                .node("inner", inner.shared())
                .node("b", step(bench, "b", 1))
                .edge("a", "inner")
                .edge("inner", "b")
                .edge("b", END)
                .build()
        }),
        other => return Err(format!("there is no graph {other:?}; use --graph line, diamond, ask, effect or nested")),
    };
    built.map_err(|error| error.to_string())
}

/// A store that stands still at a chosen append, so that a test can kill the process exactly there.
#[derive(Debug)]
struct Halting {
    inner: RedbStore,
    bench: Arc<Bench>,
    halt: Option<(When, u64)>,
    trace_records: bool,
    appends: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Before,
    After,
}

impl Halting {
    async fn halt_if(&self, when: When, number: u64) {
        if self.halt == Some((when, number)) {
            self.bench.trace("halted").expect("the trace can be written");
            std::future::pending::<()>().await;
        }
    }
}

impl Store for Halting {
    ferrata::hand_on_store!(inner);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        let number = self.appends.fetch_add(1, Ordering::Relaxed) + 1;
        let done: Vec<String> = append.records.iter().filter_map(finished_node).collect();
        Box::pin(async move {
            self.halt_if(When::Before, number).await;
            let appended = self.inner.append(append).await?;
            for node in done.iter().filter(|_| self.trace_records) {
                self.bench.trace(&format!("{node} recorded")).expect("the trace can be written");
            }
            self.halt_if(When::After, number).await;
            Ok(appended)
        })
    }

    fn at_work(&self) -> Option<&AtWork> {
        self.inner.at_work()
    }
}

fn finished_node(record: &Record) -> Option<String> {
    match record {
        Record::TaskDone(done) => Some(done.task.node.to_string()),
        _ => None,
    }
}

struct Options {
    graph: String,
    store: PathBuf,
    bench: Arc<Bench>,
    answer: Option<bool>,
    halt: Option<(When, u64)>,
    trace_records: bool,
}

fn options() -> Result<Options, String> {
    let (mut graph, mut store, mut trace, mut pause_at, mut answer, mut halt) = (None, None, None, None, None, None);
    let (mut pause, mut trace_records) = (Duration::ZERO, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--graph" => graph = Some(value()?),
            "--store" => store = Some(PathBuf::from(value()?)),
            "--trace" => trace = Some(PathBuf::from(value()?)),
            "--pause-ms" => pause = Duration::from_millis(value()?.parse().map_err(|_| "--pause-ms takes a whole number")?),
            "--pause-at" => pause_at = Some(value()?),
            "--answer" => answer = Some(value()?.parse().map_err(|_| "--answer takes true or false")?),
            "--trace-records" => trace_records = true,
            "--halt" => halt = Some(parse_halt(&value()?)?),
            other => return Err(format!("unknown option {other}; the options are described at the top of examples/steps.rs")),
        }
    }
    let trace = trace.ok_or("--trace FILE is missing")?;
    let bench = Arc::new(Bench { trace, pause, pause_at });
    let (graph, store) = (graph.ok_or("--graph is missing")?, store.ok_or("--store FILE is missing")?);
    Ok(Options { graph, store, bench, answer, halt, trace_records })
}

fn parse_halt(text: &str) -> Result<(When, u64), String> {
    let number = |n: &str| n.parse().map_err(|_| "--halt takes before:N or after:N".to_owned());
    match text.split_once(':') {
        Some(("before", n)) => Ok((When::Before, number(n)?)),
        Some(("after", n)) => Ok((When::After, number(n)?)),
        _ => Err("--halt takes before:N or after:N".to_owned()),
    }
}

async fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Options { graph: name, store, bench, answer, halt, trace_records } = options()?;
    let graph = graph(&name, &bench)?;
    let store = Halting { inner: RedbStore::open(store)?, bench, halt, trace_records, appends: AtomicU64::new(0) };
    let runner = Runner::new(graph, store);
    let thread = runner.thread("steps");
    let mut outcome = thread.run_once(Steps::update()).await?;
    if let (Outcome::Waiting(questions), Some(yes)) = (&outcome, answer) {
        let answer = match (questions[0].is_doubt(), yes) {
            (true, true) => Answer::performed(RECEIPT),
            (true, false) => Answer::not_performed(),
            (false, true) => Approval::approve(),
            (false, false) => Approval::reject("--answer false"),
        };
        outcome = thread.answer(questions[0].id, answer.by("--answer")).await?;
    }
    let (word, code) = match &outcome {
        Outcome::Done(_) => ("done", 0),
        Outcome::Waiting(questions) if questions.iter().any(|q| q.is_doubt()) => ("in_doubt", 4),
        Outcome::Waiting(_) => ("waiting", 3),
        Outcome::Outside(_) => ("outside", 6),
        Outcome::Suspended(_) => ("suspended", 5),
    };
    let state = thread.state().await?;
    println!("{}", json!({"outcome": word, "state": &*state.values, "questions": state.questions}));
    Ok(ExitCode::from(code))
}

#[tokio::main]
async fn main() -> ExitCode {
    run().await.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}
