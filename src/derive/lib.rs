//! The two derives of ferrata; use them through `ferrata::State` and `ferrata::Route`.

mod fields;
mod model;
mod route;
mod state;
mod update;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct a state: schema, update type with one operation per field, and field constants.
///
/// Field attributes: `#[state(append)]`, `merge`, `messages`, `sum`, `max`, `min`, and `with = "path::to::function"`; without one, a new value
/// replaces the old one. `secret`, alone or beside one of them, marks a field whose values no store may see.
/// Attribute of the struct: `#[state(crate = "path")]`, where ferrata has another name. See `ferrata::State` for what is made.
#[proc_macro_derive(State, attributes(state))]
pub fn derive_state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    state::derive(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes an enum the answer of a conditional edge: each variant names a node.
///
/// The node is the variant's name in snake case; `#[route("other_name")]` names another one, and a variant `End` leads to the end.
/// `#[route(crate = "path")]` on the enum says where ferrata is, if it has another name. See `ferrata::Route`.
#[proc_macro_derive(Route, attributes(route))]
pub fn derive_route(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    route::derive(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}
