//! A graph as it was declared, before anything was checked.

use std::sync::Arc;

use crate::id::NodeName;

use super::guard::Phase;
use super::node::{Node, PayloadType, Subgraph};
use super::outside::SignalShape;
use super::past::DeclaredPast;
use super::shape::RouteFn;
use crate::error::ClassOf;
use crate::policy::NodePolicy;

/// Where every run begins.
pub const START: &str = "__start__";
/// Where a branch of a run ends.
pub const END: &str = "__end__";

pub(crate) const APPROVED: &str = "approved";
pub(crate) const REJECTED: &str = "rejected";
pub(crate) const EXPIRED: &str = "expired";

pub(crate) struct DeclaredNode<S> {
    pub(crate) name: NodeName,
    pub(crate) node: Node<S>,
}

/// How an edge is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeKind {
    Always,
    /// One of the edges of a question node.
    Label(&'static str),
}

#[derive(PartialEq)]
pub(crate) struct DeclaredEdge {
    pub(crate) from: NodeName,
    pub(crate) to: NodeName,
    pub(crate) kind: EdgeKind,
}

#[derive(PartialEq)]
pub(crate) struct DeclaredJoin {
    pub(crate) from: Vec<NodeName>,
    pub(crate) to: NodeName,
    /// What happens when nothing else is due and a source has not run; without it the graph must make sure that they all do.
    pub(crate) starved: Option<Starved>,
}

/// What becomes of a join that still waits for a source when nothing else is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starved {
    /// Its target runs all the same, on what the sources that did run have written.
    Run,
    /// It is given up: the target does not run.
    Skip,
    /// The run fails, with the code `join-starved` and an error that names what is missing.
    Fail,
}

pub(crate) struct DeclaredRoute {
    pub(crate) from: NodeName,
    pub(crate) to: Vec<NodeName>,
    pub(crate) choose: RouteFn,
    /// What it sends, if it is a fan-out.
    pub(crate) sends: Option<PayloadType>,
    /// Whether it chooses freely between nodes and tasks with payloads.
    pub(crate) is_branch: bool,
}

/// Which answers to a question node a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeKind {
    Edited,
    Refused,
    Answered,
}

/// Everything that was declared, in that order.
pub(crate) struct Plan<S> {
    pub(crate) name: String,
    pub(crate) nodes: Vec<DeclaredNode<S>>,
    pub(crate) edges: Vec<DeclaredEdge>,
    pub(crate) joins: Vec<DeclaredJoin>,
    pub(crate) routes: Vec<DeclaredRoute>,
    /// Question nodes whose answer is taken by a function, in case there is no such node.
    pub(crate) takes: Vec<(NodeName, TakeKind)>,
    /// Fields that an input may write and that a run returns, if not all.
    pub(crate) input: Option<Vec<String>>,
    pub(crate) output: Option<Vec<String>>,
    /// Nodes before and after which every run stops.
    pub(crate) pauses: Pauses,
    /// Graphs that nodes call, by the key they are called by.
    pub(crate) callable: Vec<(Arc<str>, Subgraph)>,
    pub(crate) past: DeclaredPast,
    pub(crate) compensates_on_failure: bool,
    /// What holds for nodes that say nothing themselves.
    pub(crate) defaults: NodePolicy,
    pub(crate) classifiers: Vec<ClassOf>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) signals: Vec<SignalShape>,
}

/// Nodes before and after which a run stops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    pub(crate) before: Vec<NodeName>,
    pub(crate) after: Vec<NodeName>,
}

impl<S> Plan<S> {
    pub(crate) fn node(&self, name: &NodeName) -> Option<&DeclaredNode<S>> {
        self.nodes.iter().find(|n| n.name == *name)
    }

    /// Whether the node is a question with `expired` edges: its other edges are not taken then.
    pub(crate) fn can_expire(&self, name: &NodeName) -> bool {
        self.edges.iter().any(|edge| edge.from == *name && edge.kind == EdgeKind::Label(EXPIRED))
    }

    /// The graphs inside, by the name of their node or the key they are called by.
    pub(crate) fn subgraphs(&self) -> impl Iterator<Item = (&str, &Subgraph)> {
        let nodes = self.nodes.iter().filter_map(|node| Some((node.name.as_str(), node.node.subgraph.as_ref()?)));
        nodes.chain(self.callable.iter().map(|(key, subgraph)| (&**key, subgraph)))
    }

    /// All edges as (from, to, always taken, passes an approval), and the ways that guards lead to.
    pub(crate) fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = self.own_lines();
        lines.extend(self.other_ways());
        lines
    }

    /// The edges, and where nodes themselves go.
    pub(super) fn own_lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        for edge in &self.edges {
            let certain = edge.kind == EdgeKind::Always && !self.can_expire(&edge.from);
            lines.push(Line { from: &edge.from, to: &edge.to, certain, approved: edge.kind == EdgeKind::Label(APPROVED) });
        }
        for join in &self.joins {
            let line = |from| Line { from, to: &join.to, certain: !self.can_expire(from), approved: false };
            lines.extend(join.from.iter().map(line));
        }
        for route in &self.routes {
            // A fan-out over nothing goes on behind its target, so what follows it is as certain as an edge.
            let certain = route.sends.is_some() && !self.can_expire(&route.from);
            lines.extend(route.to.iter().map(|to| Line { from: &route.from, to, certain, approved: false }));
        }
        for node in &self.nodes {
            lines.extend(node.node.gotos().map(|to| Line { from: &node.name, to, certain: false, approved: false }));
        }
        lines
    }
}

/// One line of the drawing.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) from: &'a NodeName,
    pub(crate) to: &'a NodeName,
    pub(crate) certain: bool,
    pub(crate) approved: bool,
}
