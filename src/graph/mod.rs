//! How nodes are connected: the builder, its checks, and the drawing.

mod defaults;
mod draw;
mod guard;
mod lint;
mod node;
mod outside;
mod past;
mod plan;
mod question;
mod question_node;
mod returns;
mod route;
mod shape;
mod validate;
mod ways;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;

use crate::error::NodeError;
use crate::id::NodeName;
use crate::log::Target;
use crate::policy::NodePolicy;
use crate::state::{Schema, State, StateKind, StateObject, StaticState, to_value};

pub(crate) use guard::GuardShape;
pub(crate) use node::{Handler, Rule, Subgraph};
pub use node::{IntoNode, Need, Node, PayloadType};
pub use outside::Wait;
pub(crate) use outside::When;
use past::DeclaredPast;
pub(crate) use plan::Pauses;
pub(crate) use plan::{APPROVED, EXPIRED, REJECTED};
use plan::{DeclaredEdge, DeclaredJoin, DeclaredNode, DeclaredRoute, EdgeKind, Plan};
pub use plan::{END, START, Starved};
pub use question::{Answer, Approval, Ask, Asking, Verdict};
pub(crate) use question::{circle_schema, doubt_schema, verdict_schema};
pub(crate) use question_node::QuestionNode;
pub use returns::{IntoReturn, Next, NodeReturn};
pub use route::Route;
pub(crate) use shape::{Compensates, Exits, JoinShape, Keeps, NodeShape, RouteShape, Shape, SubgraphShape};
pub use validate::{BuildError, Mistake};

/// A graph that was checked and can be run. Made by [`Graph::new`] and [`GraphBuilder::build`].
///
/// ```
/// use ferrata::{Approval, END, Graph, START, State, View};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Refund { order: String, #[state(append)] notes: Vec<String> }
///
/// async fn pay(state: View<Refund>) -> ferrata::Result<RefundUpdate> {
///     Ok(Refund::update().note(format!("paid {}", state.order)))
/// }
///
/// let graph = Graph::<Refund>::new("refund")
///     .question("approve", |s: &Refund| Approval::ask(format!("Refund {}?", s.order)))
///     .node("pay", pay)
///     .edge(START, "approve")
///     .approved("approve", "pay")
///     .rejected("approve", END)
///     .edge("pay", END)
///     .build()?;
/// assert!(graph.mermaid().contains("approved"));
///
/// // Every mistake is reported at once, with a hint.
/// let error = Graph::<Refund>::new("refund").node("pay", pay).edge(START, "pya").build().unwrap_err();
/// assert!(error.to_string().contains("did you mean \"pay\"?"));
/// # Ok::<(), ferrata::BuildError>(())
/// ```
pub struct Graph<S> {
    pub(crate) shape: Arc<Shape>,
    pub(crate) handlers: Vec<Handlers<S>>,
    /// The graphs inside, by the name of their node or the key they are called by.
    pub(crate) subgraphs: BTreeMap<Arc<str>, Subgraph>,
    /// What it keeps as a subgraph.
    pub(crate) keeps: Keeps,
    mermaid: String,
    dot: String,
    lints: Vec<Mistake>,
}

impl<S> Clone for Graph<S> {
    fn clone(&self) -> Self {
        Self {
            shape: Arc::clone(&self.shape),
            handlers: self.handlers.clone(),
            subgraphs: self.subgraphs.clone(),
            keeps: self.keeps,
            mermaid: self.mermaid.clone(),
            dot: self.dot.clone(),
            lints: self.lints.clone(),
        }
    }
}

/// What runs for a node, and what it sees.
pub(crate) struct Handlers<S> {
    pub(crate) node: Handler<S>,
    pub(crate) on_error: Option<Handler<S>>,
    pub(crate) rule: Option<Rule<S>>,
    /// The fields it sees, if not all.
    pub(crate) sees: Option<Vec<String>>,
}

impl<S> Clone for Handlers<S> {
    fn clone(&self) -> Self {
        let Self { node, on_error, rule, sees } = self;
        Self { node: node.clone(), on_error: on_error.clone(), rule: rule.clone(), sees: sees.clone() }
    }
}

impl<S> Graph<S> {
    /// Begins a graph over the state `S`.
    // Asked of the function and not of the whole, so that the compiler says what to do.
    #[allow(clippy::new_ret_no_self, reason = "a graph exists only once it is checked")]
    pub fn new(name: impl Into<String>) -> GraphBuilder<S>
    where
        S: StaticState,
    {
        GraphBuilder::with_schema(name, S::schema())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shape.name
    }

    /// The graph as a Mermaid flowchart. The order of its lines is that of the declarations.
    pub fn mermaid(&self) -> &str {
        &self.mermaid
    }

    /// The graph in Graphviz' language. The order of its lines is that of the declarations.
    pub fn dot(&self) -> &str {
        &self.dot
    }

    /// What is not wrong for certain, but worth a look: loops that nothing leads out of (`endless-loop`).
    pub fn lints(&self) -> &[Mistake] {
        &self.lints
    }
}

impl<S> fmt::Debug for Graph<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shape.fmt(f)
    }
}

/// Collects the declarations of a graph. Nothing is checked before [`build`](Self::build).
#[must_use = "a graph is made by `.build()`"]
pub struct GraphBuilder<S> {
    plan: Plan<S>,
    schema: Schema,
    state: PhantomData<fn() -> S>,
}

impl<S: State> GraphBuilder<S> {
    /// Begins a graph over a state whose schema is known only now.
    pub fn with_schema(name: impl Into<String>, schema: Schema) -> Self {
        let plan = Plan {
            name: name.into(),
            nodes: Vec::new(),
            edges: Vec::new(),
            joins: Vec::new(),
            routes: Vec::new(),
            takes: Vec::new(),
            input: None,
            output: None,
            pauses: Pauses::default(),
            callable: Vec::new(),
            past: DeclaredPast::default(),
            compensates_on_failure: false,
            defaults: NodePolicy::default(),
            classifiers: Vec::new(),
            phases: Vec::new(),
            signals: Vec::new(),
        };
        Self { plan, schema, state: PhantomData }
    }

    /// Adds a node: an async function or closure, see [`IntoNode`].
    pub fn node<Args>(mut self, name: &str, node: impl IntoNode<S, Args>) -> Self {
        let node = DeclaredNode { name: name.into(), node: node.into_node() };
        self.plan.nodes.push(node);
        self
    }

    /// The fields that an input may write; the others are dropped from it. Without this, all that are not private.
    pub fn input_fields<N: Into<String>>(mut self, fields: impl IntoIterator<Item = N>) -> Self {
        self.plan.input = Some(fields.into_iter().map(Into::into).collect());
        self
    }

    /// The fields that a run returns. Without this, all that are not private. Works on states whose fields can be absent.
    pub fn output_fields<N: Into<String>>(mut self, fields: impl IntoIterator<Item = N>) -> Self {
        self.plan.output = Some(fields.into_iter().map(Into::into).collect());
        self
    }

    /// Stops every run before a step in which one of these nodes is due, until the thread is resumed.
    pub fn pause_before<N: Into<NodeName>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.plan.pauses.before = nodes.into_iter().map(Into::into).collect();
        self
    }

    /// Stops every run after a step in which one of these nodes ran, until the thread is resumed.
    pub fn pause_after<N: Into<NodeName>>(mut self, nodes: impl IntoIterator<Item = N>) -> Self {
        self.plan.pauses.after = nodes.into_iter().map(Into::into).collect();
        self
    }

    /// After `from`, `to` runs. An edge that is declared again counts once.
    pub fn edge(self, from: &str, to: &str) -> Self {
        self.line(from, to, EdgeKind::Always)
    }

    fn line(mut self, from: &str, to: &str, kind: EdgeKind) -> Self {
        let edge = DeclaredEdge { from: from.into(), to: to.into(), kind };
        if !self.plan.edges.contains(&edge) {
            self.plan.edges.push(edge);
        }
        self
    }

    /// `to` runs when all of `from` have run since it last did. A graph in which one of them may be skipped is not built; see
    /// [`join_or`](Self::join_or).
    pub fn join<N: Into<NodeName>>(self, from: impl IntoIterator<Item = N>, to: &str) -> Self {
        self.line_up(from, to, None)
    }

    /// As [`join`](Self::join), for sources that may be skipped: `starved` says what happens when nothing else is due and one of them has not run.
    ///
    /// ```
    /// use ferrata::{END, Graph, Runner, START, Starved, State, View, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Trip { by_train: bool, #[state(append)] notes: Vec<String> }
    ///
    /// async fn note(ctx: ferrata::Context) -> ferrata::Result<TripUpdate> {
    ///     Ok(Trip::update().note(ctx.node()))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let graph = Graph::<Trip>::new("trip")
    ///     .node("plan", note)
    ///     .node("hotel", note)
    ///     .node("train", note)
    ///     .node("pack", note)
    ///     .edge(START, "plan")
    ///     .edge("plan", "hotel")
    ///     .route_to("plan", ["train", END], |trip: &Trip| if trip.by_train { "train" } else { END })
    ///     .join_or(["hotel", "train"], "pack", Starved::Run)
    ///     .edge("pack", END)
    ///     .build()?;
    /// let state = Runner::new(graph, MemoryStore::new()).thread("t").run(Trip::update().by_train(false)).await?.done().unwrap();
    /// assert_eq!(state.notes, ["plan", "hotel", "pack"]);
    /// # Ok(()) }
    /// ```
    pub fn join_or<N: Into<NodeName>>(self, from: impl IntoIterator<Item = N>, to: &str, starved: Starved) -> Self {
        self.line_up(from, to, Some(starved))
    }

    fn line_up<N: Into<NodeName>>(mut self, from: impl IntoIterator<Item = N>, to: &str, starved: Option<Starved>) -> Self {
        let join = DeclaredJoin { from: from.into_iter().map(Into::into).collect(), to: to.into(), starved };
        if !self.plan.joins.contains(&join) {
            self.plan.joins.push(join);
        }
        self
    }

    /// After `from`, the answer of `choose` says what runs. It sees the state with what `from` wrote.
    pub fn route<R: Route>(self, from: &str, choose: impl Fn(&S) -> R + Send + Sync + 'static) -> Self {
        self.route_to(from, R::TARGETS.iter().copied(), move |state| choose(state).target())
    }

    /// As [`route`](Self::route), with a list of the names that `choose` may give.
    pub fn route_to<'n, N: Into<NodeName>>(
        mut self,
        from: &str,
        targets: impl IntoIterator<Item = &'n str>,
        choose: impl Fn(&S) -> N + Send + Sync + 'static,
    ) -> Self {
        let choose = Arc::new(move |state: &dyn StateObject| Ok(vec![Target::Node(choose(typed(state)).into())]));
        let to = targets.into_iter().map(NodeName::from).collect();
        self.plan.routes.push(DeclaredRoute { from: from.into(), to, choose, sends: None, is_branch: false });
        self
    }

    /// As [`route_to`](Self::route_to), for a choice of any number of nodes and tasks with payloads, and one that can fail.
    ///
    /// What is sent to one node many times runs in parallel, in one step; what follows the node runs once after them.
    pub fn branch<'n>(
        mut self,
        from: &str,
        targets: impl IntoIterator<Item = &'n str>,
        choose: impl Fn(&S) -> Result<Vec<Target>, NodeError> + Send + Sync + 'static,
    ) -> Self {
        let choose = Arc::new(move |state: &dyn StateObject| choose(typed(state)).map_err(|error| format!("failed: {error}")));
        let to = targets.into_iter().map(NodeName::from).collect();
        self.plan.routes.push(DeclaredRoute { from: from.into(), to, choose, sends: None, is_branch: true });
        self
    }

    /// After `from`, one task of the node `to` runs for each item, all in one step; the item is the task's payload.
    ///
    /// What follows `to` runs once, when all tasks are done. With no items it runs at once: nothing ends in silence.
    pub fn fan_out<P, I>(mut self, from: &str, to: &str, items: impl Fn(&S) -> I + Send + Sync + 'static) -> Self
    where
        P: Serialize + 'static,
        I: IntoIterator<Item = P>,
    {
        let target = NodeName::from(to);
        let choose = {
            let target = target.clone();
            Arc::new(move |state: &dyn StateObject| fan_out(&target, items(typed(state))))
        };
        let sends = Some(PayloadType::of::<P>());
        self.plan.routes.push(DeclaredRoute { from: from.into(), to: vec![target], choose, sends, is_branch: false });
        self
    }

    /// Compensates what a thread did outside when a node of it has failed for good: as [`Thread::compensate`](crate::Thread::compensate) does, and then the
    /// run fails with what the node failed of. While an effect is in doubt that cannot be reconciled, nothing is compensated and the thread can be
    /// resumed.
    ///
    /// A step limit, a merge that fails or a wrong route is no such failure. In a graph inside another one it has no effect.
    pub fn compensate_on_failure(mut self) -> Self {
        self.plan.compensates_on_failure = true;
        self
    }

    /// Adds a node that compensates effects.
    pub(crate) fn compensation(mut self, name: &str, mut node: Node<S>, how: Compensates) -> Self {
        node.compensates = Some(how);
        self.plan.nodes.push(DeclaredNode { name: name.into(), node });
        self
    }

    /// Declares a graph that nodes of this one call.
    pub(crate) fn with_callable(mut self, key: &str, subgraph: Subgraph) -> Self {
        self.plan.callable.push((key.into(), subgraph));
        self
    }

    /// Checks the graph.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, at once: unknown, duplicate and reserved names, no entry, nodes that nothing leads to or
    /// that lead nowhere, approvals without a way on, payloads that do not fit, joins that can wait for ever, irreversible nodes
    /// that can be reached without an approval.
    pub fn build(mut self) -> Result<Graph<S>, BuildError> {
        validate::check(&self.plan, &self.schema)?;
        let (mermaid, dot) = (draw::mermaid(&self.plan), draw::dot(&self.plan));
        let lints = lint::loops_without_exit(&self.plan);
        let open: Vec<&String> = self.schema.fields().iter().filter(|f| !f.private).map(|f| &f.name).collect();
        // Without private fields there is nothing to leave out.
        let all = (open.len() < self.schema.fields().len()).then(|| open.into_iter().cloned().collect::<Vec<_>>());
        self.plan.input = self.plan.input.or_else(|| all.clone());
        self.plan.output = self.plan.output.or_else(|| all.clone());
        let subgraphs: BTreeMap<Arc<str>, Subgraph> = self.plan.subgraphs().map(|(key, s)| (key.into(), s.clone())).collect();
        let shape = shape_of(&self.plan, self.schema, &subgraphs);
        let nodes = self.plan.nodes.into_iter();
        let handlers = nodes
            .map(|DeclaredNode { node, .. }| Handlers {
                node: node.handler,
                on_error: node.on_error,
                rule: node.rule,
                sees: node.reads.or_else(|| all.clone()),
            })
            .collect();
        Ok(Graph { shape: Arc::new(shape), handlers, subgraphs, keeps: Keeps::default(), mermaid, dot, lints })
    }
}

impl<S> fmt::Debug for GraphBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphBuilder").field("name", &self.plan.name).finish_non_exhaustive()
    }
}

fn typed<S: State>(state: &dyn StateObject) -> &S {
    (state as &dyn Any).downcast_ref().expect("a graph's threads hold its state type")
}

fn fan_out<P: Serialize>(target: &NodeName, items: impl IntoIterator<Item = P>) -> Result<Vec<Target>, String> {
    let send = |item| match to_value(&item) {
        Ok(payload) => Ok(Target::send(target.clone(), payload)),
        Err(error) => Err(format!("gave an item that cannot be stored: {error}")),
    };
    let sends: Vec<Target> = items.into_iter().map(send).collect::<Result<_, _>>()?;
    Ok(if sends.is_empty() { vec![Target::Past(target.clone())] } else { sends })
}

/// Turns a checked plan into numbers.
fn shape_of<S: State>(plan: &Plan<S>, schema: Schema, subgraphs: &BTreeMap<Arc<str>, Subgraph>) -> Shape {
    let index: HashMap<NodeName, usize> = plan.nodes.iter().enumerate().map(|(n, node)| (node.name.clone(), n)).collect();
    let joins: Vec<JoinShape> = plan
        .joins
        .iter()
        .filter_map(|join| {
            let key = format!("{}>{}", join.from.iter().map(NodeName::as_str).collect::<Vec<_>>().join("+"), join.to);
            Some(JoinShape { key: key.into(), sources: join.from.clone(), target: *index.get(&join.to)?, starved: join.starved })
        })
        .collect();
    let exits = |name: &str| {
        let to = |edge: &DeclaredEdge| index.get(&edge.to).copied();
        let from_here = || plan.edges.iter().filter(|edge| edge.from.as_str() == name);
        let labelled = |label| (label, from_here().filter(|e| e.kind == EdgeKind::Label(label)).filter_map(to).collect());
        Exits {
            edges: from_here().filter(|e| e.kind == EdgeKind::Always).filter_map(to).collect(),
            joins: (0..joins.len()).filter(|j| joins[*j].sources.iter().any(|s| s.as_str() == name)).collect(),
            routes: plan
                .routes
                .iter()
                .filter(|route| route.from.as_str() == name)
                .map(|route| RouteShape { choose: Arc::clone(&route.choose), targets: route.to.clone() })
                .collect(),
            labels: [APPROVED, REJECTED, EXPIRED].map(labelled).into(),
        }
    };
    let shape = |n: &DeclaredNode<S>| NodeShape {
        name: n.name.clone(),
        policy: n.policy(&plan.defaults),
        exits: exits(n.name.as_str()),
        leads_to: n.node.leads_to.clone(),
        needs: n.node.needs.clone(),
        compensates: n.node.compensates,
        on_error_leads_to: n.node.on_error_leads_to.clone(),
        when: n.node.when.clone(),
    };
    let nodes = plan.nodes.iter().map(shape).collect();
    let (input, output, pauses) = (plan.input.clone(), plan.output.clone(), plan.pauses.clone());
    let schema = Arc::new(schema);
    let kinds = subgraphs.iter().map(|(key, subgraph)| (Arc::clone(key), Arc::clone(&subgraph.shape.kind))).collect();
    let kind = Arc::new(StateKind::of::<S>(Arc::clone(&schema), kinds, plan.past.of_states()));
    let inner = |subgraph: &Subgraph| SubgraphShape { shape: Arc::clone(&subgraph.shape), keeps: subgraph.keeps };
    let subgraphs = subgraphs.iter().map(|(key, subgraph)| (Arc::clone(key), inner(subgraph))).collect();
    let (start, name) = (exits(START), plan.name.clone());
    let (fingerprint, renamed) = (past::structure(plan), plan.past.names());
    let unguarded = unguarded(plan, &subgraphs);
    Shape {
        name,
        fingerprint,
        schema,
        nodes,
        start,
        joins,
        index,
        renamed,
        input,
        output,
        pauses,
        compensates_on_failure: plan.compensates_on_failure,
        unguarded,
        classifiers: plan.classifiers.clone(),
        guards: plan.guards(),
        signals: plan.signals.clone(),
        subgraphs,
        kind,
    }
}

/// The irreversible nodes that need no approval, with the reasons.
fn unguarded<S>(plan: &Plan<S>, subgraphs: &BTreeMap<Arc<str>, SubgraphShape>) -> BTreeMap<String, String> {
    let reason = |node: &DeclaredNode<S>| Some((node.name.to_string(), node.node.unguarded.clone()?));
    let own = plan.nodes.iter().filter(|node| node.node.irreversible).filter_map(reason);
    let inner = subgraphs.iter().flat_map(|(key, subgraph)| {
        subgraph.shape.unguarded.iter().map(move |(node, reason)| (format!("{key}/{node}"), reason.clone()))
    });
    own.chain(inner).collect()
}
