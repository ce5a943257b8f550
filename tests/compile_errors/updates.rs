//! Updates that the state has no field for, or another type.

use ferrata::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Trip {
    goal: String,
    price_cents: Option<u64>,
    days: u32,
    #[state(append)]
    notes: Vec<String>,
}

fn main() {
    let _ = Trip::update().gaol("Arco"); //~ no method named `gaol` found for struct `TripUpdate`
    //~ there is a method `goal` with a similar name
    let _ = Trip::update().days("three"); //~ expected `u32`, found `&str`
    let _ = Trip::update().price_cents("a lot"); //~ Option<u64>: From<&str>` is not satisfied
    let _ = Trip::update().note(7); //~ `String: From<{integer}>` is not satisfied
    let _ = Trip::PRICE; //~ `PRICE` found for struct `Trip`
}
