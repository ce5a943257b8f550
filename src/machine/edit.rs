//! Changes of a thread from outside a run: edits of its state, and forks.

use super::{Env, Machine, RunFailure, Step, step::after};
use crate::clock::Timestamp;
use crate::graph::{END, START, Shape};
use crate::id::{BranchId, NodeName, Path, Position, StepNumber};
use crate::log::{CloseReason, Closed, FoldError, Forked, Input, Record, Scope, Source, Stepped, Written};
use crate::state::{Change, StateError, check, give_ids, resolve};

/// Why an edit is not made. Nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditRefusal {
    #[error("\"{node}\" is no node; an edit can stand for: {known}, or for the start or the end")]
    UnknownNode { node: NodeName, known: String },
    #[error("{nodes} ran last, together; say for which of them the edit stands")]
    Ambiguous { nodes: String },
    #[error("it is not known whether {effects} happened, so nothing may take their place; answer first: {questions}")]
    InDoubt { effects: String, questions: String },
    #[error("what the thread did outside is being compensated; resume it until that is done")]
    Compensating,
    #[error("the edit cannot be applied: {0}")]
    Changes(#[source] StateError),
    #[error("{0}")]
    Failed(RunFailure),
    #[error("no graph is at work at {path}")]
    NoGraph { path: Path },
}

impl Machine {
    /// Begins a new line of history at a checkpoint, which is what this machine was folded to. Gives the graph it is one of.
    pub(crate) fn fork(&mut self, parent: Position, now: Timestamp) -> Step<Path> {
        let branch = BranchId(self.folded.facts.forks.saturating_add(1));
        let stands = |scope: &&Scope| scope.facts.head.is_some_and(|head| head.position == parent);
        let path = self.folded.scopes().find(stands).map_or(Path::ROOT, |scope| scope.path.clone());
        self.record(Record::Forked(Forked { branch, parent, at: now }))?;
        self.root.begin_step(self.folded.root.facts.tasks.len());
        Ok(path)
    }

    /// Makes a copy of the checkpoint, so that what comes after it runs again, as other tasks.
    pub(crate) fn copy_checkpoint(&mut self, path: &Path) -> Step<Result<(), RunFailure>> {
        let Some(scope) = self.folded.scope(path) else { return Ok(Ok(())) };
        let (facts, step) = (&scope.facts, scope.step_due());
        let (branch, caller, shared) = (facts.branch, facts.caller.clone(), facts.written.is_some());
        if let Some(changes) = facts.input.clone() {
            self.record(Record::Input(Box::new(Input {
                branch,
                path: path.clone(),
                caller,
                shared,
                step,
                changes,
                unlisted: false,
                was: None,
                arguments: facts.arguments.clone(),
            })))?;
            return self.merge_step(path);
        }
        let stepped = Stepped {
            branch,
            path: path.clone(),
            step,
            source: Source::Fork,
            as_node: None,
            rerouted: Vec::new(),
            anew: Vec::new(),
            squashed: None,
            written: None,
            merged: Vec::new(),
            resolved: Vec::new(),
            arrivals: facts.arrivals.clone(),
            deferred: facts.deferred.clone(),
            due: facts.tasks.iter().map(|task| task.due.clone()).collect(),
        };
        self.push_merged(stepped)?;
        Ok(Ok(()))
    }

    /// Applies changes as if `as_node` of the graph at `path` had returned them: its edges fire, and whatever else was due there is
    /// dropped.
    pub(crate) fn edit(
        &mut self,
        path: &Path,
        mut changes: Vec<Change>,
        as_node: Option<NodeName>,
        env: &Env<'_>,
    ) -> Step<Result<(), EditRefusal>> {
        let (Some(shape), Some(scope)) = (self.root.shape.at(path).cloned(), self.folded.scope(path)) else {
            return Ok(Err(EditRefusal::NoGraph { path: path.clone() }));
        };
        if let Err(error) = check(&shape.schema, &changes) {
            return Ok(Err(EditRefusal::Changes(error)));
        }
        if let Err(failure) = self.bounds.changes(|| "the edit".to_owned(), &changes) {
            return Ok(Err(EditRefusal::Failed(failure)));
        }
        if self.is_compensating() {
            return Ok(Err(EditRefusal::Compensating));
        }
        if let Some((effects, questions)) = self.in_doubt() {
            return Ok(Err(EditRefusal::InDoubt { effects, questions }));
        }
        let node = match as_node.map_or_else(|| ran_last(scope), Ok) {
            Ok(node) => node,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let known = shape.index(&node).is_some_and(|node| shape.nodes[node].compensates.is_none());
        if !known && node.as_str() != START && node.as_str() != END {
            return Ok(Err(EditRefusal::UnknownNode { node, known: shape.node_names() }));
        }
        self.tell_shapes(env)?;
        let Some(scope) = self.folded.scope(path) else { return Ok(Err(EditRefusal::NoGraph { path: path.clone() })) };
        let origin = format!("{}:{}:{path}edit@{}", self.thread, scope.facts.branch.0, scope.step_due().0);
        give_ids(&shape.schema, &mut changes, || origin.clone());
        let mut written = scope.facts.written.clone();
        written.iter_mut().for_each(|written| written.extend(&changes));
        match resolve(&shape.schema, scope.state.object(), &[("the edit", &changes)]) {
            // As resolved changes they are folded without a task.
            Ok(resolved) => {
                let plain = changes.into_iter().filter(|change| resolved.iter().all(|done| done.field != change.field));
                changes = plain.chain(resolved.iter().cloned()).collect();
            }
            Err(error) => return Ok(Err(EditRefusal::Changes(error))),
        }
        self.merge_edit(path, &shape, changes, written, node, env)
    }

    fn merge_edit(
        &mut self,
        path: &Path,
        shape: &Shape,
        changes: Vec<Change>,
        written: Option<Written>,
        node: NodeName,
        env: &Env<'_>,
    ) -> Step<Result<(), EditRefusal>> {
        let within = self.folded.facts.questions.iter().filter(|question| question.task.path.is_within(path));
        let questions: Vec<_> = within.map(|question| question.id).collect();
        if !questions.is_empty() {
            self.record(Record::Closed(Box::new(Closed { questions, why: CloseReason::Superseded, at: env.now })))?;
        }
        self.folded.give_up(path);
        let (position, bounds) = (self.folded.facts.next, self.bounds);
        let Some(scope) = self.folded.scope_mut(path) else { return Ok(Err(EditRefusal::NoGraph { path: path.clone() })) };
        match scope.merge(&[], &changes, position) {
            Err(FoldError::State(source)) => return Ok(Err(EditRefusal::Changes(source))),
            merged => merged?,
        }
        // An edit of a fresh thread takes the place of an input that is applied.
        let step = scope.step_due().max(StepNumber(0));
        let next = bounds.state(scope, step).and_then(|()| after(shape, scope, &node));
        let next = match next.and_then(|next| bounds.due(next, step)) {
            Ok(next) => next,
            Err(failure) => return Ok(Err(EditRefusal::Failed(failure))),
        };
        let stepped = Stepped {
            branch: scope.facts.branch,
            path: path.clone(),
            step,
            source: Source::Update,
            as_node: Some(node),
            rerouted: Vec::new(),
            anew: Vec::new(),
            squashed: None,
            written,
            merged: Vec::new(),
            resolved: changes,
            arrivals: next.arrivals,
            deferred: next.deferred,
            due: next.due,
        };
        self.push_merged(stepped)?;
        Ok(Ok(()))
    }
}

fn ran_last(scope: &Scope) -> Result<NodeName, EditRefusal> {
    let mut last = scope.facts.last.clone();
    last.dedup();
    match &*last {
        [] => Ok(START.into()),
        [one] => Ok(one.clone()),
        many => Err(EditRefusal::Ambiguous { nodes: many.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ") }),
    }
}
