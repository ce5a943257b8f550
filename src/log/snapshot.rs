//! Snapshots: everything the fold yields, so that opening a thread does not read its whole history.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fold::{Facts, Folded};
use crate::id::Position;
use crate::state::{Schema, State, StateCell, StateError};

/// Bytes that are appended before the first snapshot is worth its room.
const FLOOR_BYTES: u64 = 16 * 1024;

/// The fold of a thread's records up to a position. What it holds is the engine's own business.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    state: Map<String, Value>,
    facts: Facts,
}

impl Snapshot {
    pub(crate) fn of(folded: &Folded) -> Result<Self, StateError> {
        Ok(Self { state: folded.state.values(&folded.schema)?, facts: folded.facts.clone() })
    }

    /// Position of the first record that it does not contain.
    pub fn position(&self) -> Position {
        self.facts.next
    }

    /// The schema that the thread began with.
    pub(crate) fn schema(&self) -> Option<Schema> {
        self.facts.opened.as_ref().map(|opened| opened.schema.clone())
    }

    pub(crate) fn restore<S: State>(self, schema: Arc<Schema>) -> Result<Folded, StateError> {
        let state = StateCell::new(S::decode(&schema, self.state)?);
        Ok(Folded { schema, state, facts: self.facts, applied: None })
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
