//! Reads a thread, and checks that it fits the program.

use std::sync::Arc;

use super::error::Error;
use super::thread::Thread;
use crate::id::ThreadName;
use crate::log::{Entry, FoldError, Folded, Record, Snapshot, SnapshotMeter, fold_line};
use crate::state::{Schema, State};
use crate::store::{Loaded, Reach};

/// A thread as it was read: its fold, where its log ends, and how much stands behind the last snapshot.
pub(super) struct Opened {
    pub(super) folded: Folded,
    pub(super) meter: SnapshotMeter,
}

impl<S: State> Thread<S> {
    pub(super) fn fresh(&self) -> Folded {
        Folded::new(Arc::clone(&self.inner.shape().kind))
    }

    /// Reads the thread: the newest snapshot of the line that is asked for, and what follows it.
    pub(super) async fn open(&self) -> Result<Opened, Error> {
        let name = self.name()?;
        let Some(store) = &self.inner.store else {
            return Ok(Opened { folded: self.fresh(), meter: SnapshotMeter::default() });
        };
        let loaded = store.load(name, self.options.at.map_or(Reach::Newest, Reach::Before)).await?;
        if let Some(opened) = self.open_line(loaded)? {
            return Ok(opened);
        }
        // The line leads through what the snapshot leaves out.
        self.open_whole(store.load(name, Reach::Whole).await?)
    }

    /// Reads a thread of which all records are there.
    pub(super) fn open_whole(&self, loaded: Loaded) -> Result<Opened, Error> {
        self.open_line(loaded)?.map_or_else(|| Err(Error::forked_from_nowhere(self.name()?)), Ok)
    }

    /// Reads the line that leads to the chosen checkpoint, or to the end of the log; nothing if it leads through records that were not loaded.
    fn open_line(&self, loaded: Loaded) -> Result<Option<Opened>, Error> {
        let Loaded { snapshot, snapshot_bytes, entries, record_bytes } = loaded;
        if let Some(at) = self.options.at {
            let chosen = entries.iter().find(|entry| entry.position == at).and_then(|entry| entry.record.checkpoint());
            if chosen.is_none() {
                return Err(Error::no_checkpoint(self.name()?, at));
            }
        }
        let stored = snapshot.as_ref().and_then(Snapshot::schema).or_else(|| entries.first().and_then(schema_of));
        let base = self.base(snapshot);
        let line = base.and_then(|base| fold_line(base, &entries, self.options.at)).transpose();
        let Some(line) = line else { return Ok(None) };
        let meter = SnapshotMeter::new(record_bytes, snapshot_bytes);
        Ok(Some(Opened { folded: self.accept(line, stored.as_ref())?, meter }))
    }

    /// What stands before the records that were loaded.
    pub(super) fn base(&self, snapshot: Option<Snapshot>) -> Result<Folded, FoldError> {
        snapshot.map_or_else(|| Ok(self.fresh()), |snapshot| snapshot.restore(&self.inner.shape().kind))
    }

    /// All records that are kept, and what stands before them.
    pub(super) async fn whole(&self) -> Result<(Folded, Vec<Entry>), Error> {
        let (name, store) = (self.name()?, self.store("read the history")?);
        let loaded = store.load(name, Reach::Whole).await?;
        let base = self.base(loaded.snapshot).map_err(|error| Error::damaged(name, error))?;
        Ok((base, loaded.entries))
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
        let folded = folded.map_err(|error| match (error, stored) {
            (FoldError::State(source), Some(stored)) => Error::shape(name, stored, schema, source),
            (error, _) => Error::damaged(name, error),
        })?;
        if let Some(opened) = &folded.facts.opened {
            self.check_graph(name, &opened.graph)?;
        }
        Ok(folded)
    }

    fn check_graph(&self, name: &ThreadName, found: &str) -> Result<(), Error> {
        let expected = self.inner.graph.name();
        if found == expected { Ok(()) } else { Err(Error::other_graph(name, found, expected)) }
    }
}

fn schema_of(first: &Entry) -> Option<Schema> {
    match &first.record {
        Record::Opened(opened) => Some(opened.schema.clone()),
        _ => None,
    }
}
