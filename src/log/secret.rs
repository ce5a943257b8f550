//! Where secret values stand in records and snapshots: one walk, taken when they leave for the store and when they come back.
//!
//! Every record, and every part that can hold state, is named here without a rest pattern, so that a new one cannot be forgotten.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::parts::{Due, Target};
use super::record::{Input, Record, Stepped, TaskDone};
use super::scope::{ScopeFacts, Task, TaskStatus, Written};
use super::snapshot::{ScopeSnapshot, Snapshot};
use super::upgraded::{Upgraded, UpgradedState};
use crate::id::Path;
use crate::state::{Change, Op, Schema, StateKind, is_sealed};

/// What is done to each secret value: the graph, the field, the value. Others are not shown to it.
pub(crate) type Turn<'t, E> = &'t mut dyn FnMut(&Path, &str, &mut Value) -> Result<(), E>;

/// A walk over the secret values of a thread.
pub(crate) struct Walk<'w, E> {
    kind: &'w Arc<StateKind>,
    /// What the thread was stored with, which may mark more fields of the outermost graph.
    stored: Option<&'w Schema>,
    turn: Turn<'w, E>,
}

impl<'w, E> Walk<'w, E> {
    pub(crate) fn new(kind: &'w Arc<StateKind>, stored: Option<&'w Schema>, turn: Turn<'w, E>) -> Self {
        Self { kind, stored, turn }
    }

    pub(crate) fn record(&mut self, record: &mut Record) -> Result<(), E> {
        match record {
            Record::Input(input) => {
                let Input { branch: _, path, caller: _, shared: _, step: _, changes, unlisted: _, was: _, arguments: _ } =
                    &mut **input;
                self.changes(path, changes)
            }
            Record::TaskDone(done) => self.task_done(done),
            Record::Stepped(stepped) => {
                let Stepped {
                    branch: _,
                    path,
                    step: _,
                    source: _,
                    as_node: _,
                    merged: _,
                    resolved,
                    arrivals: _,
                    deferred: _,
                    rerouted: _,
                    anew: _,
                    squashed: _,
                    written,
                    due,
                } = &mut **stepped;
                self.changes(path, resolved)?;
                written.iter_mut().try_for_each(|written| self.written(path, written))?;
                due.iter_mut().try_for_each(|due| self.due(path, due))
            }
            Record::Upgraded(upgraded) => {
                let Upgraded { schema: _, fingerprint: _, inner: _, states, at: _ } = &mut **upgraded;
                states.iter_mut().try_for_each(|UpgradedState { path, values }| self.values(path, values, &[]))
            }
            // Nothing of the state: what people and nodes say in them is looked through for secrets by `texts.rs`.
            Record::Opened(_)
            | Record::RunStarted(_)
            | Record::AttemptFailed(_)
            | Record::TaskFailed(_)
            | Record::Asked(_)
            | Record::Answered(_)
            | Record::Closed(_)
            | Record::Expired(_)
            | Record::Reminded(_)
            | Record::Signalled(_)
            | Record::Delivered(_)
            | Record::EffectStarted(_)
            | Record::EffectDone(_)
            | Record::EffectFailed(_)
            | Record::EffectDoubted(_)
            | Record::Marked(_)
            | Record::Compensating(_)
            | Record::Forked(_)
            | Record::RunEnded(_) => Ok(()),
        }
    }

    pub(crate) fn snapshot(&mut self, snapshot: &mut Snapshot) -> Result<(), E> {
        let Snapshot { facts: _, graph, inner } = snapshot;
        self.scope(&Path::ROOT, graph)?;
        inner.iter_mut().try_for_each(|(path, scope)| self.scope(path, scope))
    }

    fn scope(&mut self, path: &Path, scope: &mut ScopeSnapshot) -> Result<(), E> {
        let ScopeSnapshot { state, unwritten, facts } = scope;
        self.values(path, state, unwritten)?;
        let ScopeFacts {
            branch: _,
            head: _,
            caller: _,
            arguments: _,
            input,
            tasks,
            edge_tasks: _,
            arrivals: _,
            deferred: _,
            last: _,
            rounds: _,
            steps: _,
            floor: _,
            written,
        } = facts;
        input.iter_mut().try_for_each(|changes| self.changes(path, changes))?;
        for task in tasks {
            let Task {
                due,
                status,
                attempts: _,
                spent: _,
                handling: _,
                again: _,
                feedback: _,
                rounds: _,
                judged: _,
                taken: _,
                refused: _,
                stopped: _,
                once: _,
                stalls: _,
            } = task;
            self.due(path, due)?;
            match status {
                TaskStatus::Done(done) => self.task_done(done)?,
                TaskStatus::Open | TaskStatus::Failed(_) => {}
            }
        }
        written.iter_mut().try_for_each(|written| self.written(path, written))
    }

    fn values(&mut self, path: &Path, values: &mut Map<String, Value>, unwritten: &[String]) -> Result<(), E> {
        for (field, value) in values.iter_mut() {
            if self.is_secret(path, field) && !unwritten.contains(field) {
                (self.turn)(path, field, value)?;
            }
        }
        Ok(())
    }

    fn task_done(&mut self, done: &mut Arc<TaskDone>) -> Result<(), E> {
        let Some(path) = done.meant_for() else { return Ok(()) };
        let sends = |target: &Target| matches!(target, Target::Send { payload, .. } if self.is_hit(&path, payload));
        let is_hit = done.changes.iter().any(|change| self.is_secret(&path, &change.field));
        if !is_hit && !done.goto.iter().flatten().any(sends) {
            return Ok(());
        }
        // The fold holds the same one.
        let TaskDone { task: _, attempt: _, changes, goto, handled: _, degraded: _, failures: _, to_parent: _, cost: _ } =
            Arc::make_mut(done);
        self.changes(&path, changes)?;
        for target in goto.iter_mut().flatten() {
            match target {
                Target::Send { node: _, payload } => self.payload(&path, payload)?,
                Target::Node(_) | Target::Past(_) => {}
            }
        }
        Ok(())
    }

    fn changes(&mut self, path: &Path, changes: &mut [Change]) -> Result<(), E> {
        changes.iter_mut().try_for_each(|Change { field, op }| self.op(path, field, op))
    }

    fn op(&mut self, path: &Path, field: &str, op: &mut Op) -> Result<(), E> {
        if !self.is_secret(path, field) {
            return Ok(());
        }
        let is_put = matches!(op, Op::Put(_));
        for unit in op.units_mut() {
            let id = unit.get("id").filter(|_| is_put).cloned();
            (self.turn)(path, field, unit)?;
            // A reader without the program still sees which message is replaced.
            if let (Some(id), true, Value::Object(sealed)) = (id, is_sealed(unit), unit) {
                sealed.insert("id".to_owned(), id);
            }
        }
        Ok(())
    }

    fn written(&mut self, path: &Path, written: &mut Written) -> Result<(), E> {
        let mut done = written.0.iter_mut().flat_map(|(field, done)| done.iter_mut().flatten().map(|op| (&**field, op)));
        done.try_for_each(|(field, op)| self.op(path, field, op))
    }

    fn due(&mut self, path: &Path, Due { node: _, payload }: &mut Due) -> Result<(), E> {
        payload.iter_mut().try_for_each(|payload| self.payload(path, payload))
    }

    /// A payload may be a state, or speak of the same things by the same names.
    fn payload(&mut self, path: &Path, payload: &mut Arc<Value>) -> Result<(), E> {
        if !self.is_hit(path, payload) {
            return Ok(());
        }
        for (name, value) in Arc::make_mut(payload).as_object_mut().into_iter().flatten() {
            if self.is_secret(path, name) {
                (self.turn)(path, name, value)?;
            }
        }
        Ok(())
    }

    fn is_hit(&self, path: &Path, payload: &Value) -> bool {
        payload.as_object().is_some_and(|fields| fields.keys().any(|name| self.is_secret(path, name)))
    }

    fn is_secret(&self, path: &Path, field: &str) -> bool {
        self.kind.at(path).is_some_and(|kind| kind.schema.is_secret(field))
            || (path.is_root() && self.stored.is_some_and(|stored| stored.is_secret(field)))
    }
}
