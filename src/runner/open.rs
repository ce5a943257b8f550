//! Reads a thread, and checks that it fits the program.

use std::sync::Arc;

use super::error::Error;
use super::thread::Thread;
use crate::id::{Path, Position, ThreadName};
use crate::log::{self, Entry, FoldError, Folded, Record, Seen, Snapshot, SnapshotMeter, UpgradedState, fold_line, history};
use crate::state::{State, StateKind};
use crate::store::Loaded;

/// A thread as it was read: its fold, where its log ends, and how much stands behind the last snapshot.
pub(super) struct Opened {
    pub(super) folded: Folded,
    pub(super) meter: SnapshotMeter,
    /// The states whose shape was another one when they were stored.
    pub(super) upgraded: Vec<UpgradedState>,
}

/// What the states are folded as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum As {
    /// The program's types, if all that is read was recorded in their shapes.
    Types,
    /// Values, as they were recorded.
    Recorded,
}

/// A fold that may have failed, and how much was read for it.
type Read = (Result<Folded, FoldError>, SnapshotMeter);

impl<S: State> Thread<S> {
    pub(super) fn fresh(&self) -> Folded {
        Folded::new(Arc::clone(self.kind()))
    }

    /// Reads the thread as it stands, or as it stood at the chosen checkpoint: the newest snapshot, and what follows it. What was stored in another
    /// shape is upgraded, in memory only. `drops`: what is not merged yet will be dropped.
    pub(super) async fn open(&self, drops: bool) -> Result<Opened, Error> {
        if let Some((Ok(folded), meter)) = self.read_as(As::Types).await? {
            self.check_graph(&folded)?;
            return Ok(Opened { folded, meter, upgraded: Vec::new() });
        }
        let (folded, meter) = self.open_recorded().await?;
        let (folded, upgraded) =
            folded.fit(self.kind(), drops || !self.is_live()).map_err(|misshapen| self.misshapen(&misshapen, self.options.at))?;
        Ok(Opened { folded, meter, upgraded })
    }

    /// As [`open`](Self::open), for those who do not look at the states: what they have become does not matter.
    pub(super) async fn open_stateless(&self) -> Result<Folded, Error> {
        if let Some((Ok(folded), _)) = self.read_as(As::Types).await? {
            self.check_graph(&folded)?;
            return Ok(folded);
        }
        Ok(self.open_recorded().await?.0)
    }

    /// Reads the thread as it was recorded, whatever the program knows of its states.
    async fn open_recorded(&self) -> Result<(Folded, SnapshotMeter), Error> {
        let name = self.name()?;
        let (folded, meter) = self.read_as(As::Recorded).await?.unwrap_or_else(|| (Ok(self.fresh()), SnapshotMeter::default()));
        let folded = folded.map_err(|error| Error::damaged(name, error))?;
        self.check_graph(&folded)?;
        Ok((folded, meter))
    }

    /// `None` if it was not recorded in the shapes of the types that it is to be folded as.
    async fn read_as(&self, what: As) -> Result<Option<Read>, Error> {
        let name = self.name()?;
        let Some(store) = &self.inner.store else { return Ok(Some((Ok(self.fresh()), SnapshotMeter::default()))) };
        let Loaded { snapshot, snapshot_bytes, entries, record_bytes } = store.load(name).await?;
        let meter = SnapshotMeter::new(record_bytes, snapshot_bytes);
        if self.options.at.is_some() || entries.iter().any(|entry| matches!(entry.record, Record::Forked(_))) {
            // The line leads through what the snapshot leaves out.
            let entries = store.read(name, Position(0)).await?;
            self.check_checkpoint(&entries)?;
            let Some(kind) = self.kind_as(what, opened_by(&entries), &entries) else { return Ok(None) };
            return Ok(Some((fold_line(Folded::new(kind), &entries, self.options.at), meter)));
        }
        let opened = snapshot.as_ref().and_then(Snapshot::opened).or_else(|| opened_by(&entries));
        let Some(kind) = self.kind_as(what, opened, &entries) else { return Ok(None) };
        Ok(Some((fold(&kind, snapshot, &entries), meter)))
    }

    /// The kind to fold these records with.
    fn kind_as(&self, what: As, opened: Option<&log::Opened>, entries: &[Entry]) -> Option<Arc<StateKind>> {
        let program = self.kind();
        let Some(opened) = opened else { return Some(Arc::clone(program)) };
        match what {
            As::Recorded => Some(opened.kind(Some(program))),
            As::Types => {
                let changes = entries.iter().any(|entry| matches!(entry.record, Record::Upgraded(_)));
                (!changes && opened.fits(program)).then(|| Arc::clone(program))
            }
        }
    }

    /// All checkpoints of the graph at `path`. States of another shape are upgraded, in memory only.
    pub(super) async fn seen(&self, entries: &[Entry], path: &Path) -> Result<Vec<Seen>, Error> {
        if let Some(kind) = self.kind_as(As::Types, opened_by(entries), entries)
            && let Ok(seen) = history(Folded::new(kind), entries, path)
        {
            return Ok(seen);
        }
        let mut seen = self.seen_recorded(entries, path)?;
        for Seen { position, scope, .. } in &mut seen {
            let Some(kind) = self.kind().at(path) else { continue };
            scope.fit(self.kind(), kind).map_err(|misshapen| self.misshapen(&misshapen, Some(*position)))?;
        }
        Ok(seen)
    }

    /// All checkpoints of the graph at `path`, as they were recorded.
    pub(super) fn seen_recorded(&self, entries: &[Entry], path: &Path) -> Result<Vec<Seen>, Error> {
        let name = self.name()?;
        let Some(kind) = self.kind_as(As::Recorded, opened_by(entries), entries) else { return Ok(Vec::new()) };
        history(Folded::new(kind), entries, path).map_err(|error| Error::damaged(name, error))
    }

    fn check_checkpoint(&self, entries: &[Entry]) -> Result<(), Error> {
        let Some(at) = self.options.at else { return Ok(()) };
        let record = usize::try_from(at.0).ok().and_then(|at| entries.get(at)).map(|entry| &entry.record);
        if record.and_then(Record::checkpoint).is_none() {
            return Err(Error::no_checkpoint(self.name()?, at));
        }
        Ok(())
    }

    fn misshapen(&self, misshapen: &log::Misshapen, at: Option<Position>) -> Error {
        self.name().map_or_else(|error| error, |name: &ThreadName| Error::misshapen(name, misshapen, at))
    }

    fn check_graph(&self, folded: &Folded) -> Result<(), Error> {
        let (name, expected) = (self.name()?, self.inner.graph.name());
        match &folded.facts.opened {
            Some(opened) if opened.graph != expected => Err(Error::other_graph(name, &opened.graph, expected)),
            _ => Ok(()),
        }
    }
}

fn fold(kind: &Arc<StateKind>, snapshot: Option<Snapshot>, entries: &[Entry]) -> Result<Folded, FoldError> {
    let mut folded = match snapshot {
        Some(snapshot) => snapshot.restore(kind)?,
        None => Folded::new(Arc::clone(kind)),
    };
    entries.iter().try_for_each(|entry| folded.fold(&entry.record))?;
    Ok(folded)
}

fn opened_by(entries: &[Entry]) -> Option<&log::Opened> {
    match &entries.first()?.record {
        Record::Opened(opened) => Some(opened),
        _ => None,
    }
}
