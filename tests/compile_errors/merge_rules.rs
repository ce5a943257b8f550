//! Merge rules on fields of types that they do not work on.

use ferrata::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Fields {
    #[state(append)]
    count: u64, //~ `#[state(append)]` does not work on a field of type `u64`
    //~ it works on `Vec`, `VecDeque` and `String`
    #[state(merge)]
    prices: Vec<u64>, //~ `#[state(merge)]` does not work on a field of type `Vec<u64>`
    //~ it works on `BTreeMap<String, _>`, `HashMap<String, _>` and `serde_json::Map`
    #[state(messages)]
    talk: Vec<String>, //~ `String` cannot be an item of a `#[state(messages)]` field
    //~ use `ferrata::state::Message`, or implement `HasId`
    #[state(messages)]
    word: String, //~ `#[state(messages)]` does not work on a field of type `String`
    //~ it works on `Vec<Message>`
    #[state(sum)]
    total: String, //~ `#[state(sum)]`, `max` and `min` do not work on a field of type `String`
    //~ they work on whole numbers and floats
    //~ for any other type use a function: `#[state(with = "path::to::function")]`
}

fn by_reference(old: &String, new: String) -> String {
    if new.len() > old.len() { new } else { old.clone() }
}

fn other_type(old: String, new: u64) -> String {
    format!("{old}{new}")
}

fn no_value(_old: String, _new: String) {}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Functions {
    #[state(with = "missing")] //~ cannot find value `missing`
    missing: String,
    #[state(with = "by_reference")] //~ expected fn pointer `fn(String, String) -> _`
    //~ found fn item `for<'a> fn(&'a String, String) -> String {by_reference}`
    reference: String,
    #[state(with = "other_type")] //~ expected fn pointer `fn(String, String) -> _`
    //~ found fn item `fn(String, u64) -> String {other_type}`
    other: String,
    #[state(with = "no_value")] //~ the merge function of a field of type `String` cannot return `()`
    //~ returns the new value as `String` or `Result<String, _>`
    nothing: String,
}

fn main() {}
