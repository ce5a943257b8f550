//! Secret values that are not there any more: noticed by the fold, handed in anew by the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::fold::{FoldError, Folded};
use super::parts::Target;
use super::record::TaskDone;
use super::scope::{Scope, TaskStatus};
use crate::id::Path;
use crate::state::{Change, FieldName, Op, Schema, StateError, StateKind, is_sealed};

/// What is known of the secret fields of a graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretFields {
    /// Those that were ever written. What the others hold is no secret.
    pub(crate) written: BTreeSet<FieldName>,
    /// Those whose value is not there: the state holds what it holds before anything is written.
    pub(crate) missing: BTreeSet<FieldName>,
}

impl SecretFields {
    /// Of a state as it was stored. What stands in place of values that are not there is taken out of it.
    pub(super) fn of_stored(kind: &StateKind, state: &mut Map<String, Value>, unwritten: &[String]) -> Result<Self, StateError> {
        let mut secrets = Self::default();
        for field in kind.schema.fields().iter().filter(|field| field.secret) {
            let missing = state.get(&field.name).is_some_and(is_sealed);
            if missing || unwritten.contains(&field.name) {
                state.remove(&field.name);
                let before = kind.empty().object().read(&field.name)?;
                before.and_then(|before| state.insert(field.name.clone(), before));
            } else if !state.contains_key(&field.name) {
                continue;
            }
            if missing {
                secrets.missing.insert(field.name.clone().into());
            }
            if !unwritten.contains(&field.name) {
                secrets.written.insert(field.name.clone().into());
            }
        }
        Ok(secrets)
    }
}

/// A secret value that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) path: Path,
    pub(crate) field: String,
    /// It belongs to a result, an input or a payload that is not merged yet.
    pub(crate) is_pending: bool,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_root() {
            write!(f, "`{}`", self.field)
        } else {
            write!(f, "`{}` of the graph at {}", self.field, self.path)
        }
    }
}

impl TaskDone {
    /// The graph whose state its changes are about; `None` if there is none.
    pub(crate) fn meant_for(&self) -> Option<Path> {
        if self.to_parent { self.task.path.outer() } else { Some(self.task.path.clone()) }
    }
}

/// Whether a change is one of a value that is not there.
pub(crate) fn is_lost(schema: &Schema, change: &Change) -> bool {
    schema.is_secret(&change.field) && change.op.is_sealed()
}

impl Scope {
    /// Applies changes, some of them of secret fields, of which some may not be there.
    pub(super) fn apply_secrets(&mut self, changes: &[Change]) -> Result<(), FoldError> {
        for change in changes {
            if self.kind.schema.is_secret(&change.field) {
                self.secrets.written.insert(change.field.clone());
                match &change.op {
                    op if op.is_sealed() => {
                        self.lose(&change.field)?;
                        continue;
                    }
                    Op::Set(_) => _ = self.secrets.missing.remove(&change.field),
                    // Added to what is not there, it makes nothing whole.
                    _ if self.secrets.missing.contains(&change.field) => continue,
                    _ => {}
                }
            }
            self.state.apply(&self.kind.schema, std::slice::from_ref(change))?;
        }
        Ok(())
    }

    /// The value of a field is not there: the state shows no older one in its place.
    fn lose(&mut self, field: &FieldName) -> Result<(), StateError> {
        let (now, before) = (self.state.object().read(field)?, self.kind.empty().object().read(field)?);
        if now != before {
            let mut values = self.state.values(&self.kind.schema)?;
            match before {
                Some(before) => values.insert(field.to_string(), before),
                None => values.remove(&**field),
            };
            self.state = self.kind.decode(values)?;
        }
        self.secrets.missing.insert(field.clone());
        Ok(())
    }

    /// The names of the secret fields whose values are not there, in the state or in what is merged into it next.
    pub(crate) fn missing(&self, with_pending: bool) -> Vec<String> {
        let mut names: BTreeSet<String> = self.secrets.missing.iter().map(ToString::to_string).collect();
        if with_pending {
            let results = self.results();
            let changes = results.iter().filter(|done| !done.to_parent).flat_map(|done| &done.changes);
            let changes = changes.chain(self.facts.input.iter().flatten());
            names.extend(changes.filter(|change| is_lost(&self.kind.schema, change)).map(|change| change.field.to_string()));
        }
        names.into_iter().collect()
    }

    /// Puts a value where the one of that field is not there.
    fn supply(&mut self, field: &str, value: &Value) -> Result<(), StateError> {
        let field: FieldName = field.to_owned().into();
        let mut instead = Instead { field: &field, value, is_used: false };
        self.facts.input.iter_mut().for_each(|changes| instead.of_changes(changes));
        for task in &mut self.facts.tasks {
            task.due.payload.iter_mut().for_each(|payload| instead.of_payload(payload));
            if let TaskStatus::Done(done) = &mut task.status
                && !done.to_parent
            {
                instead.of_result(done);
            }
        }
        if self.secrets.missing.remove(&field) || instead.is_used {
            self.state.apply(&self.kind.schema, &[Change::new(field.clone(), Op::Set(value.clone()))])?;
            self.secrets.written.insert(field.clone());
            // What was added in between is in the value that was handed in.
            self.facts.written.iter_mut().flat_map(|written| &mut written.0).for_each(|(name, done)| {
                if *name == field {
                    *done = None;
                }
            });
        }
        Ok(())
    }
}

/// A value that takes the place of others of its field.
struct Instead<'v> {
    field: &'v FieldName,
    value: &'v Value,
    /// It stands in a change already: it is the whole value, so that once is enough.
    is_used: bool,
}

impl Instead<'_> {
    fn of_changes(&mut self, changes: &mut Vec<Change>) {
        if !changes.iter().any(|change| change.field == *self.field && change.op.is_sealed()) {
            return;
        }
        changes.retain(|change| change.field != *self.field);
        if !std::mem::replace(&mut self.is_used, true) {
            changes.push(Change::new(self.field.clone(), Op::Overwrite(self.value.clone())));
        }
    }

    fn of_result(&mut self, done: &mut Arc<TaskDone>) {
        let TaskDone { changes, goto, .. } = Arc::make_mut(done);
        self.of_changes(changes);
        for target in goto.iter_mut().flatten() {
            if let Target::Send { payload, .. } = target {
                self.of_payload(payload);
            }
        }
    }

    fn of_payload(&self, payload: &mut Arc<Value>) {
        if payload.get(&**self.field).is_some_and(is_sealed) {
            let fields = Arc::make_mut(payload).as_object_mut();
            fields.and_then(|fields| fields.insert(self.field.to_string(), self.value.clone()));
        }
    }
}

impl Folded {
    /// The secret values that are not there.
    pub(crate) fn lacks(&self) -> Vec<Lack> {
        let mut lacks = Vec::new();
        for scope in self.scopes() {
            let lack = |path: &Path, field: &str, is_pending| Lack { path: path.clone(), field: field.to_owned(), is_pending };
            lacks.extend(scope.secrets.missing.iter().map(|field| lack(&scope.path, field, false)));
            for change in scope.facts.input.iter().flatten().filter(|change| is_lost(&scope.kind.schema, change)) {
                lacks.push(lack(&scope.path, &change.field, true));
            }
            for task in &scope.facts.tasks {
                let payload = task.due.payload.iter();
                lacks.extend(payload.flat_map(|sent| gone(&scope.kind.schema, sent)).map(|name| lack(&scope.path, name, true)));
                let Some(done) = task.result() else { continue };
                let Some((path, outer)) = done.meant_for().and_then(|path| Some((path.clone(), self.scope(&path)?))) else {
                    continue;
                };
                let schema = &outer.kind.schema;
                let changes = done.changes.iter().filter(|change| is_lost(schema, change)).map(|change| &*change.field);
                let sends = done.goto.iter().flatten().filter_map(|target| match target {
                    Target::Send { payload, .. } => Some(payload),
                    Target::Node(_) | Target::Past(_) => None,
                });
                let sends = sends.flat_map(|payload| gone(schema, payload));
                lacks.extend(changes.chain(sends).map(|field| lack(&path, field, true)));
            }
        }
        lacks.dedup();
        lacks
    }

    /// Puts values where those of fields of these names are not there, in every graph at work.
    pub(crate) fn supply(&mut self, values: &BTreeMap<String, Value>) -> Result<(), StateError> {
        for scope in std::iter::once(&mut self.root).chain(self.inner.values_mut()) {
            let kind = Arc::clone(&scope.kind);
            for (field, value) in values.iter().filter(|(field, _)| kind.schema.is_secret(field)) {
                scope.supply(field, value)?;
            }
        }
        // A result for the graph outside stands with the graph that gave it.
        for scope in self.inner.values_mut() {
            let outer = scope.path.outer().and_then(|path| self.root.kind.at(&path));
            let Some(schema) = outer.map(|kind| Arc::clone(&kind.schema)) else { continue };
            for task in &mut scope.facts.tasks {
                let TaskStatus::Done(done) = &mut task.status else { continue };
                if !done.to_parent {
                    continue;
                }
                for (field, value) in values.iter().filter(|(field, _)| schema.is_secret(field)) {
                    let field = field.clone().into();
                    Instead { field: &field, value, is_used: false }.of_result(done);
                }
            }
        }
        Ok(())
    }
}

/// The keys of a payload that are called like secret fields, and whose values are not there.
fn gone<'p>(schema: &'p Schema, payload: &'p Value) -> impl Iterator<Item = &'p str> {
    let fields = payload.as_object().into_iter().flatten();
    fields.filter(|(name, value)| schema.is_secret(name) && is_sealed(value)).map(|(name, _)| &**name)
}
