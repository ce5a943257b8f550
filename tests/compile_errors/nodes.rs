//! Functions that cannot be nodes: the message names the function, and says what a node is.

use ferrata::{Context, END, Graph, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Trip {
    goal: String,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Other {
    goal: String,
}

fn not_async(_: View<Trip>) -> ferrata::Result<TripUpdate> {
    Ok(Trip::update())
}

async fn by_reference(_: &Trip) -> ferrata::Result<TripUpdate> {
    Ok(Trip::update())
}

async fn no_result(_: View<Trip>) -> TripUpdate {
    Trip::update()
}

async fn no_update(_: View<Trip>) -> ferrata::Result<()> {
    Ok(())
}

async fn whole_state(_: View<Trip>) -> ferrata::Result<Trip> {
    Ok(Trip::default())
}

async fn other_state(_: View<Other>) -> ferrata::Result<TripUpdate> {
    Ok(Trip::update())
}

async fn other_update(_: View<Trip>) -> ferrata::Result<OtherUpdate> {
    Ok(Other::update())
}

async fn too_much(_: View<Trip>, _: Context, _: u64, _: u64) -> ferrata::Result<TripUpdate> {
    Ok(Trip::update())
}

fn main() {
    let _ = Graph::<Trip>::new("trip")
        .node("not_async", not_async) //~ {not_async}` cannot be a node of a graph over `Trip`
        //~ a node is an async function of up to three arguments out of `View<Trip>`, `Context` and a payload
        //~ and returns `ferrata::Result` of the update type that `#[derive(State)]` made
        .node("by_reference", by_reference) //~ {by_reference}` cannot be a node of a graph over `Trip`
        //~ a node is an async function of up to three arguments out of `View<Trip>`, `Context` and a payload
        //~ and returns `ferrata::Result` of the update type that `#[derive(State)]` made
        .node("no_result", no_result) //~ {no_result}` cannot be a node of a graph over `Trip`
        //~ a node is an async function of up to three arguments out of `View<Trip>`, `Context` and a payload
        //~ and returns `ferrata::Result` of the update type that `#[derive(State)]` made
        .node("no_update", no_update) //~ {no_update}` cannot be a node of a graph over `Trip`
        //~ a node is an async function of up to three arguments out of `View<Trip>`, `Context` and a payload
        //~ and returns `ferrata::Result` of the update type that `#[derive(State)]` made
        .node("whole_state", whole_state) //~ {whole_state}` cannot be a node of a graph over `Trip`
        //~ a node is an async function of up to three arguments out of `View<Trip>`, `Context` and a payload
        //~ and returns `ferrata::Result` of the update type that `#[derive(State)]` made
        .node("other_state", other_state) //~ {other_state}` cannot be a node of a graph over `Trip`
        //~ a node is an async function of up to three arguments out of `View<Trip>`, `Context` and a payload
        //~ and returns `ferrata::Result` of the update type that `#[derive(State)]` made
        .node("other_update", other_update) //~ {other_update}` cannot be a node of a graph over `Trip`
        //~ a node is an async function of up to three arguments out of `View<Trip>`, `Context` and a payload
        //~ and returns `ferrata::Result` of the update type that `#[derive(State)]` made
        .node("too_much", too_much) //~ {too_much}` cannot be a node of a graph over `Trip`
        //~ a node is an async function of up to three arguments out of `View<Trip>`, `Context` and a payload
        //~ and returns `ferrata::Result` of the update type that `#[derive(State)]` made
        .node("closure", |_: View<Trip>| async { Ok(7_u64) }) //~ cannot be a node of a graph over `Trip`
        //~ a node is an async function of up to three arguments out of `View<Trip>`, `Context` and a payload
        //~ and returns `ferrata::Result` of the update type that `#[derive(State)]` made
        .node("text", "look_up") //~ `&str` cannot be a node of a graph over `Trip`
        //~ a node is an async function of up to three arguments out of `View<Trip>`, `Context` and a payload
        //~ and returns `ferrata::Result` of the update type that `#[derive(State)]` made
        .edge(START, END);
}
