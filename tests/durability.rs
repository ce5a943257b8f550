//! When steps are stored is a choice; that nothing is lost that must not be is none.
//!
//! How it could break: a run that is stored at its end and loses its input, its effects or the results of an open step; a checkpoint that
//! stands for many steps and does not hold all their changes; an append in the background that overtakes another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrata::log::Record;
use ferrata::store::RedbStore;
use ferrata::{Ask, Context, Durability, END, Graph, NodeError, Outcome, Runner, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Work {
    n: u64,
    #[state(sum)]
    total: i64,
    #[state(append)]
    log: Vec<String>,
}

const ALL: [Durability; 3] = [Durability::Step, Durability::Behind, Durability::Exit];

/// a, then b and c together, of which c fails as often as `fails` says, then z, which asks.
fn runner(dir: &std::path::Path, fails: &Arc<AtomicUsize>, effects: &Arc<AtomicUsize>) -> Runner<Work> {
    let note = |name: &'static str| move |s: View<Work>| async move { Ok(Work::update().n(s.n + 1).total(5).push_log(name)) };
    let (left, count) = (Arc::clone(fails), Arc::clone(effects));
    let b = move |ctx: Context| {
        let count = Arc::clone(&count);
        async move {
            ctx.effect("mail", |_| async { Ok(count.fetch_add(1, Ordering::SeqCst)) }).await?;
            Ok(Work::update().total(20).push_log("b"))
        }
    };
    let c = move || {
        let fail = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        async move { if fail { Err(NodeError::new("no paper")) } else { Ok(Work::update().set_total(100).push_log("c")) } }
    };
    let z = |ctx: Context| async move {
        let more = ctx.ask("more", Ask::<u64>::new("More?")).await?;
        Ok(Work::update().n(more).push_log("z"))
    };
    let graph = Graph::<Work>::new("work").node("a", note("a")).node("a2", note("a2")).node("b", b).node("c", c).node("z", z);
    let graph = graph.edge(START, "a").edge("a", "a2").edge("a2", "b").edge("a2", "c").join(["b", "c"], "z").edge("z", END);
    Runner::new(graph.build().expect("the graph is right"), RedbStore::open(dir.join("s.redb")).expect("a store"))
}

#[tokio::test]
async fn every_durability_ends_the_same_through_failure_question_and_new_processes() {
    for durability in ALL {
        let dir = tempfile::tempdir().expect("a folder");
        let (fails, effects) = (Arc::new(AtomicUsize::new(1)), Arc::default());
        let open = || runner(dir.path(), &fails, &effects);
        let thread = |runner: &Runner<Work>| runner.thread("t").durability(durability);
        thread(&open()).run(Work::update().n(1).total(1_000)).await.expect_err("c fails");
        let state = thread(&open()).state().await.expect("it is readable");
        assert_eq!((state.values.n, state.values.log.join(" ").as_str()), (3, "a a2 b"), "{durability:?}");
        let Outcome::Waiting(questions) = thread(&open()).resume().await.expect("it goes on") else { panic!("z asks") };
        let state = thread(&open()).answer(questions[0].id, 7).await.expect("it fits").done().expect("it ends");
        assert_eq!((state.n, state.total, state.log.join(" ").as_str()), (7, 100, "a a2 b c z"), "{durability:?}");
        assert_eq!(*thread(&open()).state().await.expect("it is readable").values, *state, "{durability:?}: read back");
        assert_eq!(effects.load(Ordering::SeqCst), 1, "{durability:?}");
        let checkpoints = thread(&open()).history().await.expect("the history").len();
        // At the end: one for each run that made steps.
        assert_eq!(checkpoints, if durability == Durability::Exit { 3 } else { 6 }, "{durability:?}");
    }
}

#[tokio::test]
async fn stored_at_the_end_a_run_keeps_its_input_and_effects_when_it_is_cut_off() {
    let dir = tempfile::tempdir().expect("a folder");
    let performed = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let make = || {
        let (count, gate) = (Arc::clone(&performed), Arc::clone(&gate));
        let mail = move |ctx: Context| {
            let (count, gate) = (Arc::clone(&count), Arc::clone(&gate));
            async move {
                ctx.effect("mail", |_| async { Ok(count.fetch_add(1, Ordering::SeqCst)) }).await?;
                gate.acquire().await?.forget();
                Ok(Work::update().push_log("mail"))
            }
        };
        let first = |s: View<Work>| async move { Ok(Work::update().push_log(format!("first {}", s.n))) };
        let graph = Graph::<Work>::new("work").node("first", first).node("mail", mail);
        let graph = graph.edge(START, "first").edge("first", "mail").edge("mail", END).build().expect("the graph is right");
        Runner::new(graph, RedbStore::open(dir.path().join("s.redb")).expect("a store"))
    };
    // A runtime that is dropped in the middle: what was not stored is gone, as with the process.
    let cut = std::thread::spawn({
        let (runner, performed) = (make(), Arc::clone(&performed));
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let thread = runner.thread("t").durability(Durability::Exit);
                let run = tokio::spawn(async move { thread.run(Work::update().n(4)).await });
                let recorded = async |runner: &Runner<Work>| {
                    let log = runner.thread("t").log().await.expect("the log");
                    log.iter().any(|entry| matches!(entry.record, Record::EffectDone(_)))
                };
                while performed.load(Ordering::SeqCst) == 0 || !recorded(&runner).await {
                    tokio::task::yield_now().await;
                }
                assert!(!run.is_finished());
            });
        }
    });
    cut.join().expect("it is cut off");
    gate.add_permits(1);
    let runner = make();
    let state = runner.thread("t").resume().await.expect("the input is there").done().expect("it ends");
    assert_eq!((state.n, state.log.join(", ").as_str()), (4, "first 4, mail"), "its steps were lost, and made again");
    assert_eq!(performed.load(Ordering::SeqCst), 1, "its effect was not");
}
