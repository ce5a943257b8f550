//! Nodes that a guard has stopped: who hears of a person's word, what takes over, and who may go on.
//!
//! How it could break: a word that does not reach a node under its earlier name, or its siblings in a live run; a refusal that is heard for ever, or not at all when the
//! guard is gone; somebody who is stopped in the middle of a round; an error handler that gets the same node again and again.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support {
    pub(crate) mod pieces;
    pub(crate) mod tokio_clock;
    pub(crate) mod work;
    pub(crate) mod world;
}

use std::sync::Arc;

use ferrata::store::MemoryStore;
use ferrata::{
    Approval, Context, END, Event, Graph, Guard, IntoNode, Next, Node, NodeError, Outcome, Question, Retry, Runner, START,
    Target, View,
};
use support::pieces::{holding, noted, times};
use support::work::{Desk, SECOND, Work, WorkUpdate};
use support::world::{World, asked, ended};
use tokio::sync::Notify;

fn one_question(outcome: &Result<Outcome<Work>, ferrata::Error>) -> Question {
    let Ok(outcome) = outcome else { panic!("{outcome:?}") };
    let [question] = outcome.questions() else { panic!("{outcome:?}") };
    (**question).clone()
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
            let rejects = format!("{verdict:?}").contains("leave it");
            let is_heard = async {
                while !thread.questions().await.expect("it is there").is_empty() {
                    tokio::task::yield_now().await;
                }
                while !rejects && times(&world, "page") + times(&world, "page again") < 12 {
                    tokio::task::yield_now().await;
                }
            };
            // An answer that reaches nobody fails the test in place of holding it up.
            tokio::time::timeout(60 * SECOND, is_heard).await.expect("the answer is heard");
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
