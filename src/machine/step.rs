//! Merges a step and finds what runs next.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::guard::{left, other_way};
use super::node_set::NodeSet;
use super::{Machine, RunFailure, Step};
use crate::graph::{END, Exits, RouteShape, START, Shape, Starved};
use crate::id::{NodeName, Path};
use crate::log::{Arrival, Due, FoldError, Record, Rerouted, Rounds, Scope, Source, Stepped, Target, TaskDone, TaskRef};
use crate::state::{Change, DEPTH_MAX, Op, Schema, StateCell, StateError, is_within_depth, panic_text, resolve};

impl Machine {
    /// Merges what the tasks of a graph's step wrote, fires the edges, and makes the next step due.
    ///
    /// On a failure the state may hold what was never recorded: the graph must not go on in this run.
    pub(super) fn merge_step(&mut self, path: &Path) -> Step<Result<(), RunFailure>> {
        let (position, bounds) = (self.folded.facts.next, self.bounds);
        // What repeats is of interest to guards only.
        let is_guarded = self.root.shape.at(path).is_some_and(|shape| !shape.guards.is_empty());
        let rounds = if is_guarded { self.folded.rounds_after(path) } else { BTreeMap::new() };
        let (Some(shape), Some(scope)) = (self.root.shape.at(path).cloned(), self.folded.scope_mut(path)) else {
            return Err(FoldError::Misplaced { position, what: "a step of a graph that is not there" });
        };
        let step = scope.step_due();
        let done = scope.results();
        let input = scope.facts.input.clone();
        let resolved = match resolved(scope, input.as_deref(), &done) {
            Ok(resolved) => resolved,
            Err(source) => return Ok(Err(RunFailure::Merge { step, source })),
        };
        let merged: Vec<TaskRef> = done.iter().map(|d| TaskRef { node: d.task.node.clone(), send: d.task.send }).collect();
        // A route sees the state of the step's beginning with its own task's changes; alone in its step that is the merged state.
        let routed =
            |task: &Arc<TaskDone>| shape.index(&task.task.node).is_some_and(|node| !shape.nodes[node].exits.routes.is_empty());
        // Holding the state of the beginning has the merge copy it, so it is held only where a route wants to see it.
        let before = (done.len() > 1 && done.iter().any(routed)).then(|| scope.state.clone());
        let applied = scope.applied.as_ref().map_or(0, Vec::len);
        match scope.merge(&merged, &resolved, position) {
            Err(FoldError::State(source)) => {
                // The step was not made.
                scope.applied.iter_mut().for_each(|changes| changes.truncate(applied));
                let failure = RunFailure::Merge { step, source };
                self.spoil(path, &failure);
                return Ok(Err(failure));
            }
            merged => merged?,
        }
        let branch = scope.facts.branch;
        let next = bounds.state(scope, step).and_then(|()| next(&shape, scope, &done, before.as_ref(), input.is_some(), &rounds));
        let mut next = match next.and_then(|next| bounds.due(next.finish(&shape), step)) {
            Ok(next) => next,
            Err(failure) => {
                scope.applied.iter_mut().for_each(|changes| changes.truncate(applied));
                self.spoil(path, &failure);
                return Ok(Err(failure));
            }
        };
        if path.is_root() && self.is_compensating() {
            next.due = self.next_compensation(merged.len());
        }
        let anew = self.folded.scope(path).map_or_else(Vec::new, |scope| left(&shape, scope, &rounds, &next));
        self.keep_names(&shape, (branch, path, step.next()), &mut next.due);
        let stepped = Stepped {
            branch,
            path: path.clone(),
            step,
            source: Source::Loop,
            as_node: None,
            rerouted: next.rerouted,
            anew,
            squashed: None,
            written: None,
            merged,
            resolved,
            arrivals: next.arrivals,
            deferred: next.deferred,
            due: next.due,
        };
        if let Some(motion) = self.motion_mut(path).filter(|motion| !motion.pauses.after.is_empty()) {
            motion.merged = done.iter().map(|done| done.task.node.clone()).collect();
        }
        self.push_merged(stepped)?;
        Ok(Ok(()))
    }

    /// In memory the graph may hold what was never recorded.
    fn spoil(&mut self, path: &Path, failure: &RunFailure) {
        self.spoiled.insert(path.clone(), failure.seen_outside());
    }

    /// Records a step whose changes are merged already.
    pub(super) fn push_merged(&mut self, stepped: Stepped) -> Step {
        self.folded.schedule(&stepped)?;
        let tasks = self.folded.scope(&stepped.path).map_or(0, |scope| scope.facts.tasks.len());
        self.motion_mut(&stepped.path).into_iter().for_each(|motion| motion.begin_step(tasks));
        self.records.push(Record::Stepped(Box::new(stepped)));
        Ok(())
    }
}

/// What is due after an edit that stands for a node, for the start or for the end.
pub(super) fn after(shape: &Shape, scope: &Scope, node: &NodeName) -> Result<Scheduled, RunFailure> {
    let mut next = Next::new(shape.arrivals_now(&scope.facts.arrivals));
    let exits = match shape.index(node) {
        Some(index) => Some(&shape.nodes[index].exits),
        None if node.as_str() == START => Some(&shape.start),
        None => None,
    };
    if let Some(exits) = exits {
        next.fire(shape, node, exits, &scope.state)?;
    }
    next.defer(shape, NodeSet::default(), &scope.state);
    next.starve(shape)?;
    Ok(next.finish(shape))
}

/// What is due after the merged tasks. `before`: the state of the step's beginning, where a route of several tasks wants to see it.
fn next(
    shape: &Shape,
    scope: &Scope,
    done: &[Arc<TaskDone>],
    before: Option<&StateCell>,
    input: bool,
    rounds: &BTreeMap<NodeName, Rounds>,
) -> Result<Next, RunFailure> {
    let mut next = Next::new(shape.arrivals_now(&scope.facts.arrivals));
    if input {
        next.fire(shape, &NodeName::from(START), &shape.start, &scope.state)?;
    }
    for task in done {
        let Some(node) = shape.index(&task.task.node) else { continue };
        let exits = &shape.nodes[node].exits;
        match before {
            // What an error handler did takes the place of what the node would have led to.
            _ if task.handled => {}
            Some(before) if !exits.routes.is_empty() => {
                let step = scope.step_due();
                let seen = with_own_changes(before, &task.changes, &scope.kind.schema);
                let seen = seen.map_err(|source| RunFailure::Merge { step, source })?;
                next.fire(shape, &task.task.node, exits, &seen)?;
            }
            _ => next.fire(shape, &task.task.node, exits, &scope.state)?,
        }
        for target in task.goto.iter().flatten() {
            next.aim(shape, &task.task.node, target.clone(), &scope.state)?;
        }
    }
    next.reroute(shape, rounds);
    let waiting = scope.facts.deferred.iter().filter_map(|node| shape.index(node)).collect();
    next.defer(shape, waiting, &scope.state);
    next.starve(shape)?;
    Ok(next)
}

/// The outcomes that stand instead of what was written.
fn resolved(scope: &Scope, input: Option<&[Change]>, done: &[Arc<TaskDone>]) -> Result<Vec<Change>, StateError> {
    let writes: Vec<(Writer<'_>, &[Change])> = match input {
        Some(changes) => vec![(Writer::Input, changes)],
        None if done.len() == 1 && is_plain(&done[0].changes) => Vec::new(),
        None => done.iter().map(|d| (Writer::Node(&d.task.node), &*d.changes)).collect(),
    };
    resolve(&scope.kind.schema, scope.state.object(), &writes)
}

/// Who wrote, for errors.
enum Writer<'a> {
    Input,
    Node(&'a NodeName),
}

impl fmt::Display for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input => f.write_str("the input"),
            Self::Node(node) => write!(f, "\"{node}\""),
        }
    }
}

/// Changes that a single writer cannot get wrong and that need no resolving.
fn is_plain(changes: &[Change]) -> bool {
    changes.iter().all(|change| matches!(change.op, Op::Set(_) | Op::Append(_) | Op::Patch(_) | Op::Put(_)))
}

/// The state of the step's beginning with one task's changes. They are resolved alone: a conditional edge does not see its siblings' writes.
fn with_own_changes(before: &StateCell, changes: &[Change], schema: &Schema) -> Result<StateCell, StateError> {
    let mut seen = before.clone();
    seen.write(schema, changes)?;
    Ok(seen)
}

fn due(shape: &Shape, node: usize) -> Due {
    Due { node: shape.nodes[node].name.clone(), payload: None }
}

/// What runs next, as it is being collected.
struct Next {
    /// Nodes due by edges, each once, in declared order.
    edges: NodeSet,
    sends: Vec<Due>,
    arrivals: Vec<Arrival>,
    /// Nodes that a fan-out over nothing has passed: each once, since they may lead in a circle.
    passed: NodeSet,
    /// Nodes that wait until nothing else is due.
    deferred: NodeSet,
    rerouted: Vec<Rerouted>,
}

/// What runs next, as it is recorded.
pub(super) struct Scheduled {
    pub(super) arrivals: Vec<Arrival>,
    pub(super) deferred: Vec<NodeName>,
    pub(super) rerouted: Vec<Rerouted>,
    pub(super) due: Vec<Due>,
}

impl Next {
    fn new(arrivals: Vec<Arrival>) -> Self {
        let (edges, passed, deferred) = Default::default();
        Self { edges, sends: Vec::new(), arrivals, passed, deferred, rerouted: Vec::new() }
    }

    fn finish(self, shape: &Shape) -> Scheduled {
        Scheduled {
            arrivals: self.arrivals,
            rerouted: self.rerouted,
            deferred: self.deferred.iter().map(|node| shape.nodes[node].name.clone()).collect(),
            due: self.edges.iter().map(|node| due(shape, node)).chain(self.sends).collect(),
        }
    }

    /// Takes the exits of a node that has run.
    fn fire(&mut self, shape: &Shape, name: &NodeName, exits: &Exits, state: &StateCell) -> Result<(), RunFailure> {
        self.edges.extend(exits.edges.iter().copied());
        for join in &exits.joins {
            self.arrive(shape, *join, shape.name_now(name));
        }
        for route in &exits.routes {
            for target in choose(name, route, state)? {
                self.aim(shape, name, target, state)?;
            }
        }
        Ok(())
    }

    fn aim(&mut self, shape: &Shape, from: &NodeName, target: Target, state: &StateCell) -> Result<(), RunFailure> {
        match target {
            Target::Node(node) if node.as_str() == END => {}
            Target::Node(node) => {
                self.edges.insert(known(shape, from, &node)?);
            }
            Target::Send { node, payload } => {
                known(shape, from, &node)?;
                self.sends.push(Due { node, payload: Some(payload) });
            }
            Target::Past(node) => {
                let passed = known(shape, from, &node)?;
                if self.passed.insert(passed) {
                    self.fire(shape, &node, &shape.nodes[passed].exits, state)?;
                }
            }
        }
        Ok(())
    }

    /// What goes in circles leads somewhere else, where its guard knows another way that was not taken yet.
    fn reroute(&mut self, shape: &Shape, rounds: &BTreeMap<NodeName, Rounds>) {
        if rounds.is_empty() {
            return;
        }
        let sent: Vec<usize> = self.sends.iter().filter_map(|due| shape.index(&due.node)).collect();
        let due: NodeSet = self.edges.iter().chain(sent).collect();
        for node in due.iter() {
            let Some(rerouted) = other_way(shape, rounds, &shape.nodes[node].name) else { continue };
            let was_due = !self.edges.split_off(|known| known == node).is_empty();
            match shape.index(&rerouted.to) {
                Some(to) => {
                    self.edges.extend(was_due.then_some(to));
                    let sends = self.sends.iter_mut().filter(|due| shape.index(&due.node) == Some(node));
                    sends.for_each(|due| due.node.clone_from(&rerouted.to));
                }
                None => self.sends.retain(|due| shape.index(&due.node) != Some(node)),
            }
            self.rerouted.push(rerouted);
        }
    }

    /// Puts deferred nodes and those whose condition does not hold aside, together with those that wait already; with nothing else due it is their turn.
    fn defer(&mut self, shape: &Shape, waiting: NodeSet, state: &StateCell) {
        let can_run = |node: usize| shape.nodes[node].when.as_ref().is_none_or(|when| when.holds(state.object()));
        self.deferred = waiting;
        // What was held back, and is no longer.
        let free = self
            .deferred
            .split_off(|node| shape.nodes[node].when.is_some() && !shape.nodes[node].policy.deferred && can_run(node));
        self.edges.extend(free.iter());
        let later = self.edges.split_off(|node| shape.nodes[node].policy.deferred || !can_run(node));
        self.deferred.extend(later.iter());
        if self.edges.is_empty() && self.sends.is_empty() {
            self.edges = self.deferred.split_off(can_run);
        }
        // Nothing can run: what is held back has its turn, and the thread waits with it.
        if self.edges.is_empty() && self.sends.is_empty() {
            self.edges = std::mem::take(&mut self.deferred);
        }
    }

    /// Joins that wait in vain: nothing else is due, so no source will run any more.
    fn starve(&mut self, shape: &Shape) -> Result<(), RunFailure> {
        if !self.edges.is_empty() || !self.sends.is_empty() {
            return Ok(());
        }
        for arrival in std::mem::take(&mut self.arrivals) {
            let join = shape.joins.iter().find(|join| join.key == arrival.join);
            match join.and_then(|join| Some((join, join.starved?))) {
                Some((join, Starved::Run)) => _ = self.edges.insert(join.target),
                Some((_, Starved::Skip)) => {}
                Some((join, Starved::Fail)) => {
                    let missing = join.sources.iter().filter(|source| !arrival.arrived.contains(source));
                    let missing = missing.map(|source| format!("\"{source}\"")).collect::<Vec<_>>().join(", ");
                    return Err(RunFailure::Starved { node: shape.nodes[join.target].name.clone(), missing });
                }
                // Built only if that cannot happen, but a graph may have changed.
                None => self.arrivals.push(arrival),
            }
        }
        Ok(())
    }

    /// A source of a join has run; with the last one the join fires and starts afresh.
    fn arrive(&mut self, shape: &Shape, join: usize, source: &NodeName) {
        let join = &shape.joins[join];
        let place = self.arrivals.iter().position(|arrival| arrival.join == join.key).unwrap_or_else(|| {
            self.arrivals.push(Arrival { join: Arc::clone(&join.key), arrived: Vec::new() });
            self.arrivals.len() - 1
        });
        let arrived = &mut self.arrivals[place].arrived;
        if !arrived.contains(source) {
            arrived.push(source.clone());
        }
        if join.sources.iter().all(|needed| arrived.contains(needed)) {
            self.arrivals.remove(place);
            self.edges.insert(join.target);
        }
    }
}

fn known(shape: &Shape, from: &NodeName, node: &NodeName) -> Result<usize, RunFailure> {
    shape.index(node).ok_or_else(|| RunFailure::Route {
        node: from.clone(),
        what: format!("gave \"{node}\", which is no node"),
        allowed: shape.node_names(),
    })
}

/// Asks a conditional edge, and checks what it gives against its declared targets.
fn choose(from: &NodeName, route: &RouteShape, state: &StateCell) -> Result<Vec<Target>, RunFailure> {
    let allowed = || {
        let names = route.targets.iter().map(|name| if name.as_str() == END { "END" } else { name.as_str() });
        names.collect::<Vec<_>>().join(", ")
    };
    let fail = |what: String| RunFailure::Route { node: from.clone(), what, allowed: allowed() };
    let chosen = catch_unwind(AssertUnwindSafe(|| (route.choose)(state.object())));
    let chosen = chosen.map_err(|panic| fail(format!("panicked: {}", panic_text(&*panic))))?.map_err(&fail)?;
    for target in &chosen {
        if let Target::Send { payload, .. } = target
            && !is_within_depth(payload)
        {
            return Err(fail(format!("gave a payload nested deeper than {DEPTH_MAX} levels")));
        }
        let (Target::Node(name) | Target::Past(name) | Target::Send { node: name, .. }) = target;
        if !route.targets.contains(name) {
            return Err(fail(format!("gave \"{name}\"")));
        }
    }
    Ok(chosen)
}
