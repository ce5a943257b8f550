//! Threads that are given up: in runs that are stored late, resumed, forked, copied or cut, what was done outside is taken back once and nothing is lost.
//!
//! How it could break: a run stored at its end whose compensation is written between its steps; an effect that is undone although it never happened, under
//! a key it never had, or not at all.

mod support {
    pub(crate) mod case;
}

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::log::{Entry, Record, Source};
use ferrata::store::{MemoryStore, RedbStore};
use ferrata::testing::crash_everywhere_in;
use ferrata::{Answer, Context, Durability, END, Graph, GraphBuilder, NodeError, Outcome, PastEffect, Performed, START, View};
use support::case::{Case, CaseUpdate, Doing, agree, ask, hold, runner, soon, thread};
use tokio::sync::Notify;

/// What was done outside, in order, and what fails there.
#[derive(Clone, Default)]
struct World {
    done: Arc<Mutex<Vec<String>>>,
    keys: Arc<Mutex<Vec<String>>>,
    broken: Arc<Mutex<Vec<&'static str>>>,
}

impl World {
    fn act(&self, what: &str, key: &str) {
        self.done.lock().expect("no panic").push(what.to_owned());
        self.keys.lock().expect("no panic").push(key.to_owned());
    }

    fn done(&self) -> Vec<String> {
        self.done.lock().expect("no panic").clone()
    }

    fn keys(&self) -> Vec<String> {
        self.keys.lock().expect("no panic").clone()
    }

    fn break_(&self, what: &'static str) {
        self.broken.lock().expect("no panic").push(what);
    }

    fn mend(&self) {
        self.broken.lock().expect("no panic").clear();
    }

    /// A node that books, and can have it cancelled.
    fn book(&self, what: &'static str) -> impl Fn(Context) -> Doing<CaseUpdate> + Send + Sync + Clone + 'static {
        let world = self.clone();
        move |ctx| {
            let world = world.clone();
            Box::pin(async move {
                let book = ctx.effect("book", |key| async move {
                    world.act(&format!("book {what}"), &key);
                    Ok(())
                });
                book.compensate("cancel", what).await?;
                Ok(Case::update().push_log(what))
            })
        }
    }

    /// What cancels it.
    fn cancel(&self) -> impl Fn(PastEffect, String) -> Doing<()> + Send + Sync + 'static {
        let world = self.clone();
        move |past, _key| {
            let world = world.clone();
            Box::pin(async move {
                let what: String = past.given()?;
                if world.broken.lock().expect("no panic").iter().any(|broken| *broken == what) {
                    return Err(NodeError::new(format!("the {what} cannot be cancelled")).not_performed().deterministic());
                }
                world.act(&format!("cancel {what}"), &past.idempotency_key);
                Ok(())
            })
        }
    }

    /// Hotel, then car, then a flight that fails.
    fn trip(&self) -> GraphBuilder<Case> {
        Graph::<Case>::new("trip")
            .node("hotel", self.book("hotel"))
            .node("car", self.book("car"))
            .node("fly", no_seats)
            .undo("cancel", self.cancel())
            .edge(START, "hotel")
            .edge("hotel", "car")
            .edge("car", "fly")
            .edge("fly", END)
    }
}

async fn no_seats() -> ferrata::Result<CaseUpdate> {
    Err(NodeError::new("no seats").deterministic())
}

fn names(effects: &[ferrata::EffectId]) -> Vec<&str> {
    effects.iter().map(|effect| effect.task.node.as_str()).collect()
}

/// A run that compensates by itself, in which that cannot be cancelled at first.
async fn compensating(durability: Durability, broken: &'static str) {
    let world = World::default();
    world.break_(broken);
    let dir = tempfile::tempdir().expect("a folder");
    let store = RedbStore::open(dir.path().join("store.redb")).expect("a store");
    let runner = runner(world.trip().compensate_on_failure(), store);
    let thread = runner.thread("t").durability(durability);
    thread.run(Case::update()).await.expect_err("no seats");
    let progress = thread.progress().await.expect("it can be read");
    let (compensated, to_compensate) = match broken {
        "car" => (vec![], vec!["car", "hotel"]),
        "hotel" => (vec!["car"], vec!["hotel"]),
        _ => (vec!["car", "hotel"], vec![]),
    };
    let told = (names(&progress.compensated), names(&progress.to_compensate));
    assert_eq!(told, (compensated, to_compensate), "{durability:?}, {broken} cannot be cancelled");
    agree(&runner).await;
    if broken != "nothing" {
        assert!(thread.run(Case::update()).await.is_err(), "what was begun is not over");
    }
    world.mend();
    let error = thread.resume().await.expect_err("no seats");
    assert!(error.to_string().contains("no seats"), "{error}");
    assert_eq!(world.done(), ["book hotel", "book car", "cancel car", "cancel hotel"], "{durability:?}, {broken}");
    assert_eq!(thread.state().await.expect("a state").values.log, ["hotel", "car"]);
    let checked = runner.verify().await.expect("it is looked at");
    assert!(checked.faults.is_empty(), "{checked:?}");
}

#[tokio::test]
async fn a_run_that_is_stored_as_it_goes_compensates_and_goes_on_with_it() {
    for durability in [Durability::Step, Durability::Behind] {
        for broken in ["nothing", "car", "hotel"] {
            compensating(durability, broken).await;
        }
    }
    compensating(Durability::Exit, "nothing").await;
}

/// Promised: the store is never damaged by a failure. How it broke: the compensation's first step is stored at once and the steps before it at the end, behind
/// it, so that the log does not follow, and the thread cannot be read any more.
#[tokio::test]
async fn a_run_stored_at_its_end_whose_compensation_fails_can_be_read() {
    compensating(Durability::Exit, "car").await;
}

/// Promised: `progress` tells what still has to be compensated, and resuming goes on with it. How it broke: every step of the run counts as a compensated
/// effect, those before the compensation too.
#[tokio::test]
async fn of_a_run_stored_at_its_end_only_what_was_compensated_counts_as_that() {
    compensating(Durability::Exit, "hotel").await;
}

/// Promised: open questions are closed. How it broke with a run that is stored at its end: as above, the thread is damaged.
#[tokio::test]
async fn what_a_sibling_asked_is_closed_when_the_run_compensates() {
    for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
        for broken in ["nothing", "car"] {
            let world = World::default();
            world.break_(broken);
            let graph = Graph::<Case>::new("trip")
                .node("car", world.book("car"))
                .node("ask", ask)
                .node("fly", no_seats)
                .undo("cancel", world.cancel())
                .compensate_on_failure()
                .edge(START, "car")
                .edge(START, "ask")
                .edge(START, "fly")
                .edge("car", END)
                .edge("ask", END)
                .edge("fly", END);
            let runner = runner(graph, MemoryStore::new());
            let thread = runner.thread("t").durability(durability);
            let what = format!("{durability:?}, {broken}");
            thread.run(Case::update()).await.expect_err(&what);
            let open = thread.questions().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(open.is_empty(), "{what}: {open:?}");
            agree(&runner).await;
        }
    }
}

/// Promised: the state stays as it is, and finished work is not lost. How it broke: the process dies while a run that is stored at its end compensates. The
/// steps before the compensation were not stored, and are never made again.
#[tokio::test]
async fn a_run_stored_at_its_end_keeps_its_state_wherever_the_process_dies() {
    let graph = |world: &World| world.trip().compensate_on_failure().build();
    let report = crash_everywhere_in(World::default, graph, Case::update())
        .may_fail()
        .thread(|thread| thread.durability(Durability::Exit))
        .after_each(|world, state: &Case| {
            let mut done = world.done();
            done.sort();
            assert_eq!(done, ["book car", "book hotel", "cancel car", "cancel hotel"]);
            assert_eq!(state.log, ["hotel", "car"]);
        })
        .await;
    report.unwrap_or_else(|faults| panic!("{faults}"));
}

/// Promised: input is durable at once, and compensation leaves the state as it is. How it broke: an input of which no step was stored is dropped.
#[test]
fn an_input_that_was_recorded_stays_when_the_thread_is_given_up() {
    let (world, store, hang) = (World::default(), Arc::new(MemoryStore::new()), Arc::new(Notify::new()));
    die_in_rounds(Durability::Exit, &world, &store, &hang);
    alone(async {
        let thread = thread(rounds(&world, &hang), store);
        let before = thread.state().await.expect("it is there").values.log.clone();
        assert_eq!(before, ["given"]);
        thread.compensate().await.expect("it can be undone").done().expect("nothing is left");
        assert_eq!(thread.state().await.expect("it is there").values.log, before);
    });
}

/// Promised: the run fails with what the node failed of. How it broke: the error has the code `node-failed`, and knows neither the node nor its failure.
#[tokio::test]
async fn a_run_that_compensated_fails_with_what_the_node_failed_of() {
    let world = World::default();
    let thread = thread(world.trip().compensate_on_failure(), MemoryStore::new());
    let error = thread.run(Case::update()).await.expect_err("no seats");
    let (node, failure) = error.node_failure().expect("a node failed");
    assert_eq!((error.code(), node.as_str(), failure.message.as_str()), ("node-failed", "fly", "no seats"));
}

/// Promised: `compensated` tells the effects that were compensated since the last input. How it broke: a second call forgets them, and that the thread failed.
#[tokio::test]
async fn a_second_compensation_forgets_nothing() {
    let world = World::default();
    let thread = thread(world.trip().compensate_on_failure(), MemoryStore::new());
    thread.run(Case::update()).await.expect_err("no seats");
    assert_eq!(names(&thread.progress().await.expect("it is there").compensated), ["car", "hotel"]);
    let again = thread.compensate().await;
    assert_eq!(names(&thread.progress().await.expect("it is there").compensated), ["car", "hotel"], "since the last input");
    assert!(again.is_err(), "the thread failed, and still has: {again:?}");
}

/// Promised: an edit goes on as if the node had returned. How it broke: whatever comes of it, the run fails with what was compensated before.
#[tokio::test]
async fn what_comes_after_a_compensation_stands_for_itself() {
    let world = World::default();
    let thread = thread(world.trip().compensate_on_failure(), MemoryStore::new());
    thread.run(Case::update()).await.expect_err("no seats");
    // A person finds another way to travel.
    thread.update(Case::update().push_log("by train"), Some("fly")).await.expect("an edit");
    let outcome = thread.resume().await;
    assert!(matches!(outcome, Ok(Outcome::Done(_))), "nothing of this failed: {outcome:?}");
}

/// Promised: `to_compensate` tells what can be compensated. How it broke: nothing, once something was; nor does the thread compensate a failure by itself.
#[tokio::test]
async fn what_was_done_after_an_edit_can_be_compensated() {
    let world = World::default();
    let thread = thread(world.trip(), MemoryStore::new());
    thread.run(Case::update()).await.expect_err("no seats");
    thread.compensate().await.expect("it can be undone").done().expect("nothing is left");
    thread.update(Case::update(), Some(START)).await.expect("an edit");
    thread.resume().await.expect_err("no seats");
    assert_eq!(world.done().len(), 6, "booked once more: {:?}", world.done());
    assert_eq!(names(&thread.progress().await.expect("it is there").to_compensate), ["car", "hotel"]);
}

/// Sends a mail in each of five rounds, and books in the first one.
fn rounds(world: &World, hang: &Arc<Notify>) -> GraphBuilder<Case> {
    let (outside, book) = (world.clone(), world.book("car"));
    let round = move |state: View<Case>, ctx: Context| {
        let (world, book) = (outside.clone(), book.clone());
        async move {
            if state.n == 0 {
                drop(book(ctx.clone()).await?);
            }
            ctx.effect("mail", |key| async move {
                world.act("mail", &key);
                Ok(())
            })
            .await?;
            Ok(Case::update().n(state.n + 1))
        }
    };
    Graph::<Case>::new("rounds")
        .node("round", round)
        .node("wait", hold(hang))
        .undo("cancel", world.cancel())
        .edge(START, "round")
        .route_to("round", ["round", "wait"], |state| if state.n < 5 { "round" } else { "wait" })
        .edge("wait", END)
}

/// The process dies when all mails are out: the runtime goes, with all that was under way.
fn die_in_rounds(durability: Durability, world: &World, store: &Arc<MemoryStore>, hang: &Arc<Notify>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime");
    let thread = thread(rounds(world, hang), Arc::clone(store));
    let run = thread.clone().durability(durability);
    runtime.spawn(async move { run.run(Case::update().push_log("given")).await.map(drop) });
    runtime.block_on(async {
        let mails = |log: &[Entry]| log.iter().filter(|entry| matches!(&entry.record, Record::EffectDone(_))).count();
        while mails(&thread.log().await.expect("the log")) < 6 {
            tokio::task::yield_now().await;
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// A new process.
fn alone(act: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(act);
}

/// Promised: the idempotency key belongs to one effect. How it broke: of a run that is stored at its end and died, the steps are not known. Compensation drops
/// what was known of their effects, and a later step takes the number of one of these: the world outside takes the new mail for the old one.
#[test]
fn after_a_compensation_no_effect_has_the_key_of_an_earlier_one() {
    for durability in [Durability::Step, Durability::Exit] {
        let (world, store, hang) = (World::default(), Arc::new(MemoryStore::new()), Arc::new(Notify::new()));
        die_in_rounds(durability, &world, &store, &hang);
        alone(async {
            let thread = thread(rounds(&world, &hang), store);
            thread.compensate().await.expect("it can be undone").done().expect("nothing is left");
            hang.notify_one();
            soon(thread.run(Case::update().n(0))).await.expect("it runs").done().expect("it ends");
            let (done, keys) = (world.done(), world.keys());
            assert_eq!(done.len(), 13, "{done:?}");
            let again: Vec<_> = (7..13).filter(|place| keys[..6].contains(&keys[*place])).map(|place| &done[place]).collect();
            assert!(again.is_empty(), "{durability:?}: these have a key that the world outside knows already: {again:?}");
        });
    }
}

/// Promised: what undoes is called for effects that certainly were performed. How it broke: it is called for one of which a person said that it was not, if a
/// result was recorded before that does not fit any more.
#[tokio::test]
async fn what_a_person_says_was_not_performed_is_not_undone() {
    let (world, store) = (World::default(), Arc::new(MemoryStore::new()));
    let texts = |ctx: Context| async move {
        ctx.effect("book", |_key| async { Ok("room 7".to_owned()) }).compensate("cancel", "car").await?;
        Err::<CaseUpdate, _>(NodeError::new("it broke behind it"))
    };
    // Another version of the program, to which the result must look wrong.
    let numbers = |ctx: Context| async move {
        let book = ctx.effect("book", |_key| async { Err::<u64, _>(NodeError::new("sold out").not_performed().deterministic()) });
        book.compensate("cancel", "car").await?;
        Ok(Case::update())
    };
    let first = Graph::<Case>::new("trip").node("car", texts).undo("cancel", world.cancel());
    thread(first.edge(START, "car").edge("car", END), Arc::clone(&store)).run(Case::update()).await.expect_err("it broke");
    let second = Graph::<Case>::new("trip").node("car", numbers).undo("cancel", world.cancel());
    let thread = thread(second.edge(START, "car").edge("car", END), store);
    let question = thread.resume().await.expect("it asks").questions()[0].id;
    thread.answer(question, Answer::not_performed()).await.expect_err("sold out");
    assert!(thread.progress().await.expect("it is there").to_compensate.is_empty(), "there is nothing");
    thread.compensate().await.expect("there is nothing to undo").done().expect("it ends");
    assert!(world.done().is_empty(), "{:?}", world.done());
}

/// Promised: each effect is compensated once. How it broke: one that is in doubt because its result does not fit any more is in the list twice.
#[tokio::test]
async fn what_is_in_doubt_again_is_reconciled_once() {
    let (world, store) = (World::default(), Arc::new(MemoryStore::new()));
    let texts = |ctx: Context| async move {
        ctx.effect("book", |_key| async { Ok("room 7".to_owned()) }).compensate("cancel", "car").await?;
        Err::<CaseUpdate, _>(NodeError::new("it broke behind it"))
    };
    let numbers = |ctx: Context| async move {
        ctx.effect("book", |_key| async { Ok(7) }).compensate("cancel", "car").await?;
        Ok(Case::update())
    };
    let first = Graph::<Case>::new("trip").node("car", texts).reconcile("cancel", world.cancel());
    thread(first.edge(START, "car").edge("car", END), Arc::clone(&store)).run(Case::update()).await.expect_err("it broke");
    let second = Graph::<Case>::new("trip").node("car", numbers).reconcile("cancel", world.cancel());
    let thread = thread(second.edge(START, "car").edge("car", END), store);
    assert_eq!(thread.resume().await.expect("it asks").questions().len(), 1);
    assert_eq!(names(&thread.progress().await.expect("it is there").to_compensate), ["car"]);
    thread.compensate().await.expect("it looks at what is there").done().expect("nothing is left");
    assert_eq!(world.done(), ["cancel car"]);
}

/// Promised: a clear error, and the thread as it was. How it broke: `compensate` gives up what was due, and is suspended because "whoever waited went away".
#[tokio::test]
async fn a_compensation_that_the_graph_has_no_more_is_an_error_and_nothing_is_given_up() {
    let (world, store) = (World::default(), Arc::new(MemoryStore::new()));
    thread(world.trip(), Arc::clone(&store)).run(Case::update()).await.expect_err("no seats");
    let without = Graph::<Case>::new("trip")
        .node("hotel", async || Ok(Case::update()))
        .node("car", async || Ok(Case::update()))
        .node("fly", no_seats)
        .edge(START, "hotel")
        .edge("hotel", "car")
        .edge("car", "fly")
        .edge("fly", END);
    let thread = thread(without, store);
    let outcome = thread.compensate().await;
    let error = outcome.expect_err("nobody can cancel anything");
    assert!(error.to_string().contains("cancel"), "{error}");
    assert_eq!(thread.resume().await.expect_err("it can go on").code(), "node-failed");
}

#[tokio::test]
async fn a_compensation_can_be_renamed() {
    let (world, store) = (World::default(), Arc::new(MemoryStore::new()));
    thread(world.trip(), Arc::clone(&store)).run(Case::update()).await.expect_err("no seats");
    let renamed = Graph::<Case>::new("trip")
        .node("hotel", world.book("hotel"))
        .node("car", world.book("car"))
        .node("fly", no_seats)
        .undo("call off", world.cancel())
        .renamed("cancel", "call off")
        .edge(START, "hotel")
        .edge("hotel", "car")
        .edge("car", "fly")
        .edge("fly", END);
    let thread = thread(renamed, store);
    thread.compensate().await.expect("it can be undone").done().expect("nothing is left");
    assert_eq!(world.done(), ["book hotel", "book car", "cancel car", "cancel hotel"]);
}

/// Promised: `PastEffect::idempotency_key` is the key that the effect was performed under. How it broke in a copy: it is one that nobody ever used.
#[tokio::test]
async fn a_copy_compensates_what_was_done_under_the_key_it_was_done_with() {
    let world = World::default();
    let runner = runner(world.trip(), MemoryStore::new());
    runner.thread("t").run(Case::update()).await.expect_err("no seats");
    runner.thread("t").copy_to("copy").await.expect("a copy");
    runner.thread("copy").compensate().await.expect("it can be undone").done().expect("nothing is left");
    let keys = world.keys();
    assert_eq!((&keys[2], &keys[3]), (&keys[1], &keys[0]), "the key that it was performed under");
}

/// Promised: an effect in doubt is not repeated in silence, and its check asks the other side about the key. How it broke in a copy: the check is asked
/// about a key that was never used, says "not performed" in good faith, and it is performed once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_asks_about_an_effect_in_doubt_under_the_key_it_was_started_with() {
    let (world, began) = (World::default(), Arc::new(Notify::new()));
    let (outside, told) = (world.clone(), Arc::clone(&began));
    let pay = move |ctx: Context| {
        let (world, told) = (outside.clone(), Arc::clone(&told));
        async move {
            let bank = world.clone();
            let pay = ctx.effect("pay", |key| async move {
                world.act("pay", &key);
                told.notify_one();
                if world.done().len() == 1 { std::future::pending().await } else { Ok(()) }
            });
            let check = move |key: String| {
                let known = bank.keys().contains(&key);
                async move { Ok(if known { Performed::Yes(()) } else { Performed::No }) }
            };
            pay.check(check).await?;
            Ok(Case::update())
        }
    };
    let graph = Graph::<Case>::new("pay").node("pay", pay).edge(START, "pay").edge("pay", END);
    let runner = runner(graph, MemoryStore::new());
    let thread = runner.thread("t");
    let run = tokio::spawn(async move { thread.run(Case::update()).await.map(drop) });
    began.notified().await;
    let thread = runner.thread("t");
    assert!(thread.cancel().await.expect("it is cut"));
    run.await.expect("no panic").expect("it is suspended");
    thread.copy_to("copy").await.expect("a copy");
    soon(runner.thread("copy").resume()).await.expect("it goes on").done().expect("the bank knows of it");
    assert_eq!(world.done(), ["pay"]);
}

/// Promised: going back to a checkpoint makes what came after it run again. How it broke: the first of the compensations runs again, and then the run is done.
#[tokio::test]
async fn back_in_the_middle_of_a_compensation_the_rest_is_not_forgotten() {
    let world = World::default();
    let thread = thread(world.trip(), MemoryStore::new());
    thread.run(Case::update()).await.expect_err("no seats");
    thread.compensate().await.expect("it can be undone").done().expect("nothing is left");
    let history = thread.history().await.expect("a history");
    let begins = history.iter().find(|c| c.source == Source::Compensation).expect("it began").position;
    let count = world.done().len();
    let outcome = thread.clone().at(begins).resume().await.expect("it goes on");
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    assert_eq!(world.done()[count..], ["cancel car", "cancel hotel"], "both of them, or none");
}

#[tokio::test]
async fn a_deep_value_is_handed_to_a_compensation() {
    let nested = |depth: usize| (0..depth).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    let seen = Arc::new(Mutex::new(0));
    let count = Arc::clone(&seen);
    let undo = move |past: PastEffect, _key: String| {
        let count = Arc::clone(&count);
        async move {
            past.given::<serde_json::Value>()?;
            *count.lock().expect("no panic") += 1;
            Ok(())
        }
    };
    let book = move |ctx: Context| async move {
        ctx.effect("book", move |_key| async move { Ok(nested(99)) }).compensate("cancel", &nested(99)).await?;
        Ok(Case::update())
    };
    let dir = tempfile::tempdir().expect("a folder");
    let graph = Graph::<Case>::new("deep").node("book", book).undo("cancel", undo).edge(START, "book").edge("book", END);
    let runner = runner(graph, RedbStore::open(dir.path().join("store.redb")).expect("a store"));
    let thread = runner.thread("t");
    thread.run(Case::update()).await.expect("it runs").done().expect("it ends");
    thread.compensate().await.expect("it can be undone").done().expect("nothing is left");
    assert_eq!(*seen.lock().expect("no panic"), 1);
    assert_eq!(thread.progress().await.expect("it can be read").compensated.len(), 1);
    assert!(runner.verify().await.expect("it is looked at").faults.is_empty());
    assert!(!thread.history().await.expect("it can be read").is_empty());
}

/// Books sixty times, and then there is nothing left.
fn sixty(world: &World) -> GraphBuilder<Case> {
    let outside = world.clone();
    let round = move |state: View<Case>, ctx: Context| {
        let world = outside.clone();
        async move {
            if state.n == 60 {
                return Err(NodeError::new("nothing is left").deterministic());
            }
            let book = ctx.effect("book", |key| async move {
                world.act("book", &key);
                Ok("x".repeat(300))
            });
            book.compensate("cancel", &state.n.to_string()).await?;
            Ok(Case::update().n(state.n + 1))
        }
    };
    let graph = Graph::<Case>::new("sixty").node("round", round).undo("cancel", world.cancel()).edge(START, "round");
    graph.route_to("round", ["round", END], |state| if state.n < 100 { "round" } else { END })
}

#[tokio::test]
async fn a_long_compensation_goes_on_from_a_snapshot_in_another_process_and_in_another_store() {
    for durability in [Durability::Step, Durability::Behind] {
        let world = World::default();
        world.break_("30");
        let dir = tempfile::tempdir().expect("a folder");
        let open = || runner(sixty(&world), RedbStore::open(dir.path().join("store.redb")).expect("a store"));
        let first = open();
        let thread = first.thread("t").durability(durability).keep_last(1);
        thread.run(Case::update()).await.expect_err("nothing is left");
        thread.compensate().await.expect_err("one cannot be cancelled");
        drop((thread, first));

        world.mend();
        let again = open();
        let thread = again.thread("t").durability(durability).keep_last(1);
        assert!(thread.log().await.expect("the log")[0].position.0 > 0, "what is older is gone");
        let mut lines = Vec::new();
        thread.export(&mut lines).await.expect("it is exported");
        let other = runner(sixty(&world), MemoryStore::new());
        other.thread("t").import(&mut &*lines).await.expect("it is imported");
        for thread in [&thread, &other.thread("t")] {
            let progress = thread.progress().await.expect("it is there");
            assert_eq!((progress.compensated.len(), progress.to_compensate.len()), (29, 31), "{durability:?}");
        }
        thread.compensate().await.expect("it goes on").done().expect("nothing is left");
        assert_eq!(world.done().len(), 120, "{durability:?}");
        agree(&again).await;
        assert!(again.verify().await.expect("it is looked at").faults.is_empty());
    }
}

/// A graph inside that books and asks, given up and called again.
async fn given_up_inside(what: &str, keeps: fn(Graph<Case>) -> Graph<Case>) {
    let world = World::default();
    let inner = Graph::<Case>::new("inner").node("car", world.book("car")).node("ask", ask);
    let inner = inner.edge(START, "car").edge("car", "ask").edge("ask", END).build().expect("the graph is right");
    let inner = keeps(inner).mapped(|_: &Case| Case::update(), |_, inner| Case::update().push_log(inner.log.join(" ")));
    let graph = Graph::<Case>::new("outer").node("inner", inner).undo("cancel", world.cancel());
    let runner = runner(graph.edge(START, "inner").edge("inner", END), MemoryStore::new());
    let thread = runner.thread("t");
    assert!(matches!(thread.run(Case::update()).await, Ok(Outcome::Waiting(_))), "{what}");
    thread.compensate().await.expect("it can be undone").done().expect("nothing is left");
    agree(&runner).await;
    let progress = thread.progress().await.expect("it is there");
    let counts = (progress.remaining.len(), progress.done.len(), progress.failed.len());
    // And the graph can be called again.
    let question = thread.run(Case::update()).await.expect("it asks").questions()[0].id;
    thread.answer(question, "Ada").await.expect("it fits").done().expect("it ends");
    assert_eq!(world.done(), ["book car", "cancel car", "book car"], "{what}");
    let keys = world.keys();
    assert_ne!(keys[0], keys[2], "{what}: another booking has another key");
    assert_eq!(counts, (0, 0, 0), "{what}: {progress:?}");
}

#[tokio::test]
async fn after_a_compensation_nothing_remains() {
    given_up_inside("fresh", |graph| graph).await;
    given_up_inside("unstored", Graph::unstored).await;
}

/// Promised: `remaining` tells the tasks that still have to run. How it broke: those of a graph that keeps its state are among them, though they were given up.
#[tokio::test]
async fn after_a_compensation_nothing_remains_also_of_a_graph_that_keeps_its_state() {
    given_up_inside("continued", Graph::continued).await;
}
