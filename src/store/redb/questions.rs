//! The index of open questions: by thread, to replace what it says of one, and by deadline, to list them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, WriteTransaction};
use uuid::Uuid;

use super::alarms;
use super::file::{File, Io};
use super::layout::{BY_DEADLINE, HEAD, LOG, QUESTIONS, name_of};
use super::read;
use super::trouble;
use super::verify::Verified;
use crate::clock::Timestamp;
use crate::id::{QuestionId, ThreadName};
use crate::log::{Question, open_questions};
use crate::store::{InboxQuery, InboxRow, Loaded, OpenQuestion, Reach, StoreError, alarms_of, open_to_people};

/// Stands for no deadline.
const NEVER: u64 = u64::MAX;

/// Says what is open in a thread from now on. Only rows that change are written.
pub(super) fn put(transaction: &WriteTransaction, thread: &str, open: &[OpenQuestion]) -> Result<(), Io> {
    let mut questions = transaction.open_table(QUESTIONS)?;
    let row = |question: &OpenQuestion| (question.id.0.as_u128(), question.deadline.map_or(NEVER, |deadline| deadline.0));
    let after: BTreeMap<u128, u64> = open.iter().map(row).collect();
    let mut before = BTreeMap::new();
    for row in questions.range((thread, 0)..=(thread, u128::MAX))? {
        let (key, deadline) = row?;
        before.insert(key.value().1, deadline.value());
    }
    if before == after {
        return Ok(());
    }
    let mut by_deadline = transaction.open_table(BY_DEADLINE)?;
    for (id, deadline) in before.iter().filter(|(id, deadline)| after.get(id) != Some(deadline)) {
        questions.remove((thread, *id))?;
        by_deadline.remove((*deadline, thread, *id))?;
    }
    for (id, deadline) in after.iter().filter(|(id, deadline)| before.get(id) != Some(deadline)) {
        questions.insert((thread, *id), *deadline)?;
        by_deadline.insert((*deadline, thread, *id), ())?;
    }
    Ok(())
}

/// Removes all that is said of a thread, also what one of the tables alone says.
pub(super) fn remove(transaction: &WriteTransaction, thread: &str) -> Result<(), Io> {
    put(transaction, thread, &[])?;
    let mut by_deadline = transaction.open_table(BY_DEADLINE)?;
    if by_deadline.len()? != transaction.open_table(QUESTIONS)?.len()? {
        by_deadline.retain(|(_, other, _), ()| other != thread)?;
    }
    Ok(())
}

pub(super) fn list(file: &File, query: &InboxQuery) -> Result<Vec<InboxRow>, StoreError> {
    file.read(|database| list_rows(database, query).map_err(|e| file.error("read", e)))
}

fn list_rows(database: &Database, query: &InboxQuery) -> Result<Vec<InboxRow>, Io> {
    let (place, mut found) = (query.place(), Vec::new());
    let ends_before = |time: Timestamp| place.is_some_and(|(deadline, ..)| deadline >= time);
    if query.latest().is_some_and(ends_before) {
        return Ok(found);
    }
    let from = place.map(|(deadline, thread, id)| (deadline.0, thread.as_str(), id.0.as_u128()));
    let to = query.latest().map(|time| (time.0, "", 0));
    let index = database.begin_read()?.open_table(BY_DEADLINE)?;
    let rows = index.range((from.map_or(Bound::Unbounded, Bound::Excluded), to.map_or(Bound::Unbounded, Bound::Excluded)))?;
    let mut last = None;
    for row in rows {
        if found.len() >= query.most() {
            break;
        }
        let row = row?;
        let (deadline, thread, id) = row.0.value();
        let here = (deadline, thread.to_owned(), id);
        if last.as_ref().is_some_and(|last| here <= *last) {
            return Err(read::out_of_order(thread, 0).into());
        }
        last = Some(here);
        if thread.starts_with(query.name_prefix()) {
            let deadline = (deadline != NEVER).then_some(Timestamp(deadline));
            found.push(InboxRow::new(name_of(thread), OpenQuestion::new(QuestionId(Uuid::from_u128(id)), deadline)));
        }
    }
    Ok(found)
}

/// Puts the open questions and the alarms of all threads of a file in that had no index of them. What is damaged is left out, and told by whoever reads it.
pub(super) fn fill(file: &File, database: &Database, transaction: &WriteTransaction) -> Result<(), Io> {
    let mut names = Vec::new();
    unless_damaged(file, || read::names_in(database, &mut names))?;
    for name in names {
        let Ok(thread) = ThreadName::new(&name) else { continue };
        let open = unless_damaged(file, || {
            let Loaded { snapshot, entries, .. } = load(file, database, &thread, Reach::Newest)?;
            let open = open_questions(snapshot, &entries, |_| None)?;
            match open {
                Some(open) => Ok(Some(open)),
                // A line that began before the newest snapshot.
                None => {
                    let Loaded { snapshot, entries, .. } = load(file, database, &thread, Reach::Whole)?;
                    Ok(open_questions(snapshot, &entries, |_| None)?)
                }
            }
        })?;
        let open: Vec<Arc<Question>> = open.flatten().into_iter().flatten().collect();
        if !open.is_empty() {
            put(transaction, &name, &open_to_people(&open))?;
            alarms::put(transaction, &name, &alarms_of(&open))?;
        }
    }
    Ok(())
}

fn load(file: &File, database: &Database, thread: &ThreadName, reach: Reach) -> Result<Loaded, Io> {
    Ok(read::load_from(file, thread, read::raw_rows(database, thread.as_str(), reach)?.transpose()?)?)
}

/// Nothing if what is read is damaged, whatever finds it. That the disk fails is an error.
fn unless_damaged<T>(file: &File, read: impl FnOnce() -> Result<T, Io>) -> Result<Option<T>, Io> {
    let found = trouble::guarded(&file.path, || read().map_err(|error| file.error("read", error)));
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::Io { source, .. }) if source.is::<redb::StorageError>() => Err(source),
        Err(error) => {
            tracing::warn!(%error, "the open questions of a thread are not known");
            Ok(None)
        }
    }
}

/// Open questions by thread, with their deadlines.
type Rows = BTreeSet<(String, u128, u64)>;

/// The two tables must say the same, of threads that are there.
pub(super) fn look_at(file: &File, verified: &mut Verified) -> Result<(), StoreError> {
    let read = |database: &Database| -> Result<(Rows, Rows, BTreeSet<String>), Io> {
        let transaction = database.begin_read()?;
        let (mut by_thread, mut by_deadline, mut lost) = (Rows::new(), Rows::new(), BTreeSet::new());
        let log = transaction.open_table(LOG)?;
        for row in transaction.open_table(QUESTIONS)?.iter()? {
            let (key, deadline) = row?;
            let (thread, id) = key.value();
            if !by_thread.insert((thread.to_owned(), id, deadline.value())) {
                return Err(read::out_of_order(thread, 0).into());
            }
            if log.get((thread, HEAD))?.is_none() {
                lost.insert(thread.to_owned());
            }
        }
        for row in transaction.open_table(BY_DEADLINE)?.iter()? {
            let row = row?;
            let (deadline, thread, id) = row.0.value();
            if !by_deadline.insert((thread.to_owned(), id, deadline)) {
                return Err(read::out_of_order(thread, 0).into());
            }
        }
        Ok((by_thread, by_deadline, lost))
    };
    let (by_thread, by_deadline, mut wrong) = file.read(|database| read(database).map_err(|e| file.error("read", e)))?;
    wrong.extend(by_thread.symmetric_difference(&by_deadline).map(|(thread, ..)| thread.clone()));
    for thread in wrong {
        verified.faults.push(format!(
            "the index of open questions does not fit thread \"{}\"; export and import the thread",
            name_of(&thread)
        ));
    }
    Ok(())
}
