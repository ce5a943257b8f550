//! A built graph as the machine sees it: numbers in place of names, and no handlers.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::guard::GuardShape;
use super::node::Need;
use super::outside::{SignalShape, When};
use super::plan::{Pauses, Starved};
use crate::error::ClassOf;
use crate::id::{NodeName, Path};
use crate::log::Target;
use crate::policy::NodePolicy;
use crate::state::{Schema, StateKind, StateObject};

/// How many nodes are looked at before a name is hashed.
const SEEN_AT_ONCE: usize = 8;

/// A conditional edge's function, with the text of what went wrong. It may panic.
pub(crate) type RouteFn = Arc<dyn Fn(&dyn StateObject) -> Result<Vec<Target>, String> + Send + Sync>;

/// A conditional edge.
#[derive(Clone)]
pub(crate) struct RouteShape {
    pub(crate) choose: RouteFn,
    /// The nodes it may lead to; the end is always allowed if it is among the declared targets.
    pub(crate) targets: Vec<NodeName>,
}

/// Where a node, or the start, leads. The end is no target: it leads nowhere.
#[derive(Clone, Default)]
pub(crate) struct Exits {
    pub(crate) edges: Vec<usize>,
    /// Joins that this node is a source of.
    pub(crate) joins: Vec<usize>,
    pub(crate) routes: Vec<RouteShape>,
    /// Edges that the node itself chooses by label: approved and rejected.
    pub(crate) labels: Vec<(&'static str, Vec<usize>)>,
}

/// An edge that waits for all its sources.
pub(crate) struct JoinShape {
    pub(crate) key: Arc<str>,
    pub(crate) sources: Vec<NodeName>,
    pub(crate) target: usize,
    pub(crate) starved: Option<Starved>,
}

/// How a node compensates effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compensates {
    /// It undoes what certainly was performed.
    Undo,
    /// It looks at what is there, and may be done again.
    Reconcile,
}

pub(crate) struct NodeShape {
    pub(crate) name: NodeName,
    pub(crate) policy: NodePolicy,
    pub(crate) exits: Exits,
    /// What has to be handed in for it.
    pub(crate) needs: Vec<Need>,
    pub(crate) compensates: Option<Compensates>,
    /// Where the node itself may go.
    pub(crate) leads_to: Vec<NodeName>,
    /// Where its error handler may go.
    pub(crate) on_error_leads_to: Vec<NodeName>,
    /// What holds it back.
    pub(crate) when: Option<When>,
}

/// The graph's structure. Nodes keep their declared order, which is the order of merging.
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) fingerprint: String,
    pub(crate) schema: Arc<Schema>,
    pub(crate) nodes: Vec<NodeShape>,
    pub(crate) joins: Vec<JoinShape>,
    pub(crate) start: Exits,
    pub(crate) index: HashMap<NodeName, usize>,
    /// The names of now, by those that nodes had earlier.
    pub(crate) renamed: BTreeMap<NodeName, NodeName>,
    /// Fields that an input may write; what it writes beside them is dropped.
    pub(crate) input: Option<Vec<String>>,
    /// Fields that a run gives back, if not all.
    pub(crate) output: Option<Vec<String>>,
    pub(crate) pauses: Pauses,
    /// Whether what a thread did is compensated when a node of it has failed for good.
    pub(crate) compensates_on_failure: bool,
    /// Irreversible nodes that need no approval, with the reasons, those of the graphs inside among them.
    pub(crate) unguarded: BTreeMap<String, String>,
    pub(crate) classifiers: Vec<ClassOf>,
    pub(crate) guards: Vec<GuardShape>,
    pub(crate) signals: Vec<SignalShape>,
    /// The graphs inside it, by the name of their node or the key they are called by.
    pub(crate) subgraphs: BTreeMap<Arc<str>, SubgraphShape>,
    /// How its state is made, and those of the graphs inside it.
    pub(crate) kind: Arc<StateKind>,
}

/// What a subgraph keeps when it is called again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// It begins with an empty state, and goes on where it stands if its call was interrupted.
    #[default]
    Fresh,
    /// It goes on with the state of the last call on the thread.
    Continued,
    /// As fresh, and its steps are not stored: an interrupted call begins anew.
    Unstored,
}

pub(crate) struct SubgraphShape {
    pub(crate) shape: Arc<Shape>,
    pub(crate) keeps: Keeps,
}

impl Shape {
    /// The shape of the graph that runs at `path`, if there is one.
    pub(crate) fn at<'s>(self: &'s Arc<Self>, path: &Path) -> Option<&'s Arc<Self>> {
        path.frames().iter().try_fold(self, |shape, frame| Some(&shape.subgraph(frame.key())?.shape))
    }

    /// The graph inside with that key, be it an earlier one.
    pub(crate) fn subgraph(&self, key: &str) -> Option<&SubgraphShape> {
        self.subgraphs.get(self.kind.key(key))
    }

    /// Whether the steps of the graph at `path` are recorded.
    pub(crate) fn is_stored(&self, path: &Path) -> bool {
        let mut shape = self;
        for frame in path.frames() {
            let Some(subgraph) = shape.subgraph(frame.key()) else { return true };
            if subgraph.keeps == Keeps::Unstored {
                return false;
            }
            shape = &subgraph.shape;
        }
        true
    }

    /// A node, here or in a graph inside, that needs something which is not there.
    pub(crate) fn lacks(&self, is_there: &dyn Fn(TypeId) -> bool) -> Option<(&NodeName, &'static str)> {
        let lacking = |node: &'_ NodeShape| node.needs.iter().find(|need| !is_there(need.id)).map(|need| need.name);
        let own = self.nodes.iter().find_map(|node| Some((&node.name, lacking(node)?)));
        own.or_else(|| self.subgraphs.values().find_map(|subgraph| subgraph.shape.lacks(is_there)))
    }

    /// The resources that nodes use, here and in graphs inside, with the nodes.
    pub(crate) fn uses(&self) -> Vec<(&str, &str)> {
        let here =
            self.nodes.iter().flat_map(|node| node.policy.uses.iter().map(|uses| (node.name.as_str(), uses.resource.as_str())));
        here.chain(self.subgraphs.values().flat_map(|subgraph| subgraph.shape.uses())).collect()
    }

    /// The names of the graphs inside, for errors.
    pub(crate) fn subgraph_names(&self) -> String {
        if self.subgraphs.is_empty() {
            "none".to_owned()
        } else {
            self.subgraphs.keys().map(|key| &**key).collect::<Vec<_>>().join(", ")
        }
    }

    pub(crate) fn index(&self, name: &NodeName) -> Option<usize> {
        // The names of due tasks are mostly these very ones, which is seen without hashing.
        let same = self.nodes.iter().take(SEEN_AT_ONCE).position(|node| node.name.is_same(name));
        same.or_else(|| self.index.get(self.name_now(name)).copied())
    }

    /// The names of all nodes, for errors.
    pub(crate) fn node_names(&self) -> String {
        self.nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shape").field("name", &self.name).field("nodes", &self.node_names()).finish_non_exhaustive()
    }
}
