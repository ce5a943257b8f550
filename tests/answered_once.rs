//! A question is answered once, however many answer it at once, from wherever.
//!
//! How it could break: two clicks that are both accepted; the second one taken for the next question; one who is told "busy" and clicks again; an
//! answer that has to wait until an unrelated branch of the thread is through.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferrata::log::Record;
use ferrata::store::{MemoryStore, RedbStore, Store};
use ferrata::{Approval, Ask, Context, Durability, END, Error, Event, Graph, IntoNode, Outcome, Runner, START, State, Thread};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Case {
    #[state(append)]
    log: Vec<String>,
}

const ROUNDS: usize = 1_000;
const HANDLES: usize = 10;

/// An approval, then a payment, then another question, which a second click must not reach.
fn payment(paid: &Arc<AtomicUsize>) -> Graph<Case> {
    let paid = Arc::clone(paid);
    let pay = move |ctx: Context| {
        let paid = Arc::clone(&paid);
        async move {
            ctx.effect("pay", |_key| async move { Ok(paid.fetch_add(1, Ordering::SeqCst)) }).await?;
            Ok(Case::update().push_log("paid"))
        }
    };
    Graph::<Case>::new("payment")
        .question("approve", |_: &Case| Approval::ask("Pay?"))
        .node("pay", pay.irreversible())
        .question("again", |_: &Case| Approval::ask("Pay again?"))
        .edge(START, "approve")
        .approved("approve", "pay")
        .rejected("approve", END)
        .edge("pay", "again")
        .approved("again", "pay")
        .rejected("again", END)
        .build()
        .expect("the graph is right")
}

/// All answer the same question at once. Gives the name of the one whose answer counted.
async fn contend(threads: &[Thread<Case>], round: usize) -> usize {
    let questions = match threads[0].run(Case::update()).await.expect("it runs") {
        Outcome::Waiting(questions) => questions,
        other => panic!("{other:?}"),
    };
    let (question, start) = (questions[0].id, Arc::new(tokio::sync::Barrier::new(threads.len())));
    let clicks = threads.iter().cloned().enumerate().map(|(who, thread)| {
        let start = Arc::clone(&start);
        tokio::spawn(async move {
            start.wait().await;
            (who, thread.answer(question, Approval::approve().by(format!("person {who}"))).await)
        })
    });
    let mut accepted = Vec::new();
    let mut refused: Vec<Error> = Vec::new();
    for click in clicks.collect::<Vec<_>>() {
        match click.await.expect("no panic") {
            (who, Ok(outcome)) => {
                assert_eq!(
                    outcome.questions()[0].text,
                    "Pay again?",
                    "round {round}: it asks again, and nobody has answered that"
                );
                accepted.push(who);
            }
            (_, Err(error)) => refused.push(error),
        }
    }
    assert_eq!((accepted.len(), refused.len()), (1, threads.len() - 1), "round {round}: {refused:?}");
    for error in refused {
        assert_eq!(error.code(), "question-answered", "round {round}: {error}");
        assert!(error.to_string().contains(&format!("person {}", accepted[0])), "round {round}: {error}");
    }
    accepted[0]
}

async fn contend_over(store: impl Store + Clone, rounds: usize) {
    let paid = Arc::new(AtomicUsize::new(0));
    // Two runners over one store, as two servers in one process have them.
    let runners = [Runner::new(payment(&paid), store.clone()), Runner::new(payment(&paid), store)];
    let mut winners = [0; HANDLES];
    for round in 0..rounds {
        let name = format!("t{round}");
        let threads: Vec<_> = (0..HANDLES).map(|who| runners[who % 2].thread(&name)).collect();
        winners[contend(&threads, round).await] += 1;
        assert_eq!(paid.load(Ordering::SeqCst), round + 1, "the action once for each question");
        let log = threads[0].log().await.expect("the log");
        assert_eq!(log.iter().filter(|entry| matches!(entry.record, Record::Answered(_))).count(), 1);
    }
    println!("{rounds} rounds; answers that counted, by person: {winners:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_that_answer_at_once_over_two_runners_one_counts_and_the_others_are_told_who() {
    contend_over(Arc::new(MemoryStore::new()), ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_it_is_on_disk() {
    let dir = tempfile::tempdir().expect("a folder");
    contend_over(Arc::new(RedbStore::open(dir.path().join("store.redb")).expect("a store")), 100).await;
}

/// An answer that reaches nobody would let a test wait for ever.
async fn soon(test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(60), test).await.expect("it comes to an end");
}

/// One branch asks, the other one works until it is let go.
fn two_branches(gate: &Arc<Notify>) -> Graph<Case> {
    let gate = Arc::clone(gate);
    let work = move || {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(Case::update().push_log("worked"))
        }
    };
    let ask = |ctx: Context| async move {
        let name = ctx.ask("name", Ask::<String>::new("Who?")).await?;
        ctx.emit(&json!({ "heard": name }))?;
        Ok(Case::update().push_log(name))
    };
    Graph::<Case>::new("branches")
        .node("ask", ask)
        .node("work", work)
        .edge(START, "ask")
        .edge(START, "work")
        .edge("ask", END)
        .edge("work", END)
        .build()
        .expect("the graph is right")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_does_not_wait_for_a_branch_that_works_on() {
    soon(answer_beside_a_branch()).await;
}

async fn answer_beside_a_branch() {
    let gate = Arc::new(Notify::new());
    let store = Arc::new(MemoryStore::new());
    let [runner, other] = [0, 1].map(|_| Runner::new(two_branches(&gate), Arc::clone(&store)));
    for (name, answering) in [("same runner", &runner), ("other runner", &other)] {
        let mut events = runner.thread(name).stream(Case::update()).expect("it begins");
        let question = loop {
            if let Some(Event::Asked(question)) = events.next().await {
                break question.id;
            }
        };
        let thread = answering.thread(name);
        let wrong = thread.answer(question, 7).await.expect_err("it is no text");
        assert_eq!(wrong.code(), "answer-misfit", "{name}");
        let answer = tokio::spawn(async move { thread.answer(question, "Ada").await });
        // The node goes on while the other branch still works.
        let heard: Value = loop {
            if let Some(Event::Custom { value, .. }) = events.next().await {
                break value;
            }
        };
        assert_eq!(heard, json!({"heard": "Ada"}), "{name}");
        let late = answering.thread(name).answer(question, "Ben").await.expect_err("it was answered");
        assert_eq!(late.code(), "question-answered", "{name}");
        gate.notify_one();
        let state = answer.await.expect("no panic").expect("it is taken").done().expect("it ends");
        assert_eq!(state.log, ["Ada", "worked"], "{name}");
        assert_eq!(events.outcome().await.expect("it ends").done().expect("done").log, ["Ada", "worked"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_run_ends_with_is_told_to_who_answered_whatever_it_is() {
    soon(answer_runs_that_end_badly()).await;
}

async fn answer_runs_that_end_badly() {
    let fail = || async { Err::<CaseUpdate, _>(ferrata::NodeError::new("it broke")) };
    let ask = |ctx: Context| async move { Ok(Case::update().push_log(ctx.ask("name", Ask::<String>::new("Who?")).await?)) };
    let gate = Arc::new(Notify::new());
    let wait = {
        let gate = Arc::clone(&gate);
        move || {
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                Ok(Case::update())
            }
        }
    };
    let graph = Graph::<Case>::new("fails").node("ask", ask).node("wait", wait).node("fail", fail);
    let graph = graph.edge(START, "ask").edge(START, "wait").edge("ask", END).edge("wait", "fail").edge("fail", END);
    let runner = Runner::new(graph.build().expect("the graph is right"), MemoryStore::new());
    let mut events = runner.thread("t").stream(Case::update()).expect("it begins");
    let question = loop {
        if let Some(Event::Asked(question)) = events.next().await {
            break question.id;
        }
    };
    let thread = runner.thread("t");
    let answer = tokio::spawn(async move { thread.answer(question, "Ada").await });
    loop {
        if let Some(Event::Update { task, .. }) = events.next().await {
            assert_eq!(task.node.as_str(), "ask");
            break;
        }
    }
    gate.notify_one();
    let error = answer.await.expect("no panic").expect_err("the run failed");
    assert_eq!(error.code(), "node-failed");
    assert!(error.to_string().contains("it broke"), "{error}");
    drop(events);

    // A run that is stored at its end has nothing on record that could be answered: its end is waited for.
    let gate = Arc::new(Notify::new());
    let runner = Runner::new(two_branches(&gate), MemoryStore::new());
    let mut events = runner.thread("t").durability(Durability::Exit).stream(Case::update()).expect("it begins");
    let question = loop {
        if let Some(Event::Asked(question)) = events.next().await {
            break question.id;
        }
    };
    let thread = runner.thread("t");
    let answer = tokio::spawn(async move { thread.answer(question, "Ada").await });
    gate.notify_one();
    assert!(matches!(events.outcome().await, Ok(Outcome::Waiting(_))));
    assert!(answer.await.expect("no panic").expect("it is taken").done().is_some());
}

#[tokio::test]
async fn a_bare_answer_is_taken_only_where_one_question_is_open() {
    let ask = |ctx: Context| async move { Ok(Case::update().push_log(ctx.ask("name", Ask::<String>::new(ctx.node())).await?)) };
    let graph = Graph::<Case>::new("two").node("a", ask).node("b", ask);
    let graph = graph.edge(START, "a").edge(START, "b").edge("a", END).edge("b", END);
    let runner = Runner::new(graph.build().expect("the graph is right"), MemoryStore::new());
    let thread = runner.thread("t");
    assert_eq!(thread.reply("x").await.expect_err("no thread").code(), "thread-unknown");
    let questions = thread.run(Case::update()).await.expect("it asks").questions().to_vec();
    let error = thread.reply("x").await.expect_err("which one?");
    assert_eq!((error.code(), error.is_answer_refused()), ("question-ambiguous", true));
    assert!(questions.iter().all(|question| error.to_string().contains(&question.id.to_string())), "{error}");
    assert_eq!(thread.reply(7).await.expect_err("which one?").code(), "question-ambiguous");
    let outcome = thread.answer(questions[1].id, "second").await.expect("it fits");
    assert_eq!(outcome.questions()[0].id, questions[0].id);
    assert_eq!(thread.reply(7).await.expect_err("no text").code(), "answer-misfit");
    assert_eq!(thread.reply("first").await.expect("it fits").done().expect("it ends").log, ["first", "second"]);
    assert_eq!(thread.reply("x").await.expect_err("nobody asks").code(), "not-waiting");
    let unknown = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse().map(ferrata::QuestionId).expect("a uuid");
    assert_eq!(thread.answer(unknown, "x").await.expect_err("nobody asks").code(), "not-waiting");
}
