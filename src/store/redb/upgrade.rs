//! The version of the file: a new file gets this program's, an older one is brought up to it, a newer one is refused.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableHandle, WriteTransaction};
use serde::Deserialize;

use super::file::{File, Io};
use super::layout::{
    ALARMS, ALARMS_OF, BY_DEADLINE, BY_STATUS, FORMAT, HEAD, Head, LOG, META, NOTES, QUESTIONS, REFERENCES, SNAPSHOTS, damaged,
};
use super::questions;
use crate::clock::Timestamp;
use crate::id::{Position, ThreadName};
use crate::log::codec;
use crate::store::{StoreError, ThreadStatus};

/// Makes the tables of a new file; brings an older one up to date, each format in one transaction; refuses a newer one.
pub(super) fn prepare(file: &File, database: &Database) -> Result<(), StoreError> {
    let path = &*file.path;
    let io = |what: &'static str| move |source: Io| StoreError::Io { path: path.to_owned(), what, source };
    let write = |format: u64, act: &dyn Fn(&WriteTransaction) -> Result<(), Io>| -> Result<(), Io> {
        let transaction = database.begin_write()?;
        act(&transaction)?;
        transaction.open_table(META)?.insert("format", format)?;
        Ok(transaction.commit()?)
    };
    let to_2 = || write(2, &from_1);
    let to_4 = || write(FORMAT, &|transaction| from_3(file, database, transaction));
    let older = "brought up to the format of this program";
    match stored_format(database, path)? {
        Some(FORMAT) => Ok(()),
        Some(2 | 3) => to_4().map_err(io(older)),
        Some(1) => to_2().and_then(|()| to_4()).map_err(io(older)),
        Some(found) => Err(StoreError::Newer { path: path.to_owned(), found, known: FORMAT }),
        None => write(FORMAT, &make_tables).map_err(io("written")),
    }
}

/// The version in the file; none if the file is new.
fn stored_format(database: &Database, path: &Path) -> Result<Option<u64>, StoreError> {
    let read = || -> Result<Result<Option<u64>, &'static str>, Io> {
        let transaction = database.begin_read()?;
        let mut tables = transaction.list_tables()?.peekable();
        if tables.peek().is_none() {
            return Ok(Ok(None));
        }
        if !tables.any(|table| table.name() == META.name()) {
            return Ok(Err("it is a redb database of another program; it was not touched, name another file"));
        }
        Ok(match transaction.open_table(META)?.get("format")? {
            Some(format) => Ok(Some(format.value())),
            None => Err("it does not tell its format; restore it from a copy"),
        })
    };
    let no_store = |why: String, source| StoreError::NoStore { path: path.to_owned(), why, source };
    match read() {
        Ok(Ok(format)) => Ok(format),
        Ok(Err(why)) => Err(no_store(why.to_owned(), None)),
        Err(source) => Err(no_store(format!("its format cannot be read: {source}"), Some(source))),
    }
}

fn make_tables(transaction: &WriteTransaction) -> Result<(), Io> {
    tables_of_2(transaction)?;
    tables_of_3(transaction)?;
    tables_of_4(transaction)
}

fn tables_of_4(transaction: &WriteTransaction) -> Result<(), Io> {
    transaction.open_table(ALARMS)?;
    transaction.open_table(ALARMS_OF)?;
    transaction.open_table(NOTES)?;
    Ok(())
}

fn tables_of_3(transaction: &WriteTransaction) -> Result<(), Io> {
    transaction.open_table(QUESTIONS)?;
    transaction.open_table(BY_DEADLINE)?;
    Ok(())
}

/// Format 2 had no index of open questions, and format 3 none of alarms.
fn from_3(file: &File, database: &Database, transaction: &WriteTransaction) -> Result<(), Io> {
    tables_of_3(transaction)?;
    tables_of_4(transaction)?;
    questions::fill(file, database, transaction)
}

fn tables_of_2(transaction: &WriteTransaction) -> Result<(), Io> {
    transaction.open_table(LOG)?;
    transaction.open_table(SNAPSHOTS)?;
    transaction.open_table(BY_STATUS)?;
    transaction.open_table(REFERENCES)?;
    Ok(())
}

/// The index of format 1: a row for each thread.
const THREADS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("threads");

#[derive(Deserialize)]
struct ThreadRow {
    name: ThreadName,
    status: ThreadStatus,
    records: u64,
    updated_at: Timestamp,
}

/// Format 1 had a table of threads in place of heads, and units without a head of their own.
fn from_1(transaction: &WriteTransaction) -> Result<(), Io> {
    tables_of_2(transaction)?;
    let rows: Vec<ThreadRow> = {
        let threads = transaction.open_table(THREADS)?;
        threads.iter()?.map(|row| Ok(rmp_serde::from_slice(row?.1.value())?)).collect::<Result<_, Io>>()?
    };
    let (mut log, mut by_status) = (transaction.open_table(LOG)?, transaction.open_table(BY_STATUS)?);
    for ThreadRow { name, status, records, updated_at: at } in rows {
        let thread = name.as_str();
        let units: Vec<(u64, Vec<u8>)> = log
            .range((thread, 0)..(thread, HEAD))?
            .map(|found| found.map(|(key, value)| (key.value().1, value.value().to_vec())))
            .collect::<Result<_, _>>()?;
        let ends = units.iter().skip(1).map(|(position, _)| *position).chain([records]);
        for ((position, frames), end) in units.iter().zip(ends) {
            let count = end.checked_sub(*position).ok_or_else(|| damaged(thread, *position, "it is missing"))?;
            let unit = codec::unit(&name, Position(*position), at, count, frames)?;
            log.insert((thread, *position), &*unit)?;
        }
        let head = Head { status, first: 0, next: records, since: at, at };
        log.insert((thread, HEAD), &head.encode(thread)[..])?;
        by_status.insert(head.place(thread), ())?;
    }
    drop((log, by_status));
    transaction.delete_table(THREADS)?;
    Ok(())
}
