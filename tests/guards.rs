//! Nodes that go in circles: the same failure or the same action again and again, too many rounds; another way, then a person.
//!
//! How it could break: counts that a restart forgets, or that a step of many tasks runs up; texts that differ in a number only; a loop whose pieces of work
//! share one count; another way that is taken again and again; a person who is asked twice for one answer.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support {
    pub(crate) mod pieces;
    pub(crate) mod tokio_clock;
    pub(crate) mod work;
    pub(crate) mod world;
}

use ferrata::log::Record;
use ferrata::testing::crash_everywhere_in;
use ferrata::{
    Answer, Approval, Context, Durability, END, Error, Graph, GraphBuilder, Guard, IntoNode, Next, NodeError, Outcome, Question,
    QuestionKind, Retry, START, Target, View,
};
use serde_json::json;
use support::pieces::pieces;
use support::work::{Desk, SECOND, Work, WorkUpdate, one};
use support::world::{World, asked, at_least_3, ended};

/// A node that fails as `text` says, with an error handler that leads back to it.
fn circle(world: &World, text: impl Fn(i64) -> String + Clone + Send + Sync + 'static, guard: Guard) -> GraphBuilder<Work> {
    let world = world.clone();
    let work = move |ctx: Context| {
        let (world, text) = (world.clone(), text.clone());
        async move {
            let hint = ctx.feedback().map(|said| said.message.clone()).unwrap_or_default();
            match text(world.act(format!("work{hint}"))) {
                text if text.is_empty() => Ok(Work::update().n(1)),
                text => Err(NodeError::new(text).deterministic()),
            }
        }
    };
    let again = |ctx: Context| async move {
        let failed = ctx.failure().map(|failure| failure.message.clone()).unwrap_or_default();
        Ok(Next::update(Work::update().push_log(failed)).goto([Target::node("work")]))
    };
    let work = work.guard(guard).on_error(again.leads_to(["work"]));
    Graph::<Work>::new("circle").node("work", work).edge(START, "work").edge("work", END)
}

fn question(outcome: Result<Outcome<Work>, Error>) -> Question {
    let Ok(Outcome::Waiting(questions)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(questions.len(), 1, "{questions:?}");
    (*questions[0]).clone()
}

fn broken(nth: i64) -> String {
    format!("Line {nth}: bad token")
}

#[tokio::test(start_paused = true)]
async fn the_same_failure_three_times_in_a_row_goes_to_a_person_with_what_was_tried() {
    let (world, desk) = (World::new(), Desk::new());
    let graph = || circle(&world, broken, Guard::new());
    let first = question(desk.thread(graph()).run(Work::update()).await);
    assert_eq!(world.done().len(), 3, "numbers in the text make no other failure");
    assert!(first.text.contains("\"work\"") && first.text.contains("failed the same way 3 times in a row"), "{}", first.text);
    assert_eq!(first.kind, QuestionKind::Guard(vec!["work".into()]));
    let show = first.show.expect("it shows something");
    assert_eq!((&show["rounds"], &show["tried"][0]["failures"][0]["in_a_row"]), (&json!(3), &json!(3)));
    assert_eq!(show["tried"][0]["last"], json!(["Line 1: bad token", "Line 2: bad token", "Line 3: bad token"]));

    // Another process asks nothing anew and runs nothing.
    assert_eq!(question(desk.thread(graph()).resume().await).id, first.id);
    // Going on, it has all its rounds again; then with a word for the node, which is shown to it.
    let second = question(desk.thread(graph()).answer(first.id, Approval::approve()).await);
    assert_eq!(world.done().len(), 6);
    let third = question(desk.thread(graph()).answer(second.id, Approval::edit(": latin1")).await);
    assert_eq!(world.done()[6..], ["work: latin1", "work", "work"], "the word is for the next round");
    // What does not fit is refused, and the question stays open.
    let refused = desk.thread(graph()).answer(third.id, Answer::new(json!({"verdict": "edit", "value": 7}))).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("the question stays open")));
    // A person who has had enough: the error handler leads back, and the next round is asked about again.
    let fourth = question(desk.thread(graph()).answer(third.id, Approval::reject("enough")).await);
    assert_eq!((world.done().len(), fourth.id == third.id), (9, false));
}

#[tokio::test(start_paused = true)]
async fn failures_that_differ_and_rows_with_a_gap_are_let_through() {
    let world = World::new();
    let differ = |nth: i64| if nth > 9 { String::new() } else { ["a", "b"][nth as usize % 2].to_owned() };
    ended(Desk::new().thread(circle(&world, differ, Guard::new())).run(Work::update()).await);
    assert_eq!(world.done().len(), 10);
    // Nothing is guarded that nobody guards, but by the steps of a run.
    let world = World::new();
    let guard = Guard::new().failures(u32::MAX);
    let run = Desk::new().thread(circle(&world, broken, guard)).steps_max(50).run(Work::update()).await;
    assert_eq!(run.expect_err("it never ends").code(), "step-limit");
    assert_eq!(world.done().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn without_a_person_it_fails_and_each_resume_grants_one_round() {
    let (world, desk) = (World::new(), Desk::new());
    let work = {
        let world = world.clone();
        move |ctx: Context| {
            let world = world.clone();
            async move {
                ctx.note_failure(&NodeError::new("no such encoding").deterministic());
                Ok(Work::update().n(i64::from(world.act("work") > 4)))
            }
        }
    };
    let graph = || {
        Graph::<Work>::new("circle").node("work", work.clone().guard(Guard::new().or_fail())).edge(START, "work").route_to(
            "work",
            ["work", END],
            |work: &Work| if work.n > 0 { END } else { "work" },
        )
    };
    let error = desk.thread(graph()).run(Work::update()).await.expect_err("it goes in circles");
    assert_eq!((error.code(), world.done().len()), ("guarded", 3), "{error}");
    assert!(error.to_string().contains("failed the same way 3 times in a row"), "{error}");
    assert_eq!(desk.thread(graph()).resume().await.expect_err("one more, and no other").code(), "guarded");
    assert_eq!(world.done().len(), 4);
    ended(desk.thread(graph()).resume().await);
    assert_eq!(world.done().len(), 5);

    // With a fallback the rest goes on.
    let (world, desk) = (World::new(), Desk::new());
    let fails = || async { Err::<WorkUpdate, _>(NodeError::new("no")) };
    let graph = Graph::<Work>::new("fallback")
        .node("work", fails.fallback(|_, failure| Work::update().push_log(failure.message.clone())).guard(Guard::new().or_fail()))
        .edge(START, "work")
        .route_to("work", ["work", END], |work: &Work| if work.log.len() > 3 { END } else { "work" });
    let state = ended(desk.thread(graph).run(Work::update()).await);
    assert_eq!(state.log[..3], ["no", "no", "no"]);
    assert!(state.log[3].contains("is stopped"), "{:?}", state.log);
    assert_eq!(world.done().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_same_action_is_stopped_and_another_one_is_not() {
    let look_up = |world: &World, changes: bool| {
        let world = world.clone();
        move |ctx: Context| {
            let world = world.clone();
            async move {
                let query = if changes { world.done().len() } else { 0 };
                let look = |_| async { Ok(world.act("looked")) };
                ctx.effect("search", look).repeatable().arguments(&("ferrata", query)).await?;
                Ok(Work::update().n(i64::from(world.done().len() > 9)))
            }
        }
    };
    for changes in [false, true] {
        let world = World::new();
        let graph = Graph::<Work>::new("search")
            .node("search", look_up(&world, changes).guard(Guard::new().actions(4)))
            .edge(START, "search")
            .route_to("search", ["search", END], |work: &Work| if work.n > 0 { END } else { "search" });
        let outcome = Desk::new().thread(graph).run(Work::update()).await;
        if changes {
            ended(outcome);
        } else {
            let question = question(outcome);
            assert!(question.text.contains("did the same 4 times in a row"), "{}", question.text);
            let shown = question.show.expect("it shows something")["tried"][0]["actions"][0]["what"].to_string();
            assert!(shown.contains("search") && shown.contains("ferrata"), "{shown}");
        }
        assert_eq!(world.done().len(), if changes { 10 } else { 4 });
    }
}

#[tokio::test(start_paused = true)]
async fn another_way_is_taken_once_and_then_a_person_is_asked() {
    let (world, desk) = (World::new(), Desk::new());
    let graph = || {
        let strong = {
            let world = world.clone();
            move || {
                world.act("strong");
                async { Ok(Work::update()) }
            }
        };
        circle(&world, broken, Guard::new().failures(2).reroute("strong")).node("strong", strong).edge("strong", "work")
    };
    let question = question(desk.thread(graph()).run(Work::update()).await);
    assert_eq!(world.done(), ["work", "work", "strong", "work", "work"]);
    let log = desk.thread(graph()).log().await.expect("it is read");
    let rerouted: Vec<_> = log
        .iter()
        .filter_map(|entry| match &entry.record {
            Record::Stepped(stepped) => stepped.rerouted.first().cloned(),
            _ => None,
        })
        .collect();
    assert_eq!(rerouted.len(), 1);
    assert_eq!((rerouted[0].node.as_str(), rerouted[0].to.as_str()), ("work", "strong"));
    // A person lets it go on, and the other way is not taken again.
    asked(desk.thread(graph()).answer(question.id, Approval::approve()).await);
    assert_eq!(world.done()[5..], ["work", "work"]);
    assert!(graph().build().expect("it is right").mermaid().contains("-. guard .->"));
}

#[tokio::test(start_paused = true)]
async fn a_phase_has_its_rounds_for_each_piece_of_work() {
    let world = World::new();
    ended(Desk::new().thread(pieces(&world, Guard::new().rounds(4), 4)).run(Work::update()).await);
    assert_eq!(world.done().iter().filter(|what| *what == "write").count(), 12, "four for each of three");

    for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
        let (world, desk) = (World::new(), Desk::new());
        let graph = || pieces(&world, Guard::new().rounds(3), 4);
        let thread = || desk.thread(graph()).durability(durability);
        let question = question(thread().run(Work::update()).await);
        assert!(question.text.contains("phase \"draft\""), "{}", question.text);
        assert_eq!(world.done(), ["next", "write", "write", "write"]);
        // A node of its own in the middle of a phase stops at the same count after a restart in each step.
        asked(thread().answer(question.id, Approval::approve()).await);
        assert_eq!(world.done().len(), 9, "one more round was enough, and the next piece has three");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_survive_a_restart_after_each_step() {
    for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
        let (world, desk) = (World::new(), Desk::new());
        let graph = || pieces(&world, Guard::new().rounds(3), usize::MAX);
        let thread = || desk.thread(graph()).durability(durability).pause_after(["next", "write", "judge"]);
        let mut outcome = thread().run(Work::update()).await.expect("it works");
        let mut runs = 1;
        while matches!(outcome, Outcome::Suspended(_)) {
            outcome = thread().resume().await.expect("it works");
            runs += 1;
        }
        assert_eq!((outcome.questions().len(), runs, world.done().len()), (1, 8, 4), "{durability:?} {outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_fails_each_run_the_same_way_is_not_tried_for_ever() {
    let (world, desk) = (World::new(), Desk::new());
    let graph = || {
        let world = world.clone();
        let work = move || {
            let done = world.act("work");
            async move { if done > 3 { Ok(Work::update()) } else { Err(NodeError::new(format!("no page {done}"))) } }
        };
        one(work.guard(Guard::new().failures(3)))
    };
    assert!(desk.thread(graph()).run(Work::update()).await.is_err());
    assert!(desk.thread(graph()).resume().await.is_err());
    assert!(desk.thread(graph()).resume().await.is_err());
    let id = asked(desk.thread(graph()).resume().await);
    assert_eq!(world.done().len(), 3);
    // Refused, it fails, and asks again when somebody resumes it.
    let refused = desk.thread(graph()).answer(id, Approval::reject("the page is gone")).await.expect_err("it is refused");
    assert_eq!(refused.code(), "guarded");
    assert!(refused.to_string().contains("the page is gone"), "{refused}");
    let id = asked(desk.thread(graph()).resume().await);
    ended(desk.thread(graph()).answer(id, Approval::approve()).await);
    assert_eq!(world.done().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn many_tasks_of_one_step_are_one_round_and_one_question() {
    let pages = |world: &World| {
        let world = world.clone();
        let read = move |page: u64, ctx: Context| {
            world.act(match ctx.feedback() {
                None => format!("{page}"),
                Some(said) => format!("{page} {}", said.message),
            });
            async { Err::<WorkUpdate, _>(NodeError::new("torn")) }
        };
        Graph::<Work>::new("pages")
            .node("list", || async { Ok(Work::update()) })
            .fan_out("list", "read", |_: &Work| 0..20_u64)
            .node("read", read.guard(Guard::new()).fallback(|_, failure| Work::update().push_log(failure.message.clone())))
            .edge(START, "list")
            .route_to("read", ["list", END], |work: &Work| if work.log.len() > 60 { END } else { "list" })
    };
    for verdict in [Approval::approve(), Approval::edit("again"), Approval::reject("leave it")] {
        let (world, desk) = (World::new(), Desk::new());
        let id = asked(desk.thread(pages(&world)).run(Work::update()).await);
        assert_eq!(world.done().len(), 60, "three rounds of twenty");
        assert_eq!(asked(desk.thread(pages(&world)).resume().await), id);
        let rejects = format!("{verdict:?}").contains("reject");
        let state = ended(desk.thread(pages(&world)).answer(id, verdict.clone()).await);
        assert_eq!((state.log.len(), world.done().len()), (80, if rejects { 60 } else { 80 }), "{verdict:?}");
        let said = if rejects { state.log[60..].iter().filter(|text| text.contains("leave it")).count() } else { 0 };
        let hinted = world.done().iter().filter(|done| done.contains("again")).count();
        assert_eq!((said, hinted), (if rejects { 20 } else { 0 }, if format!("{verdict:?}").contains("again") { 20 } else { 0 }));
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_are_no_rounds() {
    let world = World::new();
    let work = {
        let world = world.clone();
        move |work: View<Work>| {
            let nth = world.act("work");
            async move { if nth % 3 == 0 { Ok(Work::update().n(work.n + 1)) } else { Err(NodeError::new("busy").transient()) } }
        }
    };
    let retry = Retry::transient(3).first_delay(SECOND);
    let checked = |_: View<Work>, ctx: Context| async move { Ok(Work::update().n(if ctx.feedback().is_some() { 4 } else { 2 })) };
    let graph = Graph::<Work>::new("attempts")
        .node("work", work.retry(retry).guard(Guard::new().rounds(5)))
        .node("check", checked.verify(at_least_3).guard(Guard::new().failures(1).rounds(1)))
        .edge(START, "work")
        .route_to("work", ["work", "check"], |work: &Work| if work.n < 5 { "work" } else { "check" })
        .edge("check", END);
    assert_eq!(ended(Desk::new().thread(graph).run(Work::update()).await).n, 4);
    assert_eq!(world.done().len(), 15);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_checkpoint_knows_what_came_before_it_and_a_new_input_begins_anew() {
    let (world, desk) = (World::new(), Desk::new());
    let graph = || circle(&world, broken, Guard::new());
    asked(desk.thread(graph()).run(Work::update()).await);
    let history = desk.thread(graph()).history().await.expect("it is read");
    let after_two = history.iter().find(|checkpoint| checkpoint.step.0 == 2).expect("there is one");
    asked(desk.thread(graph()).at(after_two.position).resume().await);
    assert_eq!(world.done().len(), 4, "one round is left at that checkpoint");
    asked(desk.thread(graph()).supersede().run(Work::update()).await);
    assert_eq!(world.done().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_guard_stops_at_the_same_place_wherever_the_process_dies() {
    let graph = |world: &World| {
        let world = world.clone();
        // The model writes another program for each try; all of them fail alike until somebody mends the file.
        let parse = move |work: View<Work>, ctx: Context| {
            let world = world.clone();
            async move {
                let tokens = |_| async { Ok(world.act(format!("asked for try {}", work.n))) };
                ctx.effect("model", tokens).repeatable().arguments(&work.n).await?;
                ctx.spend_tokens(100, 20);
                if ctx.feedback().is_some_and(|said| said.message == "it is mended") {
                    return Ok(Work::update().n(work.n + 1).hint("parsed"));
                }
                ctx.note_failure(&NodeError::new(format!("line {}: bad token", work.n)).deterministic());
                Ok(Work::update().n(work.n + 1))
            }
        };
        Graph::<Work>::new("file")
            .node("parse", parse.guard(Guard::new().failures(4).reroute("other")))
            .node("other", |work: View<Work>| async move { Ok(Work::update().push_log(format!("other way after {}", work.n))) })
            .edge("other", "parse")
            .edge(START, "parse")
            .route_to("parse", ["parse", END], |work: &Work| if work.hint == "parsed" { END } else { "parse" })
            .build()
    };
    for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
        let test = crash_everywhere_in(World::new, graph, Work::update()).thread(move |thread| thread.durability(durability));
        let test = test.answer("guard", Approval::edit("it is mended"));
        let report =
            test.after_each(|_, state| assert_eq!((state.n, &state.log[..]), (9, &["other way after 4".to_owned()][..]))).await;
        println!("{durability:?}: {}", report.unwrap_or_else(|faults| panic!("{durability:?}: {faults}")));
    }
}

#[test]
fn guards_that_cannot_be_meant_are_not_built() {
    let node = || async { Ok(Work::update()) };
    let with = |guard: Guard| {
        Graph::<Work>::new("g").node("a", node.guard(guard)).node("b", node).edge(START, "a").edge("a", "b").edge("b", END)
    };
    let mistakes = |graph: GraphBuilder<Work>| {
        let error = graph.build().expect_err("it is wrong");
        error.mistakes().iter().map(|mistake| mistake.code()).collect::<Vec<_>>()
    };
    assert_eq!(mistakes(with(Guard::new().failures(0))), ["policy"]);
    assert_eq!(mistakes(with(Guard::new().rounds(0))), ["policy"]);
    assert_eq!(mistakes(with(Guard::new().reroute("c"))), ["unknown-node"]);
    assert_eq!(mistakes(with(Guard::new().reroute("a"))), ["reroute"]);
    let ok = || with(Guard::new());
    assert_eq!(mistakes(ok().phase("p", ["a", "c"], Guard::new())), ["unknown-node"]);
    assert_eq!(mistakes(ok().phase("p", ["a"], Guard::new()).phase("q", ["a"], Guard::new())), ["phase"]);
    assert_eq!(mistakes(ok().phase("p", ["a"], Guard::new()).phase("p", ["b"], Guard::new())), ["phase"]);
    assert_eq!(mistakes(ok().phase("p", Vec::<&str>::new(), Guard::new())), ["phase"]);
    assert_eq!(mistakes(ok().phase("p", ["a"], Guard::new().actions(0))), ["phase"]);
    // The other way leads to a node, which needs no edge, and past an approval it leads nowhere.
    assert!(with(Guard::new().reroute("c")).node("c", node).edge("c", "b").build().is_ok());
    let risky = with(Guard::new().reroute("c")).node("c", node.irreversible()).edge("c", "b");
    assert_eq!(mistakes(risky), ["unguarded-node"]);
    // A join whose source may be passed by says what happens then.
    let join =
        |graph: GraphBuilder<Work>| graph.node("c", node).edge(START, "c").node("d", node).join(["a", "c"], "d").edge("d", END);
    assert_eq!(mistakes(join(with(Guard::new().reroute("b")))), ["starving-join"]);
}
