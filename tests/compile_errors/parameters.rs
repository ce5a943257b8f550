//! Parameters of a state that cannot do what its fields need.

use ferrata::{Graph, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

struct Client;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Items<T> {
    #[state(append)]
    items: Vec<T>,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Total<N> {
    #[state(sum)]
    total: N,
}

fn main() {
    let _ = Graph::<Items<Client>>::new("items"); //~ a field of a state cannot be a `Client`: it cannot be stored
    //~ put `#[derive(Serialize, Deserialize, JsonSchema, Clone)]` on the type of the field
    let _ = Graph::<Total<String>>::new("total"); //~ `#[state(sum)]`, `max` and `min` do not work on a field of type `String`
    //~ for any other type use a function: `#[state(with = "path::to::function")]`
}
