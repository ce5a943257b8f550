//! Graphs inside graphs: whatever is promised of a thread holds for every graph inside it too.
//!
//! How it could break: work inside that was finished and runs again because the node around it does; a question, an answer or an effect that
//! belongs to the wrong call; a graph that goes on from what was never recorded; a state that is one thing in memory and another in the log.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support {
    pub(crate) mod nested;
}

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ferrata::log::{Doubt, Entry, Record};
use ferrata::store::{MemoryStore, ThreadQuery, ThreadStatus};
use ferrata::{
    Answer, Ask, Context, Durability, END, Event, Graph, IntoNode, Mode, Next, Node, NodeError, Outcome, Retry, Runner, START,
    Suspension, Target, View,
};
use support::nested::*;

#[tokio::test]
async fn a_graph_whose_entry_failed_begins_when_the_thread_is_resumed() {
    for durability in DURABILITIES {
        let (world, dir) = (World::of(&[("entry", 1)]), tempfile::tempdir().unwrap());
        let make = || {
            let entry = Arc::clone(&world);
            let graph = Graph::<Work>::new("inner").node("a", node(&world, "a", "e"));
            let graph = graph.route_to(START, ["a"], move |_| if entry.fault("entry") { "nowhere" } else { "a" });
            at(dir.path(), around(Way::Mapped, &world, graph.edge("a", END).build().unwrap()))
        };
        let runner = make();
        let error = runner.thread("t").durability(durability).run(input()).await.unwrap_err();
        assert_eq!(error.code(), "route", "{error}");
        drop(runner);
        let state = done(make().thread("t").durability(durability).resume().await);
        assert_eq!(state.log, ["before(t)", "a(t's)", "after(t)"], "{durability:?}");
        assert_eq!(world.began(), "before a after");
    }
}

#[tokio::test]
async fn what_a_later_call_of_a_continued_graph_did_is_not_forgotten_at_the_end_of_the_run() {
    let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
    let make = || {
        let inner = chain(Graph::new("inner").node("pay", node(&world, "pay", "e?")), &["pay"]).build().unwrap();
        let child = inner.continued().mapped(down, |_: &Work, inner| Work::update().set_log(inner.log.clone()));
        at(dir.path(), chain(Graph::new("outer").node("child", child), &["child"]).build().unwrap())
    };
    for call in 1..=3 {
        let runner = make();
        let thread = runner.thread("t").durability(Durability::Exit);
        let questions = asked(soon(thread.run(input())).await);
        drop((thread, runner));
        let runner = make();
        let thread = runner.thread("t").durability(Durability::Exit);
        let state = done(soon(thread.answer(questions[0].id, Answer::new(1))).await);
        assert_eq!(state.log.len(), call);
        assert_eq!(world.performed().len(), call, "{:?}", world.performed());
    }
}

/// Whatever was given up with a run whose steps were lost, the tasks of the next one are others, and their effects have other keys.
#[tokio::test]
async fn the_effects_of_new_input_have_keys_of_their_own_also_inside() {
    let world = World::of(&[("gated", 1)]);
    let make = || {
        let inner = line(&world, "inner", &[("c", "e"), ("gated", "h")]).build().unwrap();
        let graph = Graph::new("outer").node("first", node(&world, "first", "")).node("child", inner.mapped(down, up));
        let graph = graph.route_to(START, ["first", "child"], |s: &Work| if s.topic == "t" { "first" } else { "child" });
        graph.edge("first", "child").edge("child", END).build().unwrap()
    };
    let store = Kept::default();
    let kept = Arc::clone(&store.appends);
    let runner = Runner::new(make(), store);
    tokio::select! {
        outcome = async { runner.thread("t").durability(Durability::Exit).run(input()).await } => panic!("it hangs: {outcome:?}"),
        () = world.hangs.notified() => {}
    }
    let mut appends = kept.lock().unwrap().clone();
    appends.retain(
        |records| !matches!(&records[..], [Record::EffectStarted(started)] if &*started.effect.task.node.to_string() == "gated"),
    );
    let runner = Runner::new(make(), Kept::cut(&appends).await);
    assert_eq!(done(runner.thread("t").supersede().run(Work::update().topic("u")).await).log, ["c(u's)", "gated(u's)"]);
    let performed = world.performed();
    assert_eq!(performed.iter().collect::<HashSet<_>>().len(), 4, "{performed:?}");
}

#[tokio::test]
async fn a_sum_counts_the_same_whenever_steps_are_stored() {
    for durability in DURABILITIES {
        let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
        let make = || {
            let inner = line(&world, "inner", &[("c1", "e"), ("c2", "?")]).build().unwrap();
            let graph = Graph::new("outer").node("child", inner.shared()).node("other", node(&world, "other", "e"));
            let graph = graph.edge(START, "child").edge(START, "other").edge("child", END).edge("other", END);
            at(dir.path(), graph.build().unwrap())
        };
        let questions = asked(make().thread("t").durability(durability).run(input().total(100)).await);
        let state = done(make().thread("t").durability(durability).answer(questions[0].id, Answer::new(5)).await);
        assert_eq!(state.total, 100 + 11 + 6 + 11, "{durability:?}");
        assert_eq!(state.log, ["c1(t)", "c2(t)", "other(t)"], "{durability:?}");
    }
}

#[tokio::test]
async fn a_call_of_a_continued_graph_does_not_push_an_unfinished_one_aside() {
    for (script, faults) in [("!", [("c2", 1)]), ("?", [("c2", 0)]), ("!y", [("c2", 1)])] {
        let (world, sums) = (World::of(&faults), |_: &Work, inner: &Work| Work::update().total(inner.total));
        let inner = line(&world, "inner", &[("c1", "e"), ("c2", script)]).build().unwrap();
        let child = inner.continued().mapped(down, sums).concurrency(1);
        let sends = |_: &Work| Ok(["a", "b"].map(|topic| Target::send("child", to_state(topic))).to_vec());
        let graph = Graph::new("outer").node("child", child).branch(START, ["child"], sends).edge("child", END);
        let runner = in_memory(graph);
        let thread = runner.thread("t");
        let mut outcome = soon(thread.run(input())).await;
        assert!(!matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
        for _ in 0..2 {
            outcome = match thread.questions().await.unwrap().first() {
                Some(question) => soon(thread.answer(question.id, Answer::new(1))).await,
                None => soon(thread.resume()).await,
            };
        }
        let sums = done(outcome).total;
        assert_eq!((world.performed().len(), sums), if script == "?" { (2, 13 + 26) } else { (2, 12 + 24) }, "{script}");
    }
}

/// The other of two calls at once is refused, and made when the thread is resumed.
#[tokio::test]
async fn two_tasks_cannot_call_one_continued_graph_at_once() {
    let world = World::of(&[]);
    let inner = line(&world, "inner", &[("c1", "ey")]).build().unwrap().continued();
    let sends = |_: &Work| Ok(["a", "b"].map(|topic| Target::send("child", to_state(topic))).to_vec());
    let graph = Graph::new("outer").node("child", inner.mapped(down, up)).branch(START, ["child"], sends).edge("child", END);
    let runner = in_memory(graph);
    let error = soon(runner.thread("t").run(input())).await.unwrap_err();
    assert!(error.to_string().contains("keeps its state and is at work for another task"), "{error}");
    assert_eq!(done(soon(runner.thread("t").resume()).await).log, ["c1(a's)", "c1(a's)", "c1(b's)"]);
    assert_eq!(world.performed().len(), 2, "{:?}", world.performed());
}

#[tokio::test]
async fn two_nodes_that_set_one_field_outside_are_in_conflict() {
    let say = |text: &'static str| move || async move { Ok(Next::to_parent(Work::update().topic(text))) };
    let inner = Graph::<Work>::new("inner")
        .node("a", say("a"))
        .node("b", say("b"))
        .edge(START, "a")
        .edge(START, "b")
        .edge("a", END)
        .edge("b", END);
    let runner = in_memory(chain(Graph::new("outer").node("child", inner.build().unwrap().mapped(down, up)), &["child"]));
    let error = runner.thread("t").run(input()).await.unwrap_err();
    assert_eq!(error.code(), "merge-conflict", "{error}");
    assert_eq!(runner.thread("t").state().await.unwrap().values.topic, "t");
}

#[tokio::test]
async fn a_step_that_cannot_be_merged_leaves_the_graph_as_it_was() {
    for (way, durability) in [
        (None, Durability::Step),
        (None, Durability::Exit),
        (Some(Way::Shared), Durability::Step),
        (Some(Way::Shared), Durability::Exit),
    ] {
        let (world, dir) = (World::of(&[("small", 1)]), tempfile::tempdir().unwrap());
        let make = || {
            let small = |name: &'static str, world: &Arc<World>| {
                let world = Arc::clone(world);
                move || {
                    let world = Arc::clone(&world);
                    async move {
                        world.began.lock().unwrap().push((name.to_owned(), String::new()));
                        Ok(Work::update().push_log(name).small(200))
                    }
                }
            };
            let graph = Graph::<Work>::new("g").node("first", node(&world, "first", "")).edge(START, "first");
            let graph = graph.node("a", small("a", &world)).node("b", small("b", &world));
            let graph = graph.edge("first", "a").edge("first", "b").edge("a", END).edge("b", END).build().unwrap();
            let graph = way
                .map_or(graph.clone(), |way| chain(embed(way, Graph::new("outer"), "child", graph), &["child"]).build().unwrap());
            at(dir.path(), graph)
        };
        for _ in 0..3 {
            let runner = make();
            let thread = runner.thread("t").durability(durability);
            let error = thread.run_once(input()).await.unwrap_err();
            assert_eq!(error.code(), "merge-conflict", "{error}");
            let state = thread.state().await.expect("it is readable");
            assert_eq!(state.status, ThreadStatus::Failed);
            let (log, next) = match way {
                Some(_) => {
                    let inside = thread.inside::<Work>(["child"]).state().await.unwrap();
                    (inside.values.log.clone(), inside.next)
                }
                None => (state.values.log.clone(), state.next),
            };
            assert_eq!(log, ["first(t)"], "{way:?} {durability:?} {next:?}");
        }
        assert_eq!(world.began(), "first a b", "{way:?} {durability:?}");
    }
}

/// before -> child(c1 -> c2 -> c3) -> after, where something goes wrong at c2 or behind it: what was finished inside is not done again.
#[tokio::test]
async fn after_a_failure_inside_only_what_failed_runs_again() {
    let cases = [("!", "c2", "node-failed"), ("e!", "c2", "node-failed"), ("", "route", "route"), ("", "steps", "step-limit")];
    for (script, fault, code) in cases {
        for (way, durability) in WAYS.into_iter().flat_map(|way| DURABILITIES.map(|durability| (way, durability))) {
            let (world, dir) = (World::of(&[(fault, 1)]), tempfile::tempdir().unwrap());
            let make = || {
                let route = Arc::clone(&world);
                let graph =
                    Graph::<Work>::new("inner").node("c1", node(&world, "c1", "e")).node("c2", node(&world, "c2", script));
                let graph = graph.node("c3", node(&world, "c3", "")).edge(START, "c1").edge("c1", "c2").edge("c3", END);
                let graph = graph.route_to("c2", ["c3"], move |_| if route.fault("route") { "nowhere" } else { "c3" });
                at(dir.path(), around(way, &world, graph.build().unwrap()))
            };
            let what = format!("{script} {fault} {way:?} {durability:?}");
            let runner = make();
            let steps = if fault == "steps" { 2 } else { 100 };
            let error = runner.thread("t").durability(durability).steps_max(steps).run(input()).await.unwrap_err();
            assert_eq!(error.code(), code, "{what}: {error}");
            let state = runner.thread("t").state().await.unwrap();
            assert_eq!(
                (state.status, &state.next[0], state.tasks[0].error.as_deref()),
                (ThreadStatus::Failed, &"child".into(), Some(code)),
                "{what}"
            );
            let inside = runner.thread("t").inside::<Work>(["child"]).state().await.unwrap();
            assert_eq!(
                inside.values.log.last().map(|entry| &entry[..2]),
                Some(if code == "node-failed" { "c1" } else { "c2" }),
                "{what}"
            );
            world.began();
            drop(runner);
            let state = done(make().thread("t").durability(durability).resume().await);
            let topic = if way == Way::Shared { "t" } else { "t's" };
            let log = [
                "before(t)".to_owned(),
                format!("c1({topic})"),
                format!("c2({topic})"),
                format!("c3({topic})"),
                "after(t)".to_owned(),
            ];
            assert_eq!(state.log, log, "{what}");
            assert_eq!(world.began(), if code == "node-failed" { "c2 c3 after" } else { "c3 after" }, "{what}");
            assert_eq!(world.performed().len(), 2 + script.matches('e').count(), "{what}: {:?}", world.performed());
        }
    }
}

#[tokio::test]
async fn an_answer_to_a_question_inside_finds_everything_as_it_was_after_a_restart() {
    for (way, durability) in WAYS.into_iter().flat_map(|way| DURABILITIES.map(|durability| (way, durability))) {
        for deep in [false, true] {
            let (world, dir, what) = (World::of(&[]), tempfile::tempdir().unwrap(), format!("{way:?} {durability:?} {deep}"));
            let make = || {
                let inner = line(&world, "inner", &[("c1", "e"), ("ask", "?"), ("c2", "")]).build().unwrap();
                let middle = Graph::new("middle").node("m1", node(&world, "m1", "e")).node("m2", node(&world, "m2", ""));
                let middle = |inner| chain(embed(way, middle, "mid", inner), &["m1", "mid", "m2"]).build().unwrap();
                at(dir.path(), around(way, &world, if deep { middle(inner) } else { inner }))
            };
            let runner = make();
            let questions = asked(runner.thread("t").durability(durability).run(input()).await);
            drop(runner);
            let (runner, id) = (make(), questions[0].id);
            let thread = runner.thread("t").durability(durability);
            let state = thread.state().await.unwrap();
            assert_eq!((state.status, &*state.next), (ThreadStatus::Waiting, &["child".into()][..]), "{what}");
            assert_eq!(state.tasks[0].questions[0].id, id, "{what}");
            let path = state.questions[0].task.path.to_string();
            assert!(path.starts_with("child@2") && path.matches('/').count() == 1 + usize::from(deep), "{what}: {path}");
            assert_eq!(runner.threads(ThreadQuery::new()).await.unwrap()[0].status, ThreadStatus::Waiting, "{what}");
            assert_eq!(asked(thread.resume().await)[0].id, id, "{what}");
            assert_eq!(world.began(), if deep { "before m1 c1 ask" } else { "before c1 ask" }, "{what}");
            let state = done(thread.answer(id, Answer::new(5)).await);
            assert_eq!(world.began(), if deep { "ask c2 m2 after" } else { "ask c2 after" }, "{what}");
            assert_eq!(world.performed().len(), 2 + usize::from(deep), "{what}: {:?}", world.performed());
            let own = if way == Way::Shared {
                "t"
            } else if deep {
                "t's's"
            } else {
                "t's"
            };
            assert!(state.log.contains(&format!("c2({own})")), "{what}: {:?}", state.log);
            assert_eq!((state.log.len(), state.total), if deep { (7, 7 + 30 + 5) } else { (5, 5 + 20 + 5) }, "{what}");
            assert_eq!(thread.answer(id, Answer::new(5)).await.unwrap_err().code(), "question-answered", "{what}");
        }
    }
}

#[tokio::test]
async fn an_answer_runs_only_the_task_that_asked() {
    for way in [Way::Mapped, Way::Called, Way::Shared] {
        let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
        let make = || {
            // Two tasks ask in each of three calls.
            let inner = Graph::new("inner").node("c1", node(&world, "c1", "e")).node("x", node(&world, "x", "?"));
            let inner = inner.node("y", node(&world, "y", "?")).node("z", node(&world, "z", ""));
            let inner = inner.edge(START, "c1").edge("c1", "x").edge("c1", "y").join(["x", "y"], "z").edge("z", END);
            let sends = |_: &Work| Ok(["a", "b", "c"].map(|topic| Target::send("child", to_state(topic))).to_vec());
            let graph = embed(way, Graph::new("outer"), "child", inner.build().unwrap());
            at(dir.path(), graph.branch(START, ["child"], sends).edge("child", END).build().unwrap())
        };
        let (mut open, mut runs) = (asked(make().thread("t").run(input()).await), Vec::new());
        assert_eq!((open.len(), world.began().matches("c1").count()), (6, 3), "{way:?}");
        // From the middle, so that neither the first nor the last task is the one.
        while !open.is_empty() {
            let question = open.remove(open.len() / 2);
            let outcome = soon(make().thread("t").answer(question.id, Answer::new(1))).await.unwrap();
            assert_eq!(outcome.questions().len(), open.len(), "{way:?}");
            runs.push(world.began());
        }
        let names: Vec<_> = runs.iter().map(|run| run.replace(" z", "")).collect();
        assert!(names.iter().all(|run| run == "x" || run == "y"), "{way:?}: {runs:?}");
        let state = done(make().thread("t").resume().await);
        let topics = if way == Way::Shared { ["a", "b", "c"] } else { ["a's", "b's", "c's"] };
        let log: Vec<_> = topics.iter().flat_map(|topic| ["c1", "x", "y", "z"].map(|name| format!("{name}({topic})"))).collect();
        assert_eq!((state.log, world.performed().len()), (log, 3), "{way:?}");
    }
}

/// A node that calls the graph of its name, and goes on if that fails.
fn lenient(name: &str) -> Node<Work> {
    let key = format!("{name}'s");
    let call = move |s: View<Work>, ctx: Context| {
        let key = key.clone();
        async move {
            match ctx.call::<Work>(&key, down(&s)).await {
                Ok(inner) => Ok(up(&s, &inner)),
                Err(error) => Ok(Work::update().push_log(format!("caught: {error}"))),
            }
        }
    };
    call.into_node()
}

#[tokio::test]
async fn who_deals_with_a_failure_inside_does_not_repeat_what_was_finished_there() {
    let failed = r#"caught: node "c2" failed in attempt 1: broken"#;
    let cases: [(&str, &str, &[&str], &str); 4] = [
        ("retry outside", "~", &["c1(t's)", "c2(t's)"], "c1 c2 c2"),
        ("retry inside", "~", &["c1(t's)", "c2(t's)"], "c1 c2 c2"),
        ("caught", "!", &[failed], "c1 c2"),
        ("handler", "!", &["r1(rescue)", "r2(rescue)"], "c1 c2 r1 r2 r2"),
    ];
    for (case, script, log, began) in cases {
        let (world, dir) = (World::of(&[("c2", 1)]), tempfile::tempdir().unwrap());
        let make = || {
            let retry = Retry::transient(3).first_delay(Duration::ZERO);
            let (c1, mut c2) = (node(&world, "c1", "e"), node(&world, "c2", script));
            c2 = if case == "retry inside" { c2.retry(retry) } else { c2 };
            let inner = chain(Graph::new("inner").node("c1", c1).node("c2", c2), &["c1", "c2"]).build().unwrap();
            let rescue = line(&world, "rescue", &[("r1", "e"), ("r2", "?")]).build().unwrap();
            let rescuer = |ctx: Context| async move {
                let rescued = ctx.call::<Work>("rescue", Work::update().topic("rescue")).await?;
                Ok(Next::update(Work::update().log(rescued.log.clone())).goto([Target::node(END)]))
            };
            let child = match case {
                "retry outside" => caller("child").retry(retry),
                "caught" => lenient("child"),
                "handler" => caller("child").on_error(rescuer.leads_to([END])),
                _ => caller("child"),
            };
            let graph = Graph::new("outer").callable("child's", inner).callable("rescue", rescue).node("child", child);
            at(dir.path(), chain(graph, &["child"]).build().unwrap())
        };
        let mut outcome = make().thread("t").run(input()).await;
        if case == "handler" {
            let questions = asked(outcome);
            assert!(questions[0].task.path.to_string().ends_with("!/"), "{}", questions[0].task.path);
            outcome = make().thread("t").answer(questions[0].id, Answer::new(1)).await;
        }
        assert_eq!(done(outcome).log, log, "{case}");
        assert_eq!(world.began(), began, "{case}");
        assert_eq!(world.performed().len(), if case == "handler" { 2 } else { 1 }, "{case}");
    }
}

/// An effect inside is under way when the node around it runs out of time, or stops waiting for it.
#[tokio::test(start_paused = true)]
async fn an_effect_inside_that_was_cut_off_is_in_doubt_and_not_repeated_in_silence() {
    for (is_dropped, was_performed) in [(false, true), (false, false), (true, true), (true, false)] {
        let world = World::of(&[("c2", 1)]);
        let inner = line(&world, "inner", &[("c1", "e"), ("c2", "h"), ("c3", "")]).build().unwrap();
        let leaver = {
            let world = Arc::clone(&world);
            move |s: View<Work>, ctx: Context| {
                let world = Arc::clone(&world);
                async move {
                    tokio::select! {
                        inner = ctx.call::<Work>("child's", down(&s)) => inner.map(|inner| up(&s, &inner)),
                        () = world.hangs.notified() => Ok(Work::update().push_log("left")),
                    }
                }
            }
        };
        let retry = Retry::transient(3).first_delay(Duration::ZERO);
        let child = if is_dropped { leaver.into_node() } else { caller("child").timeout(Duration::from_secs(5)).retry(retry) };
        let runner = in_memory(chain(Graph::new("outer").callable("child's", inner).node("child", child), &["child"]));
        let thread = runner.thread("t");
        let questions = asked(soon(thread.run(input())).await);
        let what = format!("dropped {is_dropped}, performed {was_performed}");
        assert!(questions.len() == 1 && questions[0].is_doubt(), "{what}: {questions:?}");
        let log = thread.log().await.unwrap();
        let why = log
            .iter()
            .find_map(|entry| if let Record::EffectDoubted(doubted) = &entry.record { Some(&doubted.why) } else { None });
        assert_eq!(why, Some(&if is_dropped { Doubt::Dropped } else { Doubt::TimedOut }), "{what}");
        assert_eq!(asked(soon(thread.resume()).await)[0].id, questions[0].id, "{what}");
        assert_eq!((world.began().as_str(), world.performed().len()), ("c1 c2", 2), "{what}");
        let answer = if was_performed { Answer::performed(10) } else { Answer::not_performed() };
        let state = done(soon(thread.answer(questions[0].id, answer)).await);
        assert_eq!(state.log, ["c1(t's)", "c2(t's)", "c3(t's)"], "{what}");
        assert_eq!((world.began().as_str(), world.performed().len()), ("c2 c3", if was_performed { 2 } else { 3 }), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_attempt_inside_says_after_its_time_changes_nothing() {
    let world = World::of(&[]);
    let late = {
        let world = Arc::clone(&world);
        move |ctx: Context| {
            let world = Arc::clone(&world);
            async move {
                // A task of its own survives the node that began it.
                let side = tokio::spawn(async move {
                    ctx.effect("e", |_| async {
                        world.gate.notified().await;
                        Ok(())
                    })
                    .await?;
                    ctx.ask("n", Ask::<i64>::new("late?")).await
                });
                Ok(Work::update().total(side.await??))
            }
        }
    };
    let inner = chain(Graph::<Work>::new("inner").node("late", late), &["late"]).build().unwrap();
    let graph = Graph::new("outer").callable("child's", inner).node("child", caller("child").timeout(Duration::from_secs(5)));
    let runner = in_memory(chain(graph, &["child"]));
    let thread = runner.thread("t");
    let questions = asked(soon(thread.run(input())).await);
    let before = thread.log().await.unwrap();
    world.gate.notify_one();
    others_first().await;
    assert_eq!(thread.log().await.unwrap(), before);
    let asked_now = asked(soon(thread.answer(questions[0].id, Answer::performed(serde_json::Value::Null))).await);
    assert_eq!((asked_now.len(), &*asked_now[0].text), (1, "late?"));
    assert_eq!(done(soon(thread.answer(asked_now[0].id, Answer::new(3))).await).total, 3);
}

#[tokio::test]
async fn a_graph_that_is_not_stored_begins_anew_and_repeats_no_effect() {
    for durability in DURABILITIES {
        let (world, dir) = (World::of(&[("c3", 1)]), tempfile::tempdir().unwrap());
        let make = || {
            let inner = line(&world, "inner", &[("c1", "e"), ("c2", "e?e"), ("c3", "e!")]).build().unwrap().unstored();
            at(dir.path(), around(Way::Mapped, &world, inner))
        };
        let questions = asked(make().thread("t").durability(durability).run(input()).await);
        assert_eq!(world.began(), "before c1 c2");
        let error = make().thread("t").durability(durability).answer(questions[0].id, Answer::new(5)).await.unwrap_err();
        assert_eq!((error.code(), &*world.began()), ("node-failed", "c1 c2 c3"), "{durability:?}");
        let runner = make();
        let state = done(runner.thread("t").durability(durability).resume().await);
        assert_eq!(state.log, ["before(t)", "c1(t's)", "c2(t's)", "c3(t's)", "after(t)"], "{durability:?}");
        assert_eq!((world.began().as_str(), world.performed().len()), ("c1 c2 c3 after", 5), "{durability:?}");
        let steps_inside = |entry: &Entry| matches!(&entry.record, Record::Stepped(stepped) if !stepped.path.is_root());
        assert!(!runner.thread("t").log().await.unwrap().iter().any(steps_inside));
        assert_eq!(runner.thread("t").inside::<Work>(["child"]).state().await.unwrap_err().code(), "no-subgraph");
    }
}

#[tokio::test]
async fn fifty_graphs_at_once_give_one_outer_step_whoever_is_first() {
    let mut steps = HashSet::new();
    for (turn, tasks_max, concurrency) in [(1, 1_000, 50), (17, 1_000, 50), (31, 1, 50), (7, 3, 50), (3, 1_000, 1), (1, 1, 1)] {
        let slow = move |s: View<Work>| async move {
            let place: u64 = s.topic.trim_end_matches("'s").parse()?;
            for _ in 0..place * turn % 23 {
                tokio::task::yield_now().await;
            }
            Ok(Work::update().push_log(format!("{place}")).total(i64::try_from(place)?))
        };
        let inner = chain(Graph::<Work>::new("inner").node("slow", slow), &["slow"]).build().unwrap();
        let middle = chain(embed(Way::Called, Graph::new("middle"), "mid", inner), &["mid"]).build().unwrap();
        let child = middle.mapped(|s: &Work| Work::update().topic(&*s.topic), up).concurrency(concurrency);
        let sends = |_: &Work| Ok((0..50).map(|n: u64| Target::send("child", to_state(&n.to_string()))).collect());
        let runner = in_memory(Graph::new("outer").node("child", child).branch(START, ["child"], sends).edge("child", END));
        let state = done(soon(runner.thread("t").tasks_max(tasks_max).run(input())).await);
        assert_eq!(state.log, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
        let outer = |entry: Entry| match entry.record {
            Record::Stepped(stepped) if stepped.path.is_root() => Some(serde_json::to_string(&stepped).unwrap()),
            _ => None,
        };
        steps.insert(runner.thread("t").log().await.unwrap().into_iter().filter_map(outer).collect::<Vec<_>>());
    }
    assert_eq!(steps.len(), 1, "{steps:?}");
}

#[tokio::test]
async fn a_node_inside_speaks_to_the_graph_outside_also_over_a_restart() {
    let graph = |world: &Arc<World>, way: Way, target: &'static str| {
        let (c1, say) = (node(world, "c1", "e"), Arc::clone(world));
        let say = move || {
            say.began.lock().unwrap().push(("say".to_owned(), String::new()));
            async move { Ok(Next::to_parent(Work::update().push_log("told")).goto([Target::node(target)])) }
        };
        let inner = chain(Graph::<Work>::new("inner").node("c1", c1).node("say", say), &["c1", "say"]).build().unwrap();
        let child = match way {
            Way::Shared => inner.clone().shared(),
            Way::Mapped => inner.clone().mapped(down, up),
            Way::Called => caller("child"),
        };
        let graph = Graph::new("outer").node("child", child.leads_to(["left", "right"]));
        let graph = if way == Way::Called { graph.callable("child's", inner) } else { graph };
        let graph = graph.node("left", node(world, "left", "")).node("right", node(world, "right", ""));
        graph.edge(START, "child").edge("left", END).edge("right", END).build().unwrap()
    };
    for way in WAYS {
        let (world, store) = (World::of(&[]), Kept::default());
        let kept = Arc::clone(&store.appends);
        let end = done(Runner::new(graph(&world, way, "left"), store).thread("t").run(input()).await);
        assert_eq!((&*end.log, &*world.began()), (&["told".to_owned(), "left(t)".to_owned()][..], "c1 say left"), "{way:?}");
        let mut appends = kept.lock().unwrap().clone();
        // Between the inner result and the outer one too: each record of the last appends on its own.
        let place =
            appends.iter().flatten().position(|record| matches!(record, Record::TaskDone(done) if done.to_parent)).unwrap();
        let all: Vec<Record> = appends.iter().flatten().cloned().collect();
        appends.push(all);
        let cut = Kept::cut(&[appends.last().unwrap()[..=place].to_vec()]).await;
        let again = done(Runner::new(graph(&world, way, "left"), cut).thread("t").resume().await);
        assert_eq!((again, &*world.began()), (end, "left"), "{way:?}");
        let runner = Runner::new(graph(&world, way, "child"), MemoryStore::new());
        let error = runner.thread("t").run(input()).await.unwrap_err();
        assert!(error.code() == "goto" && error.to_string().contains("left, right"), "{way:?}: {error}");
    }
    let say = || async { Ok(Next::to_parent(Work::update())) };
    let runner = in_memory(chain(Graph::<Work>::new("outer").node("say", say), &["say"]));
    assert_eq!(runner.thread("t").run(input()).await.unwrap_err().code(), "no-parent");
}

#[tokio::test]
async fn a_run_that_is_dropped_inside_ends_what_is_under_way_and_goes_on_from_there() {
    let world = World::of(&[]);
    let gated = {
        let world = Arc::clone(&world);
        move |ctx: Context| {
            let world = Arc::clone(&world);
            async move {
                let perform = |_| async {
                    world.performed.lock().unwrap().push("gated".to_owned());
                    world.hangs.notify_one();
                    world.gate.notified().await;
                    Ok(1)
                };
                Ok(Work::update().total(ctx.effect("e", perform).await?))
            }
        }
    };
    let inner = Graph::<Work>::new("inner").node("gated", gated).node("c2", node(&world, "c2", ""));
    let runner = in_memory(chain(
        embed(Way::Mapped, Graph::new("outer"), "child", chain(inner, &["gated", "c2"]).build().unwrap()),
        &["child"],
    ));
    let thread = runner.thread("t");
    tokio::select! {
        outcome = thread.run(input()) => panic!("it waits at the gate: {outcome:?}"),
        () = world.hangs.notified() => {}
    }
    assert!(thread.resume().await.unwrap_err().is_busy());
    world.gate.notify_one();
    let state = soon(async {
        loop {
            match thread.resume().await {
                Err(error) if error.is_busy() => tokio::task::yield_now().await,
                outcome => break done(outcome),
            }
        }
    });
    assert_eq!((state.await.total, world.performed().len(), world.began().as_str()), (2, 1, "c2"));
}

#[tokio::test]
async fn breakpoints_and_streams_reach_inside() {
    for way in WAYS {
        let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
        let make = || {
            let inner = line(&world, "inner", &[("c1", "e"), ("c2", ""), ("c3", "")]);
            at(dir.path(), around(way, &world, inner.pause_before(["c2"]).pause_after(["c2"]).build().unwrap()))
        };
        let began = ["before c1", "c2", "c3 after"];
        for (run, began) in began.into_iter().enumerate() {
            let runner = make();
            let outcome = runner.thread("t").run_once(input()).await.unwrap();
            assert_eq!(world.began(), began, "{way:?}");
            assert_eq!(matches!(outcome, Outcome::Suspended(Suspension::Breakpoint)), run < 2, "{way:?}: {outcome:?}");
            if run < 2 {
                let inside = runner.thread("t").inside::<Work>(["child"]).state().await.unwrap();
                assert_eq!(inside.next, [["c2", "c3"][run].into()], "{way:?}");
                assert_eq!(runner.thread("t").state().await.unwrap().status, ThreadStatus::Suspended);
            }
        }
        let inner = line(&world, "inner", &[("c1", "e"), ("c2", "")]).build().unwrap();
        let runner = Runner::new(around(way, &world, inner), MemoryStore::new());
        for (mode, all, outer) in
            [(Mode::Updates, 5, 3), (Mode::Values, 4 + 3, 4), (Mode::Tasks, 10, 6), (Mode::Checkpoints, 5 + 4, 5)]
        {
            for (is_outer, expected) in [(false, all), (true, outer)] {
                let thread = runner.thread(&format!("{mode:?} {is_outer}"));
                let events = thread.stream(input()).unwrap().only([mode]);
                let mut events = if is_outer { events.outermost() } else { events };
                let mut seen = Vec::new();
                while let Some(event) = events.next().await {
                    let path = event.path().unwrap().to_string();
                    assert!(path.is_empty() || path.starts_with("child@2"), "{path}");
                    assert!(matches!(event, Event::InnerValues { .. }) <= !path.is_empty(), "{event:?}");
                    seen.push(path);
                }
                let what = format!("{way:?} {mode:?} outermost {is_outer}");
                assert_eq!((seen.len(), seen.iter().all(String::is_empty)), (expected, is_outer), "{what}: {seen:?}");
                assert!(matches!(events.outcome().await.unwrap(), Outcome::Done(_)), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_question_inside_that_nobody_needs_any_more_is_closed() {
    let ask = |ctx: Context| async move { ctx.ask("y", Ask::<u64>::new("y?")).await.map(|_| Work::update()) };
    let inner = Graph::<Work>::new("inner").node("x", || async { Err::<WorkUpdate, _>(NodeError::new("no")) }).node("y", ask);
    let inner = inner.edge(START, "x").edge(START, "y").edge("x", END).edge("y", END).build().unwrap();
    let caller = |ctx: Context| async move {
        let caught = ctx.call::<Work>("inner", Work::update()).await.is_err();
        Ok(Work::update().push_log(format!("caught {caught}")))
    };
    let graph = chain(Graph::new("outer").callable("inner", inner).node("caller", caller), &["caller"]).build().unwrap();
    let runner = Runner::new(graph, MemoryStore::new());
    let state = done(runner.thread("t").run(input()).await);
    assert_eq!(state.log, ["caught true"]);
    let log = runner.thread("t").log().await.unwrap();
    let question = log.iter().find_map(|e| if let Record::Asked(q) = &e.record { Some(q.id) } else { None }).unwrap();
    let error = runner.thread("t").answer(question, Answer::new(1)).await.unwrap_err();
    assert_eq!(error.code(), "question-closed");
    assert!(error.to_string().contains("went on without it"), "{error}");
}

#[tokio::test]
async fn graphs_that_one_node_calls_at_once_both_ask_also_under_a_cap() {
    let ask = |ctx: Context| async move {
        let n = ctx.ask("q", Ask::<u64>::new("q?")).await?;
        Ok(Work::update().total(i64::try_from(n)?))
    };
    let make = || {
        let inner = chain(Graph::new("inner").node("q", ask), &["q"]).build().unwrap();
        let caller = |ctx: Context| async move {
            let (one, two) = tokio::join!(ctx.call::<Work>("k", Work::update()), ctx.call::<Work>("k", Work::update()));
            Ok(Work::update().total(one?.total + two?.total))
        };
        chain(Graph::new("outer").callable("k", inner).node("caller", caller), &["caller"]).build().unwrap()
    };
    for cap in [1, 100] {
        let runner = Runner::new(make(), MemoryStore::new());
        let thread = runner.thread("t").tasks_max(cap);
        let questions = asked(soon(thread.run(input())).await);
        assert_eq!(questions.len(), 2, "with a cap of {cap}");
        let left = asked(soon(thread.answer(questions[0].id, 3)).await);
        assert_eq!((left.len(), left[0].id), (1, questions[1].id), "with a cap of {cap}");
        let inner = |log: &[Entry]| {
            log.iter().filter(|e| matches!(&e.record, Record::TaskDone(d) if d.task.node.as_str() == "q")).count()
        };
        assert_eq!(inner(&thread.log().await.unwrap()), 1, "who was answered goes on, with a cap of {cap}");
        assert_eq!(done(soon(thread.answer(questions[1].id, 4)).await).total, 7);
    }
}
