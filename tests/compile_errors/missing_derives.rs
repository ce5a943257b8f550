//! A state that lacks one of the other derives.

use ferrata::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Default)]
struct NoClone { //~ `NoClone: Clone` is not satisfied
//~ consider annotating `NoClone` with `#[derive(Clone)]`
    order: String,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone)] //~ `NoDefault: Default` is not satisfied
//~ consider annotating `NoDefault` with `#[derive(Default)]`
struct NoDefault {
    order: String,
}

#[derive(State, Serialize, JsonSchema, Clone, Default)] //~ the state `NoDeserialize` cannot be read from a store
//~ not `Deserialize`
//~ put `#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]` on the struct
struct NoDeserialize {
    order: String,
}

#[derive(State, Serialize, Deserialize, Clone, Default)] //~ the state `NoJsonSchema` has no JSON Schema
//~ put `#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]` on the struct
struct NoJsonSchema {
    order: String,
}

#[derive(State)] //~ the state `Nothing` has no JSON Schema
//~ put `#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]` on the struct
struct Nothing { //~ consider annotating `Nothing` with `#[derive(Clone)]`
    order: String,
}

fn main() {}
