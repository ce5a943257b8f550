//! What a graph declares about its own past: names that nodes had, and states that were stored in another shape.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::node::Handler;
use super::plan::{EdgeKind, Plan};
use super::shape::Shape;
use super::validate::Mistake;
use super::{Graph, GraphBuilder};
use crate::error::NodeError;
use crate::id::NodeName;
use crate::log::Arrival;
use crate::state::{Past, Schema, State, UpgradeFn, fingerprint};

/// What was declared of the past, before anything was checked.
#[derive(Default)]
pub(crate) struct DeclaredPast {
    /// Old names with the new ones.
    renamed: Vec<(NodeName, NodeName)>,
    upgrades: Vec<(u32, UpgradeFn)>,
}

impl DeclaredPast {
    /// For those who read stored states. Subgraphs go by the names of their nodes.
    pub(super) fn of_states(&self) -> Past {
        let key = |name: &NodeName| Arc::from(name.as_str());
        let renamed = self.renamed.iter().map(|(old, new)| (key(old), key(new))).collect();
        Past { upgrades: self.upgrades.iter().cloned().collect(), renamed }
    }

    pub(super) fn names(&self) -> BTreeMap<NodeName, NodeName> {
        self.renamed.iter().cloned().collect()
    }
}

impl<S: State> GraphBuilder<S> {
    /// Says how values that were stored in version `from` of the state become those of version `from + 1`. The state says its own version with
    /// `#[state(version = 2)]`, or [`Schema::with_version`](crate::state::Schema::with_version); without it, it is 1. A thread of version 1 whose program is
    /// at 3 goes through the upgrades from 1 and from 2, in this order; a version without an upgrade changes nothing.
    ///
    /// The function gets all fields of the state as JSON, and removes, adds and changes them. What comes out at the end is checked as strictly as ever: a
    /// field that is missing, does not fit or is unknown is an error (code `state-shape`), and nothing is stored.
    ///
    /// When a thread is run or edited, its upgraded state is stored in the same append as the beginning of the run, and the functions are not called
    /// again. To look at it, they are called each time, and nothing is stored. They should depend on their argument only.
    ///
    /// The upgrades count for this graph's states, and for those of subgraphs with the same Rust type that declare none. The guide
    /// [`changes`](crate::guide::changes) tells the rest.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use ferrata::{Ask, END, Graph, NodeError, Runner, START, State, View, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// mod then {
    ///     # use super::*;
    ///     #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    ///     pub struct Trip { pub topic: String }
    /// }
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// #[state(version = 2)]
    /// struct Trip { goal: String }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let store = Arc::new(MemoryStore::new());
    /// let graph = Graph::<then::Trip>::new("trip")
    ///     .question("go", |t: &then::Trip| Ask::<bool>::new(format!("{}?", t.topic)))
    ///     .answered("go", |_, _: bool| then::Trip::update())
    ///     .edge(START, "go")
    ///     .edge("go", END)
    ///     .build()?;
    /// let outcome = Runner::new(graph, Arc::clone(&store)).thread("t").run(then::Trip::update().topic("Brenta")).await?;
    /// let question = outcome.questions()[0].id;
    ///
    /// // The next version of the program.
    /// let graph = Graph::<Trip>::new("trip")
    ///     .upgrade(1, |values| {
    ///         let topic = values.remove("topic").ok_or_else(|| NodeError::new("no topic"))?;
    ///         values.insert("goal".to_owned(), topic);
    ///         Ok(())
    ///     })
    ///     .question("go", |t: &Trip| Ask::<bool>::new(format!("{}?", t.goal)))
    ///     .answered("go", |t: &Trip, go: bool| Trip::update().goal(if go { &t.goal } else { "nowhere" }))
    ///     .edge(START, "go")
    ///     .edge("go", END)
    ///     .build()?;
    /// let state = Runner::new(graph, store).thread("t").answer(question, true).await?.done().unwrap();
    /// assert_eq!(state.goal, "Brenta");
    /// # Ok(()) }
    /// ```
    pub fn upgrade(
        mut self,
        from: u32,
        upgrade: impl Fn(&mut Map<String, Value>) -> Result<(), NodeError> + Send + Sync + 'static,
    ) -> Self {
        let upgrade =
            move |values: &mut Map<String, Value>| upgrade(values).map_err(|error| format!("failed: {}", error.failure()));
        self.plan.past.upgrades.push((from, Arc::new(upgrade)));
        self
    }

    /// Says that the node `new` was called `old` in an earlier version of the program. A thread that stands at the old one goes on at the new one:
    /// its results, questions and answers count there, and its effects keep their idempotency keys and are not performed again. A subgraph that is the
    /// node is found under its new name too.
    ///
    /// What is recorded is not rewritten: such a task keeps the name it began with, in logs and questions. So the declaration has to stay as long as there
    /// are such threads. A name that two versions ago was another one is declared twice, each time with the newest name.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use ferrata::{Answer, Ask, Context, END, Graph, Runner, START, State, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Refund { paid: bool }
    ///
    /// async fn pay(ctx: Context) -> ferrata::Result<RefundUpdate> {
    ///     Ok(Refund::update().paid(ctx.ask("sure", Ask::<bool>::new("Sure?")).await?))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let store = Arc::new(MemoryStore::new());
    /// let graph = Graph::<Refund>::new("refund").node("pay", pay).edge(START, "pay").edge("pay", END).build()?;
    /// let question = Runner::new(graph, Arc::clone(&store)).thread("t").run(Refund::update()).await?.questions()[0].id;
    ///
    /// let graph = Graph::<Refund>::new("refund").node("pay_out", pay).edge(START, "pay_out").edge("pay_out", END);
    /// let error = Runner::new(graph.build()?, Arc::clone(&store)).thread("t").answer(question, true).await.unwrap_err();
    /// assert_eq!(error.code(), "node-gone");
    ///
    /// let graph = Graph::<Refund>::new("refund").node("pay_out", pay).edge(START, "pay_out").edge("pay_out", END);
    /// let runner = Runner::new(graph.renamed("pay", "pay_out").build()?, store);
    /// assert!(runner.thread("t").answer(question, true).await?.done().unwrap().paid);
    /// # Ok(()) }
    /// ```
    pub fn renamed(mut self, old: &str, new: &str) -> Self {
        self.plan.past.renamed.push((old.into(), new.into()));
        self
    }
}

impl<S> Graph<S> {
    /// 16 hexadecimal digits that tell the structure of the graph: its nodes with their kinds, its edges, and the graphs inside it. What the nodes do and
    /// how they are retried is not in it. Each run records it.
    ///
    /// ```
    /// use ferrata::{END, Graph, START, State};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Trip { goal: String }
    ///
    /// let graph = |goal: &'static str| {
    ///     let plan = move || async move { Ok(Trip::update().goal(goal)) };
    ///     Graph::<Trip>::new("trip").node("plan", plan).edge(START, "plan")
    /// };
    /// let fingerprint = graph("Brenta").edge("plan", END).build()?.fingerprint().to_owned();
    /// assert_eq!(graph("Sella").edge("plan", END).build()?.fingerprint(), fingerprint);
    /// assert_ne!(graph("Sella").route_to("plan", ["plan", END], |_| END).build()?.fingerprint(), fingerprint);
    /// # Ok::<(), ferrata::BuildError>(())
    /// ```
    pub fn fingerprint(&self) -> &str {
        &self.shape.fingerprint
    }
}

impl Shape {
    /// The name that a node has now.
    pub(crate) fn name_now<'n>(&'n self, name: &'n NodeName) -> &'n NodeName {
        self.renamed.get(name).unwrap_or(name)
    }

    /// Names that the node had earlier.
    pub(crate) fn earlier_names<'n>(&'n self, name: &'n NodeName) -> impl Iterator<Item = &'n NodeName> {
        let now = self.name_now(name);
        self.renamed.iter().filter(move |(_, new)| *new == now).map(|(old, _)| old)
    }

    /// What has arrived at joins, by the names of now. A join that is not there any more stays as it was recorded.
    pub(crate) fn arrivals_now(&self, arrivals: &[Arrival]) -> Vec<Arrival> {
        let mut arrivals = arrivals.to_vec();
        if self.renamed.is_empty() {
            return arrivals;
        }
        for Arrival { join, arrived } in &mut arrivals {
            if let Some(known) = self.join_now(join) {
                *join = Arc::clone(&self.joins[known].key);
            }
            arrived.iter_mut().for_each(|source| *source = self.name_now(source).clone());
        }
        arrivals
    }

    /// The join that was recorded by that key, when its nodes may have had other names.
    pub(crate) fn join_now(&self, key: &str) -> Option<usize> {
        let exact = self.joins.iter().position(|join| &*join.key == key);
        exact.or_else(|| {
            let target = |join: usize| &self.nodes[self.joins[join].target].name;
            let is_it = |join: &usize| self.spells(key, &self.joins[*join].sources, target(*join));
            (0..self.joins.len()).find(is_it)
        })
    }

    /// Whether a key tells of these nodes, each by one of its names.
    fn spells(&self, key: &str, sources: &[NodeName], target: &NodeName) -> bool {
        let names = |name: &NodeName, then: &mut dyn FnMut(&str) -> bool| {
            then(name.as_str()) || self.earlier_names(name).any(|old| then(old.as_str()))
        };
        match sources {
            [] => key.strip_prefix('>').is_some_and(|rest| names(target, &mut |name| rest == name)),
            [source, more @ ..] => names(source, &mut |name| {
                let rest = key.strip_prefix(name).map(|rest| if more.is_empty() { Some(rest) } else { rest.strip_prefix('+') });
                rest.flatten().is_some_and(|rest| self.spells(rest, more, target))
            }),
        }
    }
}

/// Names and versions that cannot be those of an earlier program.
pub(super) fn mistakes<S>(plan: &Plan<S>, schema: &Schema) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let DeclaredPast { renamed, upgrades } = &plan.past;
    for (place, (old, new)) in renamed.iter().enumerate() {
        if plan.node(new).is_none() {
            mistakes.push(super::validate::unknown(plan, "renaming", new));
        }
        if plan.node(old).is_some() || plan.callable.iter().any(|(key, _)| **key == *old.as_str()) {
            let what = format!("\"{old}\" is said to have a new name, but there is such a node or graph");
            mistakes.push(Mistake::new("renamed-node", what, "remove `.renamed(..)`, or give the node of now another name"));
        }
        if renamed[..place].iter().any(|(earlier, _)| earlier == old) {
            let what = format!("\"{old}\" is said twice to have a new name");
            mistakes.push(Mistake::new("renamed-node", what, "keep one, with the newest name"));
        }
    }
    for (place, (from, _)) in upgrades.iter().enumerate() {
        let version = schema.version();
        if !(1..version).contains(from) {
            let what = format!(
                "the upgrade from version {from} would never be called: the state `{}` is version {version}",
                schema.name()
            );
            let hint = format!("raise it with `#[state(version = {})]`, or correct the upgrade", from.saturating_add(1).max(2));
            mistakes.push(Mistake::new("unused-upgrade", what, hint));
        }
        if upgrades[..place].iter().any(|(earlier, _)| earlier == from) {
            let what = format!("there are two upgrades from version {from}");
            mistakes.push(Mistake::new("duplicate-upgrade", what, "make one of them"));
        }
    }
    mistakes
}

/// What of a plan is its structure, as a short text.
pub(super) fn structure<S>(plan: &Plan<S>) -> String {
    let sorted = |mut items: Vec<Value>| {
        items.sort_by_key(ToString::to_string);
        items
    };
    let nodes = plan.nodes.iter().map(|declared| {
        let node = &declared.node;
        let kind = match (&node.handler, &node.subgraph) {
            (_, Some(graph)) => json!(["graph", graph.shape.fingerprint, graph.is_shared]),
            (Handler::Question(question), _) if question.is_approval => json!("approval"),
            (Handler::Question(question), _) if question.is_wait() => json!("wait"),
            (Handler::Question(_), _) => json!("question"),
            (Handler::Function { .. }, _) => json!("function"),
        };
        let goes = sorted(node.gotos().map(|to| json!(to.as_str())).collect());
        json!([declared.name.as_str(), kind, node.policy.deferred, goes])
    });
    let edges = plan.edges.iter().map(|edge| {
        let label = match edge.kind {
            EdgeKind::Always => "",
            EdgeKind::Label(label) => label,
        };
        json!([edge.from.as_str(), edge.to.as_str(), label])
    });
    let names = |names: &[NodeName]| names.iter().map(|name| json!(name.as_str())).collect::<Vec<_>>();
    let joins = plan
        .joins
        .iter()
        .map(|join| json!([names(&join.from), join.to.as_str(), join.starved.map(|starved| format!("{starved:?}"))]));
    let routes = plan
        .routes
        .iter()
        .map(|route| json!([route.from.as_str(), sorted(names(&route.to)), route.sends.is_some(), route.is_branch]));
    let called = plan.callable.iter().map(|(key, graph)| json!([key, graph.shape.fingerprint]));
    // The order of nodes is the order of merging; that of the rest says nothing.
    fingerprint(&json!([
        plan.name,
        nodes.collect::<Vec<_>>(),
        sorted(edges.collect()),
        sorted(joins.collect()),
        sorted(routes.collect()),
        sorted(called.collect())
    ]))
}
