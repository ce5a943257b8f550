//! What a graph says for all of its nodes: policies, and the classes of errors.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use super::GraphBuilder;
use super::plan::{DeclaredNode, Plan};
use super::validate::Mistake;
use crate::error::Class;
use crate::policy::{NodePolicy, Retry};
use crate::state::State;

impl<S: State> GraphBuilder<S> {
    /// How nodes of this graph are tried again that say nothing of it themselves; called again, another policy, as [`Node::retry`](crate::Node::retry). Without
    /// this, one attempt. Question nodes and graphs inside have no use for it.
    pub fn default_retry(mut self, retry: Retry) -> Self {
        self.plan.defaults.retries.push(retry);
        self
    }

    /// As [`Node::timeout`](crate::Node::timeout), for nodes that say nothing themselves.
    pub fn default_timeout(mut self, limit: Duration) -> Self {
        self.plan.defaults.timeout = Some(limit);
        self
    }

    /// As [`Node::idle_timeout`](crate::Node::idle_timeout), for nodes that say nothing themselves.
    pub fn default_idle_timeout(mut self, limit: Duration) -> Self {
        self.plan.defaults.idle = Some(limit);
        self
    }

    /// As [`Node::total_timeout`](crate::Node::total_timeout), for nodes that say nothing themselves.
    pub fn default_total_timeout(mut self, limit: Duration) -> Self {
        self.plan.defaults.total = Some(limit);
        self
    }

    /// Says which class errors of type `E` are, in nodes of this graph: those that `?` made, of which nobody said more. The error itself and its causes
    /// are looked through, and what was declared first counts first; with [`Class::Unclassified`], and for other types, an `io::Error` inside decides. An
    /// error says its class by its type and its fields, never by its text.
    ///
    /// ```
    /// use ferrata::{Class, END, Graph, IntoNode, Retry, Runner, START, State, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Page { text: String }
    ///
    /// #[derive(Debug, thiserror::Error)]
    /// #[error("the database answers {code}")]
    /// struct Database { code: u32 }
    ///
    /// # static TRIES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    /// async fn load() -> ferrata::Result<PageUpdate> {
    ///     # if TRIES.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0 { return Ok(Page::update().text("found")); }
    ///     Err(Database { code: 40001 })? // a serialization failure, which may pass
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let graph = Graph::<Page>::new("page")
    ///     .node("load", load.retry(Retry::transient(3)))
    ///     .classify(|error: &Database| if error.code == 40001 { Class::Transient } else { Class::Deterministic })
    ///     .edge(START, "load")
    ///     .edge("load", END)
    ///     .build()?;
    /// assert_eq!(Runner::new(graph, MemoryStore::new()).thread("t").run(Page::update()).await?.done().unwrap().text, "found");
    /// # Ok(()) }
    /// ```
    pub fn classify<E: StdError + 'static>(mut self, class: impl Fn(&E) -> Class + Send + Sync + 'static) -> Self {
        self.plan.classifiers.push(Arc::new(move |error| error.downcast_ref::<E>().map(&class)));
        self
    }
}

impl<S> DeclaredNode<S> {
    /// What holds for its tasks.
    pub(super) fn policy(&self, defaults: &NodePolicy) -> NodePolicy {
        let own = self.node.policy.clone();
        let is_function = matches!(self.node.handler, super::Handler::Function { .. });
        // A graph inside has policies of its own, and a question waits for as long as it takes.
        if is_function && self.node.subgraph.is_none() { own.or(defaults) } else { own }
    }
}

/// Policies that cannot be meant.
pub(super) fn policies<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let hint = "give it times and numbers that something can come of";
    let wrong = |who: String, policy: &NodePolicy| Some(Mistake::new("policy", format!("{who} {}", policy.mistake()?), hint));
    let own = plan.nodes.iter().filter_map(|node| wrong(format!("\"{}\"", node.name), &node.node.policy));
    let lost = plan.nodes.iter().filter(|node| node.node.policy.degrades && !node.node.leads_to.is_empty()).map(|node| {
        let what = format!("\"{}\" says itself where to go, and its fallback says nothing of it", node.name);
        Mistake::new("fallback", what, "use `.on_error(..)`, whose function can say it, or edges")
    });
    own.chain(lost).chain(wrong("every node that says nothing itself".to_owned(), &plan.defaults)).collect()
}
