//! Graphs that a node calls again with another input: in a later round, a later attempt, another process.
//!
//! How it could break: the result of the first call is given for another input, without a word; or what was done inside is done twice.

mod support {
    pub(crate) mod tokio_clock;
    pub(crate) mod work;
    pub(crate) mod world;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrata::log::Record;
use ferrata::testing::crash_everywhere_in;
use ferrata::{
    Approval, Ask, Context, END, Error, Graph, GraphBuilder, IntoNode, Node, NodeError, Outcome, Retry, Runner, START, State,
    View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::work::{Desk, SECOND, Work, WorkUpdate, one};
use support::world::{World, asked, at_least_3, ended};

/// Thinks about a hint, which is an effect of the world, and gives how often it was thought.
fn think(world: &World) -> Node<Work> {
    let world = world.clone();
    let think = move |state: View<Work>, ctx: Context| {
        let world = world.clone();
        async move {
            let n = ctx.effect("think", |_key| async { Ok(world.act(&state.hint)) }).await?;
            Ok(Work::update().n(n))
        }
    };
    think.into_node()
}

fn thinking(world: &World) -> Graph<Work> {
    one(think(world)).build().expect("the graph is right")
}

async fn call(ctx: &Context, hint: impl Into<String>) -> ferrata::Result<WorkUpdate> {
    Ok(Work::update().n(ctx.call::<Work>("think", Work::update().hint(hint.into())).await?.n))
}

/// Calls with the number that the feedback begins with.
async fn with_feedback(ctx: Context) -> ferrata::Result<WorkUpdate> {
    let hint = ctx.feedback().and_then(|wrong| wrong.to_string().split(' ').next().map(ToOwned::to_owned));
    call(&ctx, hint.unwrap_or_default()).await
}

/// What the error says that the graph was called with before, and now.
fn refused(outcome: Result<Outcome<Work>, Error>, then: &str, now: &str) {
    let error = outcome.expect_err("another input is refused");
    assert_eq!(error.code(), "effect-arguments", "{error}");
    let text = error.to_string();
    let (then, now) = (format!(r#""think" was called with {{"hint":"{then}"}}"#), format!(r#"calls it with {{"hint":"{now}"}}"#));
    assert!(text.contains(&then) && text.contains(&now), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_later_round_calls_the_graph_anew_with_another_input() {
    let (desk, world) = (Desk::new(), World::new());
    let graph = || one(with_feedback.verify(at_least_3)).callable("think", thinking(&world));
    assert_eq!(ended(desk.thread(graph()).run(Work::update()).await).n, 3);
    assert_eq!(world.done(), ["", "1", "2"]);
    let inputs = desk.thread(graph()).log().await.expect("a log").into_iter().filter_map(|entry| match entry.record {
        Record::Input(input) => input.arguments.zip(Some(input.path.to_string())),
        _ => None,
    });
    let inputs: Vec<_> = inputs.collect();
    let paths: Vec<&str> = inputs.iter().map(|(_, path)| &**path).collect();
    let anew = |nth: usize| format!("work@1.think~{}/", inputs[nth].0.fingerprint);
    assert_eq!(paths, ["work@1.think/", &anew(1), &anew(2)]);
    assert_eq!(inputs[2].0.shown, r#"{"hint":"2"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_later_round_with_the_same_input_gets_the_result_there_is() {
    let (desk, world) = (Desk::new(), World::new());
    let work = |ctx: Context| async move {
        let n = ctx.call::<Work>("think", Work::update().hint("same")).await?.n;
        Ok(Work::update().n(if ctx.feedback().is_some() { n + 2 } else { n }))
    };
    let graph = one(work.verify(at_least_3)).callable("think", thinking(&world));
    assert_eq!(ended(desk.thread(graph).run(Work::update()).await).n, 3);
    assert_eq!(world.done(), ["same"]);
}

/// A round that comes to the input of an earlier one finds what that one did.
#[tokio::test(start_paused = true)]
async fn what_a_person_says_calls_the_graph_anew_as_well() {
    let (desk, world) = (Desk::new(), World::new());
    let work = |ctx: Context| async move {
        let hint = ctx.feedback().map_or_else(String::new, ToString::to_string);
        call(&ctx, if hint.contains("back") { String::new() } else { hint }).await
    };
    let graph = || one(work.verify(at_least_3).rounds(1)).callable("think", thinking(&world));
    let first = asked(desk.thread(graph()).run(Work::update()).await);
    let second = asked(desk.thread(graph()).answer(first, Approval::reject("harder")).await);
    let third = asked(desk.thread(graph()).answer(second, Approval::reject("back")).await);
    assert_eq!(world.done(), ["", "harder"]);
    let outcome = desk.thread(graph()).answer(third, Approval::approve()).await;
    assert_eq!((ended(outcome).n, world.done().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_comes_with_another_input_is_refused() {
    let (desk, world) = (Desk::new(), World::new());
    let work = |ctx: Context| async move {
        let update = call(&ctx, format!("attempt {}", ctx.attempt())).await?;
        if ctx.attempt() == 1 { Err(NodeError::new("the line went dead").transient()) } else { Ok(update) }
    };
    let graph = || one(work.retry(Retry::transient(3).first_delay(SECOND))).callable("think", thinking(&world));
    refused(desk.thread(graph()).run(Work::update()).await, "attempt 1", "attempt 2");
    assert_eq!(world.done(), ["attempt 1"]);
    // The program is mended, and the thread goes on with what was done.
    let mended = one((|ctx: Context| async move { call(&ctx, "attempt 1").await }).into_node());
    assert_eq!(ended(desk.thread(mended.callable("think", thinking(&world))).resume().await).n, 1);
    assert_eq!(world.done(), ["attempt 1"]);
}

#[tokio::test(start_paused = true)]
async fn one_more_call_in_the_node_takes_another_input() {
    let (desk, world) = (Desk::new(), World::new());
    let nth = Arc::new(AtomicU32::new(0));
    let graph = || {
        let nth = Arc::clone(&nth);
        let work = move |ctx: Context| {
            let is_first = nth.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                let first = call(&ctx, "one").await?;
                if is_first {
                    Err(NodeError::new("the line went dead").transient())
                } else {
                    call(&ctx, "two").await.or(Ok(first))
                }
            }
        };
        one(work.retry(Retry::transient(2).first_delay(SECOND))).callable("think", thinking(&world))
    };
    assert_eq!(ended(desk.thread(graph()).run(Work::update()).await).n, 2);
    assert_eq!(world.done(), ["one", "two"]);
}

/// A graph that asks before it thinks, called with an input that the program chooses.
fn asking(world: &World, hint: &'static str) -> GraphBuilder<Work> {
    let ask = |ctx: Context| async move { Ok(Work::update().push_log(ctx.ask("go", Ask::<String>::new("Go on?")).await?)) };
    let inner = Graph::<Work>::new("asking").node("ask", ask).node("think", think(world));
    let inner = inner.edge(START, "ask").edge("ask", "think").edge("think", END).build().expect("the graph is right");
    one((move |ctx: Context| async move { call(&ctx, hint).await }).into_node()).callable("think", inner)
}

#[tokio::test(start_paused = true)]
async fn another_process_that_comes_with_another_input_is_refused_and_the_right_one_goes_on() {
    let (desk, world) = (Desk::new(), World::new());
    let question = asked(desk.thread(asking(&world, "old")).run(Work::update()).await);
    refused(desk.thread(asking(&world, "new")).answer(question, "yes").await, "old", "new");
    assert!(world.done().is_empty());
    assert_eq!(ended(desk.thread(asking(&world, "old")).resume().await).n, 1);
    assert_eq!(world.done(), ["old"]);
}

/// A snapshot keeps the fingerprint as well: it is written with every fork.
#[tokio::test(start_paused = true)]
async fn a_fork_knows_the_input_too() {
    let (desk, world) = (Desk::new(), World::new());
    asked(desk.thread(asking(&world, "old")).run(Work::update()).await);
    let inside = desk.thread(asking(&world, "old"));
    let at = inside.inside::<Work>(["work"]).history().await.expect("a history")[0].position;
    let question = asked(desk.thread(asking(&world, "old")).at(at).resume().await);
    refused(desk.thread(asking(&world, "new")).answer(question, "yes").await, "old", "new");
}

/// Of a call in an older log the input is not known: it goes on as it did then.
#[tokio::test(start_paused = true)]
async fn a_call_in_a_log_without_its_input_is_not_refused() {
    let (desk, world) = (Desk::new(), World::new());
    let question = asked(desk.thread(asking(&world, "old")).run(Work::update()).await);
    let mut exported = Vec::new();
    desk.thread(asking(&world, "old")).export(&mut exported).await.expect("it is exported");
    let exported = String::from_utf8(exported).expect("text");
    let older = exported.lines().map(|line| {
        let mut line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if let Some(input) = line.pointer_mut("/record/input").and_then(|input| input.as_object_mut()) {
            input.remove("arguments");
        }
        line.to_string() + "\n"
    });
    let older: String = older.collect();
    assert_ne!(older.len(), exported.len());
    let desk = Desk::new();
    desk.thread(asking(&world, "old")).import(&mut older.as_bytes()).await.expect("it is imported");
    assert_eq!(ended(desk.thread(asking(&world, "new")).answer(question, "yes").await).n, 1);
    assert_eq!(world.done(), ["old"]);
}

/// A graph that keeps its state goes on with it, whichever round calls it.
#[tokio::test(start_paused = true)]
async fn a_graph_that_keeps_its_state_goes_on_with_it_in_a_later_round() {
    let (desk, world) = (Desk::new(), World::new());
    let note = |state: View<Work>| async move { Ok(Work::update().push_log(&*state.hint).n(state.n + 1)) };
    let graph = || {
        let kept = one(note.into_node()).build().expect("the graph is right").continued();
        one(with_feedback.verify(at_least_3)).callable("think", kept)
    };
    assert_eq!(ended(desk.thread(graph()).run(Work::update()).await).n, 3);
    let kept = desk.thread(graph()).inside::<Work>(["work"]).state().await.expect("it is kept");
    assert_eq!(kept.values.log, ["", "1", "2"]);
    drop(world);
}

#[tokio::test]
async fn rounds_that_call_come_to_the_same_end_wherever_the_process_dies() {
    for durability in [ferrata::Durability::Step, ferrata::Durability::Behind, ferrata::Durability::Exit] {
        let graph = |world: &World| one(with_feedback.verify(at_least_3)).callable("think", thinking(world)).build();
        let test = crash_everywhere_in(World::new, graph, Work::update()).thread(move |thread| thread.durability(durability));
        let report = test.after_each(|_, state| assert!(state.n >= 3)).await;
        report.unwrap_or_else(|faults| panic!("{durability:?}: {faults}"));
    }
}

/// Nothing of an unstored graph is on record but its effects: a process that comes in a later round has to know which of them belong to which input.
#[tokio::test]
async fn rounds_that_call_an_unstored_graph_come_to_the_same_end_too() {
    for durability in [ferrata::Durability::Step, ferrata::Durability::Behind, ferrata::Durability::Exit] {
        let graph = |world: &World| one(with_feedback.verify(at_least_3)).callable("think", thinking(world).unstored()).build();
        let test = crash_everywhere_in(World::new, graph, Work::update()).thread(move |thread| thread.durability(durability));
        let report = test.after_each(|_, state| assert!(state.n >= 3)).await;
        report.unwrap_or_else(|faults| panic!("{durability:?}: {faults}"));
    }
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Deep {
    tree: serde_json::Value,
}

/// An input may be as deep as any value.
#[tokio::test(start_paused = true)]
async fn the_input_may_be_as_deep_as_a_value_can_be() {
    let mut deep = serde_json::json!(1);
    for _ in 0..ferrata::state::DEPTH_MAX {
        deep = serde_json::json!([deep]);
    }
    let work = move |ctx: Context| {
        let deep = deep.clone();
        async move {
            let tree = if ctx.attempt() == 1 { deep } else { serde_json::json!([]) };
            ctx.call::<Deep>("deep", Deep::update().tree(tree)).await?;
            Err::<WorkUpdate, _>(NodeError::new("the line went dead").transient())
        }
    };
    let nothing = || async { Ok(Deep::update()) };
    let inner = Graph::<Deep>::new("deep").node("nothing", nothing).edge(START, "nothing").edge("nothing", END);
    let graph = one(work.retry(Retry::transient(2).first_delay(SECOND))).callable("deep", inner.build().expect("right"));
    let error = Desk::new().thread(graph).run(Work::update()).await.expect_err("another input is refused");
    assert_eq!(error.code(), "effect-arguments", "{error}");
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Login {
    user: String,
    #[state(secret)]
    token: String,
}

/// A fingerprint tells something of a short secret, and a text tells all of it.
#[tokio::test(start_paused = true)]
async fn a_secret_is_no_part_of_what_is_kept_of_an_input() {
    let token = Arc::new(AtomicU32::new(0));
    let graph = || {
        let ask = |ctx: Context| async move {
            ctx.ask("go", Ask::<String>::new("Go on?")).await?;
            Ok(Login::update())
        };
        let inner = Graph::<Login>::new("inner").node("ask", ask).edge(START, "ask").edge("ask", END).build().expect("right");
        let token = Arc::clone(&token);
        let work = move |ctx: Context| {
            let token = format!("token number {}", token.fetch_add(1, Ordering::SeqCst));
            async move {
                ctx.call::<Login>("inner", Login::update().user("ada").token(token)).await?;
                Ok(Work::update())
            }
        };
        one(work.into_node()).callable("inner", inner)
    };
    let desk = Desk::new();
    let thread = || {
        let graph = graph().build().expect("right");
        Runner::with_clock(graph, Arc::clone(&desk.store), desk.clock.clone()).secrets(ferrata::ForgetSecrets).thread("t")
    };
    asked(thread().run(Work::update()).await);
    let log = thread().log().await.expect("a log");
    let shown = log.iter().find_map(|entry| match &entry.record {
        Record::Input(input) => input.arguments.clone(),
        _ => None,
    });
    assert_eq!(shown.expect("it was called").shown, r#"{"user":"ada"}"#);
    assert!(!format!("{log:?}").contains("token number"));
}
