//! The page about the format tells what the engine writes.
//!
//! How it could break: a page that shows a log which no run ever wrote. So each of its examples is run here, and the log, with its appends, is
//! looked for in the page, line by line.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ferrata::log::{Record, Source};
use ferrata::state::{Change, Op, Update};
use ferrata::store::{Append, Appended, MemoryStore, Pending, Store};
use ferrata::{
    Ask, Context, Durability, END, Graph, GraphBuilder, NodeError, Path, Position, QuestionId, Runner, START, State, StaticState,
    View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const PAGE: &str = include_str!("../src/docs/format.md");

/// Keeps the appends that were made, in order.
#[derive(Clone, Debug, Default)]
struct Told {
    store: Arc<MemoryStore>,
    appends: Arc<Mutex<Vec<Vec<Record>>>>,
}

impl Store for Told {
    ferrata::hand_on_store!(store);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        self.appends.lock().expect("no panic").push(append.records.clone());
        self.store.append(append)
    }
}

impl Told {
    /// The log as the page writes it: `+` joins a record to the one before it, in one append.
    fn as_told(&self) -> Vec<String> {
        let appends = self.appends.lock().expect("no panic");
        let mut questions = Vec::new();
        let records = appends.iter().flat_map(|records| records.iter().enumerate());
        let line = |(position, (place, record)): (usize, (usize, &Record))| {
            let mark = if place > 0 { '+' } else { ' ' };
            format!("{position:2} {mark} {}", told(record, &mut questions)).trim_end().to_owned()
        };
        records.enumerate().map(line).collect()
    }
}

fn told(record: &Record, questions: &mut Vec<QuestionId>) -> String {
    let mut name = |id: QuestionId| {
        let place = questions.iter().position(|known| *known == id).unwrap_or_else(|| {
            questions.push(id);
            questions.len() - 1
        });
        format!("Q{}", place + 1)
    };
    match record {
        Record::Opened(opened) => format!("opened       graph {}", opened.graph),
        Record::RunStarted(run) => format!("run_started  {}, durability {}", word(&run.trigger), word(&run.durability)),
        Record::Input(input) => {
            let caller = input.caller.as_ref().map(|task| format!(", called by {task}")).unwrap_or_default();
            let unlisted = if input.unlisted { ", unlisted" } else { "" };
            format!("input        {}step {}{caller}{}{unlisted}", place(&input.path), input.step.0, changes(&input.changes))
        }
        Record::TaskDone(done) => format!("task_done    {}{}", done.task, changes(&done.changes)),
        Record::TaskFailed(failed) => format!("task_failed  {}, attempt {}", failed.task, failed.attempt),
        Record::Asked(question) => format!("asked        {} of {}", name(question.id), question.task),
        Record::Answered(answered) => format!("answered     {}: {}", name(answered.question), answered.value),
        Record::Closed(closed) => format!("closed       {}, {}", name(closed.questions[0]), word(&closed.why)),
        Record::Stepped(stepped) => {
            let mut line = format!("stepped      {}step {}, {}", place(&stepped.path), stepped.step.0, source(stepped.source));
            stepped.as_node.iter().for_each(|node| _ = write!(line, " as {node}"));
            let merged: Vec<&str> = stepped.merged.iter().map(|task| task.node.as_str()).collect();
            if !merged.is_empty() {
                let _ = write!(line, ", merged {}", merged.join(" "));
            }
            line.push_str(&changes(&stepped.resolved));
            stepped.squashed.iter().for_each(|squashed| _ = write!(line, ", squashed {}", squashed.steps));
            let due: Vec<&str> = stepped.due.iter().map(|due| due.node.as_str()).collect();
            let _ = write!(line, ", due {}", if due.is_empty() { "-".to_owned() } else { due.join(" ") });
            line
        }
        Record::Forked(forked) => format!("forked       branch {}, parent {}", forked.branch.0, forked.parent.0),
        Record::RunEnded(ended) => {
            let outcome = word(&ended.outcome);
            format!("run_ended    {}", if outcome.starts_with('{') { "failed" } else { outcome.as_str() })
        }
        Record::Upgraded(upgraded) => {
            let mut line = format!("upgraded     version {}", upgraded.schema.version());
            let states = upgraded.states.iter();
            states.for_each(|state| _ = write!(line, ", {}state {}", place(&state.path), word(&state.values)));
            line
        }
        other => panic!("no example has {other:?}"),
    }
}

/// How it stands in the log.
fn word(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it is plain").trim_matches('"').to_owned()
}

fn source(source: Source) -> String {
    word(&source)
}

fn place(path: &Path) -> String {
    if path.is_root() { String::new() } else { format!("{path} ") }
}

fn changes(changes: &[Change]) -> String {
    let change = |Change { field, op }: &Change| match op {
        Op::Set(value) => format!(", set {field} {value}"),
        Op::Append(items) => format!(", append {field} {items}"),
        other => panic!("no example has {other:?}"),
    };
    changes.iter().map(change).collect()
}

/// The whole log is in the page, as one block.
#[track_caller]
fn is_in_the_page(store: &Told) {
    let log = store.as_told().join("\n");
    assert!(PAGE.contains(&format!("\n{log}\n")), "the page does not show this log:\n{log}");
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Main {
    x: u64,
    #[state(append)]
    log: Vec<String>,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Inner {
    x: u64,
    own: u64,
}

#[tokio::test]
async fn two_forks_from_one_checkpoint() {
    let a = || async { Ok(Main::update().push_log("a")) };
    let b = |s: View<Main>| async move { Ok(Main::update().push_log(format!("b x={}", s.x))) };
    let graph = Graph::<Main>::new("main").node("a", a).node("b", b).edge(START, "a").edge("a", "b").edge("b", END);
    let store = Told::default();
    let thread = Runner::new(graph.build().expect("the graph is right"), store.clone()).thread("t");
    thread.run(Main::update().x(0)).await.expect("it runs").done().expect("it ends");
    for x in [1, 2] {
        thread.clone().at(Position(5)).update(Main::update().x(x), None).await.expect("it is edited");
        thread.resume().await.expect("it runs").done().expect("it ends");
    }
    is_in_the_page(&store);
}

#[tokio::test]
async fn a_state_that_is_edited_inside_a_waiting_subgraph() {
    let i1 = || async { Ok(Inner::update().own(9)) };
    let i2 = |s: View<Inner>, ctx: Context| async move {
        let more = ctx.ask("q", Ask::<u64>::new("q")).await?;
        Ok(Inner::update().x(s.x + s.own + more))
    };
    let inner = Graph::<Inner>::new("inner").node("i1", i1).node("i2", i2);
    let inner = inner.edge(START, "i1").edge("i1", "i2").edge("i2", END).build().expect("the graph is right");
    let s = inner.mapped(|s: &Main| Inner::update().x(s.x), |_, s: &Inner| Main::update().x(s.x));
    let graph = Graph::<Main>::new("main").node("s", s).edge(START, "s").edge("s", END);
    let store = Told::default();
    let thread = Runner::new(graph.build().expect("the graph is right"), store.clone()).thread("t");
    assert_eq!(thread.run(Main::update().x(1)).await.expect("it runs").questions().len(), 1);
    thread.inside::<Inner>(["s"]).update(Inner::update().own(1_000), None).await.expect("it is edited");
    let question = thread.resume().await.expect("it runs").questions()[0].id;
    assert_eq!(thread.answer(question, 1).await.expect("it fits").done().expect("it ends").x, 1_002);
    is_in_the_page(&store);
}

#[tokio::test]
async fn durability_at_the_end_with_a_failure() {
    let note = |name: &'static str| move || async move { Ok(Main::update().push_log(name)) };
    let failed = Arc::new(AtomicBool::new(false));
    let c = move || {
        let fails = !failed.swap(true, Ordering::SeqCst);
        async move { if fails { Err(NodeError::new("no")) } else { Ok(Main::update().push_log("c")) } }
    };
    let graph = Graph::<Main>::new("main").node("a", note("a")).node("b", note("b")).node("c", c).node("z", note("z"));
    let graph = graph.edge(START, "a").edge("a", "b").edge("a", "c").edge("b", "z").edge("c", "z").edge("z", END);
    let store = Told::default();
    let runner = Runner::new(graph.build().expect("the graph is right"), store.clone());
    let thread = runner.thread("t").durability(Durability::Exit);
    thread.run(Main::update()).await.expect_err("c fails");
    thread.resume().await.expect("it runs").done().expect("it ends");
    is_in_the_page(&store);
}

#[tokio::test]
async fn durability_at_the_end_with_a_subgraph_that_asks() {
    let i1 = || async { Ok(Inner::update().own(9)) };
    let i2 = |s: View<Inner>, ctx: Context| async move {
        let more = ctx.ask("q", Ask::<u64>::new("q")).await?;
        Ok(Inner::update().x(s.own + more))
    };
    let inner = Graph::<Inner>::new("inner").node("i1", i1).node("i2", i2);
    let inner = inner.edge(START, "i1").edge("i1", "i2").edge("i2", END).build().expect("the graph is right");
    let s = inner.mapped(|s: &Main| Inner::update().x(s.x), |_, s: &Inner| Main::update().x(s.x));
    let graph = Graph::<Main>::new("main").node("s", s).edge(START, "s").edge("s", END);
    let store = Told::default();
    let runner = Runner::new(graph.build().expect("the graph is right"), store.clone());
    let thread = runner.thread("t").durability(Durability::Exit);
    let question = thread.run(Main::update().x(1)).await.expect("it runs").questions()[0].id;
    thread.answer(question, 1).await.expect("it fits").done().expect("it ends");
    is_in_the_page(&store);
}

/// The state of the next version.
mod next {
    use super::*;

    #[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
    #[state(version = 2)]
    pub(super) struct Main {
        y: u64,
        #[state(append)]
        log: Vec<String>,
    }
}

#[tokio::test]
async fn a_state_of_another_shape() {
    fn asks<S: StaticState>() -> GraphBuilder<S> {
        let ask = |ctx: Context| async move {
            ctx.ask("q", Ask::<u64>::new("q")).await?;
            Ok(Update::new().append("log", &["asked"]))
        };
        Graph::<S>::new("main").node("ask", ask).edge(START, "ask").edge("ask", END)
    }
    let store = Told::default();
    let graph = asks::<Main>().build().expect("the graph is right");
    let waits = Runner::new(graph, store.clone()).thread("t").run(Main::update().x(7)).await.expect("it runs");
    let renames = |values: &mut serde_json::Map<String, serde_json::Value>| {
        let x = values.remove("x").ok_or_else(|| NodeError::new("no x"))?;
        values.insert("y".to_owned(), x);
        Ok(())
    };
    let graph = asks::<next::Main>().upgrade(1, renames).build().expect("the graph is right");
    let thread = Runner::new(graph, store.clone()).thread("t");
    thread.answer(waits.questions()[0].id, 1).await.expect("it fits").done().expect("it ends");
    is_in_the_page(&store);
    let positions = thread.history().await.expect("the history").iter().map(|at| at.position.0).collect::<Vec<_>>();
    assert_eq!(positions, [10, 3, 2]);
}
