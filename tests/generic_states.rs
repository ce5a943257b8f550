//! A state can have parameters: one graph for many kinds of work.
//!
//! How it could break: the code that is made asks more of a parameter than the struct does, or forgets what it asks; two states of
//! different parameters that are taken for one another in a store.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use ferrata::state::typed::{NumberField, StoredField};
use ferrata::state::{FieldRef, HasId};
use ferrata::store::{MemoryStore, RedbStore};
use ferrata::{END, Graph, Runner, START, State, StaticState, View};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

trait Priced {
    type Price;
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Train {
    number: u32,
}

impl Priced for Train {
    type Price = u64;
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Note {
    id: String,
    text: String,
}

impl HasId for Note {
    fn id(&self) -> &str {
        &self.id
    }
}

fn note() -> Note {
    Note { id: "n".to_owned(), text: "hello".to_owned() }
}

fn both<T: Ord>(mut old: BTreeSet<T>, new: T) -> BTreeSet<T> {
    old.insert(new);
    old
}

/// Every merge rule on a field that depends on a parameter.
#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct All<T, N, M = Note>
where
    M: HasId,
    T: Ord,
{
    one: Option<T>,
    #[state(sum)]
    sum: N,
    #[state(max)]
    max: Option<N>,
    #[state(append)]
    list: Vec<T>,
    #[state(merge)]
    map: BTreeMap<String, T>,
    #[state(messages)]
    talk: Vec<M>,
    #[state(with = "both", operand = "T")]
    set: BTreeSet<T>,
    #[state(with = "Option::or")]
    first: Option<(T, N)>,
    plain: String,
}

#[tokio::test]
async fn every_merge_rule_works_on_parameters() {
    let make = || All::<String, u64>::update();
    let graph = Graph::<All<String, u64>>::new("all")
        .node("a", move || async move { Ok(make().sum(1).max(1_u64).push_list("a").set("a").first(("a".to_owned(), 1))) })
        .node("b", move || async move {
            let update = make().sum(2).max(2_u64).push_list("b").set("b").first(("b".to_owned(), 2));
            Ok(update.push_map("k", "v").push_talk(note()).one("one".to_owned()).plain("plain"))
        })
        .edge(START, "a")
        .edge(START, "b")
        .edge("a", END)
        .edge("b", END)
        .build()
        .expect("the graph is right");
    let runner = Runner::new(graph, MemoryStore::new());
    let state = runner.thread("t").run(make().sum(4)).await.expect("it runs").done().expect("nothing asks");
    let text = |text: &str| text.to_owned();
    let expected = All {
        one: Some(text("one")),
        sum: 7,
        max: Some(2),
        list: vec![text("a"), text("b")],
        map: BTreeMap::from([(text("k"), text("v"))]),
        talk: vec![note()],
        set: BTreeSet::from([text("a"), text("b")]),
        first: Some((text("a"), 1)),
        plain: text("plain"),
    };
    assert_eq!(*state, expected);
    let list: FieldRef<All<String, u64>, Vec<String>> = All::LIST;
    assert_eq!((list.name(), list.get(&state).len()), ("list", 2));
}

/// What a parameter is used for: only a part of it is stored.
#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
#[serde(bound = "T::Price: Serialize + DeserializeOwned")]
#[schemars(bound = "T::Price: JsonSchema")]
struct Bill<T: Priced>
where
    T::Price: Default + Clone,
{
    #[state(sum)]
    price: T::Price,
    #[serde(default)]
    of: PhantomData<fn() -> T>,
}

/// No trait that a store needs.
#[derive(Clone, Default)]
struct Ghost;

impl Priced for Ghost {
    type Price = f64;
}

#[tokio::test]
async fn nothing_is_asked_of_a_parameter_that_the_struct_does_not_ask() {
    let graph = Graph::<Bill<Ghost>>::new("bill")
        .node("add", || async { Ok(Bill::<Ghost>::update().price(0.5)) })
        .edge(START, "add")
        .edge("add", END)
        .build()
        .expect("the graph is right");
    let outcome = Runner::new(graph, MemoryStore::new()).thread("t").run(Bill::<Ghost>::update().price(1.0)).await;
    let price = outcome.expect("it runs").done().expect("nothing asks").price;
    assert!((price - 1.5).abs() < f64::EPSILON);
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Board<const WIDTH: usize> {
    rows: Vec<u64>,
}

/// A constant as parameter.
#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Game<const WIDTH: usize> {
    board: Board<WIDTH>,
    #[state(append)]
    moves: Vec<u64>,
}

/// A graph for any kind of items.
fn collect<T>(items: Vec<T>) -> Graph<Items<T>>
where
    T: StoredField + JsonSchema + Clone + Default + Send + Sync + 'static,
{
    let collect = move |state: View<Items<T>>| {
        let items = items.clone();
        async move { Ok(Items::<T>::update().items(items).count(state.items.len() as u64)) }
    };
    let graph = Graph::<Items<T>>::new("collect").node("collect", collect).edge(START, "collect").edge("collect", END);
    graph.build().expect("the graph is right")
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Items<T> {
    #[state(append)]
    items: Vec<T>,
    count: u64,
}

#[tokio::test]
async fn a_function_can_make_a_graph_for_any_parameter() {
    let trains = vec![Train { number: 40 }, Train { number: 41 }];
    let runner = Runner::new(collect(trains.clone()), MemoryStore::new());
    let outcome = runner.thread("t").run(Items::<Train>::update().item(Train { number: 7 })).await.expect("it runs");
    let state = outcome.done().expect("nothing asks");
    assert_eq!((&state.items[1..], state.count), (&trains[..], 1));
}

#[tokio::test]
async fn states_of_different_parameters_are_different_shapes() {
    assert_ne!(Items::<u64>::schema().fingerprint(), Items::<Train>::schema().fingerprint());
    assert_eq!(Game::<8>::schema().fields().len(), 2);
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let runner = Runner::new(collect(vec![Train { number: 1 }]), RedbStore::open(&path).expect("a store"));
    let outcome = runner.thread("t").run(Items::<Train>::update()).await.expect("it runs");
    assert_eq!(outcome.done().expect("nothing asks").items.len(), 1);
    drop(runner);
    let runner = Runner::new(collect(vec![1_u64]), RedbStore::open(&path).expect("the store"));
    let error = runner.thread("t").run(Items::<u64>::update()).await.expect_err("trains are no numbers");
    assert_eq!(error.code(), "state-shape", "{error}");
    drop(runner);
    let runner = Runner::new(collect(vec![Train { number: 2 }]), RedbStore::open(&path).expect("the store"));
    let outcome = runner.thread("t").run(Items::<Train>::update()).await.expect("it was left as it was");
    assert_eq!(outcome.done().expect("nothing asks").items.len(), 2);
}

/// A number of one's own.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Default, Debug, PartialEq)]
struct Cents(u64);

impl NumberField for Cents {}

#[tokio::test]
async fn a_type_that_is_stored_as_a_number_is_added_up() {
    let graph = Graph::<All<String, Cents>>::new("cents")
        .node("a", || async { Ok(All::<String, Cents>::update().sum(Cents(250))) })
        .edge(START, "a")
        .edge("a", END)
        .build()
        .expect("the graph is right");
    let input = All::<String, Cents>::update().sum(Cents(50));
    let outcome = Runner::new(graph, MemoryStore::new()).thread("t").run(input).await.expect("it runs");
    assert_eq!(outcome.done().expect("nothing asks").sum, Cents(300));
}
