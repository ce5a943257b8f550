//! Changes of a thread from outside a run: edits of its state, and forks.

use super::{Env, Machine, RunFailure, Step};
use crate::clock::Timestamp;
use crate::graph::{END, START};
use crate::id::{BranchId, NodeName, Path, Position, StepNumber};
use crate::log::{FoldError, Forked, Input, Opened, Record, Source, Stepped};
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
    #[error("the edit cannot be applied: {0}")]
    Changes(#[source] StateError),
    #[error("{0}")]
    Edges(RunFailure),
}

impl Machine {
    /// Begins a new line of history at a checkpoint, which is what this machine was folded to.
    pub(crate) fn fork(&mut self, parent: Position, now: Timestamp) -> Step {
        let branch = BranchId(self.folded.facts.forks + 1);
        self.record(Record::Forked(Forked { branch, parent, at: now }))?;
        self.live.fill(super::Live::Idle);
        self.look = true;
        Ok(())
    }

    /// Makes a copy of the checkpoint, so that what comes after it runs again, as other tasks.
    pub(crate) fn copy_checkpoint(&mut self) -> Step<Result<(), RunFailure>> {
        let facts = &self.folded.facts;
        if let Some(changes) = facts.input.clone() {
            let (branch, step) = (facts.branch, facts.step_due());
            self.record(Record::Input(Input { branch, step, changes, unlisted: false }))?;
            return self.merge_step();
        }
        let due = facts.tasks.iter().map(|task| task.due.clone()).collect();
        self.checkpoint(Source::Fork, None, Vec::new(), due)?;
        Ok(Ok(()))
    }

    /// Applies changes as if `as_node` had returned them: its edges fire, and whatever else was due is dropped.
    pub(crate) fn edit(
        &mut self,
        mut changes: Vec<Change>,
        as_node: Option<NodeName>,
        env: &Env<'_>,
    ) -> Step<Result<(), EditRefusal>> {
        if let Err(error) = check(&self.shape.schema, &changes) {
            return Ok(Err(EditRefusal::Changes(error)));
        }
        if let Some((effects, questions)) = self.in_doubt() {
            return Ok(Err(EditRefusal::InDoubt { effects, questions }));
        }
        let node = match as_node.map_or_else(|| self.ran_last(), Ok) {
            Ok(node) => node,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if self.shape.index(&node).is_none() && node.as_str() != START && node.as_str() != END {
            return Ok(Err(EditRefusal::UnknownNode { node, known: self.shape.node_names() }));
        }
        if self.folded.facts.opened.is_none() {
            let (thread, graph) = (self.thread.clone(), self.shape.name.clone());
            let opened = Opened { id: (env.new_id)(), thread, graph, schema: (*self.shape.schema).clone(), at: env.now };
            self.record(Record::Opened(Box::new(opened)))?;
        }
        let facts = &self.folded.facts;
        let origin = format!("{}:{}:edit@{}", self.thread, facts.branch.0, facts.step_due().0);
        give_ids(&self.shape.schema, &mut changes, || origin.clone());
        match resolve(&self.folded.schema, self.folded.state.object(), &[("the edit", &changes)]) {
            // As resolved changes they are folded without a task.
            Ok(resolved) => {
                let plain = changes.into_iter().filter(|change| resolved.iter().all(|done| done.field != change.field));
                changes = plain.chain(resolved.iter().cloned()).collect();
            }
            Err(error) => return Ok(Err(EditRefusal::Changes(error))),
        }
        self.merge_edit(changes, node)
    }

    fn merge_edit(&mut self, changes: Vec<Change>, node: NodeName) -> Step<Result<(), EditRefusal>> {
        self.folded.give_up();
        match self.folded.merge(&[], &changes) {
            Err(FoldError::State(source)) => return Ok(Err(EditRefusal::Changes(source))),
            merged => merged?,
        }
        let next = match self.after(&node) {
            Ok(next) => next,
            Err(failure) => return Ok(Err(EditRefusal::Edges(failure))),
        };
        let stepped = Stepped {
            branch: self.folded.facts.branch,
            path: Path::ROOT,
            // An edit of a fresh thread takes the place of an input that is applied.
            step: self.folded.facts.head.map_or(StepNumber(0), |head| head.step.next()),
            source: Source::Update,
            as_node: Some(node),
            squashed: None,
            merged: Vec::new(),
            resolved: changes,
            arrivals: next.arrivals,
            deferred: next.deferred,
            due: next.due,
        };
        self.push_merged(stepped);
        Ok(Ok(()))
    }

    fn ran_last(&self) -> Result<NodeName, EditRefusal> {
        let mut last = self.folded.facts.last.clone();
        last.dedup();
        match &*last {
            [] => Ok(START.into()),
            [one] => Ok(one.clone()),
            many => Err(EditRefusal::Ambiguous { nodes: many.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ") }),
        }
    }

    fn checkpoint(
        &mut self,
        source: Source,
        as_node: Option<NodeName>,
        resolved: Vec<Change>,
        due: Vec<crate::log::Due>,
    ) -> Step {
        let facts = &self.folded.facts;
        let stepped = Stepped {
            branch: facts.branch,
            path: Path::ROOT,
            step: facts.step_due(),
            source,
            as_node,
            squashed: None,
            merged: Vec::new(),
            resolved,
            arrivals: facts.arrivals.clone(),
            deferred: facts.deferred.clone(),
            due,
        };
        self.record(Record::Stepped(Box::new(stepped)))?;
        self.live = vec![super::Live::Idle; self.folded.facts.tasks.len()];
        self.look = true;
        Ok(())
    }
}
