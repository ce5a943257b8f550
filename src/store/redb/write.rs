//! What is written: appends, whole threads, and what is to be forgotten.

use redb::{Database, ReadableTable, Table, WriteTransaction};

use super::file::{File, Io};
use super::layout::{BY_STATUS, HEAD, Head, LOG, REFERENCES, SNAPSHOTS};
use super::{alarms, questions, read};
use crate::clock::Timestamp;
use crate::id::{Position, ThreadName};
use crate::log::large::{Artifact, Shelf};
use crate::log::{Entry, Record, codec};
use crate::store::{Alarm, Append, Appended, OpenQuestion, Prune, Pruned, Restore, StoreError, ThreadStatus};

type Log<'t> = Table<'t, (&'static str, u64), &'static [u8]>;

/// An append as bytes.
pub(super) struct Prepared {
    thread: ThreadName,
    expected: Position,
    records: u64,
    unit: Vec<u8>,
    snapshot: Option<(Position, Vec<u8>)>,
    /// What the records refer to, and what the snapshot does: each goes when they go.
    artifacts: [Vec<Artifact>; 2],
    /// What it takes, with the artifacts.
    appended: Appended,
    status: ThreadStatus,
    questions: Option<Vec<OpenQuestion>>,
    alarms: Option<Vec<Alarm>>,
    at: Timestamp,
}

impl Prepared {
    pub(super) fn new(append: &Append, mut shelf: Shelf) -> Result<Self, StoreError> {
        let Append { thread, expected, records, snapshot, status, questions, alarms, at } = append;
        let unit = codec::encode(thread, *expected, *at, records, &mut shelf)?;
        let (record_bytes, of_records) = (unit.len() as u64 + shelf.bytes(), std::mem::take(&mut shelf.taken));
        let snapshot = match snapshot {
            Some(snapshot) => Some((snapshot.position(), codec::encode_snapshot(thread, snapshot, &mut shelf)?)),
            None => None,
        };
        let snapshot_bytes = snapshot.as_ref().map(|(_, bytes)| bytes.len() as u64 + shelf.bytes());
        Ok(Self {
            appended: Appended { record_bytes, snapshot_bytes },
            thread: thread.clone(),
            expected: *expected,
            records: records.len() as u64,
            unit,
            snapshot,
            artifacts: [of_records, shelf.taken],
            status: *status,
            questions: questions.clone(),
            alarms: alarms.clone(),
            at: *at,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        let Appended { record_bytes, snapshot_bytes } = self.appended;
        usize::try_from(record_bytes + snapshot_bytes.unwrap_or(0)).unwrap_or(usize::MAX)
    }

    pub(super) fn has_artifacts(&self) -> bool {
        self.artifacts.iter().any(|artifacts| !artifacts.is_empty())
    }
}

/// A transaction. In a large file each commit also keeps what spares the next opening a look at the whole file.
fn begin(file: &File, database: &Database) -> Result<WriteTransaction, StoreError> {
    let mut transaction = database.begin_write().map_err(|e| file.error("written", e))?;
    if file.is_large() {
        transaction.set_quick_repair(true);
    }
    Ok(transaction)
}

fn commit(file: &File, transaction: WriteTransaction) -> Result<(), StoreError> {
    transaction.commit().map_err(|e| file.error("written", e))
}

/// Appends all of these in one transaction, each at its own thread's position.
pub(super) fn append_all(
    file: &File,
    database: &Database,
    appends: &mut dyn Iterator<Item = &Prepared>,
) -> Result<Vec<Result<Appended, StoreError>>, StoreError> {
    let written = |e: Io| file.error("written", e);
    let transaction = begin(file, database)?;
    let mut results = Vec::new();
    {
        let mut log = transaction.open_table(LOG).map_err(|e| written(e.into()))?;
        for append in appends {
            results.push(append_one(file, &transaction, &mut log, append).map_err(written)?);
        }
    }
    if results.iter().any(Result::is_ok) {
        commit(file, transaction)?;
    } else {
        transaction.abort().map_err(|e| written(e.into()))?;
    }
    Ok(results)
}

fn append_one(
    file: &File,
    transaction: &WriteTransaction,
    log: &mut Log<'_>,
    append: &Prepared,
) -> Result<Result<Appended, StoreError>, Io> {
    let thread = append.thread.as_str();
    let before = match head(log, thread)? {
        Ok(before) => before,
        Err(damaged) => return Ok(Err(damaged)),
    };
    let found = Position(before.map_or(0, |head| head.next));
    if found != append.expected {
        return Ok(Err(StoreError::Moved { thread: append.thread.clone(), expected: append.expected, found }));
    }
    let [of_records, of_snapshot] = &append.artifacts;
    keep_artifacts(file, transaction, thread, append.expected, of_records)?;
    log.insert((thread, append.expected.0), &*append.unit)?;
    let after = Head::after(before, append.records, append.status, append.at);
    put_head(transaction, log, thread, before, after)?;
    if let Some((position, bytes)) = &append.snapshot {
        keep_artifacts(file, transaction, thread, *position, of_snapshot)?;
        transaction.open_table(SNAPSHOTS)?.insert((thread, position.0), &**bytes)?;
    }
    if let Some(open) = &append.questions {
        questions::put(transaction, thread, open)?;
    }
    if let Some(rings) = &append.alarms {
        alarms::put(transaction, thread, rings)?;
    }
    Ok(Ok(append.appended))
}

/// Damage is one thread's trouble, and not that of all who share the transaction.
fn head(log: &Log<'_>, thread: &str) -> Result<Result<Option<Head>, StoreError>, Io> {
    let found = log.get((thread, HEAD))?;
    Ok(found.map(|bytes| Head::decode(thread, bytes.value()).map_err(StoreError::from)).transpose())
}

fn put_head(
    transaction: &WriteTransaction,
    log: &mut Log<'_>,
    thread: &str,
    before: Option<Head>,
    after: Head,
) -> Result<(), Io> {
    log.insert((thread, HEAD), &after.encode(thread)[..])?;
    let place = before.map(|head| head.place(thread));
    if place != Some(after.place(thread)) {
        let mut by_status = transaction.open_table(BY_STATUS)?;
        if let Some(place) = place {
            by_status.remove(place)?;
        }
        by_status.insert(after.place(thread), ())?;
    }
    Ok(())
}

/// Artifacts are on the disk before what refers to them: a unit at its position, or a snapshot at its own.
fn keep_artifacts(
    file: &File,
    transaction: &WriteTransaction,
    thread: &str,
    position: Position,
    artifacts: &[Artifact],
) -> Result<(), Io> {
    let Some(place) = file.artifacts.as_ref().filter(|_| !artifacts.is_empty()) else { return Ok(()) };
    let mut references = transaction.open_table(REFERENCES)?;
    for artifact in artifacts {
        place.put(artifact)?;
        references.insert((thread, position.0, &*artifact.hash), ())?;
    }
    Ok(())
}

/// One transaction that is not an append.
pub(super) fn change<T>(
    file: &File,
    act: impl FnOnce(&WriteTransaction) -> Result<Result<T, StoreError>, Io>,
) -> Result<T, StoreError> {
    let right = file.to_write();
    file.write(&right, |database| {
        let transaction = begin(file, database)?;
        match act(&transaction) {
            Ok(Ok(done)) => commit(file, transaction).map(|()| done),
            // Dropping the transaction undoes it.
            Ok(Err(refused)) => Err(refused),
            Err(error) => Err(file.error("written", error)),
        }
    })
}

pub(super) fn delete(file: &File, thread: &ThreadName) -> Result<bool, StoreError> {
    let name = thread.as_str();
    change(file, |transaction| {
        let (mut log, mut existed) = (transaction.open_table(LOG)?, false);
        let mut by_status = transaction.open_table(BY_STATUS)?;
        match head(&log, name)? {
            Ok(Some(head)) => _ = by_status.remove(head.place(name))?,
            // A head that is lost or damaged does not tell the thread's place in the index.
            Ok(None) | Err(_) => by_status.retain(|(_, _, other), ()| other != name)?,
        }
        log.retain_in((name, 0)..=(name, HEAD), |_, _| {
            existed = true;
            false
        })?;
        transaction.open_table(SNAPSHOTS)?.retain_in((name, 0)..=(name, HEAD), |_, _| false)?;
        transaction.open_table(REFERENCES)?.retain_in((name, 0, "")..=(name, HEAD, "~"), |_, ()| false)?;
        questions::remove(transaction, name)?;
        alarms::remove(transaction, name)?;
        Ok(Ok(existed))
    })
}

/// Puts a whole thread in, all or nothing.
pub(super) fn restore(file: &File, restore: &Restore) -> Result<(), StoreError> {
    let (thread, base) = (&restore.thread, restore.base.as_deref());
    let first = base.map_or(Position(0), |base| base.position());
    let mut shelf = file.shelf();
    let base = base.map(|base| codec::encode_snapshot(thread, base, &mut shelf)).transpose()?;
    let of_base = std::mem::take(&mut shelf.taken);
    let mut units = Vec::new();
    for unit in restore.entries.chunk_by(|a, b| a.at == b.at) {
        let Some(Entry { position, at, .. }) = unit.first() else { continue };
        let records: Vec<Record> = unit.iter().map(|entry| entry.record.clone()).collect();
        let bytes = codec::encode(thread, *position, *at, &records, &mut shelf)?;
        units.push((*position, bytes, std::mem::take(&mut shelf.taken)));
    }
    let at = restore.entries.last().map_or(Timestamp::default(), |entry| entry.at);
    let next = first.0 + restore.entries.len() as u64;
    let head_after = Head { status: restore.status, first: first.0, next, since: at, at };
    let name = thread.as_str();
    change(file, |transaction| {
        let mut log = transaction.open_table(LOG)?;
        let before = match head(&log, name)? {
            Ok(before) => before,
            Err(damaged) => return Ok(Err(damaged)),
        };
        if let Some(before) = before {
            let (thread, found) = (thread.clone(), Position(before.next));
            return Ok(Err(StoreError::Moved { thread, expected: Position(0), found }));
        }
        keep_artifacts(file, transaction, name, first, &of_base)?;
        for (position, unit, artifacts) in &units {
            keep_artifacts(file, transaction, name, *position, artifacts)?;
            log.insert((name, position.0), &**unit)?;
        }
        if let Some(base) = &base {
            transaction.open_table(SNAPSHOTS)?.insert((name, first.0), &**base)?;
        }
        put_head(transaction, &mut log, name, None, head_after)?;
        questions::put(transaction, name, &restore.questions)?;
        alarms::put(transaction, name, &restore.alarms)?;
        Ok(Ok(()))
    })
}

/// Forgets what stands before a snapshot. The unit that holds its position stays whole.
pub(super) fn prune(file: &File, prune: &Prune) -> Result<Pruned, StoreError> {
    let (thread, position) = (&prune.thread, prune.before.0);
    let is_done = |head: Head| (head.first, head.next) == (position, prune.expected.0);
    // A commit for nothing would wait for the disk.
    if prune.base.is_none() && read::head(file, thread)?.is_some_and(is_done) {
        return Ok(Pruned::default());
    }
    let mut shelf = file.shelf();
    let base = prune.base.as_deref().filter(|base| base.position() == prune.before);
    let base = base.map(|base| codec::encode_snapshot(thread, base, &mut shelf)).transpose()?;
    let name = thread.as_str();
    change(file, |transaction| {
        let mut log = transaction.open_table(LOG)?;
        let before = match head(&log, name)? {
            Ok(before) => before,
            Err(damaged) => return Ok(Err(damaged)),
        };
        let mut snapshots = transaction.open_table(SNAPSHOTS)?;
        let has_base = base.is_some() || snapshots.get((name, position))?.is_some();
        let Some(before) = before.filter(|head| head.next == prune.expected.0 && position <= head.next && has_base) else {
            let found = Position(before.map_or(0, |head| head.next));
            return Ok(Err(StoreError::Moved { thread: thread.clone(), expected: prune.expected, found }));
        };
        let unit = log.range((name, 0)..=(name, position))?.next_back().transpose()?.map_or(position, |(key, _)| key.value().1);
        let mut pruned = Pruned { records: position.saturating_sub(before.first), snapshots: 0 };
        log.retain_in((name, 0)..(name, unit), |_, _| false)?;
        snapshots.retain_in((name, 0)..(name, position), |_, _| {
            pruned.snapshots += 1;
            false
        })?;
        transaction.open_table(REFERENCES)?.retain_in((name, 0, "")..(name, unit, ""), |_, ()| false)?;
        keep_artifacts(file, transaction, name, Position(position), &shelf.taken)?;
        if let Some(base) = &base {
            snapshots.insert((name, position), &**base)?;
        }
        let after = Head { first: position.max(before.first), ..before };
        put_head(transaction, &mut log, name, Some(before), after)?;
        Ok(Ok(pruned))
    })
}

/// Removes artifacts that nothing refers to. Gives the bytes they had.
pub(super) fn sweep(file: &File) -> Result<u64, StoreError> {
    let Some(artifacts) = &file.artifacts else { return Ok(0) };
    // Nobody writes a new reference meanwhile.
    let _right = file.to_write();
    let referred = read::references(file)?;
    let mut freed = 0;
    for (hash, bytes) in artifacts.list().map_err(|e| file.error("read", e))? {
        if !referred.contains(&hash) {
            artifacts.remove(&hash).map_err(|e| file.error("written", e))?;
            freed += bytes;
        }
    }
    Ok(freed)
}
