//! A value in the place of the one that could not be had.

use std::sync::Arc;

use super::context::Context;
use crate::error::{Failure, NodeError};
use crate::graph::Node;
use crate::state::{State, Update, View};

impl<S: State> Node<S> {
    /// Gives this update in the node's place when its last attempt has failed, from the state and the failure: less than was asked for, and the thread goes
    /// on by the node's own edges. The record of the result says that it is a degraded one ([`TaskDone::degraded`](crate::log::TaskDone)), and so does
    /// [`Progress`](crate::Progress). An update that is to be told from a full one later has to say so in the state itself.
    ///
    /// A function that has to wait for something, or that decides where to go, is an [`on_error`](Self::on_error) handler.
    ///
    /// ```
    /// use ferrata::{END, Graph, IntoNode, NodeError, Runner, START, State, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Quote { cents: Option<u64>, note: String }
    ///
    /// async fn ask_the_exchange() -> ferrata::Result<QuoteUpdate> {
    ///     Err(NodeError::http(503, "closed"))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let node = ask_the_exchange.fallback(|_: &Quote, failure| Quote::update().note(format!("no price today: {failure}")));
    /// let graph = Graph::<Quote>::new("quote").node("ask", node).edge(START, "ask").edge("ask", END).build()?;
    /// let quote = Runner::new(graph, MemoryStore::new()).thread("t").run(Quote::update()).await?.done().unwrap();
    /// assert_eq!((quote.cents, quote.note.as_str()), (None, "no price today: HTTP 503: closed")); // not known is not zero
    /// # Ok(()) }
    /// ```
    pub fn fallback<U: Into<Update>>(self, value: impl Fn(&S, &Failure) -> U + Send + Sync + 'static) -> Self {
        let value = Arc::new(value);
        let fallback = move |state: View<S>, ctx: Context| {
            let value = Arc::clone(&value);
            async move {
                let failure = ctx.failure().ok_or_else(|| NodeError::new("there is no failure to fall back from"))?;
                Ok::<Update, NodeError>(value(&state, failure).into())
            }
        };
        let mut node = self.on_error(fallback);
        node.policy.degrades = true;
        node
    }
}
