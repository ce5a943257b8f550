//! Nodes that go in circles: another way, a person, or a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::step::Scheduled;
use super::{Env, Live, Machine, Step};
use crate::error::{Class, Failure, Origin};
use crate::graph::{GuardShape, Shape, circle_schema};
use crate::id::{NodeName, TaskId};
use crate::log::{Arrival, Cost, OnExpiry, QuestionKind, QuestionSpec, Record, Rerouted, Rounds, Scope, TaskFailed};
use crate::policy::Trip;

/// What is known of a node, be it under an earlier name.
fn known_of<'r>(
    shape: &'r Shape,
    rounds: &'r BTreeMap<NodeName, Rounds>,
    node: &'r NodeName,
) -> impl Iterator<Item = (&'r NodeName, &'r Rounds)> {
    rounds.iter().filter(move |(known, _)| shape.name_now(known) == node)
}

/// The longest rows of the same failure and of the same action in the last rounds of a node.
fn rows(shape: &Shape, rounds: &BTreeMap<NodeName, Rounds>, node: &NodeName) -> (u32, u32) {
    let (now, earlier): (Vec<_>, Vec<_>) = known_of(shape, rounds, node).partition(|(known, _)| *known == node);
    let earlier: Vec<&Rounds> = earlier.into_iter().map(|(_, known)| known).collect();
    match now.first().filter(|(_, now)| now.rounds > 0) {
        Some((_, now)) => now.rows(&earlier),
        None => earlier.iter().map(|known| known.rows(&[])).fold((0, 0), longer),
    }
}

fn longer(a: (u32, u32), b: (u32, u32)) -> (u32, u32) {
    (a.0.max(b.0), a.1.max(b.1))
}

/// How many rounds a node has had, under all its names.
fn rounds_of(shape: &Shape, rounds: &BTreeMap<NodeName, Rounds>, node: &NodeName) -> u64 {
    known_of(shape, rounds, node).fold(0, |sum, (_, known)| sum.saturating_add(known.rounds))
}

/// The guard that stops a node, and why.
fn tripped<'s>(shape: &'s Shape, rounds: &BTreeMap<NodeName, Rounds>, node: &NodeName) -> Option<(&'s GuardShape, Trip)> {
    shape.guards.iter().filter(|guard| guard.nodes.contains(node)).find_map(|guard| {
        let own = rounds_of(shape, rounds, node);
        let (failures, actions) = guard.nodes.iter().map(|node| rows(shape, rounds, node)).fold((0, 0), longer);
        Some((guard, guard.guard.trips(own, failures, actions)?))
    })
}

/// The names by which the log may know the nodes of a guard: their own, and those that they had.
fn names(shape: &Shape, guard: &GuardShape) -> Vec<NodeName> {
    let earlier = guard.nodes.iter().flat_map(|node| shape.earlier_names(node));
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
    (!taken).then(|| Rerouted { node: node.clone(), to: to.clone(), why: said(node, guard, trip), anew: names(shape, guard) })
}

/// The nodes whose phase is left: one of its nodes was due, or waited, and none is or does now. Where a guard leads out of it, it is not left: that the other way
/// was taken has to stay known.
pub(super) fn left(shape: &Shape, scope: &Scope, rounds: &BTreeMap<NodeName, Rounds>, next: &Scheduled) -> Vec<NodeName> {
    let facts = &scope.facts;
    let mut left = Vec::new();
    for phase in shape.guards.iter().filter(|guard| guard.phase.is_some()) {
        let is_in = |node: &NodeName| phase.nodes.contains(shape.name_now(node));
        let waits = |arrivals: &[Arrival], deferred: &[NodeName]| {
            let mut joins =
                arrivals.iter().filter_map(|arrival| shape.join_now(&arrival.join)).map(|join| shape.joins[join].target);
            joins.any(|target| is_in(&shape.nodes[target].name)) || deferred.iter().any(is_in)
        };
        let was_in = facts.tasks.iter().any(|task| is_in(&task.due.node)) || waits(&facts.arrivals, &facts.deferred);
        let is_still = next.due.iter().any(|due| is_in(&due.node)) || waits(&next.arrivals, &next.deferred);
        if was_in && !is_still && !next.rerouted.iter().any(|rerouted| is_in(&rerouted.node)) {
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
    let own = rounds_of(shape, rounds, node);
    QuestionSpec {
        key: "guard".into(),
        occurrence: 0,
        kind: QuestionKind::Guard(names(shape, guard)),
        text: format!("{}. Does it go on?", said(node, guard, trip)),
        schema: circle_schema(),
        show: Some(json!({"node": node, "phase": guard.phase, "why": trip.to_string(), "rounds": own, "tried": tried})),
        assignee: None,
        deadline_ms: None,
        until: None,
        reminders_ms: Vec::new(),
        on_expiry: OnExpiry::default(),
    }
}

impl Machine {
    /// Whether a task that is about to begin a round is stopped: it goes in circles, or a person has said that it did.
    pub(super) fn is_guarded(&mut self, index: usize, node: usize, task: &TaskId, env: &Env<'_>) -> Step<bool> {
        let Some(shape) = self.motion(&task.path).map(|motion| Arc::clone(&motion.shape)) else { return Ok(false) };
        loop {
            let Some(scope) = self.folded.scope(&task.path) else { return Ok(false) };
            let (known, name) = (&scope.facts.tasks[index], &shape.nodes[node].name);
            // Another attempt of a round that has begun, or what takes over for the node.
            if known.attempts != known.spent || known.handling.is_some() {
                return Ok(false);
            }
            if let Some(reason) = known.refused.clone() {
                self.give_up_round(index, task, format!("a person let it not go on: {reason}"), true)?;
                return Ok(true);
            }
            // Whoever runs the thread may grant it a round.
            let tripped = if known.once { None } else { tripped(&shape, scope.rounds(), name) };
            let Some((guard, trip)) = tripped else { return Ok(false) };
            if guard.guard.fails() {
                // An error handler that leads back to the node gets it once; a value in its place is as good the next time.
                let again = known_of(&shape, scope.rounds(), name).any(|(_, known)| known.stopped);
                let handles = self.degrades(task) || !again;
                self.give_up_round(index, task, said(name, guard, trip), handles)?;
                return Ok(true);
            }
            let spec = question(&shape, scope.rounds(), name, guard, trip);
            // What was said in an earlier run of a graph whose steps are not stored.
            let verdict = self.folded.verdict(task).map(|(verdict, _)| verdict).or_else(|| self.folded.refusal(task));
            if let (Some(verdict), QuestionKind::Guard(nodes)) = (verdict, &spec.kind) {
                self.folded.let_go_on(task, nodes, &verdict)?;
                continue;
            }
            self.ask(spec, task, env)?;
            self.motion_mut(&task.path).into_iter().for_each(|motion| motion.tasks[index] = Live::Paused);
            return Ok(true);
        }
    }

    /// The node fails without having run. `handles`: whether its error handler may take over.
    fn give_up_round(&mut self, index: usize, task: &TaskId, message: String, handles: bool) -> Step {
        let failure = Failure { origin: Origin::Guard, class: Class::Terminal, message, causes: Vec::new(), tried: false };
        let (handled, cost) = (handles && self.is_handled(task), Cost::default());
        let attempt = self.folded.scope(&task.path).map_or(0, |scope| scope.facts.tasks[index].attempts);
        self.record(Record::TaskFailed(Box::new(TaskFailed { task: task.clone(), attempt, failure, handled, cost })))?;
        // Its error handler has its turn.
        if let Some(motion) = self.motion_mut(&task.path).filter(|_| handled) {
            motion.ready.push_back(index);
        }
        Ok(())
    }
}
