//! A small state, and a desk at which threads are opened as other processes would.

use std::sync::Arc;
use std::time::Duration;

use ferrata::state::Message;
use ferrata::store::MemoryStore;
use ferrata::{END, Graph, GraphBuilder, Node, Runner, START, State, Thread};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tokio_clock::TokioClock;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
pub(crate) struct Work {
    pub(crate) n: i64,
    pub(crate) hint: String,
    #[state(append)]
    pub(crate) log: Vec<String>,
    #[state(messages)]
    pub(crate) messages: Vec<Message>,
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct Desk {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: TokioClock,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { store: Arc::new(MemoryStore::new()), clock: TokioClock::new() }
    }

    /// As another process would open it.
    pub(crate) fn thread(&self, graph: GraphBuilder<Work>) -> Thread<Work> {
        let graph = graph.build().expect("the graph is right");
        Runner::with_clock(graph, Arc::clone(&self.store), self.clock.clone()).thread("t")
    }
}

pub(crate) fn one(node: Node<Work>) -> GraphBuilder<Work> {
    Graph::<Work>::new("one").node("work", node).edge(START, "work").edge("work", END)
}
