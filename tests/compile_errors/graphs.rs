//! Graphs over what is no state, and conditional edges that give what is no route.

use ferrata::state::Values;
use ferrata::{Graph, START, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Default)]
struct Plain {
    goal: String,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Trip {
    goal: String,
}

enum After {
    LookUp,
}

fn main() {
    let _ = Graph::<Plain>::new("plain"); //~ `Plain` is no state with a schema of its own
    //~ put `#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]` on a struct
    let _ = Graph::<Values>::new("values"); //~ `ferrata::state::Values` is no state with a schema of its own
    //~ begins with `GraphBuilder::with_schema`
    let _ = Graph::<Trip>::new("trip").route(START, |_: &Trip| After::LookUp); //~ `After` is not a route
    //~ put `#[derive(Route)]` on an enum whose variants name nodes, or use `Graph::route_to`
    let _ = Graph::<Trip>::new("trip").route(START, |_: &Trip| "look_up"); //~ `&str` is not a route
    //~ or use `Graph::route_to` with a list of names
}
