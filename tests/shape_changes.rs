//! The type of a state changes between two versions of a program, while threads wait in the store.
//!
//! How it could break: a field becomes empty by itself; data that the new type does not know is dropped; an upgrade runs twice, or over results that
//! are not merged yet; a thread that cannot be read takes its history, or other threads, with it.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ferrata::log::{Entry, Record};
use ferrata::state::Update;
use ferrata::store::{Append, Appended, MemoryStore, Pending, Reach, RedbStore, Store, StoreError, ThreadQuery};
use ferrata::{
    Ask, Context, Durability, END, Error, Graph, GraphBuilder, NodeError, Outcome, Position, Runner, START, StaticState,
    ThreadName, View,
};
use serde_json::{Value, json};

/// The state as each version of the program has it.
macro_rules! versions {
    ($($module:ident $(($($outer:tt)*))? { $($field:tt)* })*) => {$(
        mod $module {
            #[derive(ferrata::State, serde::Serialize, serde::Deserialize, schemars::JsonSchema, Clone, Default, Debug, PartialEq)]
            $(#[$($outer)*])?
            pub(crate) struct Trip { $($field)* }
        }
    )*};
}
versions! {
    v1 { pub topic: String, pub n: u64, #[state(append)] pub log: Vec<String> }
    optional { pub topic: String, pub n: u64, #[state(append)] pub log: Vec<String>, pub note: Option<String>, #[serde(default)] pub tags: Vec<String> }
    required { pub topic: String, pub n: u64, #[state(append)] pub log: Vec<String>, pub days: u32 }
    text { pub topic: String, pub n: String, #[state(append)] pub log: Vec<String> }
    renamed { pub title: String, pub n: u64, #[state(append)] pub log: Vec<String> }
    alias { #[serde(alias = "topic")] pub title: String, pub n: u64, #[state(append)] pub log: Vec<String> }
    fewer { pub topic: String, #[state(append)] pub log: Vec<String> }
    v2 (state(version = 2)) { pub title: String, pub n: u64, #[state(append)] pub log: Vec<String> }
    v3 (state(version = 3)) { pub title: String, pub n: String, pub days: u32, #[state(append)] pub log: Vec<String> }
    log_changed (state(version = 2)) { pub topic: String, pub n: u64, #[state(append)] pub log: String }
}

/// Waits for a person, and then notes it.
fn trip<S: StaticState>() -> GraphBuilder<S> {
    let graph = Graph::<S>::new("trip").question("go", |_: &S| Ask::<bool>::new("Go?"));
    graph.answered("go", |_: &S, _: bool| Update::new().append("log", &["gone"])).edge(START, "go").edge("go", END)
}

fn runner<S: StaticState>(graph: GraphBuilder<S>, store: impl Store) -> Runner<S> {
    Runner::new(graph.build().expect("the graph is right"), store)
}

fn renames(values: &mut serde_json::Map<String, Value>) -> Result<(), NodeError> {
    let topic = values.remove("topic").ok_or_else(|| NodeError::new("no topic"))?;
    values.insert("title".to_owned(), topic);
    Ok(())
}

fn adds_days(values: &mut serde_json::Map<String, Value>) -> Result<(), NodeError> {
    let n = values["n"].to_string();
    values.insert("n".to_owned(), n.into());
    values.insert("days".to_owned(), json!(7));
    Ok(())
}

/// Thread "t" of the first version waits; so does "other".
async fn waiting(path: &Path) {
    let runner = runner(trip::<v1::Trip>(), RedbStore::open(path).expect("a store"));
    for thread in ["t", "other"] {
        let input = v1::Trip::update().topic("Brenta").n(3).push_log("planned");
        assert_eq!(runner.thread(thread).run(input).await.expect("it runs").questions().len(), 1);
    }
}

async fn log(store: &impl Store) -> Vec<Entry> {
    store.load(&ThreadName::new("t").expect("a name"), Reach::Whole).await.expect("the log").entries
}

/// Answers the question that is open.
async fn go_on<S: StaticState>(runner: &Runner<S>) -> Result<View<S>, Error> {
    let thread = runner.thread("t");
    let question = thread.questions().await.expect("questions can be read").first().expect("one is open").id;
    Ok(thread.answer(question, true).await?.done().expect("it ends"))
}

/// The thread is refused with these words, and nothing else happens.
async fn is_refused<S: StaticState>(path: &Path, words: &[&str]) {
    let store = Arc::new(RedbStore::open(path).expect("a store"));
    let before = log(&store).await;
    let runner = runner(trip::<S>(), Arc::clone(&store));
    let (state, resumed) = (runner.thread("t").state().await, runner.thread("t").resume().await);
    let superseded = runner.thread("t").supersede().run(Update::new()).await;
    let answered = go_on(&runner).await;
    let errors = [state.map(|_| ()), resumed.map(|_| ()), superseded.map(|_| ()), answered.map(|_| ())];
    for error in errors.map(|result| result.expect_err("another shape")) {
        assert_eq!(error.code(), "state-shape");
        let shapes = ["thread \"t\"", "Trip { topic: string, n: integer, log: array (append) } (version 1, "];
        let prints = [v1::Trip::schema().fingerprint(), S::schema().fingerprint()];
        let known =
            prints.iter().map(String::as_str).chain(shapes).chain(["the program's state is Trip {", "nothing was changed"]);
        for word in known.chain(words.iter().copied()) {
            assert!(error.to_string().contains(word), "no {word} in: {error}");
        }
    }
    assert_eq!(log(&store).await, before, "nothing is written");
    let history = runner.thread("t").values_history().await.expect("it can be listed");
    assert_eq!(history.len(), 2);
    assert_eq!(history[0].values.get("topic"), Some(&json!("Brenta")));
    assert_eq!(history[0].next[0].as_str(), "go");
    assert_eq!(runner.threads(ThreadQuery::new()).await.expect("the threads").len(), 2);
    // Another thread of the same store.
    let fresh = runner.thread("fresh").run(Update::new()).await.expect("it runs");
    assert_eq!(fresh.questions().len(), 1);
    assert!(runner.thread("fresh").delete().await.expect("it is deleted"));
}

#[tokio::test]
async fn a_field_with_a_default_is_no_hindrance() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    waiting(&path).await;
    let optional = runner(trip::<optional::Trip>(), RedbStore::open(&path).expect("a store"));
    let state = go_on(&optional).await.expect("it goes on");
    assert_eq!((&*state.topic, state.n, &state.note, state.tags.len()), ("Brenta", 3, &None, 0));
    assert_eq!(state.log, ["planned", "gone"]);
    drop(optional);
    // The program that was there before does not know what is stored now.
    let runner = runner(trip::<v1::Trip>(), RedbStore::open(&path).expect("a store"));
    let error = runner.thread("t").state().await.expect_err("data would be lost").to_string();
    assert!(error.contains("field `note` is stored") && error.contains("field `tags` is stored"), "{error}");
    assert_eq!(runner.thread("other").state().await.expect("it is as it was").values.n, 3);
}

#[tokio::test]
async fn what_does_not_fit_is_an_error_that_names_the_field_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    waiting(&path).await;
    is_refused::<required::Trip>(&path, &["field `days` is missing", "days: integer", "version = 2", ".upgrade(1, ..)"]).await;
    is_refused::<text::Trip>(&path, &["field `n` does not fit", "\"string\"", "n: string"]).await;
    is_refused::<renamed::Trip>(&path, &["field `title` is missing", "field `topic` is stored"]).await;
    is_refused::<fewer::Trip>(&path, &["field `n` is stored, and the program's state does not have it"]).await;
    // A version of its own, and no upgrade.
    is_refused::<v2::Trip>(&path, &["field `title` is missing", "(version 2, "]).await;
    let runner = runner(trip::<v1::Trip>(), RedbStore::open(&path).expect("a store"));
    assert_eq!(go_on(&runner).await.expect("it goes on").log, ["planned", "gone"]);
}

#[tokio::test]
async fn a_serde_alias_renames_a_field() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    waiting(&path).await;
    let runner = runner(trip::<alias::Trip>(), RedbStore::open(&path).expect("a store"));
    assert_eq!(go_on(&runner).await.expect("it goes on").title, "Brenta");
    assert_eq!(runner.thread("t").state().await.expect("it is stored by its new name").values.title, "Brenta");
}

/// A stop on the way, as each version of the program has it.
macro_rules! stops {
    ($($module:ident { $($field:tt)* })*) => {$(
        mod $module {
            #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema, Clone, Default, Debug)]
            pub(crate) struct Stop { $($field)* }

            #[derive(ferrata::State, serde::Serialize, serde::Deserialize, schemars::JsonSchema, Clone, Default, Debug)]
            pub(crate) struct Trip {
                pub stops: Vec<Stop>,
                #[state(append)]
                pub log: Vec<String>,
            }
        }
    )*};
}
stops! {
    with_beds { pub name: String, pub beds: u32, pub remark: Option<String> }
    without_beds { pub name: String, pub remark: Option<String> }
    other_name { pub name: String, #[serde(alias = "beds")] pub places: u32, pub remark: Option<String> }
    without_remark { pub name: String, pub beds: u32 }
}

#[tokio::test]
async fn nothing_inside_a_field_is_lost_either() {
    let store = Arc::new(MemoryStore::new());
    let first = runner(trip::<with_beds::Trip>(), Arc::clone(&store));
    let stop = |beds| with_beds::Stop { name: "hut".to_owned(), beds, remark: None };
    assert_eq!(
        first.thread("t").run(with_beds::Trip::update().stops(vec![stop(0), stop(4)])).await.expect("it runs").questions().len(),
        1
    );
    let before = log(&store).await;
    let error = go_on(&runner(trip::<without_beds::Trip>(), Arc::clone(&store))).await.expect_err("the beds would be lost");
    assert_eq!(error.code(), "state-shape");
    assert!(error.to_string().contains("field `stops` is stored with something at /0/beds"), "{error}");
    assert_eq!(log(&store).await, before);
    // A remark was never made, and the beds are read by their new name.
    let none = runner(trip::<without_remark::Trip>(), Arc::clone(&store));
    assert_eq!(none.thread("t").state().await.expect("nothing is lost").values.stops[1].beds, 4);
    let other = runner(trip::<other_name::Trip>(), Arc::clone(&store));
    assert_eq!(go_on(&other).await.expect("it goes on").stops[1].places, 4);
}

#[tokio::test]
async fn upgrades_run_once_one_after_the_other_and_looking_stores_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    waiting(&path).await;
    let calls = Arc::new(AtomicU32::new(0));
    let third = || {
        let calls = Arc::clone(&calls);
        let counted = move |values: &mut _| {
            calls.fetch_add(1, Ordering::SeqCst);
            renames(values)
        };
        // Their order is that of the versions, not that of the declarations.
        trip::<v3::Trip>().upgrade(2, adds_days).upgrade(1, counted)
    };
    let store = Arc::new(RedbStore::open(&path).expect("a store"));
    let upgraded = runner(third(), Arc::clone(&store));
    let before = log(&store).await;
    for seen in 1..=2 {
        let state = upgraded.thread("t").state().await.expect("it is upgraded in memory");
        assert_eq!((&*state.values.title, &*state.values.n, state.values.days), ("Brenta", "3", 7));
        assert_eq!((calls.load(Ordering::SeqCst), log(&store).await.len()), (seen, before.len()));
    }
    // A run that is refused stores nothing either.
    assert_eq!(upgraded.thread("t").run(Update::new()).await.expect_err("it waits").code(), "thread-waiting");
    assert!(matches!(upgraded.thread("t").resume().await.expect("nothing to do"), Outcome::Waiting(_)));
    assert_eq!(log(&store).await, before);
    let state = go_on(&upgraded).await.expect("it goes on");
    assert_eq!((&*state.title, &*state.n, state.days, state.log.len()), ("Brenta", "3", 7, 2));
    let calls_until_stored = calls.load(Ordering::SeqCst);
    let records: Vec<Record> = log(&store).await.into_iter().map(|entry| entry.record).collect();
    let Record::Upgraded(record) = &records[before.len()] else { panic!("{:?}", records[before.len()]) };
    assert_eq!((record.schema.version(), &record.fingerprint), (3, &v3::Trip::schema().fingerprint()));
    assert_eq!(record.states[0].values["title"], "Brenta");
    let snapshot = store.load(&ThreadName::new("t").expect("a name"), Reach::Newest).await.expect("it is read").snapshot;
    assert!(snapshot.expect("one stands behind the upgrade").position().0 > before.len() as u64);
    drop((upgraded, store));

    let again = runner(third(), RedbStore::open(&path).expect("a store"));
    let state = again.thread("t").run(v3::Trip::update().push_log("more")).await;
    assert_eq!(state.expect("it runs").questions().len(), 1);
    assert_eq!(go_on(&again).await.expect("it goes on").log.len(), 4);
    assert_eq!(calls.load(Ordering::SeqCst), calls_until_stored, "no function is called again");
    let upgrades = again.thread("t").log().await.expect("the log");
    assert_eq!(upgrades.iter().filter(|entry| matches!(entry.record, Record::Upgraded(_))).count(), 1);
    // A thread that is in between takes the second function only.
    drop(again);
    let second = runner(trip::<v2::Trip>().upgrade(1, renames), RedbStore::open(&path).expect("a store"));
    let question = second.thread("other").questions().await.expect("questions")[0].id;
    assert!(second.thread("other").answer(question, true).await.expect("it goes on").done().is_some());
    let error = second.thread("t").state().await.expect_err("it is ahead").to_string();
    assert!(error.contains("a newer version of the program stored it"), "{error}");
    drop(second);
    let third = runner(third(), RedbStore::open(&path).expect("a store"));
    assert_eq!(third.thread("other").state().await.expect("upgraded").values.days, 7);
    assert_eq!(calls.load(Ordering::SeqCst), calls_until_stored);
}

#[tokio::test]
async fn an_upgrade_that_fails_panics_or_does_not_fit_changes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    waiting(&path).await;
    let store = Arc::new(RedbStore::open(&path).expect("a store"));
    let before = log(&store).await;
    let graphs = [
        (trip::<v2::Trip>().upgrade(1, |_| Err(NodeError::new("no atlas"))), "the upgrade from version 1 failed: no atlas"),
        (trip::<v2::Trip>().upgrade(1, |_| panic!("over the edge")), "the upgrade from version 1 panicked: over the edge"),
        (
            trip::<v2::Trip>().upgrade(1, |values| values.remove("topic").map(drop).ok_or_else(|| NodeError::new("no topic"))),
            "field `title` is missing",
        ),
    ];
    for (graph, text) in graphs {
        let error = go_on(&runner(graph, Arc::clone(&store))).await.expect_err("it cannot be upgraded");
        assert_eq!(error.code(), "state-shape");
        assert!(error.to_string().contains(text) && error.to_string().contains("correct the upgrade"), "no {text} in: {error}");
    }
    assert_eq!(log(&store).await, before);
}

/// A store that refuses to append while it is told so.
#[derive(Clone, Debug, Default)]
struct Refusing {
    store: Arc<MemoryStore>,
    full: Arc<Mutex<bool>>,
}

impl Store for Refusing {
    ferrata::hand_on_store!(store);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        if *self.full.lock().expect("no panic") {
            return Box::pin(async { Err(StoreError::Closed) });
        }
        self.store.append(append)
    }
}

#[tokio::test]
async fn an_upgrade_that_cannot_be_stored_leaves_everything_as_it_was() {
    let store = Refusing::default();
    let first = runner(trip::<v1::Trip>(), store.clone());
    assert_eq!(first.thread("t").run(v1::Trip::update().topic("Brenta")).await.expect("it runs").questions().len(), 1);
    let before = log(&store).await;
    *store.full.lock().expect("no panic") = true;
    let second = runner(trip::<v2::Trip>().upgrade(1, renames), store.clone());
    assert_eq!(go_on(&second).await.expect_err("it cannot be stored").code(), "store");
    *store.full.lock().expect("no panic") = false;
    assert_eq!(log(&store).await, before);
    assert_eq!(first.thread("t").state().await.expect("the old program reads it").values.topic, "Brenta");
    assert_eq!(go_on(&second).await.expect("it goes on").title, "Brenta");
}

#[tokio::test]
async fn history_and_time_travel_lead_through_an_upgrade() {
    let store = Arc::new(MemoryStore::new());
    let first = runner(trip::<v1::Trip>(), Arc::clone(&store));
    assert_eq!(first.thread("t").run(v1::Trip::update().topic("Brenta").n(1)).await.expect("it runs").questions().len(), 1);
    let second = runner(trip::<v2::Trip>().upgrade(1, renames), Arc::clone(&store));
    go_on(&second).await.expect("it goes on");
    let typed = second.thread("t").history().await.expect("all can be upgraded");
    assert_eq!(typed.iter().map(|c| &*c.values.title).collect::<Vec<_>>(), ["Brenta", "Brenta", ""]);
    let recorded = second.thread("t").values_history().await.expect("it can be listed");
    let names =
        |c: &ferrata::Checkpoint<ferrata::state::Values>| c.values.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        recorded.iter().map(names).collect::<Vec<_>>(),
        [["log", "n", "title"], ["log", "n", "topic"], ["log", "n", "topic"]]
    );
    // What never was written held the default of the type, and that was recorded too.
    assert_eq!((recorded[2].values.get("n"), recorded[1].values.get("n")), (Some(&json!(0)), Some(&json!(1))));

    // Back before the upgrade: the new line has one of its own.
    let at = second.thread("t").at(typed[1].position);
    assert_eq!(at.state().await.expect("upgraded in memory").values.title, "Brenta");
    let question = at.resume().await.expect("it asks again").questions()[0].id;
    let state = second.thread("t").answer(question, true).await.expect("it goes on").done().expect("it ends");
    assert_eq!((&*state.title, &state.log), ("Brenta", &vec!["gone".to_owned()]));
    let upgrades = log(&store).await.into_iter().filter(|entry| matches!(entry.record, Record::Upgraded(_))).count();
    assert_eq!(upgrades, 2);
    assert_eq!(second.thread("t").history().await.expect("both lines").len(), 5);

    // An edit takes the upgrade with it as well.
    assert_eq!(first.thread("u").run(v1::Trip::update().topic("Sella")).await.expect("it runs").questions().len(), 1);
    second.thread("u").update(v2::Trip::update().n(9), Some("go")).await.expect("it is edited");
    let state = second.thread("u").state().await.expect("the state");
    assert_eq!((&*state.values.title, state.values.n, state.next.len()), ("Sella", 9, 0));
    // Without a way back there is no typed history, and the error says where.
    let none = runner(trip::<v2::Trip>(), Arc::clone(&store)).thread("u").history().await.expect_err("no upgrade").to_string();
    assert!(none.contains("checkpoint 2") && none.contains("field `title` is missing"), "{none}");
}

/// Two nodes at once: one has a result, with an effect; the other one waits.
fn side_by_side<S: StaticState>(world: &Arc<Mutex<Vec<String>>>) -> GraphBuilder<S> {
    let world = Arc::clone(world);
    let book = move |ctx: Context| {
        let world = Arc::clone(&world);
        async move {
            let effect = ctx.effect("book", |key| async move {
                world.lock().expect("no panic").push(key);
                Ok(())
            });
            effect.await?;
            Ok(Update::new().append("log", &["booked"]))
        }
    };
    let ask = |ctx: Context| async move {
        ctx.ask("sure", Ask::<bool>::new("Sure?")).await?;
        Ok(Update::new())
    };
    let graph = Graph::<S>::new("trip").node("book", book).node("ask", ask);
    graph.edge(START, "book").edge(START, "ask").edge("book", END).edge("ask", END)
}

#[tokio::test]
async fn results_that_are_not_merged_count_where_their_fields_are_as_they_were() {
    for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
        let (store, world) = (Arc::new(MemoryStore::new()), Arc::default());
        let first = runner(side_by_side::<v1::Trip>(&world), Arc::clone(&store));
        let waits = first.thread("t").durability(durability).run(v1::Trip::update().topic("Brenta")).await.expect("it runs");
        assert_eq!(waits.questions().len(), 1);
        let second = runner(side_by_side::<v2::Trip>(&world).upgrade(1, renames), Arc::clone(&store));
        assert_eq!(second.thread("t").state().await.expect("live").values.log, ["booked"]);
        let question = second.thread("t").questions().await.expect("questions")[0].id;
        let state = second.thread("t").durability(durability).answer(question, true).await;
        let state = state.expect("it goes on").done().expect("it ends");
        assert_eq!((&*state.title, &state.log), ("Brenta", &vec!["booked".to_owned()]));
        assert_eq!(world.lock().expect("no panic").len(), 1, "finished work is never done twice");
        let third = runner(side_by_side::<v2::Trip>(&world), Arc::clone(&store));
        assert_eq!(third.thread("t").state().await.expect("it is stored").values.title, "Brenta");
    }
}

#[tokio::test]
async fn results_that_write_what_has_another_shape_are_refused_until_they_are_merged_or_dropped() {
    let (store, world) = (Arc::new(MemoryStore::new()), Arc::default());
    let first = runner(side_by_side::<v1::Trip>(&world), Arc::clone(&store));
    assert_eq!(first.thread("t").run(v1::Trip::update().push_log("planned")).await.expect("it runs").questions().len(), 1);
    let joins = |values: &mut serde_json::Map<String, Value>| {
        let log: Vec<String> = serde_json::from_value(values["log"].take())?;
        values.insert("log".to_owned(), log.join(", ").into());
        Ok(())
    };
    let before = log(&store).await;
    let second = runner(trip_of_text(joins), Arc::clone(&store));
    let error = go_on(&second).await.expect_err("a result in the old shape");
    assert_eq!(error.code(), "state-shape");
    let words =
        ["field `log` has another shape", "the result of 0:book@1", "is not merged yet", "finish that step with the old program"];
    words.iter().for_each(|word| assert!(error.to_string().contains(word), "no {word} in: {error}"));
    assert_eq!(log(&store).await, before);
    // Who drops the step does not need it.
    let outcome = second.thread("t").supersede().run(Update::new()).await.expect("the step is dropped");
    assert_eq!(outcome.questions().len(), 1);
    assert_eq!(second.thread("t").state().await.expect("the state").values.log, "planned");
}

fn trip_of_text(
    upgrade: impl Fn(&mut serde_json::Map<String, Value>) -> Result<(), NodeError> + Send + Sync + 'static,
) -> GraphBuilder<log_changed::Trip> {
    let ask = |ctx: Context| async move {
        ctx.ask("sure", Ask::<bool>::new("Sure?")).await?;
        Ok(Update::new())
    };
    let graph = Graph::<log_changed::Trip>::new("trip").node("book", || async { Ok(Update::new()) }).node("ask", ask);
    let graph = graph.edge(START, "book").edge(START, "ask").edge("book", END).edge("ask", END);
    graph.upgrade(1, upgrade)
}

/// A graph inside, over a state of its own or over that of the graph outside.
fn outer<S: StaticState>(inner: GraphBuilder<S>, shared: bool) -> GraphBuilder<S> {
    let inner = inner.build().expect("the graph is right");
    let node = if shared {
        inner.shared()
    } else {
        inner.mapped(
            |_: &S| S::Update::from(Update::new().append("log", &["in"])),
            |_: &S, _: &S| S::Update::from(Update::new().append("log", &["out"])),
        )
    };
    Graph::<S>::new("outer").node("inner", node).edge(START, "inner").edge("inner", END)
}

#[tokio::test]
async fn a_graph_inside_is_upgraded_with_the_thread() {
    for shared in [false, true] {
        for own in [false, true] {
            let store = Arc::new(MemoryStore::new());
            let first = runner(outer::<v1::Trip>(trip(), shared), Arc::clone(&store));
            let waits = first.thread("t").run(v1::Trip::update().topic("Brenta").push_log("planned")).await.expect("it runs");
            assert_eq!(waits.questions().len(), 1);
            let inner = if own { trip::<v2::Trip>().upgrade(1, renames) } else { trip() };
            let second = runner(outer(inner, shared).upgrade(1, renames), Arc::clone(&store));
            let inside = second.thread("t").inside::<v2::Trip>(["inner"]);
            let title = if shared { "Brenta" } else { "" };
            assert_eq!(inside.state().await.expect("it is upgraded").values.title, title);
            assert_eq!(inside.history().await.expect("it is upgraded").len(), 2);
            let state = go_on(&second).await.expect("it goes on");
            let end = if shared { "gone" } else { "out" };
            assert_eq!((&*state.title, &state.log), ("Brenta", &vec!["planned".to_owned(), end.to_owned()]));
        }
    }
}

#[tokio::test]
async fn a_graph_inside_that_does_not_fit_is_an_error_that_says_where_it_runs() {
    let store = Arc::new(MemoryStore::new());
    let mapped = |inner: Graph<v1::Trip>| {
        inner.mapped(|_: &Outer| v1::Trip::update().topic("in"), |_: &Outer, _: &v1::Trip| Outer::update())
    };
    let graph = |node| Graph::<Outer>::new("outer").node("inner", node).edge(START, "inner").edge("inner", END);
    let first = runner(graph(mapped(trip().build().expect("it is right"))), Arc::clone(&store));
    assert_eq!(first.thread("t").run(Outer::update().x(1)).await.expect("it runs").questions().len(), 1);
    let before = log(&store).await;
    let second = |inner: GraphBuilder<v2::Trip>| {
        let inner = inner.build().expect("it is right");
        let node = inner.mapped(
            |_: &Outer| v2::Trip::update().title("in"),
            |_: &Outer, t: &v2::Trip| Outer::update().x(t.title.len() as u64),
        );
        runner(graph(node), Arc::clone(&store))
    };
    let error = go_on(&second(trip())).await.expect_err("the graph inside has another shape");
    assert_eq!(error.code(), "state-shape");
    let words = ["thread \"t\"", "in the graph at inner@1/", "field `title` is missing", "Trip { topic: string"];
    words.iter().for_each(|word| assert!(error.to_string().contains(word), "no {word} in: {error}"));
    assert_eq!(log(&store).await, before);
    assert_eq!(second(trip()).thread("t").values_history().await.expect("listed").len(), 2);
    assert_eq!(go_on(&second(trip().upgrade(1, renames))).await.expect("it goes on").x, 2);
}

#[derive(ferrata::State, serde::Serialize, serde::Deserialize, schemars::JsonSchema, Clone, Default, Debug)]
struct Outer {
    x: u64,
}

#[tokio::test]
async fn a_log_that_tells_nothing_of_shapes_is_read_as_before() {
    let store = Arc::new(MemoryStore::new());
    let first = runner(trip::<v1::Trip>(), Arc::clone(&store));
    assert_eq!(first.thread("t").run(v1::Trip::update().topic("Brenta")).await.expect("it runs").questions().len(), 1);
    // As it was written before there were fingerprints.
    let mut records = Vec::new();
    for Entry { record, .. } in log(&store).await {
        let mut json = serde_json::to_value(&record).expect("it is JSON");
        if let Some(opened) = json.get_mut("opened").and_then(Value::as_object_mut) {
            opened.remove("fingerprint").expect("there is one");
            for field in opened["schema"]["fields"].as_array_mut().expect("fields") {
                field.as_object_mut().expect("a field").remove("initial").expect("it is told");
            }
        }
        if let Some(run) = json.get_mut("run_started").and_then(Value::as_object_mut) {
            run.remove("graph").expect("there is one");
        }
        records.push(serde_json::from_value::<Record>(json).expect("older records can be read"));
    }
    let old = Arc::new(MemoryStore::new());
    let (thread, at) = (ThreadName::new("t").expect("a name"), ferrata::clock::Timestamp(0));
    let status = ferrata::store::ThreadStatus::Waiting;
    old.append(Append { thread, expected: Position(0), records, snapshot: None, status, questions: None, alarms: None, at })
        .await
        .expect("it is stored");
    let same = runner(trip::<v1::Trip>(), Arc::clone(&old));
    assert_eq!(same.thread("t").state().await.expect("it is read").values.topic, "Brenta");
    let second = runner(trip::<v2::Trip>().upgrade(1, renames), Arc::clone(&old));
    let state = go_on(&second).await.expect("it goes on");
    assert_eq!((&*state.title, state.n), ("Brenta", 0));
}
