//! A result that breaks a rule goes back to the node with what is wrong, a limited number of times, and then to a person. Nothing passes in silence.
//!
//! How it could break: a result that is taken although it breaks the rule; rounds that begin anew with each process; a model that is paid again for what
//! has not changed, or that never sees the feedback because its first answer comes back from the log; a rule that panics and is taken for a yes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::log::{QuestionKind, Record};
use ferrata::store::{MemoryStore, RedbStore, Store};
use ferrata::{
    Approval, Context, END, Graph, IntoNode, NodeError, Outcome, Question, Runner, START, State, Suspension, Thread, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Report {
    total: Option<i64>,
    before: i64,
    #[state(append)]
    log: Vec<String>,
}

/// A model: it counts what it is asked, and gives the next of its answers.
#[derive(Clone, Default)]
struct Model {
    asked: Arc<Mutex<Vec<String>>>,
    read: Arc<AtomicU32>,
}

impl Model {
    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

/// A node that reads once, and asks a model with the feedback it has. Its totals are 0, 10, 20, ..
fn graph(model: &Model, rounds: Option<u32>, rule: fn(&Report, &Report) -> Result<(), String>) -> ferrata::GraphBuilder<Report> {
    let model = model.clone();
    let work = move |ctx: Context| {
        let model = model.clone();
        async move {
            let read = ctx.effect("read", |_key| async { Ok(model.read.fetch_add(1, Ordering::SeqCst)) });
            read.repeatable().arguments("the table").await?;
            let prompt = ctx.feedback().map_or_else(|| "add up".to_owned(), |wrong| format!("add up, but: {wrong}"));
            let ask = |_key| async {
                let mut asked = model.asked.lock().expect("no panic");
                asked.push(prompt.clone());
                Ok(10 * (asked.len() as i64 - 1))
            };
            let total = ctx.effect("model", ask).repeatable().arguments(&prompt).tokens(|_| (7, 3)).await?;
            Ok(Report::update().total(total))
        }
    };
    let node = work.verify(rule);
    let node = if let Some(rounds) = rounds { node.rounds(rounds) } else { node };
    Graph::<Report>::new("report").node("work", node).edge(START, "work").edge("work", END)
}

fn thread(graph: ferrata::GraphBuilder<Report>, store: impl Store) -> Thread<Report> {
    Runner::new(graph.build().expect("the graph is right"), store).thread("t")
}

fn at_least_20(before: &Report, after: &Report) -> Result<(), String> {
    assert_eq!((before.total, before.before), (None, 5), "it sees the state before");
    match after.total {
        Some(total) if total >= 20 => Ok(()),
        total => Err(format!("{total:?} is too little")),
    }
}

fn never(_: &Report, after: &Report) -> Result<(), String> {
    Err(format!("{:?} will not do", after.total))
}

fn question(outcome: &Outcome<Report>) -> Arc<Question> {
    let [question] = outcome.questions() else { panic!("{outcome:?}") };
    assert_eq!(question.kind, QuestionKind::Violation);
    Arc::clone(question)
}

#[tokio::test]
async fn a_result_that_breaks_the_rule_goes_back_with_what_is_wrong() {
    let model = Model::default();
    let thread = thread(graph(&model, None, at_least_20), MemoryStore::new());
    let state = thread.run(Report::update().before(5)).await.expect("it works in the end").done().expect("it ends");
    assert_eq!(state.total, Some(20));
    let asked = ["add up", "add up, but: Some(0) is too little", "add up, but: Some(10) is too little"];
    assert_eq!((model.asked(), model.read.load(Ordering::SeqCst)), (asked.map(str::to_owned).to_vec(), 1));
    let report = thread.report().await.expect("a report");
    assert_eq!((report.nodes[0].attempts, report.nodes[0].input_tokens), (3, 21), "every round is on record, with its price");
}

#[tokio::test]
async fn what_never_helps_goes_to_a_person_who_can_take_it_as_it_is() {
    let model = Model::default();
    let dir = tempfile::tempdir().expect("a folder");
    let open = || thread(graph(&model, Some(2), never), RedbStore::open(dir.path().join("store.redb")).expect("a store"));
    let thread = open();
    let outcome = thread.run(Report::update().before(5)).await.expect("it asks");
    let question = question(&outcome);
    assert_eq!(model.asked().len(), 2);
    assert!(question.text.contains("\"work\"") && question.text.contains("Some(10) will not do"), "{}", question.text);
    assert_eq!(question.show.as_ref().expect("what it is about")["result"], json!({"total": 10}));
    let misfit = thread.answer(question.id, "fine").await.expect_err("it is no verdict");
    assert_eq!(misfit.code(), "answer-misfit");
    drop(thread);

    let state = open().answer(question.id, Approval::approve().by("dana")).await.expect("it is taken").done().expect("it ends");
    assert_eq!(state.total, Some(10), "as it was");
    assert_eq!((model.asked().len(), model.read.load(Ordering::SeqCst)), (2, 1), "and nothing is paid for again");
}

#[tokio::test]
async fn what_a_person_says_is_the_next_feedback_and_the_rounds_begin_anew() {
    let model = Model::default();
    let thread = thread(graph(&model, Some(2), never), MemoryStore::new());
    let first = question(&thread.run(Report::update().before(5)).await.expect("it asks"));
    let second = question(&thread.answer(first.id, Approval::reject("leave out the tax")).await.expect("it tries again"));
    assert_ne!(first.id, second.id);
    let asked = model.asked();
    assert_eq!(asked.len(), 4);
    assert_eq!(asked[2], "add up, but: leave out the tax");
    assert_eq!(asked[3], "add up, but: Some(20) will not do");
}

#[tokio::test]
async fn rounds_are_counted_over_restarts() {
    let model = Model::default();
    let store = Arc::new(MemoryStore::new());
    let stop = Arc::new(AtomicU32::new(0));
    let open = || {
        let (model, stop) = (model.clone(), Arc::clone(&stop));
        let work = move |ctx: Context| {
            let (model, stop) = (model.clone(), Arc::clone(&stop));
            async move {
                let round = ctx.feedback().map_or("none".to_owned(), ToString::to_string);
                if stop.load(Ordering::SeqCst) == 1 {
                    return std::future::pending().await;
                }
                model.asked.lock().expect("no panic").push(round);
                stop.store(1, Ordering::SeqCst);
                Ok(Report::update().total(1))
            }
        };
        let graph =
            Graph::<Report>::new("report").node("work", work.verify(never).rounds(3)).edge(START, "work").edge("work", END);
        thread(graph, Arc::clone(&store))
    };
    // Each run makes one round, and is cut off in the next one before that has a result.
    let cut = |outcome: Result<Outcome<Report>, ferrata::Error>| {
        assert!(matches!(outcome, Ok(Outcome::Suspended(Suspension::Deadline))), "{outcome:?}")
    };
    cut(open().deadline(Duration::from_millis(50)).run(Report::update()).await);
    stop.store(0, Ordering::SeqCst);
    cut(open().deadline(Duration::from_millis(50)).resume().await);
    stop.store(0, Ordering::SeqCst);
    question(&open().resume().await.expect("the third round was the last one"));
    let wrong = "Some(1) will not do".to_owned();
    assert_eq!(model.asked(), ["none".to_owned(), wrong.clone(), wrong]);
}

#[tokio::test]
async fn a_rule_that_panics_fails_the_node() {
    fn panics(_: &Report, after: &Report) -> Result<(), String> {
        if after.total.is_some() { panic!("no such case") } else { Ok(()) }
    }
    let model = Model::default();
    let error = thread(graph(&model, None, panics), MemoryStore::new()).run(Report::update()).await.expect_err("it panics");
    assert!(error.to_string().contains("its rule panicked: no such case"), "{error}");
    assert_eq!(model.asked().len(), 1, "the rule fails the same way each time");
}

#[tokio::test]
async fn an_error_handler_takes_over_before_a_person_is_asked() {
    let model = Model::default();
    let work = || async { Ok(Report::update().total(1)) };
    let handler = |_: View<Report>, ctx: Context| async move {
        let failure = ctx.failure().expect("what it has to deal with");
        Ok(Report::update().push_log(format!("degraded: {failure}")))
    };
    let node = work.verify(never).rounds(2).on_error(handler);
    let graph = Graph::<Report>::new("report").node("work", node).edge(START, "work").edge("work", END);
    let thread = thread(graph, MemoryStore::new());
    let state = thread.run(Report::update()).await.expect("it is handled").done().expect("it ends");
    assert_eq!((state.total, state.log.as_slice()), (None, ["degraded: Some(1) will not do".to_owned()].as_slice()));
    assert!(model.asked().is_empty());
}

#[tokio::test]
async fn a_node_can_say_itself_that_its_result_breaks_a_rule() {
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let work = move |ctx: Context| {
        let nth = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match ctx.feedback() {
                Some(wrong) if nth == 1 => Ok(Report::update().push_log(wrong.message.clone())),
                _ => Err(NodeError::new("no JSON").violation()),
            }
        }
    };
    let graph = Graph::<Report>::new("report").node("work", work.rounds(2)).edge(START, "work").edge("work", END);
    let state = thread(graph, MemoryStore::new()).run(Report::update()).await.expect("it works").done().expect("it ends");
    assert_eq!(state.log, ["no JSON"]);

    // Where nobody said that there are rounds, it is a failure as any other, and no silent pass.
    let work = || async { Err::<ReportUpdate, _>(NodeError::new("no JSON").violation()) };
    let graph = Graph::<Report>::new("report").node("work", work).edge(START, "work").edge("work", END);
    let thread = thread(graph, MemoryStore::new());
    assert_eq!(thread.run(Report::update()).await.expect_err("it fails").code(), "node-failed");
    let log = thread.log().await.expect("the log");
    assert_eq!(log.iter().filter(|entry| matches!(entry.record, Record::Asked(_))).count(), 0);
}

#[tokio::test]
async fn a_fallback_goes_on_by_the_nodes_own_edges_and_says_what_it_is() {
    let fails = || async { Err::<ReportUpdate, _>(NodeError::new("closed").deterministic()) };
    let next = || async { Ok(Report::update().push_log("next")) };
    let wait =
        |ctx: Context| async move { Ok(Report::update().push_log(ctx.ask("go", ferrata::Ask::<String>::new("Go?")).await?)) };
    let node =
        fails.fallback(|before: &Report, failure| Report::update().push_log(format!("{} without: {failure}", before.before)));
    let graph = Graph::<Report>::new("report")
        .node("work", node)
        .node("wait", wait)
        .node("next", next)
        .edge(START, "work")
        .edge(START, "wait")
        .join(["work", "wait"], "next")
        .edge("next", END);
    let thread = thread(graph, MemoryStore::new());
    let question = thread.run(Report::update().before(5)).await.expect("it asks").questions()[0].id;
    let progress = thread.progress().await.expect("it is there");
    assert_eq!((progress.done.len(), &progress.degraded), (1, &progress.done));
    let state = thread.answer(question, "go").await.expect("it goes on").done().expect("it ends");
    assert_eq!(state.log, ["5 without: closed", "go", "next"]);
    let log = thread.log().await.expect("the log");
    let degraded = log.iter().filter(|e| matches!(&e.record, Record::TaskDone(done) if done.degraded && !done.handled)).count();
    assert_eq!(degraded, 1);

    let goes = || async { Ok(ferrata::Next::update(Report::update())) };
    let node = goes.leads_to(["next"]).fallback(|_: &Report, _| Report::update());
    let graph = Graph::<Report>::new("report").node("work", node).node("next", next).edge(START, "work").edge("next", END);
    let error = graph.build().expect_err("it says nothing of where to go");
    assert_eq!(error.mistakes()[0].code(), "fallback", "{error}");
}
