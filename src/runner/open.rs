//! Reads a thread, and checks that it fits the program.

use std::sync::Arc;

use super::error::Error;
use super::thread::Thread;
use crate::id::ThreadName;
use crate::log::{Entry, FoldError, Folded, Record, Snapshot, SnapshotMeter, fold_line};
use crate::state::{Schema, State};
use crate::store::Loaded;

/// A thread as it was read: its fold, where its log ends, and how much stands behind the last snapshot.
pub(super) struct Opened {
    pub(super) folded: Folded,
    pub(super) meter: SnapshotMeter,
}

impl<S: State> Thread<S> {
    pub(super) fn fresh(&self) -> Folded {
        Folded::new(Arc::clone(&self.inner.shape().kind))
    }

    /// Reads the thread: the newest snapshot, and what follows it.
    pub(super) async fn open(&self) -> Result<Opened, Error> {
        let name = self.name()?;
        let Some(store) = &self.inner.store else {
            return Ok(Opened { folded: self.fresh(), meter: SnapshotMeter::default() });
        };
        let Loaded { mut snapshot, snapshot_bytes, mut entries, record_bytes } = store.load(name).await?;
        if self.options.at.is_some() || entries.iter().any(|entry| matches!(entry.record, Record::Forked(_))) {
            // The line leads through what the snapshot leaves out.
            return self.open_line(&self.plain_log().await?, SnapshotMeter::new(record_bytes, snapshot_bytes));
        }
        let stored = snapshot.as_ref().and_then(Snapshot::schema).or_else(|| entries.first().and_then(schema_of));
        self.unseal(stored.as_ref(), snapshot.as_mut(), entries.iter_mut().map(|entry| &mut entry.record))?;
        let folded = self.accept(self.fold(snapshot, &entries), stored.as_ref())?;
        Ok(Opened { folded, meter: SnapshotMeter::new(record_bytes, snapshot_bytes) })
    }

    /// Reads the line that leads to the chosen checkpoint, or to the end of the log.
    fn open_line(&self, entries: &[Entry], meter: SnapshotMeter) -> Result<Opened, Error> {
        let name = self.name()?;
        if let Some(at) = self.options.at {
            let record = usize::try_from(at.0).ok().and_then(|at| entries.get(at)).map(|entry| &entry.record);
            if record.and_then(Record::checkpoint).is_none() {
                return Err(Error::no_checkpoint(name, at));
            }
        }
        let folded =
            self.accept(fold_line(self.fresh(), entries, self.options.at), entries.first().and_then(schema_of).as_ref())?;
        Ok(Opened { folded, meter })
    }

    fn fold(&self, snapshot: Option<Snapshot>, entries: &[Entry]) -> Result<Folded, FoldError> {
        let mut folded = match snapshot {
            Some(snapshot) => snapshot.restore(&self.inner.shape().kind)?,
            None => self.fresh(),
        };
        entries.iter().try_for_each(|entry| folded.fold(&entry.record))?;
        Ok(folded)
    }

    /// Accepts what was read if it fits this program's state and graph.
    fn accept(&self, read: Result<Folded, FoldError>, stored: Option<&Schema>) -> Result<Folded, Error> {
        let (name, schema) = (self.name()?, &self.inner.shape().schema);
        let fits = |folded: &Folded| match stored.filter(|stored| **stored != **schema) {
            // A field that the stored thread never had must have a serde default: no field becomes empty by itself.
            Some(stored) => S::decode(schema, folded.root.state.values(stored)?).map(|_| ()),
            None => Ok(()),
        };
        let folded = read.and_then(|folded| fits(&folded).map(|()| folded).map_err(FoldError::from));
        let mut folded = folded.map_err(|error| match (error, stored) {
            (FoldError::State(source), Some(stored)) => Error::shape(name, stored, schema, source),
            (error, _) => Error::damaged(name, error),
        })?;
        if let Some(opened) = &folded.facts.opened {
            self.check_graph(name, &opened.graph)?;
        }
        self.supply(&mut folded)?;
        Ok(folded)
    }

    fn check_graph(&self, name: &ThreadName, found: &str) -> Result<(), Error> {
        let expected = self.inner.graph.name();
        if found == expected { Ok(()) } else { Err(Error::other_graph(name, found, expected)) }
    }
}

pub(super) fn schema_of(first: &Entry) -> Option<Schema> {
    match &first.record {
        Record::Opened(opened) => Some(opened.schema.clone()),
        _ => None,
    }
}
