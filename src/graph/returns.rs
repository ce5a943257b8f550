//! What nodes give back: an update, and where to go.

use crate::log::Target;
use crate::state::{State, Update};

/// What a node gives back.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct NodeReturn {
    pub(crate) update: Update,
    /// Which of the node's labelled edges are taken, if it has any.
    pub(crate) label: Option<&'static str>,
    /// Where the node itself wants to go.
    pub(crate) goto: Option<Vec<Target>>,
    /// Whether update and targets are meant for the graph outside.
    pub(crate) to_parent: bool,
}

impl NodeReturn {
    #[doc(hidden)]
    pub fn update(update: Update) -> Self {
        Self { update, ..Self::default() }
    }
}

/// What a node of a graph over `S` can return. The derive makes the update type one.
#[diagnostic::on_unimplemented(
    message = "a node of a graph over `{S}` cannot return `{Self}`",
    note = "return the update type that `#[derive(State)]` made, for example `Ok({S}::update())`"
)]
pub trait IntoReturn<S> {
    #[doc(hidden)]
    fn into_return(self) -> NodeReturn;
}

impl<S: State> IntoReturn<S> for Update {
    fn into_return(self) -> NodeReturn {
        NodeReturn::update(self)
    }
}

/// What a node returns that says itself where to go: an update and targets, which [`Node::leads_to`](crate::Node::leads_to) declares.
///
/// ```
/// use ferrata::{END, Graph, IntoNode, Next, Runner, START, State, Target, View, store::MemoryStore};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Count { n: u64 }
///
/// async fn round(s: View<Count>) -> ferrata::Result<Next> {
///     let next = if s.n < 4 { "round" } else { END };
///     Ok(Next::update(Count::update().n(s.n + 1)).goto([Target::node(next)]))
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let graph = Graph::<Count>::new("count").node("round", round.leads_to(["round", END])).edge(START, "round").build()?;
/// let state = Runner::new(graph, MemoryStore::new()).thread("t").run(Count::update()).await?.done().unwrap();
/// assert_eq!(state.n, 5);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a node has to return it"]
pub struct Next {
    update: Update,
    goto: Option<Vec<Target>>,
    to_parent: bool,
}

impl Next {
    /// An update, and nothing yet about where to go.
    pub fn update(update: impl Into<Update>) -> Self {
        Self { update: update.into(), goto: None, to_parent: false }
    }

    /// Speaks to the graph outside, from a node of a subgraph: the update is of that graph's state, the targets are nodes of it, which the
    /// subgraph's node declares with [`Node::leads_to`](crate::Node::leads_to). The subgraph ends with the step, without a result of its own, and the step is not merged.
    ///
    /// In the outermost graph the node fails, with the code `no-parent`.
    pub fn to_parent(update: impl Into<Update>) -> Self {
        Self { update: update.into(), goto: None, to_parent: true }
    }

    /// Where to go: every target of these, or nowhere if there is none.
    pub fn goto(mut self, targets: impl IntoIterator<Item = Target>) -> Self {
        self.goto = Some(targets.into_iter().collect());
        self
    }
}

impl<S: State> IntoReturn<S> for Next {
    fn into_return(self) -> NodeReturn {
        NodeReturn { update: self.update, label: None, goto: self.goto, to_parent: self.to_parent }
    }
}
