//! What is no state, and why.

use ferrata::State;

#[derive(State)]
struct Tuple(String, u64); //~ a state's fields are stored under their names: give them names

#[derive(State)]
struct Unit; //~ a state has fields: write the struct with braces

#[derive(State)]
enum Choice { //~ a state is a struct with named fields; this can be the type of one of them
    One { order: String },
    Other,
}

#[derive(State)]
struct Borrowed<'a> { //~ a state owns its data, since it outlives every run: remove the lifetime
    order: &'a str,
}

fn main() {}
