//! What is done with threads as a whole: listed, forgotten in part, copied, moved, expired, checked.
//!
//! How it could break: a prune that takes an open question with it, or the checkpoint that a line was forked from; a copy that pays with the key of the
//! first one, or that does again what was done; lines that were cut and go in all the same; an import that writes over a thread; an expiry that
//! takes what still waits; damage that nobody sees.

mod support {
    pub(crate) mod common;
    pub(crate) mod desk;
    pub(crate) mod field;
}

use ferrata::clock::{ManualClock, Timestamp};
use ferrata::store::{MemoryStore, Order, Pruned, RedbStore, ThreadInfo, ThreadQuery, ThreadStatus};
use ferrata::{
    Answer, Approval, Checkpoint, END, Graph, Keep, Outcome, Position, QuestionId, Runner, START, State, Thread, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use support::desk::{Case, CaseUpdate, Desk, counting, exported};
use support::field::{Child, Field, Work, asking};

fn done(outcome: Result<Outcome<Case>, ferrata::Error>) -> Case {
    (*outcome.expect("it runs").done().expect("it ends")).clone()
}

/// Runs until it asks, and gives the question.
async fn asked(runner: &Runner<Case>, thread: &str, input: CaseUpdate) -> QuestionId {
    let outcome = runner.thread(thread).run(input).await.expect("it runs");
    let [question] = outcome.questions() else { panic!("it asks once: {outcome:?}") };
    question.id
}

fn names(threads: &[ThreadInfo]) -> Vec<&str> {
    threads.iter().map(|thread| thread.name.as_str()).collect()
}

/// What a history shows of each checkpoint.
fn seen(history: &[Checkpoint<Case>]) -> Vec<(u64, u32, i64, u64, Vec<String>)> {
    let line =
        |c: &Checkpoint<Case>| (c.position.0, c.branch.0, c.step.0, c.values.n, c.next.iter().map(ToString::to_string).collect());
    history.iter().map(line).collect()
}

async fn history(thread: &Thread<Case>) -> Vec<Checkpoint<Case>> {
    thread.history().await.expect("the history")
}

// ---- lists ----

#[tokio::test]
async fn threads_are_listed_by_what_they_do() {
    let desk = Desk::new();
    let runner = desk.open();
    for name in ["order-1", "order-2", "mail-1"] {
        assert_eq!(runner.thread(name).run(Case::update().topic("rope")).await.expect("it runs").questions().len(), 1);
    }
    let question = runner.thread("order-2").questions().await.expect("the questions")[0].id;
    done(runner.thread("order-2").answer(question, Approval::approve()).await);
    desk.fails("draft");
    runner.thread("order-3").run(Case::update()).await.expect_err("it fails");
    let stopped = runner.thread("order-4").pause_before(["draft"]).run(Case::update()).await.expect("it stops");
    assert!(matches!(stopped, Outcome::Suspended(_)));
    let at_work = desk.hold("draft");
    let held = tokio::spawn({
        let thread = runner.thread("order-5");
        async move { thread.run(Case::update()).await }
    });
    at_work.reached().await;
    let of = |status: ThreadStatus| ThreadQuery::new().status(status);
    let mail = runner.threads(ThreadQuery::new().prefix("mail")).await.expect("a list")[0].since;
    for (query, wanted) in [
        (ThreadQuery::new(), vec!["mail-1", "order-1", "order-2", "order-3", "order-4", "order-5"]),
        (of(ThreadStatus::Waiting), vec!["mail-1", "order-1"]),
        (of(ThreadStatus::Waiting).prefix("order"), vec!["order-1"]),
        (of(ThreadStatus::Done), vec!["order-2"]),
        (of(ThreadStatus::Failed), vec!["order-3"]),
        (of(ThreadStatus::Suspended).status(ThreadStatus::Running), vec!["order-4", "order-5"]),
        (ThreadQuery::new().order(Order::OldestFirst).limit(2), vec!["order-1", "mail-1"]),
        (ThreadQuery::new().order(Order::NewestFirst).limit(3), vec!["order-5", "order-4", "order-3"]),
        (ThreadQuery::new().unchanged_since(mail), vec!["order-1"]),
    ] {
        assert_eq!(names(&runner.threads(query.clone()).await.expect("a list")), wanted, "{query:?}");
    }
    at_work.let_go();
    assert_eq!(held.await.expect("it ends").expect("it runs").questions().len(), 1);
    let waiting = of(ThreadStatus::Waiting).limit(2);
    let page = runner.threads(waiting.clone()).await.expect("a page");
    assert_eq!(names(&page), ["mail-1", "order-1"]);
    assert_eq!(names(&runner.threads(waiting.after(&page[1])).await.expect("the next")), ["order-5"]);
}

#[tokio::test]
async fn a_thread_that_is_deleted_is_gone_with_its_questions() {
    let desk = Desk::new();
    let runner = desk.open();
    let thread = runner.thread("t");
    let question = thread.run(Case::update().topic("rope")).await.expect("it runs").questions()[0].id;
    let at_work = desk.hold("pay");
    let answer = tokio::spawn({
        let thread = thread.clone();
        async move { thread.answer(question, Approval::approve()).await }
    });
    at_work.reached().await;
    assert!(thread.delete().await.expect_err("it is at work").is_busy());
    at_work.let_go();
    done(answer.await.expect("it ends"));
    assert!(thread.delete().await.expect("it is deleted"));
    drop((thread, runner));
    let runner = desk.open();
    let thread = runner.thread("t");
    assert!(thread.state().await.expect_err("it is gone").is_unknown_thread());
    assert!(thread.log().await.expect("nothing").is_empty());
    assert!(thread.answer(question, Approval::approve()).await.is_err());
    // One of the same name is another thread: it does everything anew, under keys of its own.
    let question = thread.run(Case::update().topic("rope")).await.expect("it runs").questions()[0].id;
    done(thread.answer(question, Approval::approve()).await);
    let keys = desk.performed();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert!((0..4).all(|n| (0..n).all(|earlier| keys[n].1 != keys[earlier].1)), "{keys:?}");
}

// ---- prune ----

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

// ---- copies ----

/// The key of the last thing that was done, which must be this.
#[track_caller]
fn last_key(desk: &Desk, what: &str) -> String {
    let (done, key) = desk.performed().pop().expect("something was done");
    assert_eq!(done, what);
    key
}

#[tokio::test]
async fn a_copy_is_another_thread_from_then_on() {
    let desk = Desk::new();
    let runner = desk.open();
    let thread = runner.thread("t");
    let question = thread.run(Case::update().topic("rope")).await.expect("it runs").questions()[0].id;
    for name in ["copy", "copy of a copy"] {
        let from = if name == "copy" { "t" } else { "copy" };
        runner.thread(from).copy_to(name).await.expect("it is copied");
        assert_eq!(seen(&history(&thread).await), seen(&history(&runner.thread(name)).await));
    }
    drop((thread, runner));
    let runner = desk.open();
    let original = exported(&runner.thread("t")).await;
    let mut keys = Vec::new();
    for name in ["copy", "copy of a copy"] {
        let end = done(runner.thread(name).answer(question, Approval::approve()).await);
        assert_eq!(end.log, ["draft rope", "pay rope"]);
        keys.push(last_key(&desk, "pay rope"));
    }
    assert_eq!(exported(&runner.thread("t")).await, original, "it is as it was");
    done(runner.thread("t").answer(question, Approval::approve()).await);
    keys.push(last_key(&desk, "pay rope"));
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "each pays with a key of its own: {keys:?}");
    assert_eq!(desk.performed().len(), 4, "what was finished before stays finished in all");
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
}

#[tokio::test]
async fn a_copy_of_a_doubt_is_in_doubt_itself() {
    let desk = Desk::new();
    let runner = desk.open();
    let thread = runner.thread("t");
    let question = thread.run(Case::update().topic("rope")).await.expect("it runs").questions()[0].id;
    desk.fails("the line");
    let outcome = thread.answer(question, Approval::approve()).await.expect("it waits");
    assert!(outcome.questions()[0].is_doubt());
    thread.copy_to("copy").await.expect("it is copied");
    let doubt = outcome.questions()[0].id;
    let end = done(thread.answer(doubt, Answer::performed(Value::Null)).await);
    assert_eq!((end.log.len(), desk.performed().len()), (2, 1), "it was done, and is not done again");
    let copy = runner.thread("copy");
    assert_eq!(copy.resume().await.expect("it waits").questions()[0].id, doubt, "it is not repeated in silence");
    let end = done(copy.answer(doubt, Answer::not_performed()).await);
    assert_eq!((end.log.len(), last_key(&desk, "pay rope").is_empty()), (2, false));
}

#[tokio::test]
async fn a_copy_never_takes_the_place_of_a_thread() {
    let desk = Desk::new();
    let runner = desk.open();
    for name in ["t", "other"] {
        asked(&runner, name, Case::update().topic(name)).await;
    }
    let before = (exported(&runner.thread("t")).await, exported(&runner.thread("other")).await);
    for name in ["other", "t"] {
        let error = runner.thread("t").copy_to(name).await.expect_err("there is one");
        assert_eq!(error.code(), "thread-exists");
        assert!(error.to_string().contains(&format!("\"{name}\"")) && error.to_string().contains("use another name"), "{error}");
    }
    let error = runner.thread("nobody").copy_to("new").await.expect_err("there is none");
    assert!(error.is_unknown_thread(), "{error}");
    assert!(runner.thread("new").state().await.expect_err("nothing was made").is_unknown_thread());
    assert_eq!((exported(&runner.thread("t")).await, exported(&runner.thread("other")).await), before);
}

// ---- lines of JSON ----

/// Threads of every kind: waiting, done and forked, failed half way, pruned, with a large value.
async fn all_kinds(desk: &Desk) -> (Runner<Case>, [&'static str; 5]) {
    let runner = desk.open();
    let ask = async |name: &str, input: CaseUpdate| asked(&runner, name, input).await;
    ask("waiting", Case::update().topic("wait ünd 🔥\u{2028}")).await;
    let question = ask("forked", Case::update().topic("rope")).await;
    done(runner.thread("forked").answer(question, Approval::approve()).await);
    let back = history(&runner.thread("forked")).await[1].position;
    runner.thread("forked").at(back).update(Case::update().topic("ladder"), None).await.expect("it is edited");
    let question = ask("failed", Case::update().topic("stone")).await;
    desk.fails("pay");
    runner.thread("failed").answer(question, Approval::approve()).await.expect_err("it fails");
    for topic in ["one", "two"] {
        let question = ask("pruned", Case::update().topic(topic)).await;
        done(runner.thread("pruned").answer(question, Approval::approve()).await);
    }
    ask("pruned", Case::update().topic("three")).await;
    runner.thread("pruned").prune(Keep::Last(2)).await.expect("it is pruned");
    ask("large", Case::update().topic("book").paper("page ".repeat(40_000))).await;
    (runner, ["waiting", "forked", "failed", "pruned", "large"])
}

#[tokio::test]
async fn a_thread_goes_out_as_lines_and_comes_back_the_same() {
    let (desk, other) = (Desk::new(), Desk::new());
    let (runner, names) = all_kinds(&desk).await;
    let there = desk.over(RedbStore::open(other.path()).expect("a store"));
    for name in names {
        let (thread, copy) = (runner.thread(name), there.thread(name));
        let lines = exported(&thread).await;
        assert_eq!(exported(&thread).await, lines, "{name}: twice the same");
        copy.import(&mut lines.as_bytes()).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(exported(&copy).await, lines, "{name}: there and back");
        assert_eq!(copy.log().await.expect("the log"), thread.log().await.expect("the log"));
        assert_eq!(seen(&history(&copy).await), seen(&history(&thread).await));
        let (here, copied) = (thread.state().await.expect("a state"), copy.state().await.expect("a state"));
        assert_eq!(
            (&*here.values, here.status, &here.next, &here.questions),
            (&*copied.values, copied.status, &copied.next, &copied.questions)
        );
        // Each line is JSON that any tool reads.
        let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
        assert_eq!(rows[0]["thread"], name);
        assert_eq!(rows[1].get("snapshot").is_some(), name == "pruned");
        // A line break at the end may get lost on the way.
        there.thread(name).copy_to("again").await.expect("it is copied");
        there.thread("again").delete().await.expect("it is deleted");
        there.thread("again").import(&mut lines.trim_end().as_bytes()).await.expect("it is whole");
        there.thread("again").delete().await.expect("it is deleted");
    }
    let (mut here, mut listed) =
        (runner.threads(ThreadQuery::new()).await.expect("a list"), there.threads(ThreadQuery::new()).await.expect("a list"));
    // For one that runs, or was edited, the time of its last record stands for that of its status.
    here.iter_mut().chain(&mut listed).for_each(|line| line.since = line.updated_at);
    assert_eq!(here, listed);
    assert_eq!(there.verify().await.expect("it is looked at").faults, []);
    drop((runner, there));
    // It is the same thread: it goes on there, and pays with the key that it would have used here.
    let (runner, there) = (desk.open(), desk.over(RedbStore::open(other.path()).expect("a store")));
    let mut keys = Vec::new();
    for thread in [runner.thread("waiting"), there.thread("waiting")] {
        let question = thread.questions().await.expect("the questions")[0].id;
        done(thread.answer(question, Approval::approve()).await);
        keys.push(last_key(&desk, "pay wait ünd 🔥\u{2028}"));
    }
    assert_eq!(keys[0], keys[1]);
    assert_eq!(done(there.thread("failed").resume().await).log, ["draft stone", "pay stone"]);
    assert_eq!(desk.performed().iter().filter(|(what, _)| what == "pay stone").count(), 1, "what was done is not done again");
    // Under another name it is a copy.
    let lines = exported(&runner.thread("large")).await;
    there.thread("copy").import(&mut lines.as_bytes()).await.expect("it is imported");
    for name in ["large", "copy"] {
        let question = there.thread(name).questions().await.expect("the questions")[0].id;
        assert_eq!(done(there.thread(name).answer(question, Approval::approve()).await).paper.len(), 200_000);
        keys.push(last_key(&desk, "pay book"));
    }
    assert_ne!(keys[2], keys[3]);
}

#[tokio::test]
async fn an_import_never_takes_the_place_of_a_thread() {
    let desk = Desk::new();
    let (runner, names) = all_kinds(&desk).await;
    for name in names {
        let lines = exported(&runner.thread(name)).await;
        for over in names {
            let before = exported(&runner.thread(over)).await;
            let error = runner.thread(over).import(&mut lines.as_bytes()).await.expect_err("there is one");
            assert_eq!(error.code(), "thread-exists");
            assert_eq!(exported(&runner.thread(over)).await, before);
        }
    }
    let error = runner.thread("nobody").export(&mut Vec::new()).await.expect_err("there is none");
    assert!(error.is_unknown_thread());
}

/// Lines that are no export, with the number of the line that is wrong, and what is wrong with it.
fn spoiled(lines: &[&str]) -> Vec<(String, usize, &'static str)> {
    let join = |lines: Vec<&str>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let with = |at: usize, line: &str| {
        let mut lines = lines.to_vec();
        lines[at] = line;
        join(lines)
    };
    let without = |at: usize| join([&lines[..at], &lines[at + 1..]].concat());
    let twice = |at: usize| join([&lines[..=at], &lines[at..]].concat());
    let count = lines.len();
    let mut spoiled = Vec::new();
    for cut in 0..count {
        spoiled.push((join(lines[..cut].to_vec()), cut + 1, "it is missing: the export is cut"));
        let half = lines[cut].char_indices().nth(lines[cut].chars().count() / 2).expect("a letter").0;
        spoiled.push((join(lines[..cut].to_vec()) + &lines[cut][..half], cut + 1, "EOF while parsing"));
    }
    let swapped = lines[3].replacen("\"position\":2", "\"position\":9", 1);
    let unnamed = lines[0].replacen("\"thread\":\"t\"", "\"thread\":\"\"", 1);
    let renamed = lines[0].replacen("\"thread\":\"t\"", "\"thread\":\"u\"", 1);
    let longer = lines[0].replacen("\"records\":", "\"records\":1", 1);
    let endless = lines[0].replacen("\"from\":0", "\"from\":18446744073709551615", 1);
    let based = lines[0].replacen("\"from\":0", "\"from\":4", 1);
    let unknown = lines[3].replacen("\"record\":{\"", "\"record\":{\"never_heard_of_", 1);
    spoiled.extend([
        (without(3), 4, "it holds record 3, not 2"),
        (twice(3), 5, "it holds record 2, not 3"),
        (with(3, &swapped), 4, "it holds record 9, not 2"),
        (with(3, "{}"), 4, "missing field"),
        (with(3, ""), 4, "EOF while parsing"),
        (with(3, "some words"), 4, "expected value"),
        (with(3, &unknown), 4, "unknown variant"),
        (with(1, lines[0]), 2, "missing field"),
        (without(0), 1, "missing field"),
        (with(0, &unnamed), 1, "it is empty"),
        (with(0, &renamed), 2, "it belongs to another thread"),
        (with(0, &longer), count + 1, "it is missing"),
        (with(0, &endless), 1, "no thread has"),
        (with(0, &based), 2, "missing field `snapshot`"),
        (join([lines, &["{}"]].concat()), count + 1, "the first line promises"),
        (join(vec!["{\"ferrata_export\":1,\"thread\":\"t\",\"from\":0,\"records\":0}"]), 1, "there is nothing in it"),
        (
            join(vec![
                "{\"ferrata_export\":1,\"thread\":\"t\",\"from\":0,\"records\":1}",
                &lines[2].replacen("\"position\":1", "\"position\":0", 1),
            ]),
            2,
            "no thread begins",
        ),
        ("[".repeat(100_000), 1, ""),
    ]);
    spoiled
}

#[tokio::test]
async fn lines_that_were_cut_or_edited_are_refused_with_their_number() {
    let desk = Desk::new();
    let runner = desk.open();
    asked(&runner, "t", Case::update().topic("rope")).await;
    let lines = exported(&runner.thread("t")).await;
    let lines: Vec<&str> = lines.lines().collect();
    let there = desk.over(MemoryStore::new());
    for (text, number, why) in spoiled(&lines) {
        let error = there.thread("t").import(&mut text.as_bytes()).await.expect_err("it is no export");
        let told = error.to_string();
        assert_eq!(error.code(), "export", "{told}");
        assert!(told.contains(&format!("line {number} of the export is wrong")), "{number}: {told}");
        assert!(told.contains(why) && told.contains("nothing was imported"), "{told}");
        assert!(there.threads(ThreadQuery::new()).await.expect("a list").is_empty());
    }
    let bytes = [lines[0].as_bytes(), b"\n\xff\xfe\n"].concat();
    let error = there.thread("t").import(&mut &*bytes).await.expect_err("it is no text").to_string();
    assert!(error.contains("line 2 of the export is wrong"), "{error}");
    let newer = lines.join("\n").replacen("\"ferrata_export\":1", "\"ferrata_export\":2", 1);
    let error = there.thread("t").import(&mut newer.as_bytes()).await.expect_err("it is newer").to_string();
    assert!(error.contains("version 2") && error.contains("use the newer program"), "{error}");
    // Whole lines that make no thread together, or one of another graph.
    let without_run = lines.join("\n").replacen("run_started", "run_ended", 1);
    there.thread("t").import(&mut without_run.as_bytes()).await.expect_err("no such record");
    let error =
        counting(MemoryStore::new(), 1).thread("t").import(&mut lines.join("\n").as_bytes()).await.expect_err("another graph");
    assert_eq!(error.code(), "other-graph");
    assert!(there.threads(ThreadQuery::new()).await.expect("a list").is_empty());
    there.thread("t").import(&mut lines.join("\n").as_bytes()).await.expect("the lines themselves are right");
}

// ---- expiry ----

#[tokio::test]
async fn only_what_is_done_expires_unless_something_else_is_named() {
    let desk = Desk::new();
    let runner = desk.open();
    for number in 0..25 {
        let thread = format!("done {number:02}");
        let question = runner.thread(&thread).run(Case::update()).await.expect("it runs").questions()[0].id;
        done(runner.thread(&thread).answer(question, Approval::reject("no")).await);
    }
    asked(&runner, "waiting", Case::update()).await;
    let stopped = runner.thread("suspended").pause_before(["draft"]).run(Case::update()).await.expect("it stops");
    assert!(matches!(stopped, Outcome::Suspended(_)));
    desk.fails("draft");
    runner.thread("failed").run(Case::update()).await.expect_err("it fails");
    let at_work = desk.hold("draft");
    let run = tokio::spawn({
        let thread = runner.thread("at work");
        async move { thread.run(Case::update()).await }
    });
    at_work.reached().await;
    let infos = runner.threads(ThreadQuery::new().prefix("done")).await.expect("a list");
    let old = ThreadQuery::new().unchanged_since(infos[20].since).limit(3);
    let gone = runner.expire(old).await.expect("they expire");
    assert_eq!(
        gone.iter().map(ferrata::ThreadName::as_str).collect::<Vec<_>>(),
        names(&infos[..20]),
        "page after page, and no younger one"
    );
    let all = || ThreadQuery::new().unchanged_since(Timestamp(u64::MAX));
    let gone = runner.expire(all().prefix("done 2")).await.expect("they expire");
    assert_eq!(gone.len(), 5);
    assert_eq!(runner.expire(all()).await.expect("nothing is left"), []);
    let left = || async { names(&runner.threads(ThreadQuery::new()).await.expect("a list")).join(", ") };
    assert_eq!(left().await, "at work, failed, suspended, waiting");
    // A status that is named; what is at work stays whatever is named.
    let every = ThreadStatus::ALL.into_iter().filter(|status| *status != ThreadStatus::Waiting).fold(all(), ThreadQuery::status);
    assert_eq!(runner.expire(every).await.expect("they expire").len(), 2);
    assert_eq!(left().await, "at work, waiting");
    at_work.let_go();
    assert_eq!(run.await.expect("it ends").expect("it runs").questions().len(), 1);
    assert_eq!(left().await, "at work, waiting");
}

#[tokio::test]
async fn a_thread_whose_process_died_expires_only_if_it_is_named() {
    let desk = Desk::new();
    let runner = desk.open();
    let _stays = desk.hold("draft");
    // The store outlives the runtime, as a file outlives its process.
    let runtime = std::thread::spawn({
        let thread = runner.thread("t");
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let run = thread.run(Case::update());
                tokio::select! {
                    _ = run => panic!("it is held"),
                    () = _stays.reached() => {}
                }
            });
            runtime.shutdown_background();
        }
    });
    runtime.join().expect("it ends");
    drop(runner);
    let runner = desk.open();
    let all = || ThreadQuery::new().unchanged_since(Timestamp(u64::MAX));
    assert_eq!(runner.threads(ThreadQuery::new()).await.expect("a list")[0].status, ThreadStatus::Running);
    assert_eq!(runner.expire(all()).await.expect("nothing is done"), []);
    assert_eq!(runner.expire(all().status(ThreadStatus::Running)).await.expect("it expires")[0].as_str(), "t");
}
