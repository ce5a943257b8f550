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
    Approval, Context, Durability, END, Event, Graph, GraphBuilder, Guard, IntoNode, Keep, Next, Node, NodeError, Outcome,
    Question, Retry, Runner, START, SealSecrets, SecretPlace, State, Target, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use support::pieces::{noted, pieces};
use support::work::{Desk, SECOND, Work, WorkUpdate};
use support::world::{World, asked, ended};
use tokio::sync::Notify;

const DURABILITIES: [Durability; 3] = [Durability::Step, Durability::Behind, Durability::Exit];

fn times(world: &World, what: &str) -> usize {
    world.done().iter().filter(|done| *done == what).count()
}

fn one_question(outcome: &Result<Outcome<Work>, ferrata::Error>) -> Question {
    let Ok(outcome) = outcome else { panic!("{outcome:?}") };
    let [question] = outcome.questions() else { panic!("{outcome:?}") };
    (**question).clone()
}

/// Promised: a node that is renamed goes on under its name of now; many tasks of it are one question, and a person's refusal fails them. How it broke: the
/// question names the nodes as they are called now, the tasks that were due have the earlier name: each asked for itself, and no refusal reached any.
#[tokio::test(start_paused = true)]
async fn tasks_under_an_earlier_name_are_one_question_and_hear_the_answer() {
    let (world, desk) = (World::new(), Desk::new());
    let read = {
        let world = world.clone();
        move |page: u64, ctx: Context| {
            world.act(format!("{page}{}", ctx.feedback().map(|said| said.message.clone()).unwrap_or_default()));
            async { Ok(Work::update()) }
        }
    };
    let graph = |name: &'static str| {
        let list = move |work: View<Work>, ctx: Context| async move {
            ctx.note_failure(&NodeError::new("torn").deterministic());
            let next = Next::update(Work::update().n(work.n + 1));
            Ok(if work.n < 2 {
                next.goto([Target::node("list")])
            } else {
                next.goto((0..3).map(|page| Target::send(name, page)))
            })
        };
        Graph::<Work>::new("pages")
            .node("list", list.leads_to(["list", name]))
            .node(name, read.clone())
            .edge(START, "list")
            .edge(name, END)
    };
    let outcome = desk.thread(graph("read")).pause_before(["read"]).run(Work::update()).await;
    assert!(matches!(outcome, Ok(Outcome::Suspended(_))), "{outcome:?}");
    let now = || graph("parse").renamed("read", "parse").phase("pages", ["list", "parse"], Guard::new());
    let question = one_question(&desk.thread(now()).resume().await);
    let refused = desk.thread(now()).answer(question.id, Approval::reject("leave it")).await.expect_err("it is refused");
    assert_eq!(refused.code(), "guarded", "{refused}");
    assert!(refused.to_string().contains("leave it"), "{refused}");
    let question = one_question(&desk.thread(now()).resume().await);
    ended(desk.thread(now()).answer(question.id, Approval::edit(" again")).await);
    assert_eq!(world.done(), ["0 again", "1 again", "2 again"]);
}

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

fn holding(node: Node<Work>) -> GraphBuilder<Work> {
    Graph::<Work>::new("holding").node("sub", node).edge(START, "sub").edge("sub", END)
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

/// Promised: a person's refusal fails the node, and it asks again when somebody resumes it. How it broke: of a graph whose steps are not stored the refusal stayed, and
/// stopped the node for ever.
#[tokio::test(start_paused = true)]
async fn a_refusal_in_a_graph_that_is_not_stored_is_heard_once() {
    for stored in [true, false] {
        let (world, desk) = (World::new(), Desk::new());
        let graph = || {
            let inner = Graph::<Work>::new("inner")
                .node("work", noted(&world, "work").guard(Guard::new().rounds(2)))
                .edge(START, "work")
                .route_to("work", ["work", END], {
                    let world = world.clone();
                    move |_: &Work| if world.done().contains(&"enough".to_owned()) { END } else { "work" }
                });
            let inner = inner.build().expect("right");
            holding(if stored { inner.shared() } else { inner.unstored().shared() })
        };
        let id = asked(desk.thread(graph()).run(Work::update()).await);
        let refused = desk.thread(graph()).answer(id, Approval::reject("no more")).await.expect_err("it is refused");
        assert_eq!(refused.code(), "guarded", "{refused}");
        let id = asked(desk.thread(graph()).resume().await);
        world.act("enough");
        ended(desk.thread(graph()).answer(id, Approval::approve()).await);
    }
}

/// Promised: what else the thread has to do is finished meanwhile; a guard acts before a round begins. How it broke: a node of the same phase that had begun its
/// round was held up too, with its retry and its error handler.
#[tokio::test(start_paused = true)]
async fn a_round_that_has_begun_is_finished_while_a_person_is_asked() {
    for retried in [true, false] {
        let (world, desk) = (World::new(), Desk::new());
        let graph = || {
            let world = world.clone();
            let first = {
                let world = world.clone();
                move || {
                    let nth = world.act("first");
                    async move { if nth < 4 { Err(NodeError::new("busy").transient()) } else { Ok(Work::update()) } }
                }
            };
            let deal = {
                let world = world.clone();
                move || {
                    world.act("dealt with");
                    async { Ok(Work::update()) }
                }
            };
            let first = first.into_node();
            let first = if retried { first.retry(Retry::transient(3).first_delay(SECOND)) } else { first.on_error(deal) };
            let second = {
                let world = world.clone();
                move |work: View<Work>| {
                    world.act("second");
                    let next = match work.n {
                        0 => &["second"][..],
                        1 => &["first", "second"],
                        _ => &[],
                    };
                    async move { Ok(Next::update(Work::update().n(work.n + 1)).goto(next.iter().map(|to| Target::node(*to)))) }
                }
            };
            Graph::<Work>::new("phase")
                .node("first", first)
                .node("second", second.leads_to(["first", "second"]))
                .phase("both", ["first", "second"], Guard::new().rounds(2))
                .edge(START, "second")
                .edge("first", END)
        };
        let id = asked(desk.thread(graph()).run(Work::update()).await);
        assert_eq!(world.done()[2..], ["first", if retried { "first" } else { "dealt with" }]);
        ended(desk.thread(graph()).answer(id, Approval::approve()).await);
        assert_eq!(world.done().len(), 5);
    }
}

/// Promised: a person's refusal fails the node. How it broke: where the graph has no guard any more, the node ran.
#[tokio::test(start_paused = true)]
async fn a_refusal_counts_when_the_guard_is_gone() {
    let (world, desk) = (World::new(), Desk::new());
    let graph = |guard: Option<Guard>| {
        let node = noted(&world, "work").into_node();
        let node = guard.into_iter().fold(node, Node::guard);
        Graph::<Work>::new("changed").node("work", node).edge(START, "work").route_to("work", ["work", END], |_: &Work| "work")
    };
    let id = asked(desk.thread(graph(Some(Guard::new().rounds(2)))).run(Work::update()).await);
    let refused = desk.thread(graph(None)).steps_max(9).answer(id, Approval::reject("no more")).await.expect_err("it is refused");
    assert_eq!((refused.code(), world.done().len()), ("guarded", 2), "{refused}");
}

/// Promised: each resume lets it have one more round, where nobody has dealt with the failure. How it broke: a node whose error handler failed too never had one,
/// and each resume counted a round that was none.
#[tokio::test(start_paused = true)]
async fn a_resume_grants_a_round_where_the_error_handler_failed() {
    let (world, desk) = (World::new(), Desk::new());
    let graph = || {
        let fails = {
            let world = world.clone();
            move || {
                world.act("handled");
                async { Err::<WorkUpdate, _>(NodeError::new("cannot deal with it")) }
            }
        };
        let node = noted(&world, "work").guard(Guard::new().rounds(2).or_fail()).on_error(fails);
        Graph::<Work>::new("handled").node("work", node).edge(START, "work").route_to("work", ["work", END], |_: &Work| "work")
    };
    assert!(desk.thread(graph()).run(Work::update()).await.is_err());
    assert_eq!(world.done(), ["work", "work", "handled"]);
    assert!(desk.thread(graph()).resume().await.is_err());
    assert_eq!(world.done()[3..], ["work", "handled"]);
}

/// Promised: while a run goes on, an answer is taken at once, and all that its question stopped go on, or fail. It holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_answer_reaches_all_tasks_that_the_guard_has_stopped() {
    for verdict in [Approval::approve(), Approval::edit("again"), Approval::reject("leave it")] {
        for in_graph in [false, true] {
            let (world, gate, store) = (World::new(), Arc::new(Notify::new()), Arc::new(MemoryStore::new()));
            let runner = Runner::new(live(&world, &gate, in_graph), store);
            let thread = runner.thread("t");
            let mut events = thread.stream(Work::update()).expect("it begins");
            let id = loop {
                if let Some(Event::Asked(question)) = events.next().await {
                    break question.id;
                }
            };
            let answering = tokio::spawn({
                let (thread, verdict) = (runner.thread("t"), verdict.clone());
                async move { thread.answer(id, verdict).await }
            });
            while !thread.questions().await.expect("it is there").is_empty() {
                tokio::task::yield_now().await;
            }
            let rejects = format!("{verdict:?}").contains("leave it");
            while !rejects && times(&world, "page") + times(&world, "page again") < 12 {
                tokio::task::yield_now().await;
            }
            gate.notify_one();
            let outcome = answering.await.expect("no panic");
            assert!(matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
            let hinted = if format!("{verdict:?}").contains("again") { 4 } else { 0 };
            assert_eq!((times(&world, "page again"), times(&world, "hold")), (hinted, 1));
            assert_eq!(times(&world, "dealt with"), if rejects { 4 } else { 0 });
        }
    }
}

/// Four pages, two at a time, read three times over; beside them a node that holds the run.
fn live(world: &World, gate: &Arc<Notify>, in_graph: bool) -> Graph<Work> {
    let page = {
        let world = world.clone();
        move |_: u64, ctx: Context| {
            world.act(format!("page{}", ctx.feedback().map(|said| format!(" {}", said.message)).unwrap_or_default()));
            async { Ok(Work::update()) }
        }
    };
    let deal = noted(world, "dealt with");
    let list = move |work: View<Work>| async move {
        let pages = (0..if work.n < 3 { 4 } else { 0 }).map(|page| Target::send("page", page));
        let hold = Some(Target::node("hold")).filter(|_| work.n == 2 && !in_graph);
        Ok(Next::update(Work::update().n(work.n + 1)).goto(pages.chain(hold)))
    };
    let hold = {
        let (world, gate) = (world.clone(), Arc::clone(gate));
        move || {
            let (world, gate) = (world.clone(), Arc::clone(&gate));
            async move {
                world.act("hold");
                gate.notified().await;
                Ok(Work::update())
            }
        }
    };
    let pages = Graph::<Work>::new("pages")
        .node("list", list.leads_to(if in_graph { vec!["page"] } else { vec!["page", "hold"] }))
        .node("page", page.concurrency(2).guard(Guard::new().rounds(2)).on_error(deal))
        .edge("page", "list")
        .edge(START, "list");
    // Beside the third round, or beside the graph.
    if in_graph {
        let pages = pages.build().expect("right").shared();
        return Graph::<Work>::new("outer")
            .node("pages", pages)
            .node("hold", hold)
            .edge(START, "pages")
            .edge(START, "hold")
            .edge("pages", END)
            .edge("hold", END)
            .build()
            .expect("right");
    }
    pages.node("hold", hold).edge("hold", END).build().expect("right")
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

/// Promised: a guard that does not ask fails the node. It broke: an error handler that leads back to the node got it again and again, up to the step limit.
#[tokio::test(start_paused = true)]
async fn an_error_handler_that_leads_back_gets_a_stopped_node_once() {
    let world = World::new();
    let work = {
        let world = world.clone();
        move || {
            world.act("work");
            async { Err::<WorkUpdate, _>(NodeError::new("no")) }
        }
    };
    let back = || async { Ok(Next::update(Work::update()).goto([Target::node("work")])) };
    let graph = Graph::<Work>::new("back")
        .node("work", work.guard(Guard::new().or_fail()).on_error(back.leads_to(["work"])))
        .edge(START, "work")
        .edge("work", END);
    let error = Desk::new().thread(graph).run(Work::update()).await.expect_err("it goes in circles");
    assert_eq!((error.code(), world.done().len()), ("guarded", 3), "{error}");
}
