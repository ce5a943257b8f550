//! What closures of a crash test may return.

use std::fmt;

use crate::graph::Graph;
use crate::state::State;

/// What a closure that makes a graph may return: a graph, or what `build` returned.
pub trait IntoGraph {
    /// The graph's state.
    type State: State;

    /// The graph, or why there is none.
    fn into_graph(self) -> Result<Graph<Self::State>, String>;
}

impl<S: State> IntoGraph for Graph<S> {
    type State = S;

    fn into_graph(self) -> Result<Self, String> {
        Ok(self)
    }
}

impl<S: State, E: fmt::Display> IntoGraph for Result<Graph<S>, E> {
    type State = S;

    fn into_graph(self) -> Result<Graph<S>, String> {
        self.map_err(|error| error.to_string())
    }
}

/// What a check of the world may return: nothing, if it asserts, or what is wrong.
pub trait IntoFound {
    /// What is wrong, if anything is.
    fn into_found(self) -> Result<(), String>;
}

impl IntoFound for () {
    fn into_found(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> IntoFound for Result<(), E> {
    fn into_found(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}
