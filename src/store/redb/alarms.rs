//! The index of alarms: by time, to find the first ones, and by thread, to replace what it says of one.

use std::collections::BTreeSet;
use std::ops::Bound;

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, WriteTransaction};
use uuid::Uuid;

use super::file::{File, Io};
use super::layout::{ALARMS, ALARMS_OF, name_of};
use super::verify::Verified;
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::store::{Alarm, AlarmRow, StoreError};

/// Time and id.
type Row = (u64, u128);

/// Says when a thread rings from now on. Only rows that change are written.
pub(super) fn put(transaction: &WriteTransaction, thread: &str, alarms: &[Alarm]) -> Result<(), Io> {
    let mut of_thread = transaction.open_table(ALARMS_OF)?;
    let after: BTreeSet<Row> = alarms.iter().map(|alarm| (alarm.at.0, alarm.id.0.as_u128())).collect();
    let mut before: BTreeSet<Row> = BTreeSet::new();
    for row in of_thread.range((thread, 0, 0)..=(thread, u128::MAX, u64::MAX))? {
        let (_, id, at) = row?.0.value();
        before.insert((at, id));
    }
    if before == after {
        return Ok(());
    }
    let mut by_time = transaction.open_table(ALARMS)?;
    for (at, id) in before.difference(&after) {
        of_thread.remove((thread, *id, *at))?;
        by_time.remove((*at, *id, thread))?;
    }
    for (at, id) in after.difference(&before) {
        of_thread.insert((thread, *id, *at), ())?;
        by_time.insert((*at, *id, thread), ())?;
    }
    Ok(())
}

/// Removes all that is said of a thread, also what one of the tables alone says.
pub(super) fn remove(transaction: &WriteTransaction, thread: &str) -> Result<(), Io> {
    put(transaction, thread, &[])?;
    let mut by_time = transaction.open_table(ALARMS)?;
    if by_time.len()? != transaction.open_table(ALARMS_OF)?.len()? {
        by_time.retain(|(_, _, other), ()| other != thread)?;
    }
    Ok(())
}

pub(super) fn list(file: &File, behind: Option<&AlarmRow>, most: usize) -> Result<Vec<AlarmRow>, StoreError> {
    file.read(|database| list_rows(database, behind, most).map_err(|e| file.error("read", e)))
}

fn list_rows(database: &Database, behind: Option<&AlarmRow>, most: usize) -> Result<Vec<AlarmRow>, Io> {
    let from = behind.map(|row| (row.alarm.at.0, row.alarm.id.0.as_u128(), row.thread.as_str()));
    let index = database.begin_read()?.open_table(ALARMS)?;
    let mut found = Vec::new();
    for row in index.range((from.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))?.take(most) {
        let row = row?.0;
        let (at, id, thread) = row.value();
        let alarm = Alarm { at: Timestamp(at), id: QuestionId(Uuid::from_u128(id)) };
        found.push(AlarmRow::new(name_of(thread), alarm));
    }
    Ok(found)
}

/// The two tables must say the same.
pub(super) fn look_at(file: &File, verified: &mut Verified) -> Result<(), StoreError> {
    type Rows = BTreeSet<(String, Row)>;
    let read = |database: &Database| -> Result<(Rows, Rows), Io> {
        let transaction = database.begin_read()?;
        let (mut of_thread, mut by_time) = (Rows::new(), Rows::new());
        for row in transaction.open_table(ALARMS_OF)?.iter()? {
            let row = row?.0;
            let (thread, id, at) = row.value();
            of_thread.insert((thread.to_owned(), (at, id)));
        }
        for row in transaction.open_table(ALARMS)?.iter()? {
            let row = row?.0;
            let (at, id, thread) = row.value();
            by_time.insert((thread.to_owned(), (at, id)));
        }
        Ok((of_thread, by_time))
    };
    let (of_thread, by_time) = file.read(|database| read(database).map_err(|e| file.error("read", e)))?;
    let wrong: BTreeSet<&String> = of_thread.symmetric_difference(&by_time).map(|(thread, _)| thread).collect();
    for thread in wrong {
        let name = name_of(thread);
        verified.faults.push(format!("the index of alarms does not fit thread \"{name}\"; export and import the thread"));
    }
    Ok(())
}
