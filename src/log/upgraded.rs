//! Threads whose states have another shape than the program's: what is recorded of shapes, and how one becomes the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fold::{FoldError, Folded};
use super::lacks::SecretFields;
use super::record::{Opened, TaskDone};
use super::scope::Scope;
use crate::clock::Timestamp;
use crate::id::Path;
use crate::state::{Change, Fitted, Schema, StateKind, Unfit};

/// The shape of the states of graphs inside a thread's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InnerSchema {
    /// The graphs, each by the keys that lead to it, outermost first.
    pub graphs: Vec<Vec<Arc<str>>>,
    /// The state's fields, merge rules and JSON Schema, and what the fields hold before anything is written.
    pub schema: Schema,
    /// The schema's fingerprint.
    pub fingerprint: String,
}

/// See [`Record::Upgraded`](super::Record::Upgraded).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Upgraded {
    /// From here on, the state's fields, merge rules and JSON Schema, and what the fields hold before anything is written.
    pub schema: Schema,
    /// The schema's fingerprint.
    pub fingerprint: String,
    /// From here on, those of the graphs inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<InnerSchema>,
    /// The states of the graphs at work whose shape is another one than before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<UpgradedState>,
    /// When.
    pub at: Timestamp,
}

/// The state of one graph after its upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpgradedState {
    /// Where the graph runs.
    #[serde(default, skip_serializing_if = "Path::is_root")]
    pub path: Path,
    /// All of its fields that are not absent.
    pub values: Map<String, Value>,
}

/// Why a graph of a thread does not fit the program.
#[derive(Debug)]
pub(crate) struct Misshapen {
    pub(crate) path: Path,
    pub(crate) stored: Box<Schema>,
    pub(crate) known: Arc<Schema>,
    pub(crate) why: Why,
}

#[derive(Debug)]
pub(crate) enum Why {
    Unfit(Unfit),
    /// Something that is not merged yet was written in the old shape: by whom, and the field.
    Pending {
        by: String,
        field: String,
    },
}

/// The kinds of all graphs inside, each with the keys that lead to it.
fn inner_kinds(kind: &Arc<StateKind>) -> Vec<(Vec<Arc<str>>, &Arc<StateKind>)> {
    let mut found = Vec::new();
    let mut open = vec![(Vec::new(), kind)];
    while let Some((keys, kind)) = open.pop() {
        for (key, inner) in kind.inners() {
            let keys: Vec<Arc<str>> = keys.iter().chain([key]).cloned().collect();
            found.push((keys.clone(), inner));
            open.push((keys, inner));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// The shapes of the graphs inside, as they are recorded: those that are the same are told once.
pub(crate) fn inner_schemas(kind: &Arc<StateKind>) -> Vec<InnerSchema> {
    let mut told: Vec<InnerSchema> = Vec::new();
    for (keys, kind) in inner_kinds(kind) {
        match told.iter_mut().find(|inner| inner.fingerprint == kind.fingerprint()) {
            Some(inner) => inner.graphs.push(keys),
            None => told.push(InnerSchema {
                graphs: vec![keys],
                schema: kind.told().clone(),
                fingerprint: kind.fingerprint().to_owned(),
            }),
        }
    }
    told
}

impl Opened {
    /// Whether the program's states are of the shapes that were recorded.
    pub(crate) fn tells(&self, kind: &Arc<StateKind>) -> bool {
        self.fingerprint.as_deref() == Some(kind.fingerprint())
            && inner_kinds(kind)
                .iter()
                .all(|(keys, kind)| self.inner_at(keys).is_some_and(|inner| inner.fingerprint == kind.fingerprint()))
    }

    /// Whether what was recorded in these shapes can be folded as states of the program.
    pub(crate) fn fits(&self, kind: &Arc<StateKind>) -> bool {
        let inner = |keys: &[Arc<str>]| keys.iter().try_fold(Arc::clone(kind), |kind, key| kind.inner(key));
        let told = self.inner.iter().flat_map(|told| told.graphs.iter().map(move |keys| (keys, &told.fingerprint)));
        self.fingerprint.as_deref() == Some(kind.fingerprint())
            && told.into_iter().all(|(keys, fingerprint)| inner(keys).is_none_or(|kind| kind.fingerprint() == fingerprint))
    }

    fn inner_at(&self, keys: &[Arc<str>]) -> Option<&InnerSchema> {
        self.inner.iter().find(|inner| inner.graphs.iter().any(|graph| graph == keys))
    }

    /// The kind of the thread as it was recorded. What an older log does not tell is taken from the program.
    pub(crate) fn kind(&self, program: Option<&Arc<StateKind>>) -> Arc<StateKind> {
        let told = self.schema.clone();
        let schema = match program.filter(|_| self.fingerprint.is_none()) {
            Some(program) => told.filled(&program.values(&program.empty()).unwrap_or_default()),
            None => told,
        };
        let inner = self.kinds_in(&[], program);
        Arc::new(StateKind::recorded(schema, inner))
    }

    fn kinds_in(&self, place: &[Arc<str>], program: Option<&Arc<StateKind>>) -> BTreeMap<Arc<str>, Arc<StateKind>> {
        let deeper = |keys: &Vec<Arc<str>>| keys.starts_with(place).then(|| keys.get(place.len()).cloned()).flatten();
        let recorded = self.inner.iter().flat_map(|inner| &inner.graphs).filter_map(deeper);
        let known = program.into_iter().flat_map(|kind| kind.inners()).map(|(key, _)| Arc::clone(key));
        let kind = |key: Arc<str>| {
            let keys: Vec<Arc<str>> = place.iter().chain([&key]).cloned().collect();
            let program = program.and_then(|kind| kind.inner(&key));
            let told = self.inner_at(&keys).map(|inner| inner.schema.clone());
            let schema = told.or_else(|| Some(program.as_ref()?.told().clone())).unwrap_or_else(Schema::unknown);
            (key, Arc::new(StateKind::recorded(schema, self.kinds_in(&keys, program.as_ref()))))
        };
        recorded.chain(known).map(kind).collect()
    }
}

impl Folded {
    /// From here on the thread has the states and shapes of another version of the program.
    pub(super) fn upgrade(&mut self, upgraded: &Upgraded) -> Result<(), FoldError> {
        let misplaced = FoldError::Misplaced { position: self.facts.next, what: "upgraded" };
        let Some(opened) = &mut self.facts.opened else { return Err(misplaced) };
        opened.schema = upgraded.schema.clone();
        opened.fingerprint = Some(upgraded.fingerprint.clone());
        opened.inner.clone_from(&upgraded.inner);
        if self.root.kind.is_recorded() {
            let kind = opened.kind(None);
            for scope in std::iter::once(&mut self.root).chain(self.inner.values_mut()) {
                scope.kind = kind.at(&scope.path).unwrap_or_else(|| Arc::clone(&kind));
            }
        }
        // What graphs were called with was said in the shapes of then.
        self.inner.values_mut().for_each(|scope| scope.facts.arguments = None);
        for UpgradedState { path, values } in &upgraded.states {
            let Some(scope) = self.scope_mut(path) else { return Err(misplaced) };
            let mut values = values.clone();
            scope.secrets = SecretFields::of_stored(&scope.kind, &mut values, &[])?;
            (scope.state, scope.bytes) = (scope.kind.decode(values)?, None);
        }
        Ok(())
    }

    /// Makes the states of a thread that was folded as it was recorded those of the program. Gives the states of which the shape is another one.
    /// `drops`: what is not merged yet is dropped, so that its shape does not matter.
    pub(crate) fn fit(mut self, program: &Arc<StateKind>, drops: bool) -> Result<(Self, Vec<UpgradedState>), Misshapen> {
        let mut states = Vec::new();
        let mut misfits: BTreeMap<Path, Vec<String>> = BTreeMap::new();
        for scope in std::iter::once(&mut self.root).chain(self.inner.values_mut()) {
            // A graph that the program does not have any more stays as it was recorded; going on in it is refused.
            let Some(kind) = program.at(&scope.path) else { continue };
            let (stored, misfit) = scope.fit(program, kind)?;
            if let Some(fields) = misfit {
                let values = scope
                    .kind
                    .values(&scope.state)
                    .map_err(|error| scope.misshapen(&stored.schema, Why::Unfit(Unfit::Whole(error.to_string()))))?;
                states.push(UpgradedState { path: scope.path.clone(), values });
                misfits.insert(scope.path.clone(), fields);
            }
            if !drops {
                scope.check_pending(&stored.schema, &misfits)?;
            }
        }
        Ok((self, states))
    }

    /// What is recorded when a program of these shapes goes on with the thread.
    pub(crate) fn upgraded(&self, program: &Arc<StateKind>, states: Vec<UpgradedState>, at: Timestamp) -> Upgraded {
        let mut inner = inner_schemas(program);
        // What the program does not know any more is not forgotten while there is a state of it.
        let keys = |scope: &Scope| scope.path.frames().iter().map(|frame| Arc::from(frame.key())).collect::<Vec<Arc<str>>>();
        for gone in self.inner.values().filter(|scope| scope.kind.is_recorded()) {
            let (graphs, kind) = (vec![keys(gone)], &gone.kind);
            let fingerprint = kind.fingerprint().to_owned();
            inner.push(InnerSchema { graphs, schema: (*kind.schema).clone(), fingerprint });
        }
        Upgraded { schema: program.told().clone(), fingerprint: program.fingerprint().to_owned(), inner, states, at }
    }
}

impl Scope {
    /// Makes its state, which is as it was recorded, one of the program. Gives the kind it had, and the fields of another shape, or with another value
    /// after the upgrade, if the shape is another one.
    pub(crate) fn fit(
        &mut self,
        program: &Arc<StateKind>,
        kind: Arc<StateKind>,
    ) -> Result<(Arc<StateKind>, Option<Vec<String>>), Misshapen> {
        let stored = std::mem::replace(&mut self.kind, kind);
        let misshapen = |scope: &Self, unfit| scope.misshapen(&stored.schema, Why::Unfit(unfit));
        let values = stored.values(&self.state).map_err(|error| misshapen(self, Unfit::Whole(error.to_string())))?;
        let upgrades = program.upgrades_at(&self.path);
        let fitted = self.kind.fit(&stored.schema, values, &upgrades).map_err(|unfit| misshapen(self, unfit))?;
        let Fitted { state, mut changed } = fitted;
        self.state = state;
        // One that was no secret before has a value of the thread's own.
        let secret = self.kind.schema.fields().iter().filter(|field| field.secret && !stored.schema.is_secret(&field.name));
        self.secrets.written.extend(secret.map(|field| field.name.clone().into()));
        if stored.fingerprint() == self.kind.fingerprint() {
            return Ok((stored, None));
        }
        for field in stored.schema.fields().iter().chain(self.kind.schema.fields()) {
            if stored.schema.field_fingerprint(&field.name) != self.kind.schema.field_fingerprint(&field.name) {
                changed.push(field.name.clone());
            }
        }
        Ok((stored, Some(changed)))
    }

    fn misshapen(&self, stored: &Schema, why: Why) -> Misshapen {
        Misshapen { path: self.path.clone(), stored: Box::new(stored.clone()), known: Arc::clone(&self.kind.schema), why }
    }

    /// What is not merged yet was written in the shape that the states had: it must not touch what has another shape now, here or in the graph outside.
    fn check_pending(&self, stored: &Schema, misfits: &BTreeMap<Path, Vec<String>>) -> Result<(), Misshapen> {
        let here = misfits.get(&self.path);
        let outside = self.path.outer().and_then(|outer| misfits.get(&outer));
        let check = |shape: Option<&Vec<String>>, written: &[&str], by: String| {
            let touched = written.iter().find(|name| shape.is_some_and(|fields| fields.iter().any(|field| field == *name)));
            let pending = |field: &&str| Err(self.misshapen(stored, Why::Pending { by, field: (*field).to_owned() }));
            touched.map_or(Ok(()), pending)
        };
        if let Some(input) = &self.facts.input {
            check(here, &fields_of(input), "the input".to_owned())?;
        }
        for done in self.results() {
            let TaskDone { task, changes, to_parent, .. } = &*done;
            check(if *to_parent { outside } else { here }, &fields_of(changes), format!("the result of {task}"))?;
        }
        if let Some(written) = &self.facts.written {
            check(here, &written.fields().collect::<Vec<_>>(), format!("the graph at {}", self.path))?;
        }
        Ok(())
    }
}

fn fields_of(changes: &[Change]) -> Vec<&str> {
    changes.iter().map(|change| &*change.field).collect()
}
