//! Whether the graph still has everything that a thread stands at.

use std::fmt;

use super::Machine;
use crate::graph::{END, Shape};
use crate::id::{BranchId, NodeName, Path, StepNumber, TaskId};
use crate::log::{Due, Scope, Target};

/// Something that the thread needs to go on, and that the graph does not have any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    what: What,
    /// The graph that does not have it.
    place: Path,
    known: String,
    /// The fingerprint of the graph that ran last, if it is recorded, and that of this one.
    ran: Option<String>,
    now: String,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    Node(NodeName),
    Join(String),
    Graph(String),
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, place, known, ran, now } = self;
        let of = if place.is_root() { "the graph".to_owned() } else { format!("the graph at {place}") };
        match what {
            What::Node(node) => write!(f, "the thread's next node \"{node}\" is not in {of}; there are: {known}")?,
            What::Join(join) => {
                write!(f, "the join \"{join}\", at which nodes have arrived, is not in {of}; there are: {known}")?
            }
            What::Graph(key) => write!(f, "the graph \"{key}\", which is at work, is not in {of}; there are: {known}")?,
        }
        if let Some(ran) = ran {
            write!(f, " (the last run was with graph {ran}, this one is {now})")?;
        }
        f.write_str("; nothing was changed: ")?;
        if let What::Node(node) = what {
            write!(f, "if it has another name now, say `.renamed(\"{node}\", ..)` on the graph; else ")?;
        }
        f.write_str("finish the thread with the old program, or drop what is open with new input that supersedes it")
    }
}

impl Machine {
    /// The first compensation of an effect that the graph does not have any more.
    pub(super) fn gone_compensation(&self) -> Option<Gone> {
        let shape = &self.root.shape;
        let has = |name: &NodeName| shape.index(name).is_some_and(|node| shape.nodes[node].compensates.is_some());
        let gone = self.folded.compensable().into_iter().map(|effect| effect.compensation.by).find(|by| !has(by))?;
        Some(self.tell_gone(What::Node(gone), Path::ROOT))
    }

    /// The first thing that the thread needs and that is gone.
    pub(super) fn gone(&self) -> Option<Gone> {
        let shape = &self.root.shape;
        for scope in self.folded.scopes() {
            let at_work = !scope.is_finished() || self.folded.asks_within(&scope.path);
            let gone = match shape.at(&scope.path) {
                Some(inner) => missing(inner, scope).map(|what| (what, scope.path.clone())).or_else(|| {
                    let outer = scope.path.outer()?;
                    let node = leads(scope, true).find(|name| shape.at(&outer).is_some_and(|outer| lacks(outer, name)))?;
                    Some((What::Node(node), outer))
                }),
                None if at_work => Some(self.gone_graph(&scope.path)),
                // It keeps a state that nobody asks for.
                None => None,
            };
            if let Some((what, place)) = gone {
                return Some(self.tell_gone(what, place));
            }
        }
        // Also of graphs without records of their own, and of steps that were never stored: what was done there would not be found again.
        let facts = &self.folded.facts;
        let mut tasks: Vec<_> = facts.journals.keys().chain(facts.questions.iter().map(|question| &question.task)).collect();
        tasks.sort();
        let gone = tasks.into_iter().find_map(|task| match shape.at(&task.path) {
            Some(shape) => shape.index(&task.node).is_none().then(|| (What::Node(task.node.clone()), task.path.clone())),
            None => Some(self.gone_graph(&task.path)),
        });
        gone.map(|(what, place)| self.tell_gone(what, place))
    }

    /// Work that was begun under an earlier name of its node, in steps that were not stored, goes on under it: what is recorded of it counts by that name.
    pub(super) fn keep_names(&self, shape: &Shape, (branch, path, step): (BranchId, &Path, StepNumber), due: &mut [Due]) {
        if shape.renamed.is_empty() {
            return;
        }
        let facts = &self.folded.facts;
        let known: Vec<&TaskId> = facts.journals.keys().chain(facts.questions.iter().map(|question| &question.task)).collect();
        let edges = due.iter().filter(|due| due.payload.is_none()).count();
        for (index, due) in due.iter_mut().enumerate() {
            let send = index.checked_sub(edges).and_then(|send| u32::try_from(send).ok());
            let task = |node: &NodeName| TaskId { branch, path: path.clone(), step, node: node.clone(), send };
            let began = |old: &&NodeName| {
                let task = task(old);
                known.iter().any(|known| **known == task || known.path.is_inside(&task))
            };
            let old = shape.earlier_names(&due.node).find(began).cloned();
            old.into_iter().for_each(|old| due.node = old);
        }
    }

    fn tell_gone(&self, what: What, place: Path) -> Gone {
        let shape = self.root.shape.at(&place);
        let known = match (&what, shape) {
            (What::Join(_), Some(shape)) => shape.joins.iter().map(|join| &*join.key).collect::<Vec<_>>().join(", "),
            (What::Graph(_), Some(shape)) => shape.subgraph_names(),
            (_, shape) => shape.map(|shape| shape.node_names()).unwrap_or_default(),
        };
        let known = if known.is_empty() { "none".to_owned() } else { known };
        let ran = self.folded.facts.run.as_ref().and_then(|run| run.started.graph.clone());
        Gone { what, place, known, ran, now: self.root.shape.fingerprint.clone() }
    }

    /// What of a path is gone, and where it was.
    fn gone_graph(&self, path: &Path) -> (What, Path) {
        for (depth, frame) in path.frames().iter().enumerate() {
            let outer = path.to_depth(depth);
            if let Some(shape) = self.root.shape.at(&outer).filter(|shape| shape.subgraph(frame.key()).is_none()) {
                let is_node = frame.graph.is_none() && shape.index(&frame.node).is_none();
                let what = if is_node { What::Node(frame.node.clone()) } else { What::Graph(frame.key().to_owned()) };
                return (what, outer);
            }
        }
        (What::Graph(path.to_string()), Path::ROOT)
    }
}

/// What one graph at work needs and does not have: a node that is due or put off, one where a result leads, or a join that waits.
fn missing(shape: &Shape, scope: &Scope) -> Option<What> {
    let facts = &scope.facts;
    let due = facts.tasks.iter().map(|task| &task.due.node).chain(&facts.deferred).cloned();
    let arrived = facts.arrivals.iter().flat_map(|arrival| arrival.arrived.iter().cloned());
    let node = due.chain(leads(scope, false)).chain(arrived).find(|name| lacks(shape, name));
    let join = || facts.arrivals.iter().find(|arrival| shape.join_now(&arrival.join).is_none());
    node.map(What::Node).or_else(|| join().map(|arrival| What::Join(arrival.join.to_string())))
}

fn lacks(shape: &Shape, name: &NodeName) -> bool {
    name.as_str() != END && shape.index(name).is_none()
}

/// Where the results that are not merged lead: in the graph itself, or in the one outside.
fn leads(scope: &Scope, outside: bool) -> impl Iterator<Item = NodeName> {
    let results = scope.results().into_iter().filter(move |done| done.to_parent == outside);
    results.flat_map(|done| done.goto.clone().unwrap_or_default()).map(|target| match target {
        Target::Node(name) | Target::Past(name) | Target::Send { node: name, .. } => name,
    })
}
