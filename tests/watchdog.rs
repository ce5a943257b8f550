//! A node that gives no sign of life is noticed, begun again once, and given to a person; one that is slow and gives signs is left alone.
//!
//! How it could break: a slow node that is cut off although it works; a node that is begun again for ever; an effect that was under way and is repeated in silence; a graph that was
//! called, whose caller is taken for dead; a process that dies with one thread, again and again.

mod support {
    pub(crate) mod notes;
    pub(crate) mod tokio_clock;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata::log::Record;
use ferrata::store::{MemoryStore, ThreadStatus};
use ferrata::{
    Approval, Context, END, Graph, IntoNode, Node, NoticeKind, Outcome, QuestionKind, Retry, Runner, START, State, Supervisor,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::notes::Told;
use support::tokio_clock::TokioClock;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Work {
    #[state(append)]
    log: Vec<String>,
}

struct Desk {
    runner: Runner<Work>,
    supervisor: Supervisor,
    told: Told,
    begun: Arc<AtomicU32>,
}

impl Desk {
    async fn new(node: impl Fn(Arc<AtomicU32>) -> Node<Work>) -> Self {
        let begun = Arc::<AtomicU32>::default();
        let node = node(Arc::clone(&begun));
        let graph = Graph::<Work>::new("work").node("work", node).edge(START, "work").edge("work", END).build();
        let runner = Runner::with_clock(graph.expect("the graph is right"), MemoryStore::new(), TokioClock::new());
        let told = Told::default();
        let supervisor = runner.supervise().notify(told.clone()).start().await.expect("it begins");
        Self { runner, supervisor, told, begun }
    }

    fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    async fn run(&self) -> Result<Outcome<Work>, ferrata::Error> {
        self.runner.thread("t").run(Work::update()).await
    }
}

/// Hangs in its first attempts.
fn hangs(times: u32) -> impl Fn(Arc<AtomicU32>) -> Node<Work> {
    move |begun| {
        let work = move |ctx: Context| {
            let n = begun.fetch_add(1, Ordering::SeqCst);
            async move {
                ctx.effect("look", |_| async { Ok(()) }).await?;
                if n < times {
                    std::future::pending::<()>().await;
                }
                Ok(Work::update().push_log(format!("attempt {}: {:?}", ctx.attempt(), ctx.feedback().map(ToString::to_string))))
            }
        };
        work.into_node()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_is_noticed_after_ten_minutes_and_begun_again_after_twenty() {
    let desk = Desk::new(hangs(1)).await;
    let run = tokio::spawn({
        let thread = desk.runner.thread("t");
        async move { thread.run(Work::update()).await }
    });
    tokio::time::sleep(9 * MINUTE).await;
    assert!(desk.told.all().is_empty());
    tokio::time::sleep(4 * MINUTE).await;
    assert_eq!(desk.told.kinds(), [NoticeKind::Stalled]);
    assert!(desk.told.all()[0].text.contains("Node \"work\" of thread \"t\" may hang"), "{}", desk.told.all()[0].text);
    assert_eq!(desk.begun(), 1, "it is only looked at");
    tokio::time::sleep(10 * MINUTE).await;
    let done = run.await.expect("no panic").expect("it runs").done().expect("it is done");
    assert_eq!((done.log[0].as_str(), desk.begun()), ("attempt 2: None", 2), "without a policy that retries");
    let log = desk.runner.thread("t").log().await.expect("the log");
    let looked = log.iter().filter(|entry| matches!(entry.record, Record::EffectDone(_))).count();
    assert_eq!(looked, 1, "the effect keeps what it did");
    desk.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_again_is_given_to_a_person_who_lets_it_go_on_or_not() {
    let desk = Desk::new(hangs(3)).await;
    let outcome = desk.run().await.expect("it runs");
    let question = outcome.questions()[0].clone();
    assert_eq!((&question.kind, desk.begun()), (&QuestionKind::Stall, 2));
    assert!(question.text.contains("gave no sign of life for 1200000 ms"), "{}", question.text);
    desk.told.until(3).await;
    assert_eq!(desk.told.kinds(), [NoticeKind::Stalled, NoticeKind::Stalled, NoticeKind::Asked]);
    // It is tried again with a word for it, once more by itself.
    let thread = desk.runner.thread("t");
    let outcome = thread.answer(question.id, Approval::edit("look into the other drawer")).await.expect("it is taken");
    let done = outcome.done().expect("it is done");
    assert_eq!(desk.begun(), 4);
    assert_eq!(done.log, ["attempt 4: Some(\"look into the other drawer\")"]);
    desk.supervisor.drain(MINUTE).await;

    let desk = Desk::new(hangs(9)).await;
    let question = desk.run().await.expect("it runs").questions()[0].clone();
    let thread = desk.runner.thread("t");
    let failed = thread.answer(question.id, Approval::reject("it is broken")).await.expect_err("it fails");
    assert!(failed.to_string().contains("it is broken"), "{failed}");
    assert_eq!((desk.begun(), thread.state().await.expect("it is there").status), (2, ThreadStatus::Failed));
    desk.told.until_kind(NoticeKind::Failed, 1).await;
    desk.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_that_gives_signs_of_life_is_left_alone_and_so_is_one_that_asks_for_it() {
    let beats = |begun: Arc<AtomicU32>| {
        let work = move |ctx: Context| {
            begun.fetch_add(1, Ordering::SeqCst);
            async move {
                for _ in 0..100 {
                    tokio::time::sleep(9 * MINUTE).await;
                    ctx.heartbeat();
                }
                Ok(Work::update().push_log("slow"))
            }
        };
        work.into_node()
    };
    let silent = |begun: Arc<AtomicU32>| {
        let work = move || {
            begun.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::time::sleep(1_000 * MINUTE).await;
                Ok(Work::update().push_log("slow"))
            }
        };
        work.patience(None)
    };
    for desk in [Desk::new(beats).await, Desk::new(silent).await] {
        assert!(desk.run().await.expect("it runs").done().is_some());
        assert_eq!((desk.begun(), desk.told.all().len()), (1, 0));
        desk.supervisor.drain(MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_has_a_patience_of_its_own_and_its_retries_count_for_themselves() {
    let work = |begun: Arc<AtomicU32>| {
        let work = move |_: Context| {
            let n = begun.fetch_add(1, Ordering::SeqCst);
            async move {
                match n {
                    0 => std::future::pending().await,
                    1 | 2 => Err(ferrata::NodeError::new("the line is dead").transient()),
                    _ => Ok(Work::update().push_log("done")),
                }
            }
        };
        work.patience(Some(MINUTE)).retry(Retry::transient(3))
    };
    let desk = Desk::new(work).await;
    assert!(desk.run().await.expect("three attempts are allowed").done().is_some());
    assert_eq!((desk.begun(), desk.told.kinds()), (4, vec![NoticeKind::Stalled]));
    desk.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn an_effect_under_way_in_a_node_that_hangs_is_in_doubt_and_not_repeated() {
    let performed = Arc::<AtomicU32>::default();
    let count = Arc::clone(&performed);
    let work = move |_: Arc<AtomicU32>| {
        let count = Arc::clone(&count);
        let work = move |ctx: Context| {
            let count = Arc::clone(&count);
            async move {
                let pay = |_key| async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<Result<(), ferrata::NodeError>>().await
                };
                ctx.effect("pay", pay).await?;
                Ok(Work::update().push_log("paid"))
            }
        };
        work.into_node()
    };
    let desk = Desk::new(work).await;
    let outcome = desk.run().await.expect("it runs");
    assert!(outcome.questions()[0].is_doubt());
    assert_eq!(performed.load(Ordering::SeqCst), 1);
    let answer = ferrata::Answer::performed(serde_json::Value::Null);
    let done = desk.runner.thread("t").answer(outcome.questions()[0].id, answer).await.expect("it is taken").done();
    assert_eq!(done.expect("it is done").log, ["paid"]);
    assert_eq!(performed.load(Ordering::SeqCst), 1);
    desk.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_graph_that_it_called_is_not_taken_for_dead() {
    let slow = |ctx: Context| async move {
        tokio::time::sleep(100 * MINUTE).await;
        Ok(Work::update().push_log(ctx.node()))
    };
    let inner = Graph::<Work>::new("inner").node("slow", slow.patience(None)).edge(START, "slow").edge("slow", END);
    let inner = inner.build().expect("the graph is right");
    let graph = Graph::<Work>::new("outer").node("inner", inner.shared()).edge(START, "inner").edge("inner", END).build();
    let runner = Runner::with_clock(graph.expect("the graph is right"), MemoryStore::new(), TokioClock::new());
    let told = Told::default();
    let supervisor = runner.supervise().notify(told.clone()).start().await.expect("it begins");
    let done = runner.thread("t").run(Work::update()).await.expect("it runs").done().expect("it is done");
    assert_eq!((&*done.log, told.all().len()), (&["slow".to_owned()][..], 0));
    supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_supervisor_nobody_looks() {
    let slow = |ctx: Context| async move {
        tokio::time::sleep(1_000 * MINUTE).await;
        Ok(Work::update().push_log(ctx.node()))
    };
    let graph =
        Graph::<Work>::new("work").node("slow", slow.patience(Some(MINUTE))).edge(START, "slow").edge("slow", END).build();
    let runner = Runner::with_clock(graph.expect("the graph is right"), MemoryStore::new(), TokioClock::new());
    assert!(runner.thread("t").run(Work::update()).await.expect("it runs").done().is_some());
}
