//! Snapshots: everything the fold yields, so that opening a thread does not read its whole history.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fold::{Facts, FoldError, Folded};
use super::lacks::SecretFields;
use super::record::Opened;
use super::scope::{Scope, ScopeFacts};
use crate::id::{Path, Position};
use crate::state::{StateError, StateKind};

/// Bytes that are appended before the first snapshot is worth its room.
const FLOOR_BYTES: u64 = 16 * 1024;

/// The fold of a thread's records up to a position. What it holds is the engine's own business.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub(super) facts: Facts,
    pub(super) graph: ScopeSnapshot,
    /// The graphs inside that are at work, or that keep their state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) inner: Vec<(Path, ScopeSnapshot)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ScopeSnapshot {
    pub(super) state: Map<String, Value>,
    /// Secret fields that were never written: what they hold is no secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unwritten: Vec<String>,
    pub(super) facts: ScopeFacts,
}

impl ScopeSnapshot {
    fn of(scope: &Scope) -> Result<Self, StateError> {
        let schema = &scope.kind.schema;
        let unwritten = schema.fields().iter().filter(|field| field.secret && !scope.secrets.written.contains(&*field.name));
        let unwritten: Vec<String> = unwritten.map(|field| field.name.clone()).collect();
        let mut state = scope.kind.values(&scope.state)?;
        // The program knows what they hold; it is no business of the store's.
        state.retain(|field, _| !unwritten.contains(field));
        Ok(Self { state, unwritten, facts: scope.facts.clone() })
    }

    fn restore(self, path: Path, kind: &Arc<StateKind>) -> Result<Scope, StateError> {
        let mut state = self.state;
        let secrets = SecretFields::of_stored(kind, &mut state, &self.unwritten)?;
        let (kind, state) = (Arc::clone(kind), kind.decode(state)?);
        Ok(Scope { path, kind, state, facts: self.facts, applied: None, counted: BTreeMap::new(), secrets, bytes: None })
    }
}

impl Snapshot {
    /// Everything that the records before `next` yield.
    pub(crate) fn of(folded: &Folded, next: Position) -> Result<Self, StateError> {
        let inner = folded.inner.iter();
        Ok(Self {
            facts: Facts { next, ..folded.facts.clone() },
            graph: ScopeSnapshot::of(&folded.root)?,
            inner: inner.map(|(path, scope)| Ok((path.clone(), ScopeSnapshot::of(scope)?))).collect::<Result<_, StateError>>()?,
        })
    }

    /// One for tests of stores: a state, and a place.
    #[cfg(feature = "testing")]
    pub(crate) fn sample(next: Position, state: Map<String, Value>) -> Self {
        let (facts, graph) =
            (Facts { next, ..Facts::default() }, ScopeSnapshot { state, unwritten: Vec::new(), facts: ScopeFacts::default() });
        Self { facts, graph, inner: Vec::new() }
    }

    /// Without what another one of the same place does not know, since an older program wrote it or one before it.
    pub(crate) fn told_to(mut self, other: &Self) -> Self {
        let theirs = |path: &Path| other.inner.iter().find(|(inner, _)| inner == path).map(|(_, scope)| scope);
        let ours = self.inner.iter_mut().map(|(path, scope)| (theirs(path), scope));
        for (known, scope) in ours.chain([(Some(&other.graph), &mut self.graph)]) {
            if known.is_some_and(|known| known.facts.rounds.is_none()) {
                scope.facts.rounds = None;
            }
        }
        if other.facts.deaths == 0 {
            self.facts.deaths = 0;
        }
        self
    }

    /// Position of the first record that it does not contain.
    pub fn position(&self) -> Position {
        self.facts.next
    }

    /// The first record, with the shapes that the thread has now.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        self.facts.opened.as_ref()
    }

    pub(crate) fn opened_mut(&mut self) -> Option<&mut Opened> {
        self.facts.opened.as_mut()
    }

    pub(crate) fn restore(self, kind: &Arc<StateKind>) -> Result<Folded, FoldError> {
        let root = self.graph.restore(Path::ROOT, kind)?;
        let mut inner = BTreeMap::new();
        for (path, scope) in self.inner {
            let misplaced = FoldError::Misplaced { position: self.facts.next, what: "a graph in the snapshot" };
            let kind = kind.at(&path).ok_or(misplaced)?;
            inner.insert(path.clone(), scope.restore(path, &kind)?);
        }
        Ok(Folded { facts: self.facts, root, inner })
    }
}

/// Says when the next snapshot is due: when the bytes since the last one exceed its size and a floor, so that what
/// snapshots take is at most as much again as the records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SnapshotMeter {
    since: u64,
    last: u64,
}

impl SnapshotMeter {
    /// `since` bytes of records stand behind a snapshot of `last` bytes.
    pub(crate) fn new(since: u64, last: u64) -> Self {
        Self { since, last }
    }

    pub(crate) fn is_due(self) -> bool {
        self.since > self.last.max(FLOOR_BYTES)
    }

    pub(crate) fn appended(&mut self, records: u64, snapshot: Option<u64>) {
        match snapshot {
            Some(bytes) => *self = Self { since: 0, last: bytes },
            None => self.since += records,
        }
    }
}
