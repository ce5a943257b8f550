//! What people have met with values in stores: numbers that JSON does not have, and deep ones.
//!
//! How it could break: a value that is saved and never read again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ferrata::state::{Change, Op, Update};
use ferrata::store::{RedbStore, ThreadStatus};
use ferrata::{Context, END, Graph, Outcome, Runner, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Tree {
    inner: Option<Box<Tree>>,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Reading {
    score: f64,
    #[state(append)]
    scores: Vec<f64>,
    table: BTreeMap<String, Vec<f32>>,
    tree: Tree,
    any: Value,
}

fn trees(levels: usize) -> Tree {
    (0..levels).fold(Tree::default(), |inner, _| Tree { inner: Some(Box::new(inner)) })
}

fn lists(levels: usize) -> Value {
    (0..levels).fold(json!("the bottom"), |inner, _| Value::Array(vec![inner]))
}

type Writes = Box<dyn Fn() -> ReadingUpdate + Send + Sync>;

/// A graph of one node that does what it is told.
fn reading<F, R>(path: &Path, node: F) -> Runner<Reading>
where
    F: Fn(View<Reading>, Context) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ferrata::Result<ReadingUpdate>> + Send + 'static,
{
    let graph = Graph::<Reading>::new("reading").node("read", node).edge(START, "read").edge("read", END);
    Runner::new(graph.build().expect("the graph is right"), RedbStore::open(path).expect("a store"))
}

/// What the input and the node write, one after the other.
async fn written(path: &Path, input: ReadingUpdate, node: ReadingUpdate) -> Result<Outcome<Reading>, ferrata::Error> {
    let changes = Update::from(node).into_changes().expect("they are checked when they are written");
    let node = move |_: View<Reading>, _: Context| {
        let changes = changes.clone();
        async move { Ok(Update::from_changes(changes)) }
    };
    let graph = Graph::<Reading>::new("reading").node("read", node).edge(START, "read").edge("read", END);
    let runner = Runner::new(graph.build().expect("the graph is right"), RedbStore::open(path).expect("a store"));
    runner.thread("t").run(input).await
}

#[tokio::test]
async fn f11_numbers_that_json_does_not_have() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        #[allow(clippy::cast_possible_truncation, reason = "these three have no digits")]
        let table = move || BTreeMap::from([("k".to_owned(), vec![0.5, number as f32])]);
        let places: [(&str, Writes); 3] = [
            ("`score`", Box::new(move || Reading::update().score(number))),
            ("`scores[2]`", Box::new(move || Reading::update().scores(vec![0.5, 1.0, number]))),
            ("`table.k[1]`", Box::new(move || Reading::update().table(table()))),
        ];
        for (place, update) in places {
            let update = Arc::new(update);
            let in_node = Arc::clone(&update);
            let runner = reading(&path, move |s: View<Reading>, ctx: Context| {
                let in_node = Arc::clone(&in_node);
                async move {
                    match s.any.as_str() {
                        Some("node") => Ok(in_node()),
                        Some("effect") => {
                            let measured: f64 = ctx.effect("measure", |_| async move { Ok(number) }).repeatable().await?;
                            Ok(Reading::update().score(measured))
                        }
                        _ => Ok(Reading::update().score(1.5)),
                    }
                }
            });
            let error = runner.thread("input").run(update()).await.expect_err("not finite");
            assert!(error.code() == "value" && error.to_string().contains(place), "{error:?}");
            assert!(runner.thread("input").state().await.expect_err("nothing was stored").is_unknown_thread());
            for by in ["node", "effect"] {
                let thread = runner.thread(by).supersede();
                let error = thread.run(Reading::update().any(json!(by))).await.expect_err("not finite").to_string();
                let place = if by == "node" { place } else { "no finite number" };
                assert!(error.contains("\"read\"") && error.contains(place) && error.contains("no finite number"), "{error}");
                let state = thread.state().await.expect("it is readable");
                assert_eq!((state.status, state.values.score, state.values.scores.len()), (ThreadStatus::Failed, 0.0, 0));
            }
            drop(runner);
        }
    }
    // What JSON has is read back to the last bit, by another process.
    let numbers = [0.1 + 0.2, f64::MAX, f64::MIN_POSITIVE, 5e-324, -0.0, 1.0 / 3.0, 19.95];
    let (input, output) = (Reading::update().scores(numbers.to_vec()), Reading::update().scores(numbers.to_vec()));
    written(&path, input, output).await.expect("it runs").done().expect("it ends");
    let runner = reading(&path, |_: View<Reading>, _: Context| async { Ok(Reading::update()) });
    let state = runner.thread("t").state().await.expect("a state");
    let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&state.values.scores), bits(&[numbers, numbers].concat()));
}

#[tokio::test]
async fn f12_deep_values() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    for levels in [200, 5_000] {
        for deep in [Reading::update().any(lists(levels)), Reading::update().tree(trees(levels))] {
            let error = Update::from(deep).into_changes().expect_err("too deep").to_string();
            assert!(error.contains("nested deeper than 100 levels"), "{error}");
        }
        // Also past the types, as a tool might hand it in.
        let raw = move || Update::from_changes(vec![Change::new("any", Op::Set(lists(levels)))]);
        let runner = reading(&path, move |s: View<Reading>, ctx: Context| async move {
            match s.any.as_str() {
                Some("effect") => {
                    let found: Value = ctx.effect("search", |_| async move { Ok(lists(levels)) }).repeatable().await?;
                    Ok(Reading::update().any(found))
                }
                Some("node") => Ok(Reading::update().any(lists(levels))),
                _ => Ok(Reading::update()),
            }
        });
        let thread = runner.thread("input");
        let error = thread.run(raw()).await.expect_err("too deep");
        assert!(error.code() == "value" && error.to_string().contains("`any`"), "{error:?}");
        assert!(thread.state().await.expect_err("nothing was stored").is_unknown_thread());
        for by in ["node", "effect"] {
            let thread = runner.thread(by).supersede();
            let error = thread.run(Reading::update().any(json!(by))).await.expect_err("too deep").to_string();
            assert!(error.contains("\"read\"") && error.contains("nested deeper than 100 levels"), "{error}");
            assert_eq!(thread.state().await.expect("it is readable").values.any, json!(by));
        }
        drop(runner);
    }
    // The deepest that is saved is read back, by another process.
    let deepest = || Reading::update().any(lists(100)).tree(trees(99));
    written(&path, deepest(), Reading::update().any(lists(99))).await.expect("it runs").done().expect("it ends");
    let runner = reading(&path, |_: View<Reading>, _: Context| async { Ok(Reading::update()) });
    let history = runner.thread("t").history().await.expect("the history");
    assert_eq!((&history[0].values.any, &history[0].values.tree), (&lists(99), &trees(99)));
    assert_eq!(history[1].values.any, lists(100));
}
