//! What a thread did outside can be taken back: in reverse order, each once, and what is left to take back is known.
//!
//! How it could break: a compensation that is done twice, or for an effect that never happened; one that fails and hides the others; a thread that goes
//! on with new work while its old work is half undone; an effect in doubt that is undone as if it had been performed.

use std::sync::{Arc, Mutex};

use ferrata::log::{Record, Source};
use ferrata::store::{MemoryStore, RedbStore, Store};
use ferrata::{
    Answer, Ask, Context, END, Graph, GraphBuilder, IntoNode, NodeError, Outcome, PastEffect, Runner, START, State, Thread,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Trip {
    #[state(append)]
    log: Vec<String>,
}

/// The world outside: what was done there, in order, and which compensations fail.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    done: Vec<String>,
    failing: Vec<(&'static str, usize, bool)>,
}

impl World {
    fn act(&self, what: impl Into<String>) -> String {
        let what = what.into();
        self.0.lock().expect("no panic").done.push(what.clone());
        what
    }

    fn done(&self) -> Vec<String> {
        self.0.lock().expect("no panic").done.clone()
    }

    /// The compensation of that effect fails so many times, in a way that passes or not.
    fn fail(&self, what: &'static str, times: usize, passes: bool) {
        self.0.lock().expect("no panic").failing.push((what, times, passes));
    }

    fn failure(&self, what: &str) -> Option<NodeError> {
        let mut inner = self.0.lock().expect("no panic");
        let (_, times, passes) = inner.failing.iter_mut().find(|(name, times, _)| *name == what && *times > 0)?;
        *times -= 1;
        let error = NodeError::new(format!("the {what} cannot be cancelled")).not_performed();
        Some(if *passes { error.transient() } else { error.deterministic() })
    }

    fn book(&self, what: &'static str) -> impl IntoNode<Trip, (Context,)> {
        let world = self.clone();
        move |ctx: Context| {
            let world = world.clone();
            async move {
                let booked = ctx.effect("book", |_key| async move { Ok(world.act(format!("book {what}"))) });
                booked.compensate("cancel", what).await?;
                Ok(Trip::update().push_log(what))
            }
        }
    }

    fn cancel(&self) -> impl Fn(PastEffect, String) -> Cancelling + Send + Sync + 'static {
        let world = self.clone();
        move |past, key| {
            let world = world.clone();
            Box::pin(async move {
                let what: String = past.given()?;
                if let Some(failure) = world.failure(&what) {
                    return Err(failure);
                }
                assert_ne!(key, past.idempotency_key, "it is an effect of its own");
                let result: Option<String> = past.result()?;
                world.act(format!("cancel {}", result.as_deref().unwrap_or("whatever became of it")));
                Ok(())
            })
        }
    }

    /// Hotel, then car, then a flight that fails.
    fn trip(&self) -> GraphBuilder<Trip> {
        let fly = || async { Err::<TripUpdate, _>(NodeError::new("no seats").deterministic()) };
        Graph::<Trip>::new("trip")
            .node("hotel", self.book("hotel"))
            .node("car", self.book("car"))
            .node("fly", fly)
            .undo("cancel", self.cancel())
            .edge(START, "hotel")
            .edge("hotel", "car")
            .edge("car", "fly")
            .edge("fly", END)
    }
}

type Cancelling = std::pin::Pin<Box<dyn Future<Output = ferrata::Result<()>> + Send>>;

fn thread(graph: GraphBuilder<Trip>, store: impl Store) -> Thread<Trip> {
    Runner::new(graph.build().expect("the graph is right"), store).thread("t")
}

fn names(effects: &[ferrata::EffectId]) -> Vec<&str> {
    effects.iter().map(|effect| effect.task.node.as_str()).collect()
}

const BOOKED: [&str; 2] = ["book hotel", "book car"];
const CANCELLED: [&str; 4] = ["book hotel", "book car", "cancel book car", "cancel book hotel"];

#[tokio::test]
async fn what_was_done_is_undone_newest_first_and_once() {
    let world = World::default();
    let thread = thread(world.trip(), MemoryStore::new());
    assert_eq!(thread.run(Trip::update()).await.expect_err("no seats").code(), "node-failed");
    assert_eq!(world.done(), BOOKED);
    let progress = thread.progress().await.expect("it is there");
    assert_eq!((names(&progress.to_compensate), progress.failed.len()), (vec!["car", "hotel"], 1));

    let state = thread.compensate().await.expect("it can be undone").done().expect("nothing is left to do");
    assert_eq!(state.log, ["hotel", "car"], "the state stays as it is");
    assert_eq!(world.done(), CANCELLED);
    let progress = thread.progress().await.expect("it is there");
    assert_eq!((names(&progress.compensated), progress.to_compensate.len()), (vec!["car", "hotel"], 0));
    assert!(progress.failed.is_empty() && progress.remaining.is_empty() && progress.done.is_empty());

    // Nothing is left to compensate, and nothing to resume.
    assert!(thread.compensate().await.expect("nothing to do").done().is_some());
    assert!(thread.resume().await.expect("nothing to do").done().is_some());
    assert_eq!(world.done(), CANCELLED);
    let history = thread.history().await.expect("a history");
    assert!(history.iter().any(|checkpoint| checkpoint.source == Source::Compensation));

    // New input begins anew: what was compensated stays so, and what is done now can be.
    thread.run(Trip::update()).await.expect_err("no seats");
    assert_eq!(names(&thread.progress().await.expect("it is there").to_compensate), ["car", "hotel"]);
}

#[tokio::test]
async fn a_graph_can_compensate_by_itself_when_a_node_has_failed_for_good() {
    let world = World::default();
    let thread = thread(world.trip().compensate_on_failure(), MemoryStore::new());
    for _ in 0..2 {
        let result = if world.done().is_empty() { thread.run(Trip::update()).await } else { thread.resume().await };
        let error = result.expect_err("it failed all the same");
        assert_eq!(error.code(), "node-failed");
        assert!(error.to_string().contains("no seats") && error.to_string().contains("is compensated"), "{error}");
        assert_eq!(world.done(), CANCELLED);
    }
    let log = thread.log().await.expect("the log");
    let why: Vec<_> =
        log.iter().filter_map(|e| if let Record::Compensating(c) = &e.record { c.why.clone() } else { None }).collect();
    assert!(matches!(&why[..], [fault] if fault.text.contains("no seats") && fault.node.is_some()), "{why:?}");
}

#[tokio::test]
async fn a_compensation_that_fails_stops_there_and_goes_on_later() {
    let world = World::default();
    world.fail("car", 2, true); // passes within its three attempts
    world.fail("hotel", 1, false);
    let dir = tempfile::tempdir().expect("a folder");
    let open = || thread(world.trip(), RedbStore::open(dir.path().join("store.redb")).expect("a store"));
    let thread = open();
    thread.run(Trip::update()).await.expect_err("no seats");
    let error = thread.compensate().await.expect_err("the hotel does not play along");
    assert_eq!((error.code(), error.node_failure().expect("a node").0.as_str()), ("node-failed", "cancel"));
    assert_eq!(world.done(), ["book hotel", "book car", "cancel book car"]);
    let progress = thread.progress().await.expect("it is there");
    assert_eq!((names(&progress.compensated), names(&progress.to_compensate)), (vec!["car"], vec!["hotel"]));
    assert_eq!(progress.failed.len(), 1);

    // Half undone is no place to begin anything else.
    assert_eq!(thread.run(Trip::update()).await.expect_err("it is half undone").code(), "compensating");
    assert_eq!(thread.clone().supersede().run(Trip::update()).await.expect_err("also then").code(), "compensating");
    assert_eq!(thread.update(Trip::update(), Some("car")).await.expect_err("also by hand").code(), "compensating");

    drop(thread);
    let thread = open();
    assert!(thread.resume().await.expect("it goes on").done().is_some());
    assert_eq!(world.done(), CANCELLED);
    assert_eq!(names(&thread.progress().await.expect("it is there").compensated), ["car", "hotel"]);
}

/// An effect whose outcome nobody knows.
fn in_doubt(world: &World) -> GraphBuilder<Trip> {
    let outside = world.clone();
    let book = move |ctx: Context| {
        let world = outside.clone();
        async move {
            let book = ctx.effect("book", |_key| async move {
                world.act("book hotel");
                Err::<String, _>(NodeError::new("the line went dead"))
            });
            book.compensate("cancel", "hotel").await?;
            Ok(Trip::update())
        }
    };
    Graph::<Trip>::new("trip").node("hotel", book).edge(START, "hotel").edge("hotel", END)
}

#[tokio::test]
async fn what_is_in_doubt_is_reconciled_and_never_undone() {
    let world = World::default();
    let undone = thread(in_doubt(&world).undo("cancel", world.cancel()), MemoryStore::new());
    let question = undone.run(Trip::update()).await.expect("it asks").questions()[0].id;
    let error = undone.compensate().await.expect_err("nobody knows");
    assert_eq!(error.code(), "in-doubt");
    assert!(error.to_string().contains(&question.to_string()), "{error}");
    // Somebody looks it up, and then there is something to undo.
    undone.answer(question, Answer::performed("room 7")).await.expect("it fits").done().expect("it ends");
    undone.compensate().await.expect("it is known now").done().expect("nothing is left");
    assert_eq!(world.done(), ["book hotel", "cancel room 7"]);

    let world = World::default();
    let reconciled = thread(in_doubt(&world).reconcile("cancel", world.cancel()), MemoryStore::new());
    let question = reconciled.run(Trip::update()).await.expect("it asks").questions()[0].id;
    reconciled.compensate().await.expect("it looks at what is there").done().expect("nothing is left");
    assert_eq!(world.done(), ["book hotel", "cancel whatever became of it"]);
    let late = reconciled.answer(question, Answer::performed("room 7")).await.expect_err("it was closed");
    assert_eq!(late.code(), "question-closed");
}

#[tokio::test]
async fn effects_of_graphs_inside_and_of_parallel_nodes_are_compensated_too() {
    #[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
    struct Leg {
        name: String,
        booked: Option<String>,
    }
    let world = World::default();
    let outside = world.clone();
    let book = move |leg: ferrata::View<Leg>, ctx: Context| {
        let world = outside.clone();
        async move {
            let name = leg.name.clone();
            let booked = ctx.effect("book", |_key| async move { Ok(world.act(format!("book {name}"))) });
            Ok(Leg::update().booked(booked.compensate("cancel", &leg.name).await?))
        }
    };
    let inner = || {
        let book = book.clone();
        Graph::<Leg>::new("leg").node("book", book).edge(START, "book").edge("book", END).build().expect("the graph is right")
    };
    let leg = |name: &'static str| {
        inner().mapped(move |_: &Trip| Leg::update().name(name), |_, leg| Trip::update().push_log(leg.name.clone()))
    };
    let ask = |ctx: Context| async move { Ok(Trip::update().push_log(ctx.ask("go", Ask::<String>::new("Go?")).await?)) };
    let graph = Graph::<Trip>::new("trip")
        .node("train", leg("train"))
        .node("bus", leg("bus"))
        .node("ask", ask)
        .undo("cancel", world.cancel())
        .edge(START, "train")
        .edge(START, "bus")
        .edge("train", "ask")
        .edge("bus", "ask")
        .edge("ask", END);
    let thread = thread(graph, MemoryStore::new());
    assert!(matches!(thread.run(Trip::update()).await.expect("it asks"), Outcome::Waiting(_)));
    let booked = world.done();
    thread.compensate().await.expect("it can be undone").done().expect("nothing is left");
    let undone: Vec<String> = booked.iter().rev().map(|done| format!("cancel {done}")).collect();
    assert_eq!(world.done(), [booked, undone].concat());
    assert!(thread.questions().await.expect("none").is_empty());
    assert_eq!(thread.reply("yes").await.expect_err("it was given up").code(), "not-waiting");
}

#[tokio::test]
async fn an_effect_that_names_nothing_that_is_declared_is_not_performed() {
    let world = World::default();
    let graph = Graph::<Trip>::new("trip").node("hotel", world.book("hotel")).edge(START, "hotel").edge("hotel", END);
    let error = thread(graph, MemoryStore::new()).run(Trip::update()).await.expect_err("there is no such compensation");
    assert!(error.to_string().contains("\"cancel\"") && error.to_string().contains(".undo("), "{error}");
    assert!(world.done().is_empty());
    assert_eq!(thread(world.trip(), MemoryStore::new()).compensate().await.expect_err("no thread").code(), "thread-unknown");
}

#[test]
fn a_compensation_is_no_part_of_the_way() {
    let world = World::default();
    let error = world.trip().edge("car", "cancel").build().expect_err("it leads there");
    assert!(error.mistakes().iter().any(|mistake| mistake.code() == "compensation-edge"), "{error}");
    let graph = world.trip().build().expect("it is right");
    assert!(graph.mermaid().contains("([\"cancel\"])"), "{}", graph.mermaid());
}
