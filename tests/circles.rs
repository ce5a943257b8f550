//! Guards where graphs change, nest, fail and are edited.
//!
//! How it could break: counts that are doubled or lost where a run is stored as one checkpoint, or where a text holds a secret; a phase that is never left, or
//! left by its guard's own other way; a person's word that does not reach a node under its earlier name; somebody who is stopped in the middle of a round.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support {
    pub(crate) mod pieces;
    pub(crate) mod tokio_clock;
    pub(crate) mod work;
    pub(crate) mod world;
}

use std::sync::Arc;

use ferrata::store::MemoryStore;
use ferrata::testing::crash_everywhere_in;
use ferrata::{
    Approval, Context, Durability, END, Graph, Guard, IntoNode, Keep, Next, NodeError, Outcome, Retry, Runner, START,
    SealSecrets, SecretPlace, State, Target, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use support::pieces::{holding, noted, pieces, times};
use support::work::{Desk, SECOND, Work, WorkUpdate};
use support::world::{World, asked, ended};

const DURABILITIES: [Durability; 3] = [Durability::Step, Durability::Behind, Durability::Exit];

/// Promised: the same failure in so many rounds of a node in a row, and restarts go on counting. How it broke: under its new name a node began anew.
#[tokio::test(start_paused = true)]
async fn rows_go_on_under_another_name() {
    let (world, desk) = (World::new(), Desk::new());
    let work = {
        let world = world.clone();
        move |ctx: Context| {
            let good = world.act("work") == 4;
            if !good {
                ctx.note_failure(&NodeError::new("torn").deterministic());
            }
            async { Ok(Work::update()) }
        }
    };
    let graph = |name: &'static str| {
        Graph::<Work>::new("renamed").node(name, work.clone().guard(Guard::new())).edge(START, name).route_to(
            name,
            [name, END],
            move |_: &Work| name,
        )
    };
    let outcome = desk.thread(graph("old")).pause_after(["old"]).run(Work::update()).await;
    assert!(matches!(outcome, Ok(Outcome::Suspended(_))), "{outcome:?}");
    let now = || graph("new").renamed("old", "new");
    let id = asked(desk.thread(now()).resume().await);
    assert_eq!(world.done().len(), 3);
    // A round without a failure ends the row, whatever the name was that it began under.
    asked(desk.thread(now()).answer(id, Approval::approve()).await);
    assert_eq!(world.done().len(), 7);
}

/// Promised: rounds are counted from 0 again when the phase is left, which is when none of its nodes is due or waits. How it broke: where an edit leads out of it,
/// the next piece of work had the rounds of the one before.
#[tokio::test(start_paused = true)]
async fn an_edit_that_leads_out_of_a_phase_leaves_it() {
    let (world, desk) = (World::new(), Desk::new());
    let graph = || pieces(&world, Guard::new().rounds(2), 3);
    asked(desk.thread(graph()).run(Work::update()).await);
    assert_eq!(world.done(), ["next", "write", "write"]);
    desk.thread(graph()).update(Work::update().hint("good"), Some("judge")).await.expect("it is edited");
    asked(desk.thread(graph()).resume().await);
    assert_eq!(world.done()[3..], ["next", "write", "write"]);
}

/// Promised: as above. How it broke: where the guard leads to the node that hands out the next piece of work, that node counted as one of the phase, and the
/// phase was never left.
#[tokio::test(start_paused = true)]
async fn a_phase_whose_other_way_is_the_next_piece_of_work_is_left_all_the_same() {
    for durability in DURABILITIES {
        let world = World::new();
        let graph = pieces(&world, Guard::new().rounds(3).reroute("next"), 2);
        ended(Desk::new().thread(graph).durability(durability).run(Work::update()).await);
        assert_eq!((times(&world, "next"), times(&world, "write")), (3, 6), "two for each of three");
    }
    // A piece that has had its rounds is given up, and the next one has all of them.
    let (world, desk) = (World::new(), Desk::new());
    asked(desk.thread(pieces(&world, Guard::new().rounds(2).reroute("next"), 3)).run(Work::update()).await);
    assert_eq!(world.done(), ["next", "write", "write", "next", "write", "write"]);
}

/// Promised: the first time another way, the next time a person. How it broke: another way of two nodes left the phase behind the first of them, and with it what
/// was known of the way: it was taken again and again, and nobody was asked.
#[tokio::test(start_paused = true)]
async fn another_way_of_several_steps_is_taken_once() {
    for durability in DURABILITIES {
        let (world, desk) = (World::new(), Desk::new());
        let graph = pieces(&world, Guard::new().rounds(2).reroute("plan"), usize::MAX)
            .node("plan", noted(&world, "plan"))
            .node("research", noted(&world, "research"))
            .edge("plan", "research")
            .edge("research", "write");
        asked(desk.thread(graph).steps_max(60).durability(durability).run(Work::update()).await);
        assert_eq!(world.done(), ["next", "write", "write", "plan", "research", "write", "write"]);
    }
}

/// A graph whose only node fails; it is guarded.
fn failing(world: &World, guard: Guard) -> Graph<Work> {
    let world = world.clone();
    let work = move || {
        world.act("work");
        async { Err::<WorkUpdate, _>(NodeError::new("torn").transient()) }
    };
    Graph::<Work>::new("failing").node("work", work.guard(guard)).edge(START, "work").edge("work", END).build().expect("right")
}

/// Promised: a round of a node is a step in which it ran. How it broke: a graph in which a guard stopped a node counted as stopped itself: its own guard counted
/// no round, and led in a circle without end.
#[tokio::test(start_paused = true)]
async fn a_graph_in_which_a_guard_has_stopped_a_node_has_had_its_round() {
    let (world, desk) = (World::new(), Desk::new());
    let graph = || {
        let looping = Graph::<Work>::new("inner")
            .node("work", noted(&world, "work").guard(Guard::new().rounds(2).or_fail()))
            .edge(START, "work")
            .route_to("work", ["work", END], |_: &Work| "work")
            .build()
            .expect("right");
        let again = |_: View<Work>| async { Ok(Next::update(Work::update()).goto([Target::node("sub")])) };
        holding(looping.shared().guard(Guard::new().failures(3)).on_error(again.leads_to(["sub"])))
    };
    asked(desk.thread(graph()).steps_max(60).run(Work::update()).await);
    assert_eq!(world.done().len(), 6, "three calls with two rounds each");
}

/// Promised: each resume lets a node have one more round. How it broke: inside a call that was tried again it had one for each attempt of its caller.
#[tokio::test(start_paused = true)]
async fn a_resume_grants_one_round_however_often_the_call_is_tried() {
    let (world, desk) = (World::new(), Desk::new());
    let graph = || {
        let retry = Retry::transient(6).first_delay(SECOND);
        holding(failing(&world, Guard::new().failures(2).or_fail()).shared().retry(retry))
    };
    assert_eq!(desk.thread(graph()).run(Work::update()).await.expect_err("it fails").code(), "guarded");
    assert_eq!(world.done().len(), 2);
    assert_eq!(desk.thread(graph()).resume().await.expect_err("it fails").code(), "guarded");
    assert_eq!(world.done().len(), 3);
}

/// Promised: restarts go on counting. How it broke: what a call failed of that was tried again stood in the counts of a run that is stored as one checkpoint, and
/// in its records once more.
#[tokio::test(start_paused = true)]
async fn what_failed_inside_is_counted_once_however_it_is_stored() {
    for durability in DURABILITIES {
        let (world, desk) = (World::new(), Desk::new());
        let graph = || holding(failing(&world, Guard::new().failures(3)).shared().retry(Retry::transient(2).first_delay(SECOND)));
        let thread = || desk.thread(graph()).durability(durability);
        assert!(thread().run(Work::update()).await.is_err());
        assert_eq!(world.done().len(), 2);
        asked(thread().resume().await);
        assert_eq!(world.done().len(), 3, "{durability:?}");
    }
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Vault {
    #[state(secret)]
    token: String,
    n: i64,
}

/// Promised: restarts go on counting. How it broke: a failure that quotes a secret has another text in the store, and was another one after a restart.
#[tokio::test(start_paused = true)]
async fn a_failure_that_quotes_a_secret_is_the_same_after_a_restart() {
    let (world, store) = (World::new(), Arc::new(MemoryStore::new()));
    let thread = || {
        let world = world.clone();
        let log_in = move |vault: View<Vault>, ctx: Context| {
            world.act("work");
            ctx.note_failure(&NodeError::new(format!("the key {} is refused", vault.token)).deterministic());
            async move { Ok(Vault::update().n(vault.n + 1)) }
        };
        let graph = Graph::<Vault>::new("vault")
            .node("work", log_in.guard(Guard::new()))
            .edge(START, "work")
            .route_to("work", ["work", END], |_: &Vault| "work")
            .build()
            .expect("right");
        let open = |_: SecretPlace<'_>, _: Value| Ok::<_, &str>(Some(Value::from("key-to-the-hut")));
        let secrets = SealSecrets::new(|_: SecretPlace<'_>, _: Value| Ok::<_, &str>(Value::from("in the vault")), open);
        Runner::new(graph, Arc::clone(&store)).secrets(secrets).thread("t")
    };
    let outcome = thread().pause_after(["work"]).run(Vault::update().token("key-to-the-hut")).await.expect("it works");
    assert!(matches!(outcome, Outcome::Suspended(_)), "{outcome:?}");
    let outcome = thread().resume().await.expect("it works");
    assert_eq!((outcome.questions().len(), world.done().len()), (1, 3), "{outcome:?}");
    let log = serde_json::to_string(&thread().log().await.expect("it is read")).expect("JSON");
    assert!(!log.contains("key-to-the-hut"));
}

/// Promised: the same action in so many rounds of a node in a row. How it broke: a run that failed in between was a round in which nothing was done, and the row
/// began anew.
#[tokio::test(start_paused = true)]
async fn a_run_that_fails_in_between_ends_no_row_of_actions() {
    let (world, desk) = (World::new(), Desk::new());
    let graph = || {
        let world = world.clone();
        let work = move |ctx: Context| {
            let world = world.clone();
            async move {
                let look = |_| async { Ok(world.act("looked")) };
                ctx.effect("search", look).repeatable().arguments(&"ferrata").await?;
                // The second look-up is done, and then there is no room for it.
                if world.done() == ["looked", "looked"] {
                    world.act("no room");
                    return Err(NodeError::new("no room").deterministic());
                }
                Ok(Work::update())
            }
        };
        Graph::<Work>::new("search").node("work", work.guard(Guard::new())).edge(START, "work").route_to(
            "work",
            ["work", END],
            |_: &Work| "work",
        )
    };
    assert!(desk.thread(graph()).steps_max(20).run(Work::update()).await.is_err());
    asked(desk.thread(graph()).steps_max(20).resume().await);
    assert_eq!(times(&world, "looked"), 3);
}

/// Promised: counts are of the thread, wherever it is kept. It holds.
#[tokio::test(start_paused = true)]
async fn counts_go_with_copies_exports_and_what_is_kept_of_a_log() {
    for durability in DURABILITIES {
        let (world, desk) = (World::new(), Desk::new());
        let graph = || pieces(&world, Guard::new().rounds(3), usize::MAX).build().expect("right");
        let runner = || Runner::with_clock(graph(), Arc::clone(&desk.store), desk.clock.clone());
        let run = runner().thread("t").durability(durability).pause_after(["judge"]).run(Work::update()).await;
        assert!(matches!(run, Ok(Outcome::Suspended(_))), "{run:?}");
        runner().thread("t").prune(Keep::Last(1)).await.expect("it is pruned");
        runner().thread("t").copy_to("copy").await.expect("it is copied");
        let mut text = Vec::new();
        runner().thread("copy").export(&mut text).await.expect("it is exported");
        let other = Runner::with_clock(graph(), MemoryStore::new(), desk.clock.clone());
        other.thread("copy").import(&mut text.as_slice()).await.expect("it is imported");
        for thread in [runner().thread("copy"), other.thread("copy"), runner().thread("t")] {
            let before = times(&world, "write");
            asked(thread.durability(durability).resume().await);
            assert_eq!(times(&world, "write"), before + 2, "one round was made before");
        }
        runner().verify().await.expect("it is sound");
    }
}

/// Promised: it stops at the same place wherever the process dies. Inside graphs, in a phase, by what is done, with another way out of the phase. It holds.
#[tokio::test(start_paused = true)]
async fn guards_inside_stop_at_the_same_place_wherever_the_process_dies() {
    let graph = |world: &World| {
        let world = world.clone();
        let search = move |work: View<Work>, ctx: Context| {
            let world = world.clone();
            async move {
                let look = |_| async { Ok(world.act(format!("looked {}", work.n))) };
                ctx.effect("search", look).repeatable().arguments(&"ferrata").await?;
                Ok(Work::update().n(work.n + 1).hint(ctx.feedback().map(|said| said.message.clone()).unwrap_or_default()))
            }
        };
        let inner = Graph::<Work>::new("inner")
            .node("search", search)
            .node("plan", |work: View<Work>| async move { Ok(Work::update().push_log(format!("plan {}", work.n))) })
            .node("again", || async { Ok(Work::update()) })
            .phase("find", ["search"], Guard::new().actions(2).reroute("plan"))
            .edge(START, "search")
            .route_to("search", ["search", END], |work: &Work| if work.hint == "found" { END } else { "search" })
            .edge("plan", "again")
            .edge("again", "search")
            .build()
            .expect("right");
        let ask = |work: View<Work>| async move { Ok(Work::update().push_log(format!("done {}", work.n))) };
        Graph::<Work>::new("outer")
            .node("sub", inner.shared())
            .node("end", ask)
            .edge(START, "sub")
            .edge("sub", "end")
            .edge("end", END)
            .build()
    };
    for durability in DURABILITIES {
        let test = crash_everywhere_in(World::new, graph, Work::update()).thread(move |thread| thread.durability(durability));
        let test = test.answer("guard", Approval::edit("found"));
        let report = test
            .after_each(|_, state| assert_eq!((state.n, &state.log[..]), (5, &["plan 2".to_owned(), "done 5".to_owned()][..])))
            .await;
        println!("{durability:?}: {}", report.unwrap_or_else(|faults| panic!("{durability:?}: {faults}")));
    }
}
