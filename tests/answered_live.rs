//! An answer reaches a run that goes on, wherever its question was asked, and who asked goes on with it.
//!
//! How it could break: an answer that is recorded, and nobody goes on with it; one that reaches a graph whose caller has not come to rest; a question, or a
//! mark, in a place from which a node cannot wait.

mod support {
    pub(crate) mod case;
}

use std::sync::Arc;

use ferrata::store::MemoryStore;
use ferrata::{
    Ask, Context, END, Event, Events, Graph, GraphBuilder, NodeError, Outcome, Performed, QuestionId, START, Suspension, Thread,
};
use support::case::{Case, agree, ask, hold, runner, soon, thread};
use tokio::sync::Notify;

/// What the run asks first.
async fn asked(events: &mut Events<Case>) -> QuestionId {
    loop {
        if let Some(Event::Asked(question)) = events.next().await {
            return question.id;
        }
    }
}

/// Waits until no question is open any more.
async fn taken(thread: &Thread<Case>) {
    while !thread.questions().await.expect("it is there").is_empty() {
        tokio::task::yield_now().await;
    }
}

/// One branch asks, the other one works until it is let go.
fn branches(gate: &Arc<Notify>) -> GraphBuilder<Case> {
    let graph = Graph::<Case>::new("branches").node("ask", ask).node("work", hold(gate));
    graph.edge(START, "ask").edge(START, "work").edge("ask", END).edge("work", END)
}

/// Promised: while a run goes on, an answer is recorded at once and who asked goes on. How it broke: where the question was asked in an earlier run, its task
/// is never started in this one, and the run ends as suspended, as if its caller had gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asked_in_an_earlier_run_goes_on_too() {
    let gate = Arc::new(Notify::new());
    let runner = runner(branches(&gate), MemoryStore::new());
    let mut events = runner.thread("t").stream(Case::update()).expect("it begins");
    let question = asked(&mut events).await;
    runner.thread("t").cancel().await.expect("it is cut");
    drop(events);
    // Another run: the question is still open, and the other branch works again.
    let mut events = runner.thread("t").stream_resume().expect("it begins");
    loop {
        if let Some(Event::TaskStarted { task, .. }) = events.next().await {
            assert_eq!(task.node.as_str(), "work");
            break;
        }
    }
    let thread = runner.thread("t");
    let answer = tokio::spawn(async move { thread.answer(question, "Ada").await });
    taken(&runner.thread("t")).await;
    gate.notify_one();
    let outcome = soon(answer).await.expect("no panic").expect("it is taken");
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
}

/// Promised: as above. How it broke: a node that called a graph has not come to rest yet (an effect of it is under way, or just by a race) when the question
/// inside is answered. It pauses a moment later, nobody wakes it, and the run ends at a breakpoint that nobody has set.
async fn answered_inside(inner: impl Fn(Graph<Case>) -> Graph<Case>, what: &str) {
    let gate = Arc::new(Notify::new());
    let asking = Graph::<Case>::new("asking").node("ask", ask).edge(START, "ask").edge("ask", END).build().expect("right");
    let held = Arc::clone(&gate);
    let both = move |ctx: Context| {
        let gate = Arc::clone(&held);
        async move {
            let slow = ctx.effect("slow", |_key| async move {
                gate.notified().await;
                Ok(())
            });
            let (said, slow) = tokio::join!(ctx.call::<Case>("asking", Case::update()), slow);
            slow?;
            Ok(Case::update().push_log(said?.log.join(" ")))
        }
    };
    let graph = Graph::<Case>::new("outer").callable("asking", inner(asking)).node("both", both);
    let runner = runner(graph.edge(START, "both").edge("both", END), MemoryStore::new());
    let mut events = runner.thread("t").stream(Case::update()).expect("it begins");
    let question = asked(&mut events).await;
    let thread = runner.thread("t");
    let answer = tokio::spawn(async move { thread.answer(question, "Ada").await });
    taken(&runner.thread("t")).await;
    gate.notify_one();
    let outcome = soon(answer).await.expect("no panic").expect("it is taken");
    assert!(matches!(outcome, Outcome::Done(_)), "{what}: {outcome:?}");
    assert_eq!(runner.thread("t").state().await.expect("a state").values.log, ["Ada"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_inside_a_graph_counts_while_who_called_it_still_has_an_effect_under_way() {
    answered_inside(|graph| graph, "fresh").await;
    answered_inside(Graph::continued, "continued").await;
    answered_inside(Graph::unstored, "unstored").await;
}

/// Promised: the same as of a thread at rest, where the questions of an earlier checkpoint are refused as not open. How it broke: the answer is accepted for
/// the line that is at work, and the outcome is read at the checkpoint: suspended, of a run that is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_by_a_handle_to_an_earlier_checkpoint_is_not_one_to_the_run_that_goes_on() {
    let gate = Arc::new(Notify::new());
    let runner = runner(branches(&gate), MemoryStore::new());
    let mut events = runner.thread("t").stream(Case::update()).expect("it begins");
    let question = asked(&mut events).await;
    let earlier = runner.thread("t").history().await.expect("a history")[0].position;
    let thread = runner.thread("t").at(earlier);
    let answer = tokio::spawn(async move { thread.answer(question, "Ada").await });
    while !answer.is_finished() && !runner.thread("t").questions().await.expect("questions").is_empty() {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    match soon(answer).await.expect("no panic") {
        Ok(outcome) => assert!(outcome.done().is_some(), "it was taken, and the run is done"),
        Err(error) => assert!(error.is_answer_refused() || error.is_busy(), "{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_answers_to_a_run_that_goes_on_all_are_taken_or_none() {
    let gate = Arc::new(Notify::new());
    let two = |ctx: Context| async move {
        let (a, b) = tokio::join!(ctx.ask("a", Ask::<String>::new("A?")), ctx.ask("b", Ask::<String>::new("B?")));
        Ok(Case::update().push_log(format!("{} {}", a?, b?)))
    };
    let graph = Graph::<Case>::new("two").node("two", two).node("work", hold(&gate));
    let graph = graph.edge(START, "two").edge(START, "work").edge("two", END).edge("work", END);
    let runner = runner(graph, MemoryStore::new());
    let thread = runner.thread("t");
    let mut events = thread.stream(Case::update()).expect("it begins");
    let (a, b) = (asked(&mut events).await, asked(&mut events).await);
    let unknown = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse().map(QuestionId).expect("a uuid");
    let error = thread.answer_all([(a, "x"), (unknown, "y")]).await.expect_err("nobody asked that");
    assert!(error.is_answer_refused(), "{error}");
    assert_eq!(thread.questions().await.expect("it is there").len(), 2);

    // One of two does not wake the node; the other one does.
    let (first, second) = (thread.clone(), thread.clone());
    let first = tokio::spawn(async move { first.answer(a, "x").await });
    while thread.questions().await.expect("it is there").len() > 1 {
        tokio::task::yield_now().await;
    }
    agree(&runner).await;
    assert_eq!(thread.answer_all([(a, "x"), (b, "y")]).await.expect_err("one is closed").code(), "question-answered");
    let second = tokio::spawn(async move { second.answer(b, "y").await });
    taken(&thread).await;
    gate.notify_one();
    for answer in [first, second] {
        let state = soon(answer).await.expect("no panic").expect("it is taken").done().expect("it ends");
        assert_eq!(state.log, ["x y", "worked"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breakpoint_is_kept_by_a_run_that_was_answered() {
    for before in [true, false] {
        let gate = Arc::new(Notify::new());
        let next = || async { Ok(Case::update().push_log("next")) };
        let graph = Graph::<Case>::new("branches").node("ask", ask).node("work", hold(&gate)).node("next", next);
        let graph = graph.edge(START, "ask").edge(START, "work").join(["ask", "work"], "next").edge("next", END);
        let runner = runner(graph, MemoryStore::new());
        let thread = runner.thread("t");
        let pausing = if before { thread.clone().pause_before(["next"]) } else { thread.clone().pause_after(["ask"]) };
        let mut events = pausing.stream(Case::update()).expect("it begins");
        let question = asked(&mut events).await;
        let answering = thread.clone();
        let answer = tokio::spawn(async move { answering.answer(question, "Ada").await });
        taken(&thread).await;
        gate.notify_one();
        let outcome = soon(answer).await.expect("no panic").expect("it is taken");
        assert!(matches!(outcome, Outcome::Suspended(Suspension::Breakpoint)), "{outcome:?}");
        let state = thread.resume().await.expect("it goes on").done().expect("it ends");
        assert_eq!(state.log, ["Ada", "worked", "next"]);
    }
}

/// Promised: effects under way end before the node pauses. How it broke: one that marks something then never ends, and neither does the run.
#[tokio::test]
async fn an_effect_that_marks_how_far_it_is_comes_to_an_end_while_the_node_asks() {
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    let both = move |ctx: Context| {
        let gate = Arc::clone(&held);
        async move {
            let inside = ctx.clone();
            let slow = ctx.effect("slow", move |_key| async move {
                gate.notified().await;
                inside.mark("row", &1).await?;
                Ok(())
            });
            // The effect begins before the node asks.
            let (slow, name) = tokio::join!(biased; slow, ctx.ask("name", Ask::<String>::new("Who?")));
            slow?;
            Ok(Case::update().push_log(name?))
        }
    };
    let graph = Graph::<Case>::new("marks").node("both", both).edge(START, "both").edge("both", END);
    let thread = thread(graph, MemoryStore::new());
    let run = tokio::spawn(async move { thread.run(Case::update()).await.map(|outcome| outcome.questions().len()) });
    gate.notify_one();
    let asked = soon(run).await.expect("no panic").expect("it runs");
    assert_eq!(asked, 1, "the effect ends and is recorded, and nobody has to say whether it was performed");
}

/// Promised: everything has a bound. How it broke: the check holds the node's pause back, and waits for it: the run stands still for ever.
#[tokio::test]
async fn a_check_that_asks_does_not_stand_still_for_ever() {
    let pay = |ctx: Context| async move {
        let inside = ctx.clone();
        let pay = ctx.effect("pay", |_key| async { Err::<u64, _>(NodeError::new("the line went dead")) }).check(move |_key| {
            let inside = inside.clone();
            async move { Ok(Performed::Yes(inside.ask("sum", Ask::<u64>::new("How much was it?")).await?)) }
        });
        Ok(Case::update().n(pay.await?))
    };
    let graph = Graph::<Case>::new("asks").node("pay", pay).edge(START, "pay").edge("pay", END);
    let thread = thread(graph, MemoryStore::new());
    let outcome = soon(thread.run(Case::update())).await;
    assert!(outcome.is_err() || matches!(outcome, Ok(Outcome::Waiting(_))), "{outcome:?}");
}
