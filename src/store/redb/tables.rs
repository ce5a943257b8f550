//! The tables of the file, and what is done with them. Everything here blocks.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::super::{Append, Appended, Loaded, StoreError, ThreadInfo};
use crate::id::{Position, ThreadName};
use crate::log::Entry;
use crate::log::codec;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const LOG: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("log");
const SNAPSHOTS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("snapshots");
const THREADS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("threads");

/// The version of the file's layout.
const FORMAT: u64 = 1;

type Io = Box<dyn std::error::Error + Send + Sync>;

fn io(path: &Path, what: &'static str, source: impl Into<Io>) -> StoreError {
    StoreError::Io { path: path.to_owned(), what, source: source.into() }
}

/// Makes the tables of a new file; refuses a newer format.
pub(super) fn prepare(database: &Database, path: &Path) -> Result<(), StoreError> {
    let found = stored_format(database).map_err(|e| io(path, "read", e))?;
    match found {
        Some(FORMAT) => Ok(()),
        Some(found) => Err(StoreError::Newer { path: path.to_owned(), found, known: FORMAT }),
        None => make_tables(database).map_err(|e| io(path, "written", e)),
    }
}

fn stored_format(database: &Database) -> Result<Option<u64>, Io> {
    let transaction = database.begin_read()?;
    match transaction.open_table(META) {
        Ok(meta) => Ok(meta.get("format")?.map(|format| format.value())),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn make_tables(database: &Database) -> Result<(), Io> {
    let transaction = database.begin_write()?;
    transaction.open_table(META)?.insert("format", FORMAT)?;
    transaction.open_table(LOG)?;
    transaction.open_table(SNAPSHOTS)?;
    transaction.open_table(THREADS)?;
    transaction.commit()?;
    Ok(())
}

/// Appends all of these in one transaction, each at its own thread's position.
pub(super) fn append_all(
    database: &Database,
    path: &Path,
    appends: &[Append],
) -> Result<Vec<Result<Appended, StoreError>>, StoreError> {
    let written = |e: Io| io(path, "written", e);
    let transaction = database.begin_write().map_err(|e| written(e.into()))?;
    let mut results = Vec::with_capacity(appends.len());
    for append in appends {
        results.push(append_one(&transaction, append).map_err(written)?);
    }
    if results.iter().any(Result::is_ok) {
        transaction.commit().map_err(|e| written(e.into()))?;
    } else {
        transaction.abort().map_err(|e| written(e.into()))?;
    }
    Ok(results)
}

fn append_one(transaction: &WriteTransaction, append: &Append) -> Result<Result<Appended, StoreError>, Io> {
    let thread = append.thread.as_str();
    let mut threads = transaction.open_table(THREADS)?;
    let found = match threads.get(thread)? {
        Some(info) => Position(rmp_serde::from_slice::<ThreadInfo>(info.value())?.records),
        None => Position(0),
    };
    if found != append.expected {
        return Ok(Err(StoreError::Moved { thread: append.thread.clone(), expected: append.expected, found }));
    }
    // Everything is encoded before anything is inserted, so that a refused append leaves no trace in the shared transaction.
    let (records, snapshot) = match encode(append) {
        Ok(encoded) => encoded,
        Err(error) => return Ok(Err(error.into())),
    };
    transaction.open_table(LOG)?.insert((thread, append.expected.0), &*records)?;
    if let Some((position, bytes)) = &snapshot {
        transaction.open_table(SNAPSHOTS)?.insert((thread, position.0), &**bytes)?;
    }
    let info = ThreadInfo {
        name: append.thread.clone(),
        status: append.status,
        records: append.expected.0 + append.records.len() as u64,
        updated_at: append.at,
    };
    threads.insert(thread, &*rmp_serde::to_vec_named(&info)?)?;
    let snapshot_bytes = snapshot.map(|(_, bytes)| bytes.len() as u64);
    Ok(Ok(Appended { record_bytes: records.len() as u64, snapshot_bytes }))
}

/// Appends by the position of their first record.
type Appends = Vec<(Position, Vec<u8>)>;

type Encoded = (Vec<u8>, Option<(Position, Vec<u8>)>);

fn encode(append: &Append) -> Result<Encoded, codec::CodecError> {
    let records = codec::encode(&append.thread, append.expected, &append.records)?;
    let snapshot = match &append.snapshot {
        Some(snapshot) => Some((snapshot.position(), codec::encode_snapshot(&append.thread, snapshot)?)),
        None => None,
    };
    Ok((records, snapshot))
}

pub(super) fn load(database: &Database, path: &Path, thread: &ThreadName) -> Result<Loaded, StoreError> {
    let found = newest_snapshot(database, thread).map_err(|e| io(path, "read", e))?;
    let snapshot_bytes = found.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
    let snapshot = match found {
        Some((position, bytes)) => Some(codec::decode_snapshot(thread, position, &bytes)?),
        None => None,
    };
    let from = snapshot.as_ref().map_or(Position(0), |s| s.position());
    let (known, appends) = appends_from(database, thread, from).map_err(|e| io(path, "read", e))?;
    let record_bytes = appends.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let mut entries = decode_all(thread, &appends)?;
    entries.retain(|entry| entry.position >= from);
    must_be_whole(thread, from, known, &entries)?;
    Ok(Loaded { snapshot, snapshot_bytes, entries, record_bytes })
}

pub(super) fn read(database: &Database, path: &Path, thread: &ThreadName, from: Position) -> Result<Vec<Entry>, StoreError> {
    let (known, appends) = appends_from(database, thread, from).map_err(|e| io(path, "read", e))?;
    let mut entries = decode_all(thread, &appends)?;
    entries.retain(|entry| entry.position >= from);
    must_be_whole(thread, from, known, &entries)?;
    Ok(entries)
}

/// The records from `from` to the end that the index knows: none may be missing in front or behind.
fn must_be_whole(thread: &ThreadName, from: Position, known: u64, entries: &[Entry]) -> Result<(), StoreError> {
    let begins = entries.first().is_none_or(|first| first.position == from);
    let end = entries.last().map_or(from.0, |last| last.position.0 + 1);
    if begins && (end == known || from.0 >= known) {
        return Ok(());
    }
    let position = if begins { Position(end) } else { from };
    Err(codec::CodecError::Damaged { thread: thread.clone(), position, why: "it is missing".to_owned() }.into())
}

fn decode_all(thread: &ThreadName, appends: &[(Position, Vec<u8>)]) -> Result<Vec<Entry>, StoreError> {
    let mut entries: Vec<Entry> = Vec::new();
    for (position, bytes) in appends {
        if let Some(last) = entries.last()
            && last.position.0 + 1 != position.0
        {
            let (thread, position) = (thread.clone(), Position(last.position.0 + 1));
            return Err(codec::CodecError::Damaged { thread, position, why: "it is missing".to_owned() }.into());
        }
        entries.extend(codec::decode(thread, *position, bytes)?);
    }
    Ok(entries)
}

fn newest_snapshot(database: &Database, thread: &ThreadName) -> Result<Option<(Position, Vec<u8>)>, Io> {
    let table = database.begin_read()?.open_table(SNAPSHOTS)?;
    let mut range = table.range((thread.as_str(), 0)..=(thread.as_str(), u64::MAX))?;
    Ok(match range.next_back() {
        Some(found) => {
            let (key, value) = found?;
            Some((Position(key.value().1), value.value().to_vec()))
        }
        None => None,
    })
}

/// How many records there are, and the appends that hold those from `from` on, both as of one moment. The read transaction ends
/// here: a long one would keep dead pages alive.
fn appends_from(database: &Database, thread: &ThreadName, from: Position) -> Result<(u64, Appends), Io> {
    let transaction = database.begin_read()?;
    let (table, index) = (transaction.open_table(LOG)?, transaction.open_table(THREADS)?);
    let name = thread.as_str();
    let known = match index.get(name)? {
        Some(info) => rmp_serde::from_slice::<ThreadInfo>(info.value())?.records,
        None => 0,
    };
    // The append that holds `from` may begin before it.
    let first = match table.range((name, 0)..=(name, from.0))?.next_back() {
        Some(found) => found?.0.value().1,
        None => from.0,
    };
    let mut appends = Vec::new();
    for found in table.range((name, first)..=(name, u64::MAX))? {
        let (key, value) = found?;
        appends.push((Position(key.value().1), value.value().to_vec()));
    }
    Ok((known, appends))
}

pub(super) fn threads(
    database: &Database,
    path: &Path,
    after: Option<&ThreadName>,
    limit: usize,
) -> Result<Vec<ThreadInfo>, StoreError> {
    let list = || -> Result<Vec<ThreadInfo>, Io> {
        let table = database.begin_read()?.open_table(THREADS)?;
        let from = after.map_or("", ThreadName::as_str);
        let others =
            table.range(from..)?.filter(|found| found.as_ref().is_ok_and(|(key, _)| after.is_none() || key.value() != from));
        others.take(limit).map(|found| Ok(rmp_serde::from_slice(found?.1.value())?)).collect()
    };
    list().map_err(|e| io(path, "read", e))
}

pub(super) fn delete(database: &Database, path: &Path, thread: &ThreadName) -> Result<bool, StoreError> {
    let name = thread.as_str();
    let remove = || -> Result<bool, Io> {
        let transaction = database.begin_write()?;
        let existed = transaction.open_table(THREADS)?.remove(name)?.is_some();
        for table in [LOG, SNAPSHOTS] {
            transaction.open_table(table)?.retain_in((name, 0)..=(name, u64::MAX), |_, _| false)?;
        }
        transaction.commit()?;
        Ok(existed)
    };
    remove().map_err(|e| io(path, "written", e))
}
