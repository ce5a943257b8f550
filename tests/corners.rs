//! Corners that a review found: cut off in the middle, told from the side, nested too deep, null where nobody expects it.
//!
//! Each of these once lost or repeated something, hung, or left a thread that could not be read.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata::log::{Record, Source};
use ferrata::state::{Change, Op, Update};
use ferrata::store::RedbStore;
use ferrata::{Ask, Context, Durability, END, Graph, IntoNode, NodeError, Outcome, Runner, START, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Work {
    n: u64,
    #[state(sum)]
    small: u8,
    #[state(append)]
    log: Vec<String>,
}

/// Runs `thread.run` in a runtime that is dropped once `until` holds of the log.
fn cut(runner: Runner<Work>, go: impl AsyncFnOnce(Runner<Work>) + Send + 'static, until: fn(&[ferrata::log::Entry]) -> bool) {
    std::thread::spawn(move || {
        let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        rt.block_on(local.run_until(async {
            let r2 = runner.clone();
            tokio::task::spawn_local(async move { go(r2).await });
            loop {
                if until(&runner.thread("t").log().await.unwrap()) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }));
    })
    .join()
    .unwrap();
}

fn started(l: &[ferrata::log::Entry]) -> bool {
    l.iter().any(|e| matches!(e.record, Record::EffectStarted(_)))
}

/// first -> pay (effect hangs the first time, inside perform or after it)
fn pay_runner(dir: &std::path::Path, count: &Arc<AtomicUsize>, hang_inside: bool) -> Runner<Work> {
    let c = Arc::clone(count);
    let first = || async { Ok(Work::update().push_log("first")) };
    let pay = move |ctx: Context| {
        let c = Arc::clone(&c);
        async move {
            let c2 = Arc::clone(&c);
            let before = c.load(Ordering::SeqCst);
            ctx.effect("pay", |_| async move {
                let n = c2.fetch_add(1, Ordering::SeqCst);
                if n == 0 && hang_inside {
                    std::future::pending::<()>().await
                }
                Ok(n)
            })
            .await?;
            // In the attempt that performed it; whoever finds it in the log goes on.
            if !hang_inside && before == 0 && c.load(Ordering::SeqCst) == 1 {
                std::future::pending::<()>().await
            }
            Ok(Work::update().push_log("pay"))
        }
    };
    let g =
        Graph::<Work>::new("w").node("first", first).node("pay", pay).edge(START, "first").edge("first", "pay").edge("pay", END);
    Runner::new(g.build().unwrap(), RedbStore::open(dir.join("s.redb")).unwrap())
}

#[tokio::test]
async fn an_effect_of_a_step_that_was_never_stored_is_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let n = Arc::new(AtomicUsize::new(0));
    cut(
        pay_runner(dir.path(), &n, true),
        async |r| {
            _ = r.thread("t").durability(Durability::Exit).run(Work::update().n(1)).await;
        },
        started,
    );
    let out = pay_runner(dir.path(), &n, true).thread("t").resume().await.unwrap();
    assert!(matches!(out, Outcome::Waiting(_)), "performed {} times, outcome {out:?}", n.load(Ordering::SeqCst));
}

#[tokio::test]
async fn an_input_whose_steps_were_lost_is_unfinished_work() {
    let dir = tempfile::tempdir().unwrap();
    let n = Arc::new(AtomicUsize::new(0));
    cut(
        pay_runner(dir.path(), &n, true),
        async |r| {
            _ = r.thread("t").durability(Durability::Exit).run(Work::update().n(1).push_log("A")).await;
        },
        started,
    );
    let out = pay_runner(dir.path(), &n, true).thread("t").run(Work::update().push_log("B")).await;
    assert!(out.is_err(), "{out:?}");
}

#[tokio::test]
async fn a_replay_that_is_stored_at_its_end_finds_its_effects_again() {
    let dir = tempfile::tempdir().unwrap();
    let n = Arc::new(AtomicUsize::new(10)); // no hang
    let r = pay_runner(dir.path(), &n, true);
    r.thread("t").run(Work::update().n(1)).await.unwrap().done().unwrap();
    let h = r.thread("t").history().await.unwrap();
    let at = h.iter().find(|c| c.next.iter().any(|n| n.as_str() == "pay")).unwrap().position;
    drop(r);
    n.store(0, Ordering::SeqCst);
    // hangs after the effect is recorded
    cut(
        pay_runner(dir.path(), &n, false),
        async move |r| {
            _ = r.thread("t").at(at).durability(Durability::Exit).resume().await;
        },
        |l| l.iter().filter(|e| matches!(e.record, Record::EffectDone(_))).count() == 2,
    );
    let out = pay_runner(dir.path(), &n, true).thread("t").resume().await;
    assert_eq!(n.load(Ordering::SeqCst), 1, "{out:?}");
}

#[tokio::test]
async fn an_edit_is_stored_at_once_in_every_durability() {
    for d in [Durability::Exit, Durability::Behind] {
        let dir = tempfile::tempdir().unwrap();
        let n = Arc::new(AtomicUsize::new(10));
        let r = pay_runner(dir.path(), &n, true);
        r.thread("t").run(Work::update().n(1)).await.unwrap().done().unwrap();
        r.thread("t").durability(d).update(Work::update().n(7), Some("pay")).await.unwrap();
        assert_eq!(r.thread("t").state().await.unwrap().values.n, 7, "{d:?}");
    }
}

#[tokio::test]
async fn a_step_whose_conditional_edge_failed_is_applied_once() {
    let dir = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicUsize::new(1));
    let f = Arc::clone(&fails);
    let a = || async { Ok(Work::update().push_log("a")) };
    let g = Graph::<Work>::new("w")
        .node("a", a)
        .node("z", || async { Ok(Work::update().push_log("z")) })
        .edge(START, "a")
        .route_to("a", ["z"], move |_: &Work| {
            if f.swap(0, Ordering::SeqCst) == 1 {
                panic!("x")
            }
            "z"
        })
        .edge("z", END);
    let r = Runner::new(g.build().unwrap(), RedbStore::open(dir.path().join("s.redb")).unwrap());
    r.thread("t").durability(Durability::Exit).run(Work::update().n(1)).await.unwrap_err();
    let s = r.thread("t").resume().await.unwrap().done().unwrap();
    assert_eq!(s.log.join(" "), "a z");
}

#[tokio::test]
async fn an_edit_of_an_input_checkpoint_is_the_same_live_and_folded() {
    let dir = tempfile::tempdir().unwrap();
    let n = Arc::new(AtomicUsize::new(10));
    let r = pay_runner(dir.path(), &n, true);
    r.thread("t").run(Work::update().n(1).push_log("in")).await.unwrap().done().unwrap();
    let h = r.thread("t").history().await.unwrap();
    let at = h.iter().find(|c| c.source == Source::Input).unwrap().position;
    r.thread("t").at(at).update(Work::update().push_log("edit"), Some("first")).await.unwrap();
    let s = r.thread("t").state().await.unwrap();
    let h = r.thread("t").history().await.unwrap();
    assert_eq!((s.values.n, s.values.log.clone()), (h[0].values.n, h[0].values.log.clone()), "status {:?}", s.status);
}

#[tokio::test]
async fn a_null_is_a_payload_too() {
    let dir = tempfile::tempdir().unwrap();
    let g = Graph::<Work>::new("w")
        .node("each", |p: Option<u32>| async move { Ok(Work::update().push_log(format!("{p:?}"))) })
        .fan_out(START, "each", |_: &Work| vec![Some(1_u32), None])
        .edge("each", END);
    let r = Runner::new(g.build().unwrap(), RedbStore::open(dir.path().join("s.redb")).unwrap());
    let s = r.thread("t").run(Work::update().n(1)).await.unwrap().done().unwrap();
    let back = r.thread("t").state().await;
    assert!(back.is_ok(), "live {:?}, back {:?}", s.log, back.err());
}

/// Lets whatever else there is to do go first.
async fn others_first() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// A node that waits for a task of its own, which asks or performs from the side. The run has to end with a question.
async fn told_from_the_side<F>(tell: fn(Context) -> F) -> Vec<Arc<ferrata::Question>>
where
    F: Future<Output = ferrata::Result<u64>> + Send + 'static,
{
    let node = move |ctx: Context| async move {
        let side = tokio::spawn(async move {
            others_first().await;
            tell(ctx).await
        });
        Ok(Work::update().n(side.await??))
    };
    let graph = Graph::<Work>::new("w").node("a", node).edge(START, "a").edge("a", END).build().unwrap();
    let runner = Runner::new(graph, ferrata::store::MemoryStore::new());
    let thread = runner.thread("t");
    let run = tokio::time::timeout(Duration::from_secs(60), thread.run(Work::update()));
    run.await.expect("the run hangs").unwrap().questions().to_vec()
}

#[tokio::test]
async fn a_question_from_a_task_that_the_node_spawned_ends_the_attempt() {
    let questions = told_from_the_side(|ctx| async move { ctx.ask("k", Ask::<u64>::new("n?")).await }).await;
    assert_eq!(questions[0].text, "n?");
}

#[tokio::test]
async fn a_doubt_from_a_task_that_the_node_spawned_ends_the_attempt() {
    let lost = |ctx: Context| async move { ctx.effect("k", |_| async { Err::<u64, _>(NodeError::new("no word")) }).await };
    assert!(told_from_the_side(lost).await[0].is_doubt());
}

#[tokio::test]
async fn an_outcome_that_the_field_cannot_hold_is_a_refused_merge() {
    let dir = tempfile::tempdir().unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let c = Arc::clone(&runs);
    let slow = move || {
        let c = Arc::clone(&c);
        async move {
            c.fetch_add(1, Ordering::SeqCst);
            others_first().await;
            Ok(Work::update().small(200))
        }
    };
    let g = Graph::<Work>::new("w")
        .node("a", || async { Ok(Work::update().small(200)) })
        .node("b", slow)
        .edge(START, "a")
        .edge(START, "b")
        .edge("a", END)
        .edge("b", END);
    let r = Runner::new(g.build().unwrap(), RedbStore::open(dir.path().join("s.redb")).unwrap());
    let e1 = r.thread("t").run(Work::update().n(1)).await.unwrap_err();
    let e2 = r.thread("t").resume().await.unwrap_err();
    assert_eq!(
        (e1.code(), e2.code(), runs.load(Ordering::SeqCst)),
        ("merge-conflict", "merge-conflict", 1),
        "{e1} / {:?}",
        r.thread("t").state().await.map(|s| s.status)
    );
}

#[tokio::test]
async fn a_raw_update_of_the_wrong_type_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let g = Graph::<Work>::new("w").node("a", || async { Ok(Update::new().set("n", "text")) }).edge(START, "a").edge("a", END);
    let r = Runner::new(g.build().unwrap(), RedbStore::open(dir.path().join("s.redb")).unwrap());
    let e1 = r.thread("t").run(Work::update().n(1)).await.unwrap_err();
    let e2 = r.thread("u").run(Update::new().set("n", "text")).await.unwrap_err();
    assert_eq!((e1.code(), e2.code()), ("merge-conflict", "input"), "{e1} // {e2}");
    assert!(r.thread("u").state().await.unwrap_err().is_unknown_thread(), "nothing was stored");
}

#[tokio::test]
async fn an_answer_nested_too_deep_is_refused_and_nothing_breaks() {
    let dir = tempfile::tempdir().unwrap();
    let g = Graph::<Work>::new("w")
        .node("a", |ctx: Context| async move {
            let v: serde_json::Value = ctx.ask("k", Ask::<serde_json::Value>::new("n?")).await?;
            Ok(Work::update().push_log(format!("{}", v.is_array())))
        })
        .edge(START, "a")
        .edge("a", END);
    let r = Runner::new(g.build().unwrap(), RedbStore::open(dir.path().join("s.redb")).unwrap());
    let Outcome::Waiting(q) = r.thread("t").run(Work::update().n(1)).await.unwrap() else { panic!() };
    let nested = |levels| (0..levels).fold(serde_json::json!(1), |value, _| serde_json::Value::Array(vec![value]));
    let error = r.thread("t").answer(q[0].id, ferrata::Answer::new(nested(1_100))).await.unwrap_err();
    assert_eq!(error.code(), "answer-misfit", "{error}");
    let deep = Update::from_changes(vec![Change::new("log", Op::Append(nested(200)))]);
    assert_eq!(r.thread("u").run(deep).await.unwrap_err().code(), "value");
    let state = r.thread("t").answer(q[0].id, ferrata::Answer::new(nested(90))).await.unwrap().done().unwrap();
    assert_eq!(state.log, ["true"]);
}

#[tokio::test]
async fn a_doubt_can_be_answered_before_the_thread_is_resumed() {
    // a -> (mail in doubt at once, slow); killed while slow runs
    let dir = tempfile::tempdir().unwrap();
    let make = |hang: bool| {
        let a = || async { Ok(Work::update().push_log("a")) };
        let mail = |ctx: Context| async move {
            ctx.effect("mail", |_| async { Err::<u64, _>(NodeError::new("?")) }).await?;
            Ok(Work::update().push_log("mail"))
        };
        let slow = move || async move {
            if hang {
                std::future::pending::<()>().await
            }
            Ok(Work::update().push_log("slow"))
        };
        let g = Graph::<Work>::new("w")
            .node("a", a)
            .node("mail", mail)
            .node("slow", slow)
            .edge(START, "a")
            .edge("a", "mail")
            .edge("a", "slow")
            .edge("mail", END)
            .edge("slow", END);
        Runner::new(g.build().unwrap(), RedbStore::open(dir.path().join("s.redb")).unwrap())
    };
    cut(
        make(true),
        async |r| {
            _ = r.thread("t").durability(Durability::Exit).run(Work::update().n(1)).await;
        },
        |l| l.iter().any(|e| matches!(e.record, Record::Asked(_))),
    );
    let r = make(false);
    let q = r.thread("t").questions().await.unwrap();
    let s = r.thread("t").answer(q[0].id, ferrata::Answer::performed(5)).await.unwrap().done().unwrap();
    assert_eq!((s.n, s.log.len()), (1, 3), "{s:?}");
}

#[tokio::test]
async fn a_join_behind_an_error_handler_is_refused() {
    let bad =
        (|| async { Err::<WorkUpdate, _>(NodeError::new("x")) }).on_error(|| async { Ok(Work::update().push_log("handled")) });
    let g = Graph::<Work>::new("w")
        .node("a", || async { Ok(Work::update().push_log("a")) })
        .node("b", bad)
        .node("z", || async { Ok(Work::update().push_log("z")) })
        .edge(START, "a")
        .edge(START, "b")
        .join(["a", "b"], "z")
        .edge("z", END);
    let error = g.build().unwrap_err().to_string();
    assert!(error.contains("\"b\" has an error handler, which takes the place of its edges"), "{error}");
}

#[tokio::test]
async fn an_input_that_is_not_listed_is_no_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let n = Arc::new(AtomicUsize::new(10));
    let r = pay_runner(dir.path(), &n, true);
    r.thread("t").durability(Durability::Exit).run(Work::update().n(1)).await.unwrap().done().unwrap();
    let at = r.thread("t").log().await.unwrap().iter().find(|e| matches!(e.record, Record::Input(_))).unwrap().position;
    assert_eq!(r.thread("t").at(at).resume().await.unwrap_err().code(), "no-checkpoint");
    assert_eq!(r.thread("t").history().await.unwrap().len(), 1);
}
