//! Graphs inside graphs: history, edits, snapshots and forks reach into them, and whatever the cut, the end is the same.
//!
//! How it could break: a fork that forgets a graph inside or takes its later state; an edit that moves the graph outside; a snapshot that holds
//! what was never recorded; a step that is made again behind a cut.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support {
    pub(crate) mod nested;
}

use std::collections::HashSet;
use std::sync::Arc;

use ferrata::log::{Record, Source};
use ferrata::store::{MemoryStore, Reach, RedbStore, Store};
use ferrata::{Answer, Durability, END, Graph, Position, Runner, START, Target, ThreadName, View};
use support::nested::*;

#[tokio::test]
async fn an_edit_inside_a_shared_graph_adds_to_what_others_add() {
    let world = World::of(&[]);
    let inner = line(&world, "inner", &[("c1", "e"), ("c2", "?")]).build().unwrap();
    let graph = Graph::new("outer").node("child", inner.shared()).node("other", node(&world, "other", "e"));
    let runner = in_memory(graph.edge(START, "child").edge(START, "other").edge("child", END).edge("other", END));
    let thread = runner.thread("t");
    assert_eq!(asked(thread.run(input().total(100)).await).len(), 1);
    thread.inside::<Work>(["child"]).update(Work::update().total(1000).push_log("edited"), Some("c2")).await.unwrap();
    let state = done(thread.resume().await);
    assert_eq!((state.total, state.log.join(" ").as_str()), (100 + 11 + 1000 + 11, "c1(t) edited other(t)"));
}

#[tokio::test]
async fn going_back_inside_keeps_the_state_of_the_graphs_that_keep_it_there() {
    let world = World::of(&[]);
    let kept = line(&world, "kept", &[("k", "e")]).build().unwrap().continued();
    let graph = Graph::new("inner").node("kept", kept.mapped(down, up)).node("c", node(&world, "c", ""));
    // kept, c, kept
    let graph = graph
        .edge(START, "kept")
        .edge("kept", "c")
        .route_to("c", ["kept", END], |s: &Work| if s.log.len() < 4 { "kept" } else { END });
    let runner = in_memory(chain(Graph::new("outer").node("child", graph.build().unwrap().mapped(down, up)), &["child"]));
    let thread = runner.thread("t");
    let state = done(thread.run(input()).await);
    let inside = thread.inside::<Work>(["child"]);
    let history = inside.history().await.unwrap();
    let at = history.iter().rfind(|c| c.next == ["c".into()]).unwrap().position;
    world.began();
    assert_eq!(done(thread.at(at).resume().await), state, "the second call finds the state of the first one");
    assert_eq!(world.began(), "c k c");
}

#[tokio::test]
async fn going_back_before_a_question_inside_asks_it_again() {
    let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
    let make = || {
        at(
            dir.path(),
            around(Way::Called, &world, line(&world, "inner", &[("c1", "e"), ("ask", "?"), ("c2", "")]).build().unwrap()),
        )
    };
    let runner = make();
    let first = asked(runner.thread("t").run(input()).await);
    let end = done(runner.thread("t").answer(first[0].id, Answer::new(5)).await);
    let (log, history) =
        (runner.thread("t").log().await.unwrap(), runner.thread("t").inside::<Work>(["child"]).history().await.unwrap());
    assert_eq!(history.iter().map(|c| c.step.0).collect::<Vec<_>>(), [3, 2, 1, 0, -1]);
    let whole = runner.thread("t").history().await.unwrap();
    let before_ask = history.iter().find(|c| c.next == ["ask".into()]).unwrap().position;
    let before_child = whole.iter().find(|c| c.next == ["child".into()]).unwrap().position;
    drop(runner);
    for (position, again, performed) in [(before_ask, "ask", 2), (before_child, "c1 ask", 3)] {
        world.began();
        let runner = make();
        let thread = runner.thread("t");
        assert_eq!(*thread.clone().at(before_ask).state().await.unwrap().values.log, ["before(t)"]);
        let questions = asked(thread.clone().at(position).resume().await);
        assert_ne!(questions[0].id, first[0].id, "the old answer is not used");
        assert_eq!((world.began(), world.performed().len()), (again.to_owned(), performed), "{position:?}");
        drop((thread, runner));
        let runner = make();
        let other = done(runner.thread("t").answer(questions[0].id, Answer::new(7)).await);
        assert_eq!((&other.log, other.total), (&end.log, end.total + 2));
        assert_eq!(world.began(), "ask c2 after");
        assert_eq!(runner.thread("t").log().await.unwrap()[..log.len()], log, "the first line of history is as it was");
        world.performed.lock().unwrap().truncate(2);
    }
}

#[tokio::test]
async fn going_back_in_time_takes_the_state_of_continued_graphs_along() {
    for durability in DURABILITIES {
        let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
        let make = || {
            let inner = line(&world, "inner", &[("c", "e")]).build().unwrap().continued();
            let child = inner.mapped(down, |_: &Work, inner| Work::update().set_log(inner.log.clone()));
            at(
                dir.path(),
                chain(Graph::new("outer").node("child", child).node("after", node(&world, "after", "")), &["child", "after"])
                    .build()
                    .unwrap(),
            )
        };
        for calls in 1..=3 {
            let state = done(make().thread("t").durability(durability).run(input()).await);
            assert_eq!(state.log.len(), calls + 1, "{durability:?}");
        }
        // The end of the first run, and with steps of their own also the one between.
        let history = make().thread("t").history().await.unwrap();
        let first = history.iter().rfind(|c| c.values.log.len() == 2).unwrap().position;
        let runner = make();
        assert_eq!(runner.thread("t").inside::<Work>(["child"]).state().await.unwrap().values.log.len(), 3);
        let state = done(runner.thread("t").at(first).durability(durability).run(input()).await);
        assert_eq!(state.log.len(), 3, "{durability:?}");
        drop(runner);
        assert_eq!(make().thread("t").inside::<Work>(["child"]).state().await.unwrap().values.log.len(), 2, "{durability:?}");
    }
}

/// What the log tells, without snapshots.
async fn without_snapshots(runner: &Runner<Work>, graph: Graph<Work>) -> Runner<Work> {
    let records = runner.thread("t").log().await.unwrap().into_iter().map(|entry| entry.record).collect();
    Runner::new(graph, Kept::cut(&[records]).await)
}

/// A state with everything that a caller can see of it.
async fn seen(runner: &Runner<Work>) -> String {
    let state = runner.thread("t").state().await.unwrap();
    let inside = runner.thread("t").inside::<Work>(["child"]).state().await;
    let inside = inside.map(|state| format!("{:?} {:?} {:?} {:?}", state.values, state.next, state.tasks, state.step));
    format!("{:?} {:?} {:?} {:?} {inside:?}", state.values, state.next, state.tasks, state.status)
}

#[tokio::test]
async fn a_snapshot_in_the_middle_of_a_graph_inside_is_what_the_log_says() {
    for way in WAYS {
        let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
        let graph = || {
            let long = |s: View<Work>| async move { Ok(Work::update().push_log(format!("{:01000}", s.log.len()))) };
            let graph = Graph::<Work>::new("inner").node("long", long).node("ask", node(&world, "ask", "e?"));
            let graph = graph.route_to("long", ["long", "ask"], |s: &Work| if s.log.len() < 40 { "long" } else { "ask" });
            around(way, &world, graph.edge(START, "long").edge("ask", END).build().unwrap())
        };
        let questions = asked(at(dir.path(), graph()).thread("t").run(input()).await);
        let store = RedbStore::open(dir.path().join("s.redb")).unwrap();
        let loaded = store.load(&ThreadName::new("t").unwrap(), Reach::Newest).await.unwrap();
        assert!(loaded.snapshot.is_some() && loaded.entries.len() < 60, "{way:?}: {} records behind it", loaded.entries.len());
        drop(store);
        let runner = at(dir.path(), graph());
        let folded = without_snapshots(&runner, graph()).await;
        assert_eq!(seen(&runner).await, seen(&folded).await, "{way:?}");
        let (state, other) = (
            runner.thread("t").answer(questions[0].id, Answer::new(1)).await,
            folded.thread("t").answer(questions[0].id, Answer::new(1)).await,
        );
        assert_eq!(done(state), done(other), "{way:?}");
        assert_eq!((world.began().as_str(), world.performed().len()), ("before ask ask after ask after", 2), "{way:?}");
    }
}

/// A store counts each record, so that a snapshot falls due at some step; there the conditional edge fails.
#[tokio::test]
async fn what_was_never_recorded_is_in_no_snapshot() {
    for way in [Some(Way::Shared), Some(Way::Mapped), None] {
        for fails_at in 20..36 {
            let world = World::of(&[("route", 1)]);
            let graph = || {
                let (count, world) = (|| async { Ok(Work::update().total(1)) }, Arc::clone(&world));
                let graph = Graph::<Work>::new("count").node("n", count).edge(START, "n");
                let graph = graph.route_to("n", ["n", END], move |s: &Work| match s.total {
                    n if n == fails_at && world.fault("route") => "nowhere",
                    n if n < 40 => "n",
                    _ => END,
                });
                let inner = graph.build().unwrap();
                way.map_or(inner.clone(), |way| {
                    chain(embed(way, Graph::new("outer"), "child", inner), &["child"]).build().unwrap()
                })
            };
            let runner = Runner::new(graph(), MemoryStore::new());
            assert_eq!(runner.thread("t").run(input()).await.unwrap_err().code(), "route");
            let folded = without_snapshots(&runner, graph()).await;
            assert_eq!(seen(&runner).await, seen(&folded).await, "{way:?}, step {fails_at}");
            assert_eq!(done(runner.thread("t").resume().await).total, 40, "{way:?}, step {fails_at}");
        }
    }
}

#[tokio::test]
async fn a_graph_inside_can_be_edited_where_it_waits_and_bad_edits_change_nothing() {
    for way in WAYS {
        let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
        let inner = || line(&world, "inner", &[("c1", "e"), ("ask", "?"), ("c2", "")]).build().unwrap();
        let make = || at(dir.path(), around(way, &world, inner()));
        let old = asked(make().thread("t").run(input()).await);
        let runner = make();
        let thread = runner.thread("t");
        let log = thread.log().await.unwrap();
        let edit = Work::update().topic("edited");
        let wrong = thread.inside::<Other>(["child"]).update(Other::update().n(1), None).await.unwrap_err();
        assert!(wrong.code() == "no-subgraph" && wrong.to_string().contains("Work"), "{wrong}");
        let refused = [
            (thread.inside::<Work>(["other"]).update(edit.clone(), None).await, "no-subgraph"),
            (thread.inside::<Work>(["child", "ask"]).update(edit.clone(), None).await, "no-subgraph"),
            (thread.inside::<Work>(["child"]).update(edit.clone(), Some("nobody")).await, "edit-node"),
            (
                thread.inside::<Work>(["child"]).update(ferrata::state::Update::new().set("nothing", "x"), Some("c1")).await,
                "edit-changes",
            ),
        ];
        for (result, code) in refused {
            assert_eq!(result.unwrap_err().code(), code, "{way:?}");
        }
        assert_eq!(thread.log().await.unwrap(), log, "{way:?}: nothing has changed");
        thread.inside::<Work>(["child"]).update(edit, Some("c1")).await.unwrap();
        let outer = thread.state().await.unwrap();
        assert_eq!((&*outer.values.topic, &*outer.next, outer.questions.len()), ("t", &["child".into()][..], 0), "{way:?}");
        let inside = thread.inside::<Work>(["child"]).state().await.unwrap();
        assert_eq!((&*inside.values.topic, &*inside.next, inside.source), ("edited", &["ask".into()][..], Some(Source::Update)));
        assert_eq!(thread.answer(old[0].id, Answer::new(1)).await.unwrap_err().code(), "question-closed");
        let new = asked(thread.resume().await);
        drop((thread, runner));
        let runner = make();
        let state = done(runner.thread("t").answer(new[0].id, Answer::new(1)).await);
        assert!(state.log.contains(&"c2(edited)".to_owned()), "{way:?}: {:?}", state.log);
        assert_eq!((world.began().as_str(), world.performed().len()), ("before c1 ask ask ask c2 after", 2), "{way:?}");
        let steps: Vec<_> =
            runner.thread("t").inside::<Work>(["child"]).history().await.unwrap().iter().map(|c| c.source).collect();
        assert_eq!(steps, [Source::Loop, Source::Loop, Source::Update, Source::Loop, Source::Loop, Source::Input], "{way:?}");
    }
}

#[tokio::test]
async fn of_several_graphs_at_work_one_is_named_by_its_path() {
    let world = World::of(&[]);
    let inner = line(&world, "inner", &[("ask", "?")]).build().unwrap();
    let sends = |_: &Work| Ok(["a", "b"].map(|topic| Target::send("child", to_state(topic))).to_vec());
    let graph = embed(Way::Mapped, Graph::new("outer"), "child", inner).branch(START, ["child"], sends).edge("child", END);
    let runner = in_memory(graph);
    let thread = runner.thread("t");
    let questions = asked(thread.run(input()).await);
    let error = thread.inside::<Work>(["child"]).state().await.unwrap_err();
    assert!(error.code() == "no-subgraph" && error.to_string().contains("child@1#1/"), "{error}");
    let path = questions[1].task.path.clone();
    thread.inside_path::<Work>(path).update(Work::update().topic("edited"), Some(END)).await.unwrap();
    assert_eq!(asked(soon(thread.resume()).await).len(), 1);
    assert_eq!(done(thread.answer(questions[0].id, Answer::new(1)).await).log, ["ask(a's)"]);
}

#[tokio::test]
async fn new_input_and_edits_outside_take_the_place_of_a_graph_that_waits() {
    for keeps in ["fresh", "continued", "unstored"] {
        let (world, dir) = (World::of(&[]), tempfile::tempdir().unwrap());
        let make = || {
            let inner = line(&world, "inner", &[("c1", "e"), ("ask", "?")]).build().unwrap();
            let inner = match keeps {
                "continued" => inner.continued(),
                "unstored" => inner.unstored(),
                _ => inner,
            };
            at(dir.path(), around(Way::Mapped, &world, inner))
        };
        let first = asked(make().thread("t").run(input()).await);
        let runner = make();
        assert_eq!(runner.thread("t").run(input()).await.unwrap_err().code(), "thread-waiting", "{keeps}");
        let second = asked(runner.thread("t").supersede().run(Work::update().topic("u")).await);
        assert_eq!(second.len(), 1, "{keeps}");
        assert_eq!(
            runner.thread("t").answer(first[0].id, Answer::new(1)).await.unwrap_err().code(),
            "question-closed",
            "{keeps}"
        );
        let performed: HashSet<_> = world.performed().into_iter().collect();
        assert_eq!((world.began().as_str(), performed.len()), ("before c1 ask before c1 ask", 4), "{keeps}: other tasks");
        drop(runner);
        let runner = make();
        runner.thread("t").update(Work::update().push_log("edited"), Some("child")).await.unwrap();
        assert_eq!(
            runner.thread("t").answer(second[0].id, Answer::new(1)).await.unwrap_err().code(),
            "question-closed",
            "{keeps}"
        );
        let state = done(runner.thread("t").resume().await);
        assert_eq!(
            (state.log.join(" ").as_str(), world.began().as_str()),
            ("before(t) before(u) edited after(u)", "after"),
            "{keeps}"
        );
        // Whatever the graph keeps, an unfinished call has added nothing but its finished steps.
        let third = asked(runner.thread("t").run(Work::update().topic("v")).await);
        let log = done(runner.thread("t").answer(third[0].id, Answer::new(1)).await).log;
        assert_eq!(log[5..].iter().filter(|entry| entry.ends_with("(v's)")).count(), 2, "{keeps}: {log:?}");
        let waiting = asked(runner.thread("t").run(Work::update().topic("w")).await);
        assert!(runner.thread("t").delete().await.unwrap());
        assert_eq!(
            runner.thread("t").answer(waiting[0].id, Answer::new(1)).await.unwrap_err().code(),
            "thread-unknown",
            "{keeps}"
        );
        assert!(runner.thread("t").inside::<Work>(["child"]).state().await.is_err(), "{keeps}");
        assert_eq!(asked(runner.thread("t").run(input()).await).len(), 1, "{keeps}: begins from nothing");
    }
}

#[tokio::test]
async fn random_graphs_inside_each_other_continued_from_behind_every_append_end_like_the_undisturbed_run() {
    let one = std::env::var("FERRATA_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut depths = 0;
    for seed in one.map_or(0..4, |seed| seed..seed + 1) {
        for durability in DURABILITIES {
            let world = World::of(&[]);
            let (store, graph) = (Kept::default(), nested(&mut Dice(seed), &world, "", 2).build().unwrap());
            let kept = Arc::clone(&store.appends);
            let undisturbed = soon(finish(&Runner::new(graph, store), durability)).await;
            let (appends, first) = (kept.lock().unwrap().clone(), world.performed());
            assert_eq!(first.iter().collect::<HashSet<_>>().len(), first.len(), "seed {seed} {durability:?}: twice in {first:?}");
            for cut in 0..=appends.len() {
                let (mut tasks, mut effects) = (HashSet::new(), HashSet::new());
                for record in appends[..cut].iter().flatten() {
                    match record {
                        Record::TaskDone(done) => _ = tasks.insert(done.task.to_string()),
                        Record::EffectDone(done) => {
                            _ = effects.insert(format!("{}/{}", done.effect.task, done.effect.occurrence))
                        }
                        _ => {}
                    }
                }
                let (world, store) = (World::of(&[]), Kept::cut(&appends[..cut]).await);
                let graph = nested(&mut Dice(seed), &world, "", 2).build().unwrap();
                let what = format!("seed {seed}, {durability:?}, cut behind append {cut}");
                let end = soon(finish(&Runner::new(graph, store), durability)).await;
                assert_eq!(end, undisturbed, "{what}");
                let twice: Vec<_> = world.performed().into_iter().filter(|effect| effects.contains(effect)).collect();
                assert!(twice.is_empty(), "{what}: recorded and performed again: {twice:?}");
                let again: Vec<_> = world
                    .began
                    .lock()
                    .unwrap()
                    .iter()
                    .map(|(_, task)| task.clone())
                    .filter(|task| tasks.contains(task))
                    .collect();
                assert!(again.is_empty(), "{what}: recorded and run again: {again:?}");
                depths = depths.max(tasks.iter().map(|task| task.matches('/').count()).max().unwrap_or(0));
            }
        }
    }
    assert!(one.is_some() || depths == 2, "{depths}");
}

#[tokio::test]
async fn random_graphs_inside_each_other_end_the_same_from_each_of_their_checkpoints() {
    let one = std::env::var("FERRATA_SEED").ok().and_then(|seed| seed.parse().ok());
    let (mut forks, mut inside) = (0, 0);
    for seed in one.map_or(vec![0, 1, 2, 3, 36, 41], |seed| vec![seed]) {
        for durability in [Durability::Step, Durability::Exit] {
            let graph = |world: &Arc<World>| nested(&mut Dice(seed), world, "", 2).build().unwrap();
            let (world, store) = (World::of(&[]), Kept::default());
            let kept = Arc::clone(&store.appends);
            let undisturbed = soon(finish(&Runner::new(graph(&world), store), Durability::Step)).await;
            let (appends, before) = (kept.lock().unwrap().clone(), world.performed());
            for (position, record) in (0..).zip(appends.iter().flatten()) {
                let path = match record {
                    Record::Input(input) => &input.path,
                    Record::Stepped(stepped) => &stepped.path,
                    _ => continue,
                };
                (forks, inside) = (forks + 1, inside + u32::from(!path.is_root()));
                let (world, what) = (World::of(&[]), format!("seed {seed}, {durability:?}, from {position} at {path}"));
                let runner = Runner::new(graph(&world), Kept::cut(&appends).await);
                // The first run may end with a question or a failure; what follows goes on from there.
                let first = soon(runner.thread("t").at(Position(position)).durability(durability).resume()).await;
                assert!(first.is_ok() || first.as_ref().unwrap_err().code() == "node-failed", "{what}: {first:?}");
                assert_eq!(soon(finish(&runner, durability)).await, undisturbed, "{what}");
                let performed = world.performed();
                let twice = performed.iter().find(|effect| before.contains(effect));
                assert_eq!(twice, None, "{what}: a new line has effects of its own");
                assert_eq!(performed.iter().collect::<HashSet<_>>().len(), performed.len(), "{what}: {performed:?}");
            }
        }
    }
    assert!(one.is_some() || inside * 3 > forks, "{inside} of {forks}");
}
