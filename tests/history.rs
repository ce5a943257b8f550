//! Back in time: history, forks, replays and edits, without anything older being removed.
//!
//! How it could break: a fork that changes the line it came from; an answer or an effect of the old line that is taken for one of the new;
//! an edit that leaves a dropped task's result behind; a fork that cannot be opened again by another process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrata::log::Source;
use ferrata::state::Op;
use ferrata::store::{MemoryStore, RedbStore, Store};
use ferrata::{Answer, Approval, Checkpoint, Context, END, Graph, Outcome, Position, Runner, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Trail {
    x: u64,
    #[state(append)]
    log: Vec<String>,
}

fn two(store: impl Store) -> Runner<Trail> {
    let a = |_: View<Trail>| async move { Ok(Trail::update().push_log("a")) };
    let b = |s: View<Trail>| async move { Ok(Trail::update().push_log(format!("b x={}", s.x))) };
    let graph = Graph::<Trail>::new("trail").node("a", a).node("b", b).edge(START, "a").edge("a", "b").edge("b", END);
    Runner::new(graph.build().expect("the graph is right"), store)
}

fn before(history: &[Checkpoint<Trail>], node: &str, source: Source) -> Position {
    let found = history.iter().find(|c| c.source == source && c.next.iter().any(|n| n.as_str() == node));
    found.expect("there is such a checkpoint").position
}

#[tokio::test]
async fn two_forks_from_one_checkpoint_are_two_lines_and_the_thread_goes_on_in_the_newer() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || two(RedbStore::open(dir.path().join("s.redb")).expect("a store"));
    open().thread("t").run(Trail::update().x(0)).await.expect("it runs").done().expect("it ends");
    for x in [1, 2] {
        // Each time another process: what was forked is read back.
        let runner = open();
        let at = before(&runner.thread("t").history().await.expect("the history"), "b", Source::Loop);
        runner.thread("t").at(at).update(Trail::update().x(x), None).await.expect("it is edited");
        let runner = {
            drop(runner);
            open()
        };
        let state = runner.thread("t").resume().await.expect("it goes on").done().expect("it ends");
        assert_eq!((state.x, state.log.as_slice()), (x, ["a".to_owned(), format!("b x={x}")].as_slice()));
    }
    let runner = open();
    let history = runner.thread("t").history().await.expect("the history");
    let told: Vec<(i64, u32, Source, u64, usize)> =
        history.iter().map(|c| (c.step.0, c.branch.0, c.source, c.values.x, c.values.log.len())).collect();
    use Source::{Input, Loop, Update};
    let expected = [
        (3, 2, Loop, 2, 2),
        (2, 2, Update, 2, 1),
        (3, 1, Loop, 1, 2),
        (2, 1, Update, 1, 1),
        (2, 0, Loop, 0, 2),
        (1, 0, Loop, 0, 1),
        (0, 0, Loop, 0, 0),
        (-1, 0, Input, 0, 0),
    ];
    assert_eq!(told, expected, "as src/docs/format.md tells it");
    for checkpoint in &history {
        let there = runner.thread("t").at(checkpoint.position).state().await.expect("every step of every line can be read");
        assert_eq!(*there.values, *checkpoint.values);
    }
    let error = runner.thread("t").at(Position(1)).state().await.expect_err("a record, but no checkpoint");
    assert_eq!(error.code(), "no-checkpoint");
}

#[tokio::test]
async fn a_replay_from_before_a_question_asks_again_and_performs_effects_under_new_keys() {
    let keys: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&keys);
    let pay = move |ctx: Context| {
        let kept = Arc::clone(&kept);
        async move {
            let pay = |key: String| async move {
                kept.lock().expect("not poisoned").push(key);
                Ok(())
            };
            ctx.effect("pay", pay).await?;
            Ok(Trail::update().push_log("paid"))
        }
    };
    let graph = Graph::<Trail>::new("pay")
        .question("approve", |_: &Trail| Approval::ask("Pay?"))
        .node("pay", pay)
        .edge(START, "approve")
        .approved("approve", "pay")
        .rejected("approve", END)
        .edge("pay", END);
    let runner = Runner::new(graph.build().expect("the graph is right"), MemoryStore::new());
    let thread = runner.thread("t");
    let first = thread.run(Trail::update()).await.expect("it runs").questions()[0].id;
    thread.answer(first, Approval::approve()).await.expect("it fits").done().expect("it ends");
    let old = thread.log().await.expect("the log");
    let at = before(&thread.history().await.expect("the history"), "approve", Source::Loop);
    let outcome = thread.clone().at(at).resume().await.expect("it runs again");
    let second = outcome.questions()[0].id;
    assert_ne!(first, second, "the question is asked again, and the old answer is not used");
    let state = thread.answer(second, Approval::approve()).await.expect("it fits").done().expect("it ends");
    assert_eq!(state.log, ["paid"], "the state is that of the chosen time");
    let keys = keys.lock().expect("not poisoned").clone();
    assert!(keys.len() == 2 && keys[0] != keys[1], "{keys:?}");
    let log = thread.log().await.expect("the log");
    assert_eq!(log[..old.len()], old, "the first line stays as it was");
}

#[tokio::test]
async fn an_edit_stands_for_a_node_and_drops_what_was_due() {
    let runner = two(MemoryStore::new());
    let thread = runner.thread("t");
    assert!(matches!(thread.clone().pause_before(["b"]).run(Trail::update().x(7)).await, Ok(Outcome::Suspended(_))));
    // As the node that ran last, which leads to b.
    thread.update(Trail::update().push_log("by hand"), None).await.expect("it is edited");
    let state = thread.state().await.expect("it is readable");
    assert_eq!((state.values.log.as_slice(), state.next[0].as_str()), (["a".to_owned(), "by hand".to_owned()].as_slice(), "b"));
    // As b, which leads to the end.
    thread.update(Trail::update().push_log("instead of b"), Some("b")).await.expect("it is edited");
    let end = thread.resume().await.expect("nothing is due").done().expect("it ends");
    assert_eq!(end.log, ["a", "by hand", "instead of b"]);
    let error = thread.update(Trail::update(), Some("c")).await.expect_err("no such node");
    assert!(error.code() == "edit-node" && error.to_string().contains("can stand for: a, b"), "{error}");
    let wrong = ferrata::state::Update::from_changes(vec![ferrata::state::Change::new("y", Op::Set(1.into()))]);
    assert_eq!(thread.update(wrong, None).await.expect_err("no such field").code(), "edit-changes");
}

#[tokio::test]
async fn nothing_takes_the_place_of_an_effect_that_may_have_happened() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let pay = move |ctx: Context| {
        let count = Arc::clone(&count);
        async move {
            let pay = |_| async move {
                count.fetch_add(1, Ordering::SeqCst);
                Err::<(), _>(ferrata::NodeError::new("the line is dead"))
            };
            ctx.effect("pay", pay).await?;
            Ok(Trail::update().push_log("paid"))
        }
    };
    let graph = Graph::<Trail>::new("pay").node("pay", pay).edge(START, "pay").edge("pay", END);
    let runner = Runner::new(graph.build().expect("the graph is right"), MemoryStore::new());
    let thread = runner.thread("t");
    let question = thread.run(Trail::update()).await.expect("it runs").questions()[0].id;
    let records = thread.log().await.expect("the log").len();
    for error in [
        thread.clone().supersede().run(Trail::update()).await.expect_err("in doubt"),
        thread.update(Trail::update(), Some("pay")).await.expect_err("in doubt"),
    ] {
        assert_eq!(error.code(), "in-doubt");
        assert!(error.to_string().contains("pay") && error.to_string().contains(&question.to_string()), "{error}");
    }
    assert_eq!((thread.log().await.expect("the log").len(), calls.load(Ordering::SeqCst)), (records, 1));
    thread.answer(question, Answer::performed(serde_json::Value::Null)).await.expect("it is settled").done().expect("it ends");
}
