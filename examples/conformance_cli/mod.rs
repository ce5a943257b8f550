//! Runs a recorded scenario over the public API of the engine, and gives its trace.
//!
//! `engine` and `runs` are the only modules that know the engine; the others know scenarios. Used by `examples/conformance.rs`
//! and, in the same process, by `tests/conformance.rs`.

mod begin;
mod body;
mod build;
mod engine;
mod expr;
mod operation;
mod runs;
mod scenario;
mod script;
mod store;
mod stream;
mod trace;
mod update;
mod world;

#[cfg(test)]
pub(crate) use operation::Durability;
pub(crate) use scenario::Scenario;
pub(crate) use script::run;
pub(crate) use store::StoreKind;
