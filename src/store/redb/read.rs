//! What is read. Read transactions are short: a long one would keep dead pages alive.

use std::collections::BTreeSet;

use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable};

use super::file::{File, Io};
use super::layout::{BY_STATUS, HEAD, Head, LOG, REFERENCES, SNAPSHOTS, damaged, name_of, status_number};
use crate::id::{Position, ThreadName};
use crate::log::large::{Counted, Fetch};
use crate::log::{CodecError, Entry, codec};
use crate::store::{Loaded, Order, Reach, StoreError, ThreadInfo, ThreadQuery};

type Log = ReadOnlyTable<(&'static str, u64), &'static [u8]>;

/// Appends by the position of their first record.
type Units = Vec<(Position, Vec<u8>)>;

/// What a thread's rows hold, all as of one moment.
pub(super) struct Raw {
    head: Head,
    snapshot: Option<(Position, Vec<u8>)>,
    units: Units,
}

pub(super) fn load(file: &File, thread: &ThreadName, reach: Reach) -> Result<Loaded, StoreError> {
    load_from(file, thread, raw(file, thread, reach)?)
}

/// A thread, decoded.
pub(super) fn load_from(file: &File, thread: &ThreadName, raw: Option<Raw>) -> Result<Loaded, StoreError> {
    let Some(Raw { head, snapshot, units }) = raw else { return Ok(Loaded::default()) };
    file.with_artifacts(|fetch| {
        let mut fetch = Counted { fetch, bytes: 0 };
        let inline = snapshot.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
        let snapshot =
            snapshot.map(|(position, bytes)| codec::decode_snapshot(thread, position, &bytes, &mut fetch)).transpose()?;
        let snapshot_bytes = inline + std::mem::take(&mut fetch.bytes);
        let from = snapshot.as_ref().map_or(Position(0), |s| s.position());
        let mut entries = decode_all(thread, &units, &mut fetch)?;
        let record_bytes = units.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() + fetch.bytes;
        entries.retain(|entry| entry.position >= from);
        must_be_whole(thread, from, &head, &entries)?;
        Ok(Loaded { snapshot, snapshot_bytes, entries, record_bytes })
    })
}

fn raw(file: &File, thread: &ThreadName, reach: Reach) -> Result<Option<Raw>, StoreError> {
    let found = file.read(|database| raw_rows(database, thread.as_str(), reach).map_err(|e| file.error("read", e)))?;
    Ok(found.transpose()?)
}

pub(super) fn raw_rows(database: &Database, name: &str, reach: Reach) -> Result<Option<Result<Raw, CodecError>>, Io> {
    let transaction = database.begin_read()?;
    let log = transaction.open_table(LOG)?;
    let Some(bytes) = log.get((name, HEAD))? else {
        // Records without a head: the head is what got lost.
        let stray = log.range((name, 0)..(name, HEAD))?.next().transpose()?;
        let lost = stray.map(|(key, _)| damaged(name, key.value().1, "the thread's head is missing"));
        return Ok(lost.map_or_else(|| around(&log, name), |lost| Ok(Some(lost)))?.map(Err));
    };
    let head = match Head::decode(name, bytes.value()) {
        Ok(head) => head,
        Err(error) => return Ok(Some(Err(error))),
    };
    let newest_at = match reach {
        Reach::Newest => head.next,
        Reach::Before(position) => position.0.max(head.first),
        Reach::Whole => head.first,
    };
    let snapshots = transaction.open_table(SNAPSHOTS)?;
    let found = snapshots.range((name, 0)..=(name, newest_at))?.next_back().transpose()?;
    let snapshot = found.map(|(key, value)| (Position(key.value().1), value.value().to_vec()));
    let from = snapshot.as_ref().map_or(0, |(position, _)| position.0);
    let units = units_from(&log, name, from)?;
    Ok(Some(Ok(Raw { head, snapshot, units })))
}

/// What is wrong around the place where a thread would stand that is not there. A tree that leads to a wrong place for this one leads there in the
/// middle of another thread, unless that one's rows happen to begin or end where the page does.
fn around(log: &Log, name: &str) -> Result<Option<CodecError>, Io> {
    if let Some((key, _)) = log.range(..(name, 0))?.next_back().transpose()? {
        let (before, position) = key.value();
        if position != HEAD {
            return Ok(Some(damaged(before, position, "the thread's head is missing")));
        }
    }
    match log.range((name, HEAD)..)?.next().transpose()? {
        Some((key, _)) => Ok(info(log, key.value().0, key.value().1)?.err()),
        None => Ok(None),
    }
}

fn units_from(log: &Log, name: &str, from: u64) -> Result<Units, Io> {
    // The unit that holds `from` may begin before it.
    let first = log.range((name, 0)..=(name, from))?.next_back().transpose()?.map_or(from, |(key, _)| key.value().1);
    let mut units: Units = Vec::new();
    for found in log.range((name, first)..(name, HEAD))? {
        let (key, value) = found?;
        let (of, position) = key.value();
        if of != name || units.last().is_some_and(|(last, _)| last.0 >= position) {
            return Err(out_of_order(name, position).into());
        }
        units.push((Position(position), value.value().to_vec()));
    }
    Ok(units)
}

fn decode_all(thread: &ThreadName, units: &Units, fetch: &mut dyn Fetch) -> Result<Vec<Entry>, CodecError> {
    let mut entries: Vec<Entry> = Vec::new();
    for (position, bytes) in units {
        if let Some(last) = entries.last()
            && last.position.0 + 1 != position.0
        {
            return Err(missing(thread, last.position.0 + 1));
        }
        entries.extend(codec::decode(thread, *position, bytes, fetch)?);
    }
    Ok(entries)
}

/// The records from `from` to the end that the head knows: none may be missing in front or behind.
fn must_be_whole(thread: &ThreadName, from: Position, head: &Head, entries: &[Entry]) -> Result<(), CodecError> {
    if from.0 < head.first {
        return Err(missing(thread, from.0));
    }
    let begins = entries.first().is_none_or(|first| first.position == from);
    let end = entries.last().map_or(from.0, |last| last.position.0 + 1);
    match (begins, end == head.next) {
        (false, _) => Err(missing(thread, from.0)),
        (_, false) => Err(missing(thread, end.min(head.next))),
        _ => Ok(()),
    }
}

fn missing(thread: &ThreadName, position: u64) -> CodecError {
    CodecError::Damaged { thread: thread.clone(), position: Position(position), why: "it is missing".to_owned() }
}

pub(super) fn threads(file: &File, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
    let list = |database: &Database| match query.in_order() {
        Order::Name => by_name(database, query),
        Order::OldestFirst | Order::NewestFirst => by_time(database, query),
    };
    let found = file.read(|database| list(database).map_err(|e| file.error("read", e)))?;
    Ok(found?)
}

/// What the file says of a thread as a whole.
pub(super) fn head(file: &File, thread: &ThreadName) -> Result<Option<Head>, StoreError> {
    let name = thread.as_str();
    let read = |database: &Database| -> Result<Option<Vec<u8>>, Io> {
        let log = database.begin_read()?.open_table(LOG)?;
        Ok(log.get((name, HEAD))?.map(|bytes| bytes.value().to_vec()))
    };
    let found = file.read(|database| read(database).map_err(|e| file.error("read", e)))?;
    Ok(found.map(|bytes| Head::decode(name, &bytes)).transpose()?)
}

/// The first row behind all positions of a thread: where the next thread begins.
fn next_thread(log: &Log, from: (&str, u64)) -> Result<Option<(String, u64)>, Io> {
    let Some((key, _)) = log.range(from..)?.next().transpose()? else { return Ok(None) };
    let (name, row) = key.value();
    if (name, row) < from {
        return Err(out_of_order(name, row).into());
    }
    Ok(Some((name.to_owned(), row)))
}

/// The error for rows that go back: a damaged tree can lead round in circles.
pub(super) fn out_of_order(name: &str, row: u64) -> CodecError {
    damaged(name, row, "the rows around it are out of order")
}

/// Goes from thread to thread: what stands between costs one look each.
fn by_name(database: &Database, query: &ThreadQuery) -> Result<Result<Vec<ThreadInfo>, CodecError>, Io> {
    let log = database.begin_read()?.open_table(LOG)?;
    let mut found = Vec::new();
    let place = query.place().map(|(_, name)| name.as_str()).filter(|name| *name >= query.name_prefix());
    let mut next = match place {
        Some(name) => next_thread(&log, (&format!("{name}\0"), 0))?,
        None => next_thread(&log, (query.name_prefix(), 0))?,
    };
    while let Some((name, row)) = next.filter(|(name, _)| name.starts_with(query.name_prefix()) && found.len() < query.most()) {
        match info(&log, &name, row)? {
            Ok(info) if query.selects(&info) => found.push(info),
            Ok(_) => {}
            Err(error) => return Ok(Err(error)),
        }
        next = next_thread(&log, (&format!("{name}\0"), 0))?;
    }
    Ok(Ok(found))
}

/// What a thread's head tells, whose rows begin with this one or before it.
fn info(log: &Log, name: &str, row: u64) -> Result<Result<ThreadInfo, CodecError>, Io> {
    Ok(match log.get((name, HEAD))? {
        Some(bytes) => Head::decode(name, bytes.value()).and_then(|head| match row {
            // A thread of which nothing is kept has its head alone.
            row if row > head.first && row != HEAD => Err(damaged(name, head.first, "it is missing")),
            _ => Ok(head.info(name_of(name))),
        }),
        None => Err(damaged(name, 0, "the thread's head is missing")),
    })
}

/// From each status that is asked for a page, and of these the page that was asked for.
fn by_time(database: &Database, query: &ThreadQuery) -> Result<Result<Vec<ThreadInfo>, CodecError>, Io> {
    let transaction = database.begin_read()?;
    let (log, index) = (transaction.open_table(LOG)?, transaction.open_table(BY_STATUS)?);
    let newest_first = query.in_order() == Order::NewestFirst;
    let mut found = Vec::new();
    for status in query.statuses() {
        let number = status_number(*status);
        let place = query.place().map(|(since, _)| since.0);
        let low = place.filter(|_| !newest_first).unwrap_or(0);
        let high = place.filter(|_| newest_first).and_then(|since| since.checked_add(1));
        let mut rows = index.range((number, low, "")..high.map_or((number + 1, 0, ""), |high| (number, high, "")))?;
        let (mut of_status, mut last) = (0, None);
        while of_status < query.most() {
            let Some(row) = (if newest_first { rows.next_back() } else { rows.next() }) else { break };
            let row = row?;
            let (_, since, name) = row.0.value();
            let place = (since, name.to_owned());
            if last.as_ref().is_some_and(|last| if newest_first { place >= *last } else { place <= *last }) {
                return Err(out_of_order(name, 0).into());
            }
            last = Some(place);
            match info(&log, name, 0)? {
                Ok(info) if query.selects(&info) => {
                    found.push(info);
                    of_status += 1;
                }
                Ok(_) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
    }
    Ok(Ok(query.page(found)))
}

/// The hashes of all artifacts that something refers to.
pub(super) fn references(file: &File) -> Result<BTreeSet<String>, StoreError> {
    let read = |database: &Database| -> Result<BTreeSet<String>, Io> {
        let table = database.begin_read()?.open_table(REFERENCES)?;
        let (mut hashes, mut last) = (BTreeSet::new(), None);
        for row in table.iter()? {
            let row = row?;
            let (name, position, hash) = row.0.value();
            let place = (name.to_owned(), position, hash.to_owned());
            if last.as_ref().is_some_and(|last| place <= *last) {
                return Err(out_of_order(name, position).into());
            }
            hashes.insert(hash.to_owned());
            last = Some(place);
        }
        Ok(hashes)
    };
    file.read(|database| read(database).map_err(|e| file.error("read", e)))
}

/// The names of all threads that have anything in the file.
pub(super) fn names(file: &File) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    file.read(|database| names_in(database, &mut names).map_err(|e| file.error("read", e)))?;
    Ok(names)
}

/// The names of all threads, as far as they can be read.
pub(super) fn names_in(database: &Database, names: &mut Vec<String>) -> Result<(), Io> {
    let log = database.begin_read()?.open_table(LOG)?;
    let mut next = next_thread(&log, ("", 0))?;
    while let Some((name, _)) = next {
        next = next_thread(&log, (&format!("{name}\0"), 0))?;
        names.push(name);
    }
    Ok(())
}
