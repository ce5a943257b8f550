//! A field's merge rule can be a function of the user's, and keeps what the built-in rules keep.
//!
//! How it could break: an outcome that depends on which task finished first; a function that is called again when a log is read,
//! and says something else by then; an operand that gets lost, or stands beside an overwrite; a function that panics and takes the
//! process, the thread or finished work with it; a name in a store that is taken for a function of another name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ferrata::log::Record;
use ferrata::state::{Change, Field, MergeFunction, Op, Rule, Schema, StateError, Update, Values};
use ferrata::store::{MemoryStore, RedbStore};
use ferrata::{
    Approval, Durability, END, Error, Graph, GraphBuilder, NodeError, Outcome, Runner, START, State, StaticState, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

mod merges {
    /// The longer text; of two that are equally long the first.
    pub(crate) fn longer(old: String, new: String) -> String {
        if new.len() > old.len() { new } else { old }
    }
}

/// Shows the order of the operands, since it is no function that order does not matter to.
fn trail(old: String, by: u32) -> String {
    format!("{old}>{by}")
}

fn count(mut votes: BTreeMap<String, u64>, vote: &'static str) -> BTreeMap<String, u64> {
    *votes.entry(vote.to_owned()).or_default() += 1;
    votes
}

fn vote(votes: BTreeMap<String, u64>, vote: String) -> Result<BTreeMap<String, u64>, String> {
    match &*vote {
        "yes" => Ok(count(votes, "yes")),
        "no" => Ok(count(votes, "no")),
        other => Err(format!("{other} is no vote")),
    }
}

/// Panics at 13.
fn careful(old: u64, new: u64) -> u64 {
    assert_ne!(new, 13, "thirteen is out of the question");
    old + new
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Work {
    #[state(with = "merges::longer")]
    best: String,
    #[state(with = "trail", operand = "u32")]
    trail: String,
    #[state(with = "vote", operand = "String")]
    votes: BTreeMap<String, u64>,
    #[state(with = "Option::or")]
    first: Option<String>,
    #[state(with = "careful")]
    careful: u64,
    #[state(append)]
    log: Vec<String>,
}

fn graph(name: &str) -> GraphBuilder<Work> {
    Graph::<Work>::new(name)
}

/// A graph of nodes that run at once, each giving its update after letting others go first that many times.
fn parallel(nodes: &[(&'static str, usize, WorkUpdate)]) -> GraphBuilder<Work> {
    nodes.iter().fold(graph("parallel"), |graph, (name, turns, update)| {
        let (turns, update) = (*turns, update.clone());
        let node = move || {
            let update = update.clone();
            async move {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                Ok(update)
            }
        };
        graph.node(name, node).edge(START, name).edge(name, END)
    })
}

async fn end_of(graph: GraphBuilder<Work>) -> Result<Work, Error> {
    let runner = Runner::new(graph.build().expect("the graph is right"), MemoryStore::new());
    let outcome = runner.thread("t").run(Work::update()).await?;
    Ok((*outcome.done().expect("nothing asks")).clone())
}

#[tokio::test]
async fn operands_go_in_in_declared_order_whoever_is_first() {
    let orders = [[0, 5, 9], [9, 5, 0], [5, 0, 9], [0, 0, 0]];
    for [a, b, c] in orders {
        let work = end_of(parallel(&[
            ("z", a, Work::update().best("four").trail(1).votes("yes").first("z".to_owned())),
            ("m", b, Work::update().best("seven").trail(2).trail(3).votes("no").first("m".to_owned())),
            ("a", c, Work::update().best("eight").trail(4).votes("yes").first(None::<String>)),
        ]))
        .await
        .expect("it runs");
        let votes = BTreeMap::from([("yes".to_owned(), 2), ("no".to_owned(), 1)]);
        let expected = Work {
            best: "seven".to_owned(),
            trail: ">1>2>3>4".to_owned(),
            votes,
            first: Some("z".to_owned()),
            ..Work::default()
        };
        assert_eq!(work, expected, "turns {a} {b} {c}");
    }
}

#[tokio::test]
async fn input_and_later_steps_go_on_from_the_value() {
    let graph = graph("line")
        .node("a", || async { Ok(Work::update().trail(2)) })
        .node("b", |s: View<Work>| async move { Ok(Work::update().trail(3).push_log(s.trail.clone())) })
        .edge(START, "a")
        .edge("a", "b")
        .edge("b", END);
    let runner = Runner::new(graph.build().expect("the graph is right"), MemoryStore::new());
    let thread = runner.thread("t");
    let work = thread.run(Work::update().trail(1)).await.expect("it runs").done().expect("nothing asks");
    assert_eq!((&*work.trail, &*work.log), (">1>2>3", &[">1>2".to_owned()][..]));
    let work = thread.run(Work::update().set_trail("0")).await.expect("it runs").done().expect("nothing asks");
    assert_eq!((&*work.trail, &*work.log[1]), ("0>2>3", "0>2"));
    thread.update(Work::update().trail(9), Some("b")).await.expect("an edit");
    assert_eq!(thread.state().await.expect("the state").values.trail, "0>2>3>9");
}

#[tokio::test]
async fn an_overwrite_goes_before_every_operand() {
    for [a, b, c] in [[0, 5, 9], [9, 5, 0]] {
        let work = end_of(parallel(&[
            ("a", a, Work::update().trail(1).best("a very long text")),
            ("b", b, Work::update().set_trail("anew").best("short")),
            ("c", c, Work::update().trail(2)),
        ]))
        .await
        .expect("it runs");
        assert_eq!((&*work.trail, &*work.best), ("anew", "a very long text"));
    }
    let error = end_of(parallel(&[("a", 0, Work::update().set_trail("x")), ("b", 0, Work::update().set_trail("y"))])).await;
    assert_eq!(error.expect_err("two that overwrite").code(), "merge-conflict");
}

#[tokio::test]
async fn a_store_that_is_opened_again_has_the_outcome_and_not_the_function() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let schema = || {
        let add = |old: Option<u64>, new: u64| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            Some(old.unwrap_or_default() + new)
        };
        Schema::new("Sum", vec![Field::with("sum", MergeFunction::new("add", add))], json!({"type": "object"}))
    };
    let graph = || {
        GraphBuilder::<Values>::with_schema("sum", schema())
            .node("a", || async { Ok(Update::new().combine("sum", &20)) })
            .node("b", || async { Ok(Update::new().combine("sum", &3)) })
            .question("go_on", |_: &Values| Approval::ask("Go on?"))
            .node("c", || async { Ok(Update::new().combine("sum", &100)) })
            .edge(START, "a")
            .edge(START, "b")
            .join(["a", "b"], "go_on")
            .approved("go_on", "c")
            .rejected("go_on", END)
            .edge("c", END)
            .build()
            .expect("the graph is right")
    };
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    for durability in [Durability::Step, Durability::Exit] {
        let name = format!("{durability:?}");
        let runner = Runner::new(graph(), RedbStore::open(&path).expect("a store"));
        let outcome = runner.thread(&name).durability(durability).run(Update::new()).await.expect("it runs");
        let Outcome::Waiting(questions) = outcome else { panic!("it asks") };
        drop(runner);
        let before = CALLS.load(Ordering::Relaxed);
        let runner = Runner::new(graph(), RedbStore::open(&path).expect("the store"));
        let thread = runner.thread(&name);
        assert_eq!(thread.state().await.expect("the state").values.get("sum"), Some(&json!(23)));
        assert_eq!(CALLS.load(Ordering::Relaxed), before, "what is merged is not merged again");
        let outcome = thread.answer(questions[0].id, Approval::approve()).await.expect("it goes on");
        assert_eq!(outcome.done().expect("the end").get("sum"), Some(&json!(123)));
        let log = thread.log().await.expect("the log");
        let mut resolved = log.iter().filter_map(|entry| match &entry.record {
            Record::Stepped(stepped) => Some(stepped.resolved.clone()),
            _ => None,
        });
        let last = resolved.next_back().expect("a step");
        assert_eq!(last, [Change::new("sum", Op::Set(json!(123)))], "a reader without the function finds the outcome");
    }
}

#[tokio::test]
async fn operands_that_wait_in_a_store_are_merged_by_whoever_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let runner = |works: bool| {
        let items = |s: &Work| s.best.chars().rev().filter_map(|c| c.to_digit(10)).collect::<Vec<_>>();
        let each = move |item: u32| async move {
            if works || item != 5 { Ok(Work::update().trail(item)) } else { Err(NodeError::new("not today")) }
        };
        let graph = graph("digits").node("each", each).fan_out(START, "each", items).edge("each", END);
        Runner::new(graph.build().expect("the graph is right"), RedbStore::open(&path).expect("a store"))
    };
    runner(false).thread("t").run(Work::update().best("97531")).await.expect_err("one of them fails");
    let state = runner(false).thread("t").state().await.expect("the state");
    assert_eq!(state.values.trail, ">1>3>7>9", "what is pending, in the order of the sends");
    let outcome = runner(true).thread("t").resume().await.expect("it goes on");
    assert_eq!(outcome.done().expect("the end").trail, ">1>3>5>7>9");
}

#[tokio::test]
async fn a_function_that_panics_fails_the_step_and_nothing_else() {
    let lucky = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let given = Arc::clone(&lucky);
    let add = move |old: Option<u64>, new: u64| {
        assert!(given.load(Ordering::Relaxed) || new != 13, "thirteen is out of the question");
        Some(old.unwrap_or_default() + new)
    };
    let field = Field::with("sum", MergeFunction::new("add", add)).initial(json!(1));
    let schema = Schema::new("Sum", vec![field, Field::new("x", Rule::Replace)], json!({"type": "object"}));
    let counted = Arc::clone(&calls);
    let graph = GraphBuilder::<Values>::with_schema("sum", schema)
        .node("a", move |s: View<Values>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move { Ok(Update::new().combine("sum", s.get("x").expect("the input"))) }
        })
        .node("b", || async { Ok(Update::new().combine("sum", &2)) })
        .edge(START, "a")
        .edge(START, "b")
        .edge("a", END)
        .edge("b", END)
        .build()
        .expect("the graph is right");
    let runner = Runner::new(graph, MemoryStore::new());
    let thread = runner.thread("t");
    let error = thread.run(Update::new().set("x", &13)).await.expect_err("it panics");
    let text = error.to_string();
    assert_eq!(error.code(), "merge-function", "{text}");
    assert!(text.contains("step 1 cannot be merged: function `add` of field `sum` panicked: "), "{text}");
    assert!(text.contains("thirteen is out of the question"), "{text}");
    let state = thread.state().await.expect("the state");
    assert_eq!(state.values.get("sum"), Some(&json!(1)), "nothing of the step was merged");
    assert_eq!(thread.resume().await.expect_err("the function is the same").code(), "merge-function");
    // Another input in its place.
    let outcome = thread.clone().supersede().run(Update::new().set("x", &4)).await.expect("it runs");
    assert_eq!(outcome.done().expect("the end").get("sum"), Some(&json!(7)));
    // Once the function is mended, what the tasks gave is merged, and they do not run again.
    thread.run(Update::new().set("x", &13)).await.expect_err("it panics");
    let before = calls.load(Ordering::Relaxed);
    lucky.store(true, Ordering::Relaxed);
    let outcome = thread.resume().await.expect("it is mended");
    assert_eq!(outcome.done().expect("the end").get("sum"), Some(&json!(22)));
    assert_eq!(calls.load(Ordering::Relaxed), before);
}

#[tokio::test]
async fn an_input_that_a_function_cannot_take_is_refused_and_not_stored() {
    let graph = parallel(&[("a", 0, Work::update().careful(1))]).build().expect("the graph is right");
    let runner = Runner::new(graph, MemoryStore::new());
    let raw = |field: &'static str, operand: Value| WorkUpdate::from(Update::new().combine(field, &operand));
    let cases = [
        (Work::update().careful(13), "function `careful` of field `careful` panicked"),
        (Work::update().votes("maybe"), "function `vote` of field `votes` failed: maybe is no vote"),
        (raw("trail", json!("x")), "function `trail` of field `trail` cannot take the operand: invalid type: string \"x\""),
        (raw("best", json!(7)), "function `merges::longer` of field `best` cannot take the operand"),
        (WorkUpdate::from(Update::new().set("best", "x")), "`set` does not fit field `best`"),
    ];
    for (update, text) in cases {
        let error = runner.thread("t").run(update).await.expect_err("it is refused");
        assert_eq!(error.code(), "input", "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(runner.thread("t").state().await.expect_err("nothing was stored").is_unknown_thread());
    let outcome = runner.thread("t").run(Work::update().careful(12)).await.expect("a good input");
    assert_eq!(outcome.done().expect("the end").careful, 13);
}

#[tokio::test]
async fn a_node_that_hands_over_a_wrong_operand_fails_alone() {
    let graph = graph("wrong")
        .node("a", || async { Ok(Update::new().combine("trail", "left")) })
        .node("b", || async { Ok(Work::update().trail(2)) })
        .edge(START, "a")
        .edge(START, "b")
        .edge("a", END)
        .edge("b", END);
    let runner = Runner::new(graph.build().expect("the graph is right"), MemoryStore::new());
    let error = runner.thread("t").run(Work::update()).await.expect_err("no number");
    let (node, failure) = error.node_failure().expect("a node failed");
    assert_eq!(node.as_str(), "a");
    assert!(failure.message.contains("function `trail` of field `trail` cannot take the operand"), "{failure}");
    let state = runner.thread("t").state().await.expect("the state");
    assert_eq!(state.values.trail, ">2", "what the other node did is kept");
}

#[tokio::test]
async fn a_function_of_another_name_is_another_shape() {
    let schema = |name: &'static str| {
        Schema::new("S", vec![Field::with("x", MergeFunction::new(name, u64::max))], json!({"type": "object"}))
    };
    assert_eq!(schema("max"), schema("max"));
    assert_ne!(schema("max"), schema("largest"));
    assert_ne!(schema("max").fingerprint(), schema("largest").fingerprint());
    let field = Work::schema().field("best").expect("the field").rule.clone();
    assert_eq!(serde_json::to_value(&field).expect("it is stored"), json!({"function": "merges::longer"}));
    assert_eq!(field.to_string(), "function merges::longer");
}

#[tokio::test]
async fn a_schema_that_was_read_gets_its_functions_back() {
    let max = || MergeFunction::new("max", |old: Option<u64>, new: u64| old.max(Some(new)));
    let schema = Schema::new("S", vec![Field::with("x", max())], json!({"type": "object"}));
    let stored = serde_json::to_string(&schema).expect("it is stored");
    let read = || serde_json::from_str::<Schema>(&stored).expect("it is read");
    let build = |schema| {
        let graph = GraphBuilder::<Values>::with_schema("s", schema);
        graph.node("a", || async { Ok(Update::new().combine("x", &3)) }).edge(START, "a").edge("a", END).build()
    };
    let error = build(read()).expect_err("the function is missing");
    assert_eq!(error.mistakes().iter().map(ferrata::Mistake::code).collect::<Vec<_>>(), ["missing-function"]);
    let text = "field \"x\" is merged by \"max\", of which the schema has only the name; give the function back with";
    assert!(error.to_string().contains(text), "{error}");
    let runner = Runner::new(build(read().with_function(max())).expect("it is complete"), MemoryStore::new());
    let outcome = runner.thread("t").run(Update::new().combine("x", &2)).await.expect("it runs");
    assert_eq!(outcome.done().expect("the end").get("x"), Some(&json!(3)));
}

#[test]
fn a_misfit_in_one_update_is_told_with_its_field() {
    let mut work = Work::default();
    let error = work.apply(&Change::new("best", Op::Combine(json!("x")))).expect_err("it has to be resolved first");
    assert!(matches!(error, StateError::Misfit { ref field, .. } if field == "best"), "{error}");
}
