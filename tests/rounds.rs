//! Results that break rules, where that meets everything else: graphs inside, crashes, live runs, people who take their time.
//!
//! How it could break: a verdict that nobody finds again; an approval of a result that nobody has seen; rounds whose effects are taken for one another.

mod support {
    pub(crate) mod tokio_clock;
    pub(crate) mod work;
    pub(crate) mod world;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrata::state::Message;
use ferrata::testing::crash_everywhere_in;
use ferrata::{
    Approval, Class, Context, Durability, END, Graph, GraphBuilder, IntoNode, Next, Node, NodeError, Outcome, PastEffect,
    Question, QuestionId, Retry, START, Target, View,
};
use support::work::{Desk, SECOND, Work, WorkUpdate, one};
use support::world::{World, asked, at_least_3, ended};

fn never(_: &Work, after: &Work) -> Result<(), String> {
    Err(format!("{} will not do", after.n))
}

/// A node that asks a model with the feedback it has, which gives one more than what was too little.
fn model(world: &World) -> Node<Work> {
    let world = world.clone();
    let work = move |ctx: Context| {
        let world = world.clone();
        async move {
            let prompt = ctx.feedback().map_or_else(String::new, ToString::to_string);
            let better = prompt.split(' ').next().and_then(|n| n.parse::<i64>().ok()).unwrap_or_default() + 1;
            let ask = |_key| async {
                world.act(&prompt);
                Ok(better)
            };
            let n = ctx.effect("model", ask).repeatable().arguments(&prompt).await?;
            Ok(Work::update().n(n))
        }
    };
    work.into_node()
}

/// Promised: an unstored graph begins anew, and finds the effects and answers that are recorded. It broke: what a person said of a result inside was looked
/// for at a task that is on no record, and the thread was taken for damaged.
#[tokio::test(start_paused = true)]
async fn a_violation_in_a_graph_whose_steps_are_not_stored_can_be_answered_later() {
    for verdict in [Approval::approve(), Approval::reject("more")] {
        let (desk, world) = (Desk::new(), World::new());
        let graph = || one(one(model(&world).verify(at_least_3).rounds(2)).build().expect("right").unstored().shared());
        let question = asked(desk.thread(graph()).run(Work::update()).await);
        let answered = desk.thread(graph()).answer(question, verdict).await;
        let answered = answered.expect("the answer is taken");
        assert!(!matches!(answered, Outcome::Suspended(_)), "{answered:?}");
        desk.thread(graph()).log().await.expect("the log can be read");
    }
}

/// As above, with an answer that comes while the run goes on: it is on record then, and nobody could read the thread again.
#[tokio::test(start_paused = true)]
async fn a_violation_in_a_graph_whose_steps_are_not_stored_can_be_answered_in_a_live_run() {
    let (desk, world) = (Desk::new(), World::new());
    let graph = || {
        let slow = || async {
            tokio::time::sleep(60 * SECOND).await;
            Ok(Work::update().push_log("slow"))
        };
        let inner = one(model(&world).verify(at_least_3).rounds(1)).build().expect("right").unstored().shared();
        Graph::<Work>::new("two")
            .node("inner", inner)
            .node("slow", slow)
            .edge(START, "inner")
            .edge(START, "slow")
            .edge("inner", END)
            .edge("slow", END)
    };
    let thread = desk.thread(graph());
    let run = tokio::spawn({
        let thread = thread.clone();
        async move { thread.run(Work::update()).await }
    });
    tokio::time::sleep(10 * SECOND).await;
    let question = desk.thread(graph()).state().await.expect("a state").questions[0].id;
    let _ = thread.answer(question, Approval::approve()).await.expect("it is taken");
    let _ = run.await.expect("no panic").expect("it goes on");
    desk.thread(graph()).log().await.expect("the log can be read");
    desk.thread(graph()).state().await.expect("and the thread");
}

/// Promised: whatever the durability, the end is the same after a crash. It broke: the failed round was not stored, but the model's answer to its feedback
/// was; the first round then came with other arguments, and failed of that for ever.
#[tokio::test]
async fn rounds_come_to_the_same_end_wherever_the_process_dies() {
    for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
        let graph = |world: &World| one(model(world).verify(at_least_3)).build();
        let test = crash_everywhere_in(World::new, graph, Work::update()).thread(move |thread| thread.durability(durability));
        let report = test.after_each(|_, state| assert!(state.n >= 3)).await;
        report.unwrap_or_else(|faults| panic!("{durability:?}: {faults}"));
    }
    let graph = |world: &World| one(one(model(world).verify(at_least_3)).build().expect("right").unstored().shared()).build();
    let report = crash_everywhere_in(World::new, graph, Work::update()).after_each(|_, state| assert!(state.n >= 3)).await;
    report.unwrap_or_else(|faults| panic!("unstored: {faults}"));
}

/// Promised: a result that breaks its rule is never taken without a person who says so. It broke: the node runs once more after an approval, and whatever it
/// came to then was taken, though the person had never seen it.
#[tokio::test(start_paused = true)]
async fn an_approval_is_for_the_result_that_was_shown() {
    let (desk, world) = (Desk::new(), World::new());
    let graph = || {
        let world = world.clone();
        let work = move || {
            let n = world.act("work");
            async move { Ok(Work::update().n(n)) }
        };
        one(work.verify(never).rounds(1))
    };
    let first = asked(desk.thread(graph()).run(Work::update()).await);
    let outcome = desk.thread(graph()).answer(first, Approval::approve()).await.expect("it is taken in");
    let [second] = outcome.questions() else { panic!("a result that nobody has seen was taken: {outcome:?}") };
    assert!(second.text.contains("2 will not do"), "{}", second.text);
}

/// Promised: a person takes the result as it is. It broke: where the node says itself that its result is none, there is nothing to take; an approval was
/// accepted all the same, and the same question came again.
#[tokio::test(start_paused = true)]
async fn what_is_no_result_cannot_be_approved() {
    let desk = Desk::new();
    let work = || async { Err::<WorkUpdate, _>(NodeError::new("no JSON").violation()) };
    let thread = desk.thread(one(work.rounds(1)));
    let question = asked(thread.run(Work::update()).await);
    let refused = thread.answer(question, Approval::approve()).await.expect_err("there is nothing to take");
    assert_eq!(refused.code(), "answer-misfit");
    asked(thread.answer(question, Approval::reject("give JSON")).await);
}

/// Promised: the idempotency key is that of one request. It broke: a later round does another request under the key of the first one, for which a careful
/// system outside gives its first answer, or refuses it.
#[tokio::test(start_paused = true)]
async fn another_request_of_a_later_round_has_another_idempotency_key() {
    let keys = World::new();
    let seen = keys.clone();
    let work = move |ctx: Context| {
        let keys = seen.clone();
        async move {
            let prompt = ctx.feedback().map_or_else(String::new, ToString::to_string);
            let n = ctx.effect("model", |key| async move { Ok(keys.act(key)) }).repeatable().arguments(&prompt).await?;
            Ok(Work::update().n(n))
        }
    };
    ended(Desk::new().thread(one(work.verify(at_least_3))).run(Work::update()).await);
    let mut keys = keys.done();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3);
}

/// Promised: what the thread did outside is compensated. It broke: the effect of a later round took the place of the one before, which was never undone.
#[tokio::test(start_paused = true)]
async fn what_each_round_did_outside_is_compensated() {
    let (world, undone) = (World::new(), World::new());
    let work = move |ctx: Context| {
        let world = world.clone();
        async move {
            let prompt = ctx.feedback().map_or_else(|| "first".to_owned(), ToString::to_string);
            let put = |_key| async { Ok(world.act(&prompt)) };
            let n = ctx.effect("put", put).repeatable().arguments(&prompt).compensate("remove", &prompt).await?;
            Ok(Work::update().n(n))
        }
    };
    let told = undone.clone();
    let remove = move |done: PastEffect, _key: String| {
        let told = told.clone();
        async move {
            told.act(done.given::<String>()?);
            Ok(())
        }
    };
    let thread = Desk::new().thread(one(work.verify(at_least_3).rounds(2)).undo("remove", remove));
    asked(thread.run(Work::update()).await);
    let _ = thread.compensate().await.expect("it is compensated");
    assert_eq!(undone.done(), ["1 is too little", "first"]);
}

/// Promised: a rule sees the state with what the node wrote. It broke: messages had no ids yet, and the second one took the place of the first.
#[tokio::test(start_paused = true)]
async fn a_rule_sees_every_message_that_the_node_wrote() {
    let work = || async { Ok(Work::update().messages([Message::user("one"), Message::user("two")])) };
    let two = |_: &Work, after: &Work| match after.messages.len() {
        2 => Ok(()),
        n => Err(format!("{n} messages")),
    };
    let state = ended(Desk::new().thread(one(work.verify(two).rounds(1))).run(Work::update()).await);
    assert_eq!(state.messages.len(), 2);
}

/// Promised: a transient failure is tried again as the node's policy says. It broke: rounds that violations took were counted as attempts of that policy, and
/// the other way round a violation after failures of the connection went to a person without a single round of feedback.
#[tokio::test(start_paused = true)]
async fn rounds_and_attempts_are_counted_for_themselves() {
    let run = |classes: &'static [Class]| async move {
        let nth = Arc::new(AtomicU32::new(0));
        let work = move || {
            let class = classes.get(nth.fetch_add(1, Ordering::SeqCst) as usize).copied();
            async move { class.map_or(Ok(Work::update().n(3)), |class| Err(NodeError::new("no").with_class(class))) }
        };
        let node = work.rounds(3).retry(Retry::transient(3).first_delay(SECOND));
        Desk::new().thread(one(node)).run(Work::update()).await
    };
    use Class::{Transient as T, Violation as V};
    ended(run(&[V, V, T]).await);
    ended(run(&[T, T, V]).await);
    ended(run(&[T, V, T, V]).await);
    asked(run(&[V, T, V, V]).await);
    assert_eq!(run(&[T, V, T, T]).await.expect_err("three times is enough").code(), "node-failed");
}

/// What is wrong with one result is no business of other tasks, of the node's later ones, or of its next step.
#[tokio::test(start_paused = true)]
async fn feedback_belongs_to_its_task() {
    let world = World::new();
    let seen = world.clone();
    let work = move |state: View<Work>, ctx: Context| {
        seen.act(ctx.feedback().map_or("none".to_owned(), ToString::to_string));
        let n = state.n;
        async move {
            let better = if ctx.feedback().is_some() { "good" } else { "bad" };
            let next = if n < 2 { "work" } else { END };
            Ok(Next::update(Work::update().n(n + 1).hint(better)).goto([Target::node(next)]))
        }
    };
    let good = |_: &Work, after: &Work| if after.hint == "good" { Ok(()) } else { Err("bad") };
    let graph = Graph::<Work>::new("loop").node("work", work.leads_to(["work", END]).verify(good)).edge(START, "work");
    let state = ended(Desk::new().thread(graph).run(Work::update()).await);
    assert_eq!((state.n, world.done()), (3, ["none", "bad"].repeat(3).iter().map(|s| (*s).to_owned()).collect()));
}

/// Tasks of a fan-out have rounds of their own, and ask a person each; with crashes in between nothing is done twice.
#[tokio::test]
async fn tasks_of_a_fan_out_are_verified_each_for_itself() {
    let graph = |world: &World| {
        let world = world.clone();
        let split = || async { Ok(Next::update(Work::update()).goto((1..=2_i64).map(|n| Target::send("part", n)))) };
        let part = move |n: i64, ctx: Context| {
            let world = world.clone();
            async move {
                let done = world.clone();
                ctx.effect("pay", |_| async move { Ok(done.act(format!("pay {n}"))) }).await?;
                let round = i64::from(ctx.feedback().is_some());
                Ok(Work::update().push_log(format!("{n} in round {round}")))
            }
        };
        let in_round_1 = |before: &Work, after: &Work| match after.log.get(before.log.len()) {
            Some(line) if line.ends_with('1') => Ok(()),
            line => Err(format!("{line:?}")),
        };
        Graph::<Work>::new("fan")
            .node("split", split.leads_to(["part"]))
            .node("part", part.verify(in_round_1))
            .edge(START, "split")
            .edge("part", END)
            .build()
    };
    let test = crash_everywhere_in(World::new, graph, Work::update());
    let test = test.after_each(|world, state| {
        let mut done = world.done();
        done.sort();
        assert_eq!(done, ["pay 1", "pay 2"]);
        assert_eq!(state.log, ["1 in round 1", "2 in round 1"]);
    });
    test.await.unwrap_or_else(|faults| panic!("{faults}"));
}

/// A graph over the same state as a node of another one, in each way in which it can be one.
fn inside(node: Node<Work>, kind: &str) -> GraphBuilder<Work> {
    let inner = one(node).build().expect("right");
    let map = |inner: Graph<Work>| inner.mapped(|_| Work::update(), |_, ended: &Work| Work::update().n(ended.n));
    let call = |ctx: Context| async move { Ok(Work::update().n(ctx.call::<Work>("inner", Work::update()).await?.n)) };
    match kind {
        "shared" => one(inner.shared()),
        "continued" => one(map(inner.continued())),
        "unstored" => one(map(inner.unstored())),
        "called" => one(call.into_node()).callable("inner", inner),
        "called, unstored" => one(call.into_node()).callable("inner", inner.unstored()),
        _ => one(node_of(inner)),
    }
}

/// Two graphs around it, of which the inner one is stored and the outer one is not.
fn node_of(inner: Graph<Work>) -> Node<Work> {
    one(inner.shared()).build().expect("right").unstored().shared()
}

/// Rounds and verdicts in graphs inside come to the same end wherever the process dies, and no effect is performed twice.
#[tokio::test]
async fn rounds_and_verdicts_in_graphs_inside_survive_crashes() {
    for kind in ["shared", "continued", "unstored", "called", "called, unstored", "two deep"] {
        for (durability, approves) in
            [(Durability::Step, true), (Durability::Step, false), (Durability::Exit, true), (Durability::Behind, false)]
        {
            let graph = |world: &World| {
                let world = world.clone();
                let work = move |ctx: Context| {
                    let world = world.clone();
                    async move {
                        let prompt = ctx.feedback().map_or_else(String::new, ToString::to_string);
                        let other = world.clone();
                        ctx.effect("pay", |_| async move { Ok(other.act("pay")) }).await?;
                        let n = if prompt == "more" { 3 } else { i64::from(!prompt.is_empty()) };
                        let n = ctx.effect("model", |_| async { Ok(n) }).repeatable().arguments(&prompt).await?;
                        Ok(Work::update().n(n))
                    }
                };
                inside(work.verify(at_least_3).rounds(2), kind).build()
            };
            let verdict = move |_: &Question| if approves { Approval::approve() } else { Approval::reject("more") };
            let test = crash_everywhere_in(World::new, graph, Work::update()).answer_with("violation", verdict);
            let test = test.thread(move |thread| thread.durability(durability)).after_each(move |world, state| {
                assert_eq!(world.done(), ["pay"]);
                assert_eq!(state.n, if approves { 1 } else { 3 });
            });
            test.await.unwrap_or_else(|faults| panic!("{kind}, {durability:?}, approves: {approves}: {faults}"));
        }
    }
}

/// A person's verdict survives crashes wherever they happen, and the effects are performed once.
#[tokio::test]
async fn verdicts_survive_crashes() {
    for verdict in [true, false] {
        let graph = |world: &World| {
            let world = world.clone();
            let work = move |ctx: Context| {
                let world = world.clone();
                async move {
                    ctx.effect("pay", |_| async move { Ok(world.act("pay")) }).await?;
                    let said = ctx.feedback().map(ToString::to_string).unwrap_or_default();
                    Ok(Work::update().n(i64::from(said == "more") * 3))
                }
            };
            one(work.verify(at_least_3).rounds(2)).build()
        };
        let test = crash_everywhere_in(World::new, graph, Work::update());
        let verdict = move || if verdict { Approval::approve() } else { Approval::reject("more") };
        let test =
            test.answer_with("violation", move |_: &Question| verdict()).after_each(|world, _| assert_eq!(world.done(), ["pay"]));
        test.await.unwrap_or_else(|faults| panic!("{faults}"));
    }
}

/// The attempt after an approval may fail as any other: the approval still holds for the result that was shown.
#[tokio::test(start_paused = true)]
async fn an_approval_outlives_failures_of_the_attempt_after_it() {
    for retries in [2, 1] {
        let (desk, world) = (Desk::new(), World::new());
        let graph = || {
            let world = world.clone();
            let work = move || {
                let nth = world.act("attempt");
                async move { if nth == 2 { Err(NodeError::new("busy").transient()) } else { Ok(Work::update().n(1)) } }
            };
            one(work.verify(never).rounds(1).retry(Retry::transient(retries).first_delay(SECOND)))
        };
        let question = asked(desk.thread(graph()).run(Work::update()).await);
        let mut outcome = desk.thread(graph()).answer(question, Approval::approve()).await;
        if retries == 1 {
            assert_eq!(outcome.expect_err("it has one attempt").code(), "node-failed");
            outcome = desk.thread(graph()).resume().await;
        }
        assert_eq!((ended(outcome).n, world.done().len()), (1, 3));
    }
}

/// An edit in the place of the node closes the question, and a late verdict is refused and changes nothing.
#[tokio::test(start_paused = true)]
async fn a_verdict_on_what_was_edited_away_is_refused() {
    let (desk, world) = (Desk::new(), World::new());
    let thread = desk.thread(one(model(&world).verify(never).rounds(1)));
    let question = asked(thread.run(Work::update()).await);
    thread.update(Work::update().n(7), Some("work")).await.expect("it is edited");
    let error = thread.answer(question, Approval::approve()).await.expect_err("it is closed");
    assert_eq!(error.code(), "question-closed", "{error}");
    assert_eq!(ended(thread.resume().await).n, 7);
    assert_eq!(world.done().len(), 1);
}

/// A fallback takes over when the rounds are used up, and counts as one wherever the process dies.
#[tokio::test]
async fn a_fallback_takes_over_after_the_last_round() {
    for durability in [Durability::Step, Durability::Exit] {
        let graph = |world: &World| {
            let node = model(world).verify(never).rounds(2);
            one(node.fallback(|_: &Work, failure| Work::update().push_log(format!("without: {failure}")))).build()
        };
        let test = crash_everywhere_in(World::new, graph, Work::update()).thread(move |thread| thread.durability(durability));
        let test =
            test.after_each(|_, state| assert_eq!((state.n, &*state.log), (0, &["without: 2 will not do".to_owned()][..])));
        test.await.unwrap_or_else(|faults| panic!("{durability:?}: {faults}"));
    }
}

/// Two tasks of one step ask a person each; what is said of one is nothing that is said of the other, in one call or in two.
#[tokio::test(start_paused = true)]
async fn verdicts_on_siblings_are_told_apart() {
    let (desk, world) = (Desk::new(), World::new());
    let graph = || {
        let split = || async { Ok(Next::update(Work::update()).goto([Target::send("part", 1), Target::send("part", 2)])) };
        let world = world.clone();
        let part = move |n: i64, ctx: Context| {
            let said = ctx.feedback().map_or("nothing".to_owned(), ToString::to_string);
            world.act(format!("{n}: {said}"));
            async move { Ok(Work::update().push_log(format!("{n} {said}"))) }
        };
        let rule =
            |_: &Work, after: &Work| if after.log.iter().any(|line| line.ends_with("more")) { Ok(()) } else { Err("less") };
        let part = part.verify(rule).rounds(1).concurrency(1);
        let graph = Graph::<Work>::new("fan").node("split", split.leads_to(["part"])).node("part", part);
        graph.edge(START, "split").edge("part", END)
    };
    let outcome = desk.thread(graph()).run(Work::update()).await.expect("both ask");
    let ids: Vec<QuestionId> = outcome.questions().iter().map(|question| question.id).collect();
    let _ = desk.thread(graph()).answer(ids[1], Approval::reject("more")).await.expect("one waits");
    assert_eq!(ended(desk.thread(graph()).answer(ids[0], Approval::approve()).await).log, ["1 nothing", "2 more"]);
    assert_eq!(world.done(), ["1: nothing", "2: nothing", "2: more", "1: nothing"]);
}
