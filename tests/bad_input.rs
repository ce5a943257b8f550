//! Bad input gets a clear error that says what to do, and nothing is lost.
//!
//! How it could break: a file of a newer format is read as an old one; a damaged record is read as wrong data; a state of another shape is filled with
//! defaults. What else can be wrong with a store stands in `field_store.rs`.

use std::path::Path;

use ferrata::store::{Reach, RedbStore, Store, StoreError};
use ferrata::{END, Error, Graph, NodeError, Runner, START, State, StaticState, ThreadName, View};
use redb::{Database, ReadableTable, TableDefinition};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[test]
fn a_newer_file_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    drop(RedbStore::open(&path).expect("a store"));
    let database = Database::open(&path).expect("it opens");
    let write = database.begin_write().expect("a transaction");
    write.open_table(TableDefinition::<&str, u64>::new("meta")).expect("the table").insert("format", 5).expect("it is written");
    write.commit().expect("it is stored");
    drop(database);
    let error = RedbStore::open(&path).expect_err("a newer format");
    assert!(matches!(error, StoreError::Newer { found: 5, known: 4, .. }), "{error}");
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Trip {
    topic: String,
    n: u64,
    #[state(append)]
    scores: Vec<f64>,
}

fn trip(path: &Path) -> Runner<Trip> {
    async fn work(state: View<Trip>) -> ferrata::Result<TripUpdate> {
        match state.topic.as_str() {
            "fail" => Err(NodeError::new("not yet")),
            _ => Ok(Trip::update().n(state.n + 1)),
        }
    }
    let graph = Graph::<Trip>::new("trip").node("work", work).edge(START, "work").edge("work", END);
    Runner::new(graph.build().expect("the graph is right"), RedbStore::open(path).expect("a store"))
}

#[tokio::test]
async fn a_damaged_record_is_an_error_that_names_thread_and_position() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    for name in ["bad", "good"] {
        trip(&path).thread(name).run(Trip::update().topic("x")).await.expect("it runs").done().expect("it ends");
    }
    let log = TableDefinition::<(&str, u64), &[u8]>::new("log");
    let database = Database::open(&path).expect("it opens");
    let write = database.begin_write().expect("a transaction");
    {
        let mut table = write.open_table(log).expect("the table");
        let mut bytes = table.get(("bad", 4)).expect("it is read").expect("it is there").value().to_vec();
        let last = bytes.len() - 20;
        bytes[last] ^= 1;
        table.insert(("bad", 4), &*bytes).expect("it is written");
    }
    write.commit().expect("it is stored");
    drop(database);
    let runner = trip(&path);
    let error = runner.thread("bad").resume().await.expect_err("it is damaged").to_string();
    assert!(error.contains("of thread \"bad\" is damaged") && error.contains("checksum"), "{error}");
    assert_eq!(runner.thread("good").state().await.expect("others are fine").values.n, 1);
}

/// The state types that another version of the program might have, under the same graph name.
mod versions {
    use super::*;

    macro_rules! version {
        ($name:ident { $($field:tt)* }) => {
            #[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
            pub(super) struct $name { $($field)* }
        };
    }
    version!(WithOption { pub(super) topic: String, pub(super) n: u64, #[state(append)] pub(super) scores: Vec<f64>, pub(super) more: Option<String> });
    version!(WithRequired { pub(super) topic: String, pub(super) n: u64, #[state(append)] pub(super) scores: Vec<f64>, pub(super) more: String });
    version!(TextNumber { pub(super) topic: String, pub(super) n: String, #[state(append)] pub(super) scores: Vec<f64> });
    version!(Renamed { pub(super) title: String, pub(super) n: u64, #[state(append)] pub(super) scores: Vec<f64> });
}

async fn resume_as<S: StaticState>(path: &Path) -> Result<u64, Error> {
    async fn nothing<S: State>(_: View<S>) -> ferrata::Result<ferrata::state::Update> {
        Ok(ferrata::state::Update::new())
    }
    let graph =
        Graph::<S>::new("trip").node("work", nothing::<S>).edge(START, "work").edge("work", END).build().expect("it is right");
    let runner = Runner::new(graph, RedbStore::open(path).expect("a store"));
    let step = runner.thread("t").state().await?.step;
    runner.thread("t").resume().await?.done().expect("it ends");
    Ok(u64::try_from(step.0).expect("a step"))
}

#[tokio::test]
async fn a_state_of_another_shape_is_an_error_that_shows_both() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    trip(&path).thread("t").run(Trip::update().topic("fail").n(3)).await.expect_err("it stops half way");
    let before = records(&path).await;
    for (error, field) in [
        (resume_as::<versions::WithRequired>(&path).await, "`more`"),
        (resume_as::<versions::TextNumber>(&path).await, "`n`"),
        (resume_as::<versions::Renamed>(&path).await, "`topic`"),
    ] {
        let error = error.expect_err("another shape");
        assert_eq!(error.code(), "state-shape");
        for word in ["thread \"t\"", "Trip { topic: string, n: integer", field, "nothing was changed"] {
            assert!(error.to_string().contains(word), "no {word} in: {error}");
        }
    }
    assert_eq!(records(&path).await, before, "the stored bytes are untouched");
    resume_as::<versions::WithOption>(&path).await.expect("a new field with a default");
}

async fn records(path: &Path) -> Vec<ferrata::log::Entry> {
    let store = RedbStore::open(path).expect("a store");
    store.load(&ThreadName::new("t").expect("a name"), Reach::Whole).await.expect("the log").entries
}

#[tokio::test]
async fn a_thread_of_another_graph_and_a_node_that_is_gone_are_errors() {
    async fn fail(_: View<Trip>) -> ferrata::Result<TripUpdate> {
        Err(NodeError::new("not yet"))
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    trip(&path).thread("t").run(Trip::update().topic("fail")).await.expect_err("it stops half way");
    let other = |graph: &str, node: &str| {
        let graph = Graph::<Trip>::new(graph).node(node, fail).edge(START, node).edge(node, END).build().expect("it is right");
        Runner::new(graph, RedbStore::open(&path).expect("a store"))
    };
    let error = other("walk", "work").thread("t").resume().await.expect_err("another graph");
    assert_eq!(error.code(), "other-graph");
    assert!(error.to_string().contains("\"trip\"") && error.to_string().contains("\"walk\""), "{error}");
    let error = other("trip", "toil").thread("t").resume().await.expect_err("the node is gone");
    assert_eq!(error.code(), "node-gone");
    assert!(error.to_string().contains("\"work\"") && error.to_string().contains("there are: toil"), "{error}");
}

#[tokio::test]
async fn records_that_are_missing_in_front_or_behind_are_noticed() {
    for missing in [0, 4] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s.redb");
        trip(&path).thread("t").run(Trip::update().topic("x")).await.expect("it runs").done().expect("it ends");
        let database = Database::open(&path).expect("it opens");
        let write = database.begin_write().expect("a transaction");
        let log = TableDefinition::<(&str, u64), &[u8]>::new("log");
        write.open_table(log).expect("the table").remove(("t", missing)).expect("it is read").expect("it was there");
        write.commit().expect("it is stored");
        drop(database);
        let error = trip(&path).thread("t").state().await.expect_err("a record is missing").to_string();
        assert!(error.contains(&format!("record {missing} of thread \"t\" is damaged: it is missing")), "{error}");
    }
}
