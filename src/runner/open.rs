//! Reads a thread, and checks that it fits the program.

use std::sync::Arc;

use super::error::Error;
use super::thread::Thread;
use crate::id::{Path, Position, ThreadName};
use crate::log::{self, Entry, FoldError, Folded, Record, Seen, Snapshot, SnapshotMeter, UpgradedState, fold_line, history};
use crate::state::{State, StateKind};
use crate::store::{Loaded, Reach};

/// A thread as it was read: its fold, where its log ends, and how much stands behind the last snapshot.
pub(super) struct Opened {
    pub(super) folded: Folded,
    pub(super) meter: SnapshotMeter,
    /// The newest snapshot of the log, if the line goes on from there, with the checkpoints behind it.
    pub(super) newest: Option<(Position, u64)>,
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

/// A fold that may have failed, and what was read for it.
struct Read {
    folded: Result<Folded, FoldError>,
    meter: SnapshotMeter,
    newest: Option<(Position, u64)>,
}

impl Read {
    /// Nothing was read.
    fn nothing(fresh: Folded) -> Self {
        Self { folded: Ok(fresh), meter: SnapshotMeter::default(), newest: None }
    }
}

/// What came of reading a line of history.
enum Line {
    Read(Box<Read>),
    /// It was not recorded in the shapes of the types that it is to be folded as.
    Misfit,
    /// It leads through records that were not loaded.
    Elsewhere,
}

impl<S: State> Thread<S> {
    pub(super) fn fresh(&self) -> Folded {
        Folded::new(Arc::clone(self.kind()))
    }

    /// Reads the thread as it stands, or as it stood at the chosen checkpoint: the newest snapshot, and what follows it. What was stored in another
    /// shape is upgraded, in memory only. `drops`: what is not merged yet will be dropped.
    pub(super) async fn open(&self, drops: bool) -> Result<Opened, Error> {
        if let Some(Read { folded: Ok(folded), meter, newest }) = self.read_as(As::Types).await? {
            self.check_graph(&folded)?;
            let folded = self.supplied(folded)?;
            return Ok(Opened { folded, meter, newest, upgraded: Vec::new() });
        }
        let (folded, meter, newest) = self.open_recorded().await?;
        let (folded, upgraded) =
            folded.fit(self.kind(), drops || !self.is_live()).map_err(|misshapen| self.misshapen(&misshapen, self.options.at))?;
        Ok(Opened { folded: self.supplied(folded)?, meter, newest, upgraded })
    }

    /// As [`open`](Self::open), for those who do not look at the states: what they have become does not matter.
    pub(super) async fn open_stateless(&self) -> Result<Folded, Error> {
        if let Some(Read { folded: Ok(folded), .. }) = self.read_as(As::Types).await? {
            self.check_graph(&folded)?;
            return Ok(folded);
        }
        Ok(self.open_recorded().await?.0)
    }

    /// Reads the thread as it was recorded, whatever the program knows of its states.
    async fn open_recorded(&self) -> Result<(Folded, SnapshotMeter, Option<(Position, u64)>), Error> {
        let name = self.name()?;
        let read = self.read_as(As::Recorded).await?.unwrap_or_else(|| Read::nothing(self.fresh()));
        let Read { folded, meter, newest } = read;
        let folded = folded.map_err(|error| Error::damaged(name, error))?;
        self.check_graph(&folded)?;
        Ok((folded, meter, newest))
    }

    /// `None` if it was not recorded in the shapes of the types that it is to be folded as.
    async fn read_as(&self, what: As) -> Result<Option<Read>, Error> {
        let name = self.name()?;
        let Some(store) = &self.inner.store else { return Ok(Some(Read::nothing(self.fresh()))) };
        let loaded = store.load(name, self.options.at.map_or(Reach::Newest, Reach::Before)).await?;
        match self.line_as(what, loaded)? {
            Line::Read(read) => Ok(Some(*read)),
            Line::Misfit => Ok(None),
            Line::Elsewhere => match self.line_as(what, store.load(name, Reach::Whole).await?)? {
                Line::Read(read) => Ok(Some(*read)),
                Line::Misfit => Ok(None),
                Line::Elsewhere => Err(Error::forked_from_nowhere(name)),
            },
        }
    }

    fn line_as(&self, what: As, loaded: Loaded) -> Result<Line, Error> {
        let Loaded { snapshot, snapshot_bytes, entries, record_bytes } = self.plain(loaded)?;
        if let Some(at) = self.options.at {
            let chosen = entries.iter().find(|entry| entry.position == at).and_then(|entry| entry.record.checkpoint());
            if chosen.is_none() {
                return Err(Error::no_checkpoint(self.name()?, at));
            }
        }
        let Some(kind) = self.kind_as(what, opened_by(snapshot.as_ref(), &entries), &entries) else { return Ok(Line::Misfit) };
        let meter = SnapshotMeter::new(record_bytes, snapshot_bytes);
        let newest = snapshot.as_ref().filter(|_| self.is_live()).and_then(|snapshot| newest(snapshot, &entries));
        let line = base(&kind, snapshot).and_then(|base| fold_line(base, &entries, self.options.at));
        Ok(line.transpose().map_or(Line::Elsewhere, |folded| Line::Read(Box::new(Read { folded, meter, newest }))))
    }

    /// All records that are kept, and what stands before them.
    pub(super) async fn whole(&self) -> Result<Loaded, Error> {
        self.plain(self.store("read the history")?.load(self.name()?, Reach::Whole).await?)
    }

    /// What stands before the records of a thread, as it was recorded, and these records.
    pub(super) fn recorded(&self, loaded: Loaded) -> Result<(Folded, Vec<Entry>), Error> {
        let Loaded { snapshot, entries, .. } = loaded;
        let opened = opened_by(snapshot.as_ref(), &entries);
        let kind = opened.map_or_else(|| Arc::clone(self.kind()), |opened| opened.kind(Some(self.kind())));
        let base = base(&kind, snapshot).map_err(|error| self.damaged(error))?;
        Ok((base, entries))
    }

    /// The fold of a log that ends with these entries.
    pub(super) fn at_end(&self, base: Folded, entries: &[Entry]) -> Result<Folded, Error> {
        let line = fold_line(base, entries, None).map_err(|error| self.damaged(error))?;
        let folded = line.map_or_else(|| Err(Error::forked_from_nowhere(self.name()?)), Ok)?;
        self.check_graph(&folded)?;
        Ok(folded)
    }

    fn damaged(&self, error: FoldError) -> Error {
        self.name().map_or_else(|other| other, |name| Error::damaged(name, error))
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
    pub(super) fn seen(&self, whole: Loaded, path: &Path) -> Result<Vec<Seen>, Error> {
        let Loaded { snapshot, entries, .. } = &whole;
        if let Some(kind) = self.kind_as(As::Types, opened_by(snapshot.as_ref(), entries), entries)
            && let Ok(seen) = base(&kind, snapshot.clone()).and_then(|base| history(base, entries, path))
        {
            return Ok(seen);
        }
        let mut seen = self.seen_recorded(whole, path)?;
        for Seen { position, scope, .. } in &mut seen {
            let Some(kind) = self.kind().at(path) else { continue };
            scope.fit(self.kind(), kind).map_err(|misshapen| self.misshapen(&misshapen, Some(*position)))?;
        }
        Ok(seen)
    }

    /// All checkpoints of the graph at `path`, as they were recorded.
    pub(super) fn seen_recorded(&self, whole: Loaded, path: &Path) -> Result<Vec<Seen>, Error> {
        let (base, entries) = self.recorded(whole)?;
        history(base, &entries, path).map_err(|error| self.damaged(error))
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

/// What stands before the records that were loaded.
fn base(kind: &Arc<StateKind>, snapshot: Option<Snapshot>) -> Result<Folded, FoldError> {
    snapshot.map_or_else(|| Ok(Folded::new(Arc::clone(kind))), |snapshot| snapshot.restore(kind))
}

/// A snapshot before which all may go once there are enough checkpoints behind it: no fork there needs what stands before it.
fn newest(snapshot: &Snapshot, entries: &[Entry]) -> Option<(Position, u64)> {
    let is_checkpoint = |entry: &&Entry| entry.record.checkpoint().is_some_and(Path::is_root);
    let forks = entries.iter().any(|entry| matches!(entry.record, Record::Forked(_)));
    (!forks).then(|| (snapshot.position(), entries.iter().filter(is_checkpoint).count() as u64))
}

pub(super) fn opened_by<'o>(snapshot: Option<&'o Snapshot>, entries: &'o [Entry]) -> Option<&'o log::Opened> {
    let first = || match &entries.first()?.record {
        Record::Opened(opened) => Some(&**opened),
        _ => None,
    };
    snapshot.and_then(Snapshot::opened).or_else(first)
}
