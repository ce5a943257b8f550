//! Threads that forget: by a prune, and as they go.
//!
//! How it could break: a prune that takes an open question with it, a result that is not merged yet, or the checkpoint that a line was forked from; a
//! run that forgets more than it is told to.

mod support {
    pub(crate) mod common;
    pub(crate) mod desk;
    pub(crate) mod field;
}

use ferrata::clock::{ManualClock, Timestamp};
use ferrata::store::{MemoryStore, Pruned, RedbStore, ThreadQuery, ThreadStatus};
use ferrata::{Approval, END, Graph, Keep, Position, Runner, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use support::desk::{Case, Desk, counting, done, history, names, seen};
use support::field::{Child, Field, Work, asking};

#[tokio::test]
async fn a_prune_keeps_exactly_what_it_is_told_to() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let runner = counting(RedbStore::open(&path).expect("a store"), 20);
    let thread = runner.thread("t");
    done(thread.run(Case::update()).await);
    let (before, log) = (history(&thread).await, thread.log().await.expect("the log"));
    assert_eq!(before.len(), 22);
    for keep in [15, 3, 1] {
        let pruned = thread.prune(Keep::Last(keep)).await.expect("it is pruned");
        assert!(pruned.records > 0, "{pruned:?}");
        let after = history(&thread).await;
        assert_eq!(seen(&after), seen(&before[..keep]));
        assert!(after.last().expect("the oldest").position > before[keep].position);
        let first = after[keep - 1].position;
        assert_eq!(thread.log().await.expect("the log"), log[usize::try_from(first.0).expect("it fits")..]);
        assert_eq!(thread.prune(Keep::Last(keep)).await.expect("there is nothing to do"), Pruned::default());
        assert_eq!(thread.state().await.expect("a state").values.n, 20);
        let gone = thread.clone().at(before[keep].position);
        assert_eq!(gone.state().await.expect_err("it is gone").code(), "no-checkpoint");
        assert_eq!(gone.resume().await.expect_err("it is gone").code(), "no-checkpoint");
        assert_eq!(thread.clone().at(first).state().await.expect("it is kept").values.n, after[keep - 1].values.n);
    }
    drop((thread, runner));
    let runner = counting(RedbStore::open(&path).expect("a store"), 25);
    let end = done(runner.thread("t").run(Case::update()).await);
    assert_eq!((end.n, end.log.len()), (25, 25), "it goes on from there");
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
    assert!(runner.thread("nobody").prune(Keep::Last(1)).await.expect_err("there is none").is_unknown_thread());
}

#[tokio::test]
async fn a_prune_by_time_keeps_what_was_recorded_since() {
    let clock = ManualClock::at(Timestamp(1_000));
    let hands = clock.clone();
    let tick = move |s: View<Case>| {
        hands.advance_ms(10);
        async move { Ok(Case::update().n(s.n + 1)) }
    };
    let graph = Graph::<Case>::new("ticks").node("tick", tick).edge(START, "tick");
    let graph =
        graph.route_to("tick", ["tick", END], |s| if s.n < 10 { "tick" } else { END }).build().expect("the graph is right");
    let runner = Runner::with_clock(graph, MemoryStore::new(), clock.clone());
    let thread = runner.thread("t");
    done(thread.run(Case::update()).await);
    let before = history(&thread).await;
    assert_eq!(thread.prune(Keep::Since(Timestamp(0))).await.expect("nothing is as old"), Pruned::default());
    thread.prune(Keep::Since(Timestamp(1_050))).await.expect("it is pruned");
    assert_eq!(seen(&history(&thread).await), seen(&before[..6]), "1,050 itself is kept");
    // Nothing is as new, and the newest stays all the same.
    thread.prune(Keep::Since(Timestamp(9_999))).await.expect("it is pruned");
    assert_eq!(seen(&history(&thread).await), seen(&before[..1]));
    assert_eq!(thread.state().await.expect("a state").values.n, 10);
}

#[tokio::test]
async fn a_prune_keeps_the_checkpoint_that_a_kept_line_was_forked_from() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let runner = counting(RedbStore::open(&path).expect("a store"), 8);
    let thread = runner.thread("t");
    done(thread.run(Case::update()).await);
    let first_line = history(&thread).await;
    let at = |n: u64| first_line.iter().find(|c| c.values.n == n && c.step.0 >= 0).expect("a checkpoint").position;
    for parent in [at(5), at(3)] {
        thread.clone().at(parent).update(Case::update().topic("another way"), None).await.expect("it is forked");
        done(thread.resume().await);
    }
    let before = history(&thread).await;
    // The last line has six checkpoints. The seventh stands before it, so that its fork is kept, and with it what it was forked from: the checkpoint
    // with 3, and all that is younger.
    let pruned = thread.prune(Keep::Last(7)).await.expect("it is pruned");
    assert!(pruned.records > 0);
    let after = history(&thread).await;
    let parent = before.iter().position(|c| c.position == at(3)).expect("it was there");
    assert_eq!(seen(&after), seen(&before[..=parent]));
    drop((thread, runner));
    let runner = counting(RedbStore::open(&path).expect("a store"), 8);
    let thread = runner.thread("t");
    // Every line that is left can be looked at and gone on with.
    for checkpoint in &after {
        assert_eq!(thread.clone().at(checkpoint.position).state().await.expect("it is kept").values.n, checkpoint.values.n);
    }
    for back_to in [at(3), at(6)] {
        let end = done(thread.clone().at(back_to).resume().await);
        assert_eq!((end.n, end.log.len()), (8, 8));
    }
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
    // With the forks too old, the lines before them go.
    let newest = history(&thread).await;
    thread.prune(Keep::Last(1)).await.expect("it is pruned");
    assert_eq!(seen(&history(&thread).await), seen(&newest[..1]));
    assert_eq!(thread.state().await.expect("a state").values.n, 8);
}

#[tokio::test]
async fn a_prune_leaves_an_open_question_and_what_was_done_before_it() {
    let desk = Desk::new();
    let runner = desk.open();
    let thread = runner.thread("t");
    let first = thread.run(Case::update().topic("rope")).await.expect("it runs").questions()[0].id;
    done(thread.answer(first, Approval::approve().by("dana")).await);
    let second = thread.run(Case::update().topic("ladder")).await.expect("it runs").questions()[0].id;
    let pruned = thread.prune(Keep::Last(1)).await.expect("it is pruned");
    assert!(pruned.records > 8, "{pruned:?}");
    drop((thread, runner));
    let runner = desk.open();
    let thread = runner.thread("t");
    let state = thread.state().await.expect("a state");
    assert_eq!((state.status, state.questions[0].id, state.questions.len()), (ThreadStatus::Waiting, second, 1));
    assert_eq!(names(&runner.threads(ThreadQuery::new().status(ThreadStatus::Waiting)).await.expect("a list")), ["t"]);
    // Who answered the first one is no longer known, and it is not open either.
    let error = thread.answer(first, Approval::approve()).await.expect_err("it is no longer known");
    assert_eq!(error.code(), "question-unknown");
    let end = done(thread.answer(second, Approval::approve()).await);
    assert_eq!(end.log, ["draft rope", "pay rope", "draft ladder", "pay ladder"]);
    assert_eq!(desk.performed().len(), 4, "nothing was done again");
}

#[tokio::test]
async fn a_prune_leaves_what_was_done_in_a_step_that_failed() {
    let desk = Desk::new();
    let runner = desk.open();
    let thread = runner.thread("t");
    for topic in ["rope", "ladder"] {
        let question = thread.run(Case::update().topic(topic)).await.expect("it runs").questions()[0].id;
        if topic == "ladder" {
            desk.fails("pay");
        }
        let answered = thread.answer(question, Approval::approve()).await;
        assert_eq!(answered.is_err(), topic == "ladder");
    }
    assert_eq!(desk.performed().len(), 4, "the last payment was made, and then the node failed");
    assert!(thread.prune(Keep::Last(1)).await.expect("it is pruned").records > 0);
    drop((thread, runner));
    let end = done(desk.open().thread("t").resume().await);
    assert_eq!(end.log.last().map(String::as_str), Some("pay ladder"));
    assert_eq!(desk.performed().len(), 4, "it is not made again");
}

#[tokio::test]
async fn a_prune_leaves_a_question_inside_a_subgraph() {
    let field = Field::new();
    let open = || Runner::new(asking(&field.world), field.store());
    let runner = open();
    let question = runner.thread("t").run(Work::update().topic("rope")).await.expect("it runs").questions()[0].id;
    let log = runner.thread("t").log().await.expect("the log").len();
    assert!(runner.thread("t").prune(Keep::Last(1)).await.expect("it is pruned").records > 0);
    drop(runner);
    let runner = open();
    let thread = runner.thread("t");
    assert!(thread.log().await.expect("the log").len() < log);
    assert_eq!(thread.questions().await.expect("the questions")[0].id, question);
    assert_eq!(thread.inside::<Child>(["child"]).state().await.expect("it is at work").values.topic, "rope from p1");
    let end = thread.answer(question, Approval::approve()).await.expect("it runs").done().expect("it ends");
    assert_eq!(end.log, ["p1", "c1 sees rope from p1", "c2 sees rope from p1", "p2"]);
    assert_eq!(field.world.lines(), ["p1", "c1", "c2", "p2"], "nothing ran again");
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Odd {
    n: u64,
    /// Null until it is written, without a default for serde.
    any: Value,
    maybe: Option<u64>,
    pair: (Option<bool>, Value),
}

#[tokio::test]
async fn what_was_never_written_is_there_after_a_prune_and_a_copy() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || {
        let count = |s: View<Odd>| async move { Ok(Odd::update().n(s.n + 1)) };
        let graph = Graph::<Odd>::new("odd").node("count", count).edge(START, "count");
        let graph =
            graph.route_to("count", ["count", END], |s| if s.n % 3 == 0 { END } else { "count" }).build().expect("it is right");
        Runner::new(graph, RedbStore::open(dir.path().join("s.redb")).expect("a store"))
    };
    let runner = open();
    let thread = runner.thread("t");
    thread.run(Odd::update()).await.expect("it runs").done().expect("it ends");
    thread.prune(Keep::Last(1)).await.expect("it is pruned");
    thread.copy_to("copy").await.expect("it is copied");
    drop((thread, runner));
    let runner = open();
    for name in ["t", "copy"] {
        let thread = runner.thread(name);
        assert_eq!(*thread.state().await.expect("a state").values, Odd { n: 3, ..Odd::default() });
        assert_eq!(thread.run(Odd::update()).await.expect("it runs").done().expect("it ends").n, 6);
    }
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
}

#[tokio::test]
async fn a_prune_of_a_thread_at_work_is_refused() {
    let desk = Desk::new();
    let runner = desk.open();
    let at_work = desk.hold("draft");
    let run = tokio::spawn({
        let thread = runner.thread("t");
        async move { thread.run(Case::update().topic("rope")).await }
    });
    at_work.reached().await;
    let before = runner.thread("t").log().await.expect("the log");
    assert!(runner.thread("t").prune(Keep::Last(1)).await.expect_err("it is at work").is_busy());
    assert_eq!(runner.thread("t").log().await.expect("the log"), before);
    at_work.let_go();
    assert_eq!(run.await.expect("it ends").expect("it runs").questions().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_forgets_keeps_at_least_what_it_is_told_to() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let runner = |until| counting(RedbStore::open(&path).expect("a store"), until);
    let thread = runner(400).thread("t").keep_last(7);
    done(thread.run(Case::update()).await);
    let kept = history(&thread).await;
    assert!((7..200).contains(&kept.len()), "{}", kept.len());
    assert!(seen(&kept).windows(2).all(|pair| pair[0].3 == pair[1].3 + 1 || pair[0].2 == 0), "without a gap");
    let oldest = kept.last().expect("the oldest").position;
    assert_eq!(thread.clone().at(Position(3)).state().await.expect_err("it is gone").code(), "no-checkpoint");
    // Back to the oldest that is kept, and on for a while: what the new line was forked from is looked after.
    drop(thread);
    let thread = runner(800).thread("t").keep_last(7);
    let end = done(thread.clone().at(oldest).resume().await);
    assert_eq!((end.n, end.log.len()), (800, 800));
    assert!(history(&thread).await.len() >= 7);
    drop(thread);
    let runner = runner(800);
    assert_eq!(runner.thread("t").state().await.expect("a state").values.n, 800);
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
}
