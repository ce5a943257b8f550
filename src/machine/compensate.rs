//! Compensation: in place of what was due, what the thread did outside is undone or reconciled, newest first, one step for each effect.

use std::sync::Arc;

use super::{Env, Machine, RunFailure, Step};
use crate::graph::{Compensates, Shape};
use crate::id::Path;
use crate::log::{CloseReason, Closed, Compensable, Compensating, Due, Durability, Fault, Record, Source, Stepped};

impl Machine {
    /// Whether there is something that is being compensated.
    pub(super) fn is_compensating(&self) -> bool {
        self.folded.facts.rollback.as_ref().is_some_and(|rollback| !rollback.todo.is_empty())
    }

    /// Whether everything is compensated that there was to compensate.
    pub(super) fn has_compensated(&self) -> bool {
        self.folded.facts.rollback.is_some() && self.folded.root.facts.tasks.is_empty() && self.folded.compensable().is_empty()
    }

    /// Effects that may have happened, and that only a person can tell about before they are compensated.
    pub(super) fn in_doubt_for_good(&self) -> Option<(String, String)> {
        let shape = &self.root.shape;
        let doubtful: Vec<_> = self.folded.compensable().into_iter().filter(|effect| effect.result.is_none()).collect();
        let is_settled = |effect: &_| doubtful.iter().any(|known| known.effect == *effect && reconciles(shape, known));
        self.in_doubt_but(&is_settled)
    }

    /// Begins to compensate. What was due is given up, and open questions are closed.
    pub(super) fn compensate(&mut self, why: Option<Fault>, env: &Env<'_>) -> Step {
        let shape = Arc::clone(&self.root.shape);
        let known = self.folded.compensable();
        // What is not known to have been performed is reconciled, and never undone.
        let can = |effect: &&Compensable| effect.result.is_some() || reconciles(&shape, effect);
        let effects: Vec<_> = known.iter().filter(can).map(|known| known.effect.clone()).rev().collect();
        let questions: Vec<_> = self.folded.facts.questions.iter().map(|question| question.id).collect();
        if !questions.is_empty() {
            self.record(Record::Closed(Box::new(Closed { questions, why: CloseReason::Compensated, at: env.now })))?;
        }
        self.record(Record::Compensating(Box::new(Compensating { effects, why, at: env.now })))?;
        let root = &self.folded.root;
        let stepped = Stepped {
            branch: root.facts.branch,
            path: Path::ROOT,
            step: root.step_due(),
            source: Source::Compensation,
            as_node: None,
            rerouted: Vec::new(),
            anew: Vec::new(),
            squashed: None,
            written: None,
            merged: Vec::new(),
            resolved: Vec::new(),
            arrivals: Vec::new(),
            deferred: Vec::new(),
            due: self.next_compensation(0),
        };
        self.push_merged(stepped)
    }

    /// What is due when so many of the effects are compensated; nothing if there are no more.
    pub(super) fn next_compensation(&self, done: usize) -> Vec<Due> {
        let rollback = self.folded.facts.rollback.as_ref();
        let next = rollback.and_then(|rollback| rollback.todo.get(done));
        let due = |next: &Compensable| {
            let Compensable { effect, compensation, result, under } = next;
            let payload = serde_json::json!({
                "node": effect.task.node,
                "effect": &*effect.key,
                "idempotency_key": effect.idempotency_key(under.unwrap_or(self.folded.facts.id())),
                "given": compensation.given,
                "result": result,
            });
            Due { node: compensation.by.clone(), payload: Some(Arc::new(payload)) }
        };
        next.map(due).into_iter().collect()
    }

    /// Whether the graph wants to compensate what the thread did because of this failure, and can.
    pub(crate) fn wants_to_compensate(&self, failure: &RunFailure) -> bool {
        self.root.shape.compensates_on_failure
            && matches!(failure, RunFailure::Node { .. })
            && !self.stopping
            && !self.is_compensating()
            && !self.folded.compensable().is_empty()
            && self.in_doubt_for_good().is_none()
    }

    /// A node has failed for good. True if the thread compensates now, and fails later.
    pub(super) fn compensates_failure(&mut self, failure: &RunFailure, env: &Env<'_>) -> Step<bool> {
        // The steps of a run that is stored at its end are to be stored first, so it takes another run.
        if self.durability == Durability::Exit || !self.wants_to_compensate(failure) {
            return Ok(false);
        }
        self.compensate(Some(failure.cause()), env)?;
        Ok(true)
    }
}

fn reconciles(shape: &Shape, effect: &Compensable) -> bool {
    let node = shape.index(&effect.compensation.by).map(|node| &shape.nodes[node]);
    node.is_some_and(|node| node.compensates == Some(Compensates::Reconcile))
}
