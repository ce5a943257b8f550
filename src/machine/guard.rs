//! Nodes that go in circles: another way, a person, or a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::step::Scheduled;
use super::{Env, Live, Machine, Step};
use crate::error::{Class, Failure, Origin};
use crate::graph::{GuardShape, Shape, circle_schema};
use crate::id::{NodeName, QuestionId, TaskId};
use crate::log::{Cost, OnExpiry, QuestionKind, QuestionSpec, Record, Rerouted, Rounds, TaskFailed};
use crate::policy::Trip;

/// What is known of a node, be it under an earlier name.
fn known_of<'r>(
    shape: &'r Shape,
    rounds: &'r BTreeMap<NodeName, Rounds>,
    node: &'r NodeName,
) -> impl Iterator<Item = (&'r NodeName, &'r Rounds)> {
    rounds.iter().filter(move |(known, _)| shape.name_now(known) == node)
}

/// The guard that stops a node, and why.
fn tripped<'s>(shape: &'s Shape, rounds: &BTreeMap<NodeName, Rounds>, node: &NodeName) -> Option<(&'s GuardShape, Trip)> {
    shape.guards.iter().filter(|guard| guard.nodes.contains(node)).find_map(|guard| {
        let own = known_of(shape, rounds, node).map(|(_, known)| known.rounds).sum();
        let rows = guard.nodes.iter().flat_map(|node| known_of(shape, rounds, node)).map(|(_, known)| known.rows());
        let (failures, actions) = rows.fold((0, 0), |longest, row| (longest.0.max(row.0), longest.1.max(row.1)));
        Some((guard, guard.guard.trips(own, failures, actions)?))
    })
}

/// The names by which the log knows the nodes of a guard, and their own.
fn names(shape: &Shape, rounds: &BTreeMap<NodeName, Rounds>, guard: &GuardShape) -> Vec<NodeName> {
    let earlier = guard.nodes.iter().flat_map(|node| known_of(shape, rounds, node)).map(|(known, _)| known);
    earlier.chain(&guard.nodes).collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

/// In words, who is stopped and why.
fn said(node: &NodeName, guard: &GuardShape, trip: Trip) -> String {
    match &guard.phase {
        Some(phase) => format!("Node \"{node}\" of phase \"{phase}\" is stopped: it, or another node of the phase, {trip}"),
        None => format!("Node \"{node}\" is stopped: it {trip}"),
    }
}

/// Where a node leads that is due and goes in circles, if its guard knows another way that was not taken yet.
pub(super) fn other_way(shape: &Shape, rounds: &BTreeMap<NodeName, Rounds>, node: &NodeName) -> Option<Rerouted> {
    let (guard, trip) = tripped(shape, rounds, node)?;
    let to = guard.guard.way().filter(|to| *to != node)?;
    let taken = guard.nodes.iter().flat_map(|node| known_of(shape, rounds, node)).any(|(_, known)| known.rerouted);
    (!taken).then(|| Rerouted {
        node: node.clone(),
        to: to.clone(),
        why: said(node, guard, trip),
        anew: names(shape, rounds, guard),
    })
}

/// The nodes whose phase is left: none of its nodes is due, or waits.
pub(super) fn left(shape: &Shape, rounds: &BTreeMap<NodeName, Rounds>, next: &Scheduled) -> Vec<NodeName> {
    let mut left = Vec::new();
    for phase in shape.guards.iter().filter(|guard| guard.phase.is_some()) {
        let joins = next.arrivals.iter().filter_map(|arrival| shape.join_now(&arrival.join)).map(|join| shape.joins[join].target);
        let waiting = joins.map(|target| &shape.nodes[target].name).chain(&next.deferred);
        if !next.due.iter().map(|due| &due.node).chain(waiting).any(|node| phase.is_in(node)) {
            left.extend(phase.nodes.iter().flat_map(|node| known_of(shape, rounds, node)).map(|(known, _)| known.clone()));
        }
    }
    left
}

/// What a person is asked about a node that goes in circles.
fn question(shape: &Shape, rounds: &BTreeMap<NodeName, Rounds>, node: &NodeName, guard: &GuardShape, trip: Trip) -> QuestionSpec {
    let known = guard.nodes.iter().flat_map(|node| known_of(shape, rounds, node).map(move |known| (node, known.1)));
    let tried: Vec<Value> = known
        .map(|(node, known)| {
            let row = |row: &[crate::log::Repeated]| row.iter().map(|r| json!({"what": r.shown, "in_a_row": r.in_a_row})).collect::<Vec<_>>();
            json!({"node": node, "rounds": known.rounds, "failures": row(&known.failures), "actions": row(&known.actions), "last": known.tried})
        })
        .collect();
    let own: u64 = known_of(shape, rounds, node).map(|(_, known)| known.rounds).sum();
    QuestionSpec {
        key: "guard".into(),
        occurrence: 0,
        kind: QuestionKind::Guard(names(shape, rounds, guard)),
        text: format!("{}. Does it go on?", said(node, guard, trip)),
        schema: circle_schema(),
        show: Some(json!({"node": node, "phase": guard.phase, "why": trip.to_string(), "rounds": own, "tried": tried})),
        assignee: None,
        deadline_ms: None,
        reminders_ms: Vec::new(),
        on_expiry: OnExpiry::default(),
    }
}

impl Machine {
    /// Whether a task that is about to begin a round is stopped: it goes in circles, or a person has said that it did.
    pub(super) fn is_guarded(&mut self, index: usize, node: usize, task: &TaskId, env: &Env<'_>) -> Step<bool> {
        let Some(shape) = self.motion(&task.path).map(|motion| Arc::clone(&motion.shape)) else { return Ok(false) };
        if shape.guards.is_empty() {
            return Ok(false);
        }
        loop {
            let Some(scope) = self.folded.scope(&task.path) else { return Ok(false) };
            let (known, name) = (&scope.facts.tasks[index], &shape.nodes[node].name);
            // Another attempt of a round that has begun, what takes over for the node, or a round that whoever runs the thread grants it.
            if known.attempts != known.spent || known.handling.is_some() || known.once {
                return Ok(false);
            }
            if let Some(reason) = known.refused.clone() {
                self.give_up_round(index, task, format!("a person let it not go on: {reason}"))?;
                return Ok(true);
            }
            let Some((guard, trip)) = tripped(&shape, &scope.facts.rounds, name) else { return Ok(false) };
            if guard.guard.fails() {
                self.give_up_round(index, task, said(name, guard, trip))?;
                return Ok(true);
            }
            let spec = question(&shape, &scope.facts.rounds, name, guard, trip);
            // What was said in an earlier run of a graph whose steps are not stored.
            if let (Some((verdict, _)), QuestionKind::Guard(nodes)) = (self.folded.verdict(task), &spec.kind) {
                self.folded.let_go_on(task, nodes, &verdict)?;
                continue;
            }
            self.record(Record::Asked(Arc::new(spec.ask(QuestionId((env.new_id)()), task.clone(), env.now))))?;
            self.motion_mut(&task.path).into_iter().for_each(|motion| motion.tasks[index] = Live::Paused);
            return Ok(true);
        }
    }

    /// The node fails without having run.
    fn give_up_round(&mut self, index: usize, task: &TaskId, message: String) -> Step {
        let failure = Failure { origin: Origin::Guard, class: Class::Terminal, message, causes: Vec::new(), tried: false };
        let (handled, cost) = (self.is_handled(task), Cost::default());
        let attempt = self.folded.scope(&task.path).map_or(0, |scope| scope.facts.tasks[index].attempts);
        self.record(Record::TaskFailed(Box::new(TaskFailed { task: task.clone(), attempt, failure, handled, cost })))?;
        // Its error handler has its turn.
        if let Some(motion) = self.motion_mut(&task.path).filter(|_| handled) {
            motion.ready.push_back(index);
        }
        Ok(())
    }
}
