//! Situations that people who run agents with checkpoints have met: each with a store in a file, the world outside as another file, and
//! the outcome that is right.
//!
//! How it could break: a node whose result is saved runs again; a sibling's result is lost with the one that failed; a join that fires
//! twice, or never; an end that looks like success; a limit that takes results with it; two runs on one thread; a late attempt that
//! writes; a parent that runs again because its child asked; an old answer that is used for a new question.

mod support {
    pub(crate) mod common;
    pub(crate) mod field;
}

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use ferrata::log::{Doubt, Record};
use ferrata::store::{MemoryStore, ThreadStatus};
use ferrata::{
    Answer, Approval, Context, END, IntoNode, NodeError, Outcome, Position, Retry, Runner, START, Starved, Suspension, Target,
    ThreadState, View,
};
use serde_json::{Value, json};
use support::common::{Process, example, lines, text, wait_until};
use support::field::{
    Child, Field, Work, World, as_process, asking, gated, graph, process_dir, remembering, saved, store_in, with_a_tool,
};
use tokio::sync::{Barrier, Notify};

/// `examples/steps.rs` on files in that folder.
fn steps(dir: &Path, graph: &str, options: &[&str]) -> Command {
    let mut command = Command::new(example("steps"));
    command.args(["--graph", graph, "--store"]).arg(dir.join("steps.redb"));
    command.arg("--trace").arg(dir.join("trace.txt")).args(options);
    command
}

/// Kills the process with SIGKILL once the file holds all of these lines.
fn kill_when(command: &mut Command, file: &Path, wanted: &[&str]) {
    let mut process = Process::start(command);
    let seen = wait_until(&mut process, || wanted.iter().all(|line| lines(file).iter().any(|seen| seen == line)));
    assert!(seen && !process.has_ended(), "the process stands at {wanted:?} when it is killed");
    process.kill();
}

/// Runs to its end, and gives the state.
fn resumed(command: &mut Command) -> Value {
    let output: Output = command.output().expect("the process runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output)))["state"].clone()
}

fn next(state: &ThreadState<Work>) -> Vec<&str> {
    state.next.iter().map(|node| node.as_str()).collect()
}

#[test]
fn f01_a_crash_between_two_nodes() {
    let dir = tempfile::tempdir().expect("a folder");
    let trace = dir.path().join("trace.txt");
    kill_when(&mut steps(dir.path(), "line", &["--pause-at", "b", "--pause-ms", "600000"]), &trace, &["b start"]);
    assert_eq!(lines(&trace), ["a start", "a done", "b start"]);
    let state = resumed(&mut steps(dir.path(), "line", &[]));
    assert_eq!(state["log"], json!(["a", "b", "c"]));
    let after = ["b start", "b done", "c start", "c done"];
    assert_eq!(lines(&trace)[3..], after, "a is not run again, b is, c is run once");
}

#[tokio::test]
async fn f02_a_finished_thread_is_resumed() {
    let field = Field::new();
    let world = &field.world;
    let graph = || {
        let graph = graph().node("a", world.node("a")).node("b", world.node("b")).node("other", world.node("other"));
        graph.edge(START, "a").route_to("a", ["b", "other"], |_: &Work| "b").edge("b", END).edge("other", END)
    };
    for (thread, fails) in [("at once", false), ("failed once", true)] {
        let ran = world.lines().len();
        if fails {
            world.fails_once("b");
            let error = field.open(graph()).thread(thread).run(Work::update()).await.expect_err("b fails");
            assert_eq!(error.code(), "node-failed");
            assert_eq!(field.open(graph()).thread(thread).state().await.expect("a state").status, ThreadStatus::Failed);
        }
        let end = field.open(graph()).thread(thread).run_once(Work::update()).await.expect("it runs").done().expect("it ends");
        assert_eq!(end.log, ["a", "b"]);
        assert_eq!(world.lines()[ran..], *if fails { &["a", "b", "b"][..] } else { &["a", "b"] });
        let (ran, log) = (world.lines(), field.open(graph()).thread(thread).log().await.expect("the log"));
        for _ in 0..2 {
            let runner = field.open(graph());
            let again = runner.thread(thread).resume().await.expect("nothing to do").done().expect("it has ended");
            assert_eq!(again.log, ["a", "b"]);
            assert_eq!(runner.thread(thread).log().await.expect("the log"), log, "no new checkpoint, nor anything else");
            assert_eq!(runner.thread(thread).state().await.expect("a state").status, ThreadStatus::Done);
        }
        assert_eq!(world.lines(), ran, "no node ran");
    }
}

#[tokio::test]
async fn f03_one_sibling_fails() {
    let field = Field::new();
    let world = &field.world;
    let graph = || {
        let graph = graph().node("s", world.node("s")).node("fast", world.node("fast")).node("slow", world.node("slow"));
        let graph = graph.node("j", world.node("j")).edge(START, "s").edge("s", "fast").edge("s", "slow");
        graph.join(["fast", "slow"], "j").edge("j", END)
    };
    world.fails_once("slow");
    let error = field.open(graph()).thread("t").run(Work::update()).await.expect_err("slow fails");
    assert_eq!(error.node_failure().expect("a node failed").0.as_str(), "slow");
    assert_eq!(next(&field.open(graph()).thread("t").state().await.expect("a state")), ["slow"]);
    let ran = world.lines().len();
    let end = field.open(graph()).thread("t").resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!(end.log, ["s", "fast", "slow", "j"]);
    assert_eq!(world.lines()[ran..], ["slow", "j"], "only these ran again");
    assert_eq!(world.count("fast"), 1);
    eight_siblings_at_one_moment().await;
}

/// Eight that end at the same moment, and one of them fails.
async fn eight_siblings_at_one_moment() {
    const NAMES: [&str; 8] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"];
    let field = Field::new();
    let world = &field.world;
    let graph = |at_once: usize| {
        let barrier = Arc::new(Barrier::new(at_once));
        let eight = NAMES.into_iter().fold(graph().node("s", world.node("s")).edge(START, "s"), |graph, name| {
            let (world, barrier) = (world.clone(), Arc::clone(&barrier));
            let node = move || {
                let (world, barrier) = (world.clone(), Arc::clone(&barrier));
                async move {
                    world.note(name)?;
                    barrier.wait().await;
                    if name == "n5" && world.count("n5") == 1 {
                        return Err(NodeError::new("out of luck"));
                    }
                    Ok(Work::update().push_log(name))
                }
            };
            graph.node(name, node).edge("s", name)
        });
        eight.node("j", world.node("j")).join(NAMES, "j").edge("j", END)
    };
    let error = field.open(graph(8)).thread("t").run(Work::update()).await.expect_err("one fails");
    assert_eq!(error.node_failure().expect("a node failed").0.as_str(), "n5");
    let ran = world.lines().len();
    // The barrier lets one alone pass now; another one beside it would show in the world.
    let end = field.open(graph(1)).thread("t").resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!(world.lines()[ran..], ["n5", "j"]);
    let expected: Vec<&str> = ["s"].into_iter().chain(NAMES).chain(["j"]).collect();
    assert_eq!(end.log, expected);
}

#[test]
fn f04_a_join_while_a_sibling_is_still_at_work() {
    let dir = tempfile::tempdir().expect("a folder");
    let trace = dir.path().join("trace.txt");
    let options = ["--pause-at", "p2", "--pause-ms", "120000", "--trace-records"];
    kill_when(&mut steps(dir.path(), "diamond", &options), &trace, &["p1 recorded", "p3 recorded", "p2 start"]);
    let before = lines(&trace).len();
    let state = resumed(&mut steps(dir.path(), "diamond", &[]));
    assert_eq!(
        lines(&trace)[before..],
        ["p2 start", "p2 done", "j start", "j done"],
        "the one that was cut off, then the join, once"
    );
    assert_eq!(state["log"], json!(["a", "p1", "p2", "p3", "j"]), "with all results");
}

#[tokio::test]
async fn f05_a_join_with_a_branch_that_was_not_chosen() {
    let field = Field::new();
    let world = &field.world;
    let graph = || {
        let nodes = ["router", "a", "b"].into_iter().fold(graph(), |graph, name| graph.node(name, world.node(name)));
        let nodes = nodes.node("j", world.node("j")).node("k", world.node("k")).edge("j", "k").edge("k", END);
        nodes.edge(START, "router").route_to("router", ["a", "b"], |_: &Work| "a")
    };
    let error = graph().join(["a", "b"], "j").build().expect_err("it would wait for ever");
    assert_eq!(error.mistakes().iter().map(|mistake| mistake.code()).collect::<Vec<_>>(), ["starving-join"]);
    assert!(error.to_string().contains("\"j\""), "{error}");
    // Who says what is to happen gets that: j and k run, or an error names what is missing.
    let runner = field.open(graph().join_or(["a", "b"], "j", Starved::Run));
    let end = runner.thread("t").run(Work::update()).await.expect("it runs").done().expect("it ends");
    assert_eq!((end.log.join(" "), world.lines().join(" ")), ("router a j k".to_owned(), "router a j k".to_owned()));
    drop(runner);
    let runner = field.open(graph().join_or(["a", "b"], "j", Starved::Fail));
    let error = runner.thread("u").run(Work::update()).await.expect_err("b has not run");
    assert_eq!(error.code(), "join-starved");
    assert!(error.to_string().contains("\"j\"") && error.to_string().contains('b'), "{error}");
    assert_eq!(runner.thread("u").state().await.expect("a state").status, ThreadStatus::Failed);
}

#[tokio::test]
async fn f06_router_trouble() {
    let field = Field::new();
    let world = &field.world;
    let nodes = || {
        let graph = graph().node("a", world.node("a")).node("b", world.node("b")).edge(START, "a").edge("b", END);
        graph.node("c", world.node("c")).edge("c", END)
    };
    let fails = || nodes().branch("a", ["b", "c"], |_: &Work| Err(NodeError::new("the map is upside down")));
    let strays = || nodes().route_to("a", ["b", "c"], |_: &Work| "nowhere");
    let right = || nodes().branch("a", ["b", "c"], |_: &Work| Ok(vec![Target::node("b")]));
    let cases = [("fails", true, "the map is upside down"), ("strays", false, "\"nowhere\"")];
    for (thread, is_failing, gave) in cases {
        let wrong = || if is_failing { fails() } else { strays() };
        let ran = world.lines().len();
        let error = field.open(wrong()).thread(thread).run(Work::update()).await.expect_err("the router is wrong");
        assert_eq!(error.code(), "route");
        for word in ["\"a\"", gave, "b, c"] {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
        let state = field.open(wrong()).thread(thread).state().await.expect("it is readable");
        assert_eq!((state.values.log.join(" "), state.status), ("a".to_owned(), ThreadStatus::Failed));
        let end = field.open(right()).thread(thread).resume().await.expect("it is mended").done().expect("it ends");
        assert_eq!(end.log, ["a", "b"]);
        assert_eq!(world.lines()[ran..], ["a", "b"], "each once");
    }
}

#[tokio::test]
async fn f07_the_step_limit() {
    let field = Field::new();
    let world = &field.world;
    let graph = || {
        let world = world.clone();
        let round = move |s: View<Work>| {
            let world = world.clone();
            async move {
                let finding = format!("finding {}", s.n + 1);
                world.note(&finding)?;
                Ok(Work::update().n(s.n + 1).push_log(finding))
            }
        };
        let graph = graph().node("round", round).edge(START, "round");
        graph.route_to("round", ["round", END], |s: &Work| if s.n < 10 { "round" } else { END })
    };
    // It counts for each run: the second run of three steps ends after six, and not at once.
    for (run, limit) in [(1, 3), (2, 6)] {
        let runner = field.open(graph());
        let error = runner.thread("t").steps_max(3).run_once(Work::update()).await.expect_err("the limit");
        assert!(error.is_step_limit() && error.to_string().contains("limit of 3 steps"), "run {run}: {error}");
        drop(runner);
        let state = field.open(graph()).thread("t").state().await.expect("it is readable");
        assert_eq!((state.values.n, state.values.log.len(), world.lines().len()), (limit, 3 * run, 3 * run));
    }
    let end = field.open(graph()).thread("t").steps_max(20).resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!(end.n, 10);
    let expected: Vec<String> = (1..=10).map(|n| format!("finding {n}")).collect();
    assert_eq!((&end.log, &world.lines()), (&expected, &expected));
}

#[tokio::test]
async fn f08_two_runs_on_one_thread() {
    let field = Field::new();
    let open = Arc::new(Notify::new());
    let store = field.store();
    let runner = |store| Runner::new(gated(&field.world, &open).build().expect("the graph is right"), store);
    let (one, two) = (runner(store.clone()), runner(store));
    let starts: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn({
                let thread = one.thread("t");
                async move { thread.run(Work::update()).await }
            })
        })
        .collect();
    while field.world.count("slow") == 0 {
        tokio::task::yield_now().await;
    }
    let records = one.thread("t").log().await.expect("the log").len();
    // Another runner, while the first one is inside of a slow node.
    for error in [
        two.thread("t").run(Work::update()).await.expect_err("it is at work"),
        two.thread("t").run_once(Work::update()).await.expect_err("it is at work"),
        two.thread("t").resume().await.expect_err("it is at work"),
        two.thread("t").update(Work::update(), None).await.expect_err("it is at work"),
    ] {
        assert_eq!((error.code(), error.is_busy()), ("thread-busy", true));
    }
    assert_eq!(one.thread("t").log().await.expect("the log").len(), records);
    open.notify_one();
    let (mut ends, mut busy) = (0, 0);
    for start in starts {
        match start.await.expect("it ends") {
            Ok(outcome) => {
                assert_eq!(outcome.done().expect("it ends").log, ["first", "slow", "last"]);
                ends += 1;
            }
            Err(error) => {
                assert!(error.is_busy() && error.to_string().contains("already running"), "{error:?}");
                busy += 1;
            }
        }
    }
    assert_eq!((ends, busy), (1, 4));
    assert_eq!(field.world.lines(), ["first", "slow", "last"]);
    let history = two.thread("t").history().await.expect("the history");
    assert_eq!(
        history.iter().rev().map(|c| (c.branch.0, c.step.0)).collect::<Vec<_>>(),
        [(0, -1), (0, 0), (0, 1), (0, 2), (0, 3)]
    );
}

/// Runs the graph, and cancels the run as soon as the world has that line.
async fn cancelled_at(runner: &Runner<Work>, world: &World, line: &str) -> Outcome<Work> {
    let thread = runner.thread("t");
    let run = tokio::spawn(async move { thread.run(Work::update().topic("first")).await });
    while world.count(line) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(runner.thread("t").cancel().await.expect("it is cancelled"));
    run.await.expect("it ends").expect("to be cancelled is no error")
}

#[tokio::test]
async fn f09_a_run_is_cancelled_in_the_middle() {
    let field = Field::new();
    let world = &field.world;
    let runner = field.open(with_a_tool(world, true));
    let outcome = cancelled_at(&runner, world, "tool").await;
    // The tool may have done it, so a person is asked; nothing else goes on meanwhile.
    assert!(outcome.questions().len() == 1 && outcome.questions()[0].is_doubt(), "{outcome:?}");
    drop(runner);
    let runner = field.open(with_a_tool(world, false));
    let thread = runner.thread("t");
    let state = thread.state().await.expect("a state");
    assert_eq!((state.values.log.join(" "), next(&state)), ("one two".to_owned(), vec!["three"]));
    let log = thread.log().await.expect("the log");
    assert_eq!(saved(&log), ["one", "two"]);
    assert!(log.iter().any(|e| matches!(&e.record, Record::EffectDoubted(doubted) if doubted.why == Doubt::Cancelled)));
    let spent = thread.report().await.expect("a report").nodes;
    let spent: Vec<_> = spent.iter().map(|row| (row.node.as_str(), row.input_tokens, row.output_tokens)).collect();
    assert_eq!(spent, [("one", 0, 0), ("two", 100, 20), ("three", 30, 4)], "also of the node that was cut off");
    // Not even new input that takes the place of what was due drops a call that has no result.
    let message = || Work::update().topic("second");
    assert_eq!(thread.run(message()).await.expect_err("it waits").code(), "thread-waiting");
    assert_eq!(thread.clone().supersede().run(message()).await.expect_err("in doubt").code(), "in-doubt");
    let question = thread.questions().await.expect("the questions")[0].id;
    let end = thread.answer(question, Answer::performed("done by hand")).await.expect("it runs").done().expect("it ends");
    assert_eq!(end.log, ["one", "two", "call the tool: done by hand", "four"]);
    assert_eq!(world.lines(), ["one", "two", "three", "tool", "three", "four"], "the tool did it once");
    let end = thread.run(message()).await.expect("a new message").done().expect("it ends");
    assert_eq!((end.topic.as_str(), end.log.len(), world.count("tool")), ("second", 8, 2));
}

#[tokio::test]
async fn f09_and_without_a_tool_at_work_the_thread_is_suspended() {
    for resumes in [true, false] {
        let field = Field::new();
        let open = Arc::new(Notify::new());
        let runner = field.open(gated(&field.world, &open));
        let outcome = cancelled_at(&runner, &field.world, "slow").await;
        assert!(matches!(outcome, Outcome::Suspended(Suspension::Cancelled)), "{outcome:?}");
        drop(runner);
        let runner = field.open(gated(&field.world, &open));
        let state = runner.thread("t").state().await.expect("a state");
        assert_eq!(
            (state.status, next(&state), &state.values.log),
            (ThreadStatus::Suspended, vec!["slow"], &vec!["first".to_owned()])
        );
        open.notify_one();
        let (outcome, log) = if resumes {
            (runner.thread("t").resume().await, "first slow last")
        } else {
            (runner.thread("t").supersede().run(Work::update().topic("new")).await, "first first slow last")
        };
        assert_eq!(outcome.expect("it runs").done().expect("it ends").log.join(" "), log);
    }
}

// Time stands still while there is anything to do, so the store is in memory.
#[tokio::test(start_paused = true)]
async fn f10_a_late_writer() {
    let field = Field::new();
    let world = field.world.clone();
    let node = move |ctx: Context| {
        let world = world.clone();
        async move {
            world.note(&format!("attempt {}", ctx.attempt()))?;
            let write = if ctx.attempt() == 1 { "late" } else { "good" };
            if ctx.attempt() == 1 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            world.note(write)?;
            Ok(Work::update().topic(write).push_log(write))
        }
    };
    let node = node.timeout(Duration::from_millis(200)).retry(Retry::transient(2));
    let graph = graph().node("a", node).edge(START, "a").edge("a", END).build().expect("the graph is right");
    let runner = Runner::new(graph, MemoryStore::new());
    let end = runner.thread("t").run(Work::update()).await.expect("the second attempt").done().expect("it ends");
    assert_eq!((end.topic.as_str(), end.log.join(" ")), ("good", "good".to_owned()));
    let records = runner.thread("t").log().await.expect("the log").len();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(field.world.lines(), ["attempt 1", "attempt 2", "good"]);
    assert_eq!(*runner.thread("t").state().await.expect("a state").values, *end);
    let log = runner.thread("t").log().await.expect("the log");
    assert_eq!(log.len(), records);
    let failed: Vec<_> =
        log.iter().filter_map(|e| if let Record::AttemptFailed(failed) = &e.record { Some(&**failed) } else { None }).collect();
    assert_eq!((failed.len(), failed[0].attempt), (1, 1));
    assert!(failed[0].failure.message.contains("200 ms"), "{}", failed[0].failure);
}

#[tokio::test]
async fn f25_a_question_inside_of_a_subgraph() {
    if let Some(dir) = process_dir() {
        // This is the process that is killed while it waits for the answer.
        let world = World::at(&dir);
        let runner = Runner::new(asking(&world), store_in(&dir));
        let outcome = runner.thread("t").run(Work::update().topic("rope")).await.expect("it runs");
        world.note(&format!("{} open", outcome.questions().len())).expect("the world");
        return std::future::pending().await;
    }
    let field = Field::new();
    kill_when(&mut as_process("f25_a_question_inside_of_a_subgraph", field.dir()), field.world.file(), &["1 open"]);
    let open = || Runner::new(asking(&field.world), field.store());
    let runner = open();
    let state = runner.thread("t").state().await.expect("a state");
    assert_eq!((state.status, next(&state)), (ThreadStatus::Waiting, vec!["child"]), "the parent is paused");
    assert_eq!(state.questions[0].text, "Go on with rope from p1?");
    let inside = runner.thread("t").inside::<Child>(["child"]).state().await.expect("the child is at work");
    assert_eq!(inside.values.topic, "rope from p1");
    drop(runner);
    let end = open().thread("t").answer(state.questions[0].id, Approval::approve().by("dana")).await;
    let end = end.expect("it goes on").done().expect("it ends");
    assert_eq!(end.log, ["p1", "c1 sees rope from p1", "c2 sees rope from p1", "p2"]);
    assert_eq!(field.world.lines(), ["p1", "c1", "1 open", "c2", "p2"], "nothing ran again");
}

#[tokio::test]
async fn f26_back_in_time() {
    let field = Field::new();
    let open = || field.open(remembering(&field.world));
    for n in 1..=2 {
        let runner = open();
        let outcome = runner.thread("t").run(Work::update().topic(format!("run {n}"))).await.expect("it runs");
        let question = Arc::clone(&outcome.questions()[0]);
        assert_eq!(question.text, format!("Ship {n}?"), "the child goes on counting");
        let end = runner.thread("t").answer(question.id, Approval::approve()).await.expect("it runs").done().expect("it ends");
        assert_eq!(end.log.len(), n);
    }
    let runner = open();
    let (log, history) = (runner.thread("t").log().await.expect("the log"), told(&runner).await);
    let asks = runner.thread("t").history().await.expect("the history");
    let before =
        asks.iter().find(|c| c.next.iter().any(|node| node.as_str() == "ask") && c.values.n == 1).expect("before the question");
    let outcome = runner.thread("t").at(before.position).resume().await.expect("it runs again");
    let Outcome::Waiting(questions) = &outcome else { panic!("the old answer was used: {outcome:?}") };
    assert_eq!(questions[0].text, "Ship 1?");
    let old = log.iter().filter_map(|e| if let Record::Answered(answer) = &e.record { Some(answer.question) } else { None });
    assert!(old.into_iter().all(|old| old != questions[0].id), "another question");
    drop(runner);
    let runner = open();
    let inside = runner.thread("t").inside::<Child>(["child"]).state().await.expect("the child's state");
    assert_eq!((inside.values.n, inside.values.topic.as_str()), (1, "run 1"), "the child is as it was then");
    let end = runner.thread("t").answer(questions[0].id, Approval::reject("no")).await.expect("it runs").done().expect("it ends");
    assert_eq!((end.log.join(" "), field.world.lines().join(" ")), ("cancel".to_owned(), "c ship c ship cancel".to_owned()));
    assert_eq!(runner.thread("t").log().await.expect("the log")[..log.len()], log, "the first line of history stays");
    let now = told(&runner).await;
    assert_eq!(now[now.len() - history.len()..], history);
    // What comes next goes on from there.
    let outcome = runner.thread("t").run(Work::update().topic("run 3")).await.expect("it runs");
    assert_eq!(outcome.questions()[0].text, "Ship 2?");
}

/// The checkpoints of the first line, newest first.
async fn told(runner: &Runner<Work>) -> Vec<(Position, Work, Vec<String>)> {
    let history = runner.thread("t").history().await.expect("the history");
    let first = history.iter().filter(|c| c.branch.0 == 0);
    first.map(|c| (c.position, (*c.values).clone(), c.next.iter().map(ToString::to_string).collect())).collect()
}
