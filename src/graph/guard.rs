//! Guards of nodes, and phases: nodes that are guarded together.

use std::collections::HashSet;

use super::GraphBuilder;
use super::node::Node;
use super::plan::{END, Line, Plan, START};
use super::validate::{Mistake, unknown};
use crate::id::NodeName;
use crate::policy::Guard;
use crate::state::State;

/// Nodes that are guarded together, under a name.
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) nodes: Vec<NodeName>,
    pub(crate) guard: Guard,
}

/// A guard at work.
pub(crate) struct GuardShape {
    /// The phase, if it guards one.
    pub(crate) phase: Option<String>,
    pub(crate) nodes: Vec<NodeName>,
    pub(crate) guard: Guard,
}

impl<S> Node<S> {
    /// Stops the node when it goes in circles; see [`Guard`].
    pub fn guard(mut self, guard: Guard) -> Self {
        self.policy.guard = Some(guard);
        self
    }
}

impl<S: State> GraphBuilder<S> {
    /// Guards several nodes together: the same failure or action in one of them stops whichever of them is due next, each of them has so many rounds, and
    /// their rounds are counted from 0 again when the phase is left, which is when none of them is due or waits any more. Where the guard leads out of it by its
    /// other way, it stays known that this was taken. So a loop over many pieces of work has
    /// all its rounds for each of them. A node belongs to one phase at most, and may have a [guard](Node::guard) of its own
    /// besides; both look at the same counts.
    ///
    /// ```
    /// use ferrata::{END, Graph, Guard, Outcome, Runner, START, State, View, store::MemoryStore};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Essay { good: bool, #[state(append)] drafts: Vec<String> }
    ///
    /// async fn write(essay: View<Essay>) -> ferrata::Result<EssayUpdate> {
    ///     Ok(Essay::update().draft(format!("draft {}", essay.drafts.len() + 1)))
    /// }
    ///
    /// async fn judge() -> ferrata::Result<EssayUpdate> {
    ///     Ok(Essay::update().good(false)) // never content
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let graph = Graph::<Essay>::new("essay")
    ///     .node("write", write)
    ///     .node("judge", judge)
    ///     .phase("draft", ["write", "judge"], Guard::new().rounds(4))
    ///     .edge(START, "write")
    ///     .edge("write", "judge")
    ///     .route_to("judge", ["write", END], |essay: &Essay| if essay.good { END } else { "write" })
    ///     .build()?;
    /// let outcome = Runner::new(graph, MemoryStore::new()).thread("t").run(Essay::update()).await?;
    /// let Outcome::Waiting(questions) = outcome else { panic!("it is never content") };
    /// assert!(questions[0].text.contains("phase \"draft\""), "{}", questions[0].text);
    /// # Ok(()) }
    /// ```
    pub fn phase<N: Into<NodeName>>(mut self, name: &str, nodes: impl IntoIterator<Item = N>, guard: Guard) -> Self {
        let nodes = nodes.into_iter().map(Into::into).collect();
        self.plan.phases.push(Phase { name: name.to_owned(), nodes, guard });
        self
    }
}

impl<S> Plan<S> {
    /// All guards, with the nodes that they guard.
    pub(super) fn guards(&self) -> Vec<GuardShape> {
        let own = self.nodes.iter().filter_map(|node| {
            let guard = node.node.policy.guard.clone()?;
            Some(GuardShape { phase: None, nodes: vec![node.name.clone()], guard })
        });
        let phases = self.phases.iter().map(|phase| {
            let Phase { name, nodes, guard } = phase;
            GuardShape { phase: Some(name.clone()), nodes: nodes.clone(), guard: guard.clone() }
        });
        own.chain(phases).collect()
    }

    /// The other ways that guards lead to, each as if the guarded nodes led there.
    pub(super) fn other_ways(&self) -> Vec<Line<'_>> {
        let line = |from, to| Line { from, to, certain: false, approved: false };
        let own = self.nodes.iter().filter_map(|node| Some(line(&node.name, node.node.policy.guard.as_ref()?.way()?)));
        let phases = self.phases.iter().filter_map(|phase| Some((phase, phase.guard.way()?)));
        own.chain(phases.flat_map(|(phase, to)| phase.nodes.iter().map(move |from| line(from, to)))).collect()
    }
}

/// Names of phases and of what guards lead to, as far as they are wrong by themselves.
pub(super) fn guards<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let (mut phases, mut taken) = (HashSet::new(), HashSet::new());
    for phase in &plan.phases {
        let wrong = |what: String, hint: &str| Mistake::new("phase", what, hint);
        if !phases.insert(&phase.name) {
            mistakes.push(wrong(format!("there are two phases called \"{}\"", phase.name), "give each phase a name of its own"));
        }
        if phase.nodes.is_empty() {
            mistakes.push(wrong(format!("the phase \"{}\" has no nodes", phase.name), "name the nodes that belong to it"));
        }
        for node in &phase.nodes {
            match plan.node(node) {
                None => mistakes.push(unknown(plan, "phase", node)),
                Some(known) if known.node.compensates.is_some() => {
                    let what = format!("\"{node}\" compensates effects, and cannot belong to the phase \"{}\"", phase.name);
                    mistakes.push(wrong(what, "leave it out"));
                }
                Some(_) if !taken.insert(node) => {
                    mistakes.push(wrong(
                        format!("\"{node}\" belongs to two phases"),
                        "leave it in one; nodes can have guards of their own",
                    ));
                }
                Some(_) => {}
            }
        }
        let mistake = phase.guard.mistake();
        mistakes
            .extend(mistake.map(|what| wrong(format!("the phase \"{}\" {what}", phase.name), "let it have at least one round")));
    }
    for guard in plan.guards() {
        let Some(to) = guard.guard.way().filter(|to| to.as_str() != END) else { continue };
        let wrong = |what: String, hint: &str| Mistake::new("reroute", what, hint);
        if to.as_str() == START || plan.node(to).is_none() {
            mistakes.push(unknown(plan, "guard", to));
        } else if guard.nodes == [to.clone()] {
            mistakes.push(wrong(format!("the guard of \"{to}\" leads to \"{to}\" itself"), "lead it to another node, or to END"));
        }
        let payload = |node: &NodeName| plan.node(node).and_then(|node| node.node.payload);
        if let Some(node) = guard.nodes.iter().find(|node| *node != to && plan.node(to).is_some() && payload(node) != payload(to))
        {
            let what = format!("the guard of \"{node}\" leads to \"{to}\", which takes another payload");
            mistakes.push(wrong(what, "let both take the same"));
        }
    }
    mistakes
}
