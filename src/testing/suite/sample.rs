//! Threads that the checks write, with what the store must give back of them.

use std::fmt::Debug;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Fault, Found, alarms, asked, must};
use crate::clock::Timestamp;
use crate::id::{Position, QuestionId, ThreadName};
use crate::log::{Answered, Entry, Record, Snapshot};
use crate::store::{
    Alarm, Append, Appended, InboxQuery, InboxRow, Loaded, OpenQuestion, Order, Reach, Store, StoreError, ThreadInfo,
    ThreadQuery, ThreadStatus,
};

/// One of each kind of record, one a line, with values that are easily lost.
const RECORDS: &str = include_str!("records.jsonl");

pub(super) fn name(name: &str) -> Result<ThreadName, Fault> {
    ThreadName::new(name).map_err(|error| Fault(error.to_string()))
}

/// A record that holds this value, and is like no other one's.
pub(super) fn record(value: impl Into<Value>) -> Record {
    let (question, value) = (QuestionId(Uuid::nil()), value.into());
    Record::Answered(Box::new(Answered { question, value, by: None, at: Timestamp(0) }))
}

pub(super) fn records(mark: &str, count: usize) -> Vec<Record> {
    (0..count).map(|number| record(format!("{mark} {number}"))).collect()
}

pub(super) fn every_kind() -> Result<Vec<Record>, Fault> {
    RECORDS.lines().map(|line| serde_json::from_str(line).map_err(|error| Fault(error.to_string()))).collect()
}

/// A snapshot of everything before this position, marked by whose it is.
pub(super) fn snapshot(position: u64, mark: &str) -> Snapshot {
    let state = Map::from_iter([("of".to_owned(), json!(mark)), ("records".to_owned(), json!(position))]);
    Snapshot::sample(Position(position), state)
}

/// Cut to what fits into an error.
pub(super) fn short(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let end = (0..=300.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    if end < text.len() { format!("{}..", &text[..end]) } else { text }
}

/// A thread, and what was acknowledged of it.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) name: ThreadName,
    /// From the first record that is to be kept.
    pub(super) entries: Vec<Entry>,
    pub(super) base: Option<Snapshot>,
    pub(super) status: ThreadStatus,
    pub(super) since: Timestamp,
    pub(super) questions: Vec<OpenQuestion>,
    pub(super) alarms: Vec<Alarm>,
}

impl Told {
    pub(super) fn new(of: &str) -> Result<Self, Fault> {
        let (status, since) = (ThreadStatus::Running, Timestamp(0));
        Ok(Self { name: name(of)?, entries: Vec::new(), base: None, status, since, questions: Vec::new(), alarms: Vec::new() })
    }

    pub(super) fn first(&self) -> Position {
        self.base.as_ref().map_or(Position(0), Snapshot::position)
    }

    pub(super) fn next(&self) -> Position {
        Position(self.first().0 + self.entries.len() as u64)
    }

    /// The next append, at a time that its position tells.
    pub(super) fn append(&self, records: Vec<Record>) -> Append {
        let (expected, at) = (self.next(), Timestamp(1_000 + self.next().0));
        let (thread, status) = (self.name.clone(), ThreadStatus::Running);
        Append { thread, expected, records, snapshot: None, status, questions: None, alarms: None, at }
    }

    /// The next append, with a snapshot behind it.
    pub(super) fn append_with_snapshot(&self, records: Vec<Record>) -> Append {
        let end = self.next().0 + records.len() as u64;
        Append { snapshot: Some(Box::new(snapshot(end, self.name.as_str()))), ..self.append(records) }
    }

    /// Appends, and takes note of what that must lead to.
    pub(super) async fn write(&mut self, store: &dyn Store, append: Append) -> Found {
        let noted = self.noted(&append);
        let position = append.expected.0;
        // Both ways of appending mean the same.
        let done = if position % 2 == 1 { here(store, append).await } else { store.append(append).await };
        done.map_err(|error| Fault(format!("an append to {:?} at {position}, where it ends, failed: {error}", self.name)))?;
        *self = noted;
        Ok(())
    }

    /// The thread with this append.
    pub(super) fn noted(&self, append: &Append) -> Self {
        let mut noted = self.clone();
        if (self.status, append.status) != (ThreadStatus::Running, ThreadStatus::Running) || self.next().0 == 0 {
            noted.since = append.at;
        }
        noted.status = append.status;
        if let Some(questions) = &append.questions {
            noted.questions.clone_from(questions);
        }
        if let Some(alarms) = &append.alarms {
            noted.alarms.clone_from(alarms);
        }
        let numbered = (append.expected.0..).zip(&append.records);
        let entry =
            |(position, record): (u64, &Record)| Entry { position: Position(position), at: append.at, record: record.clone() };
        noted.entries.extend(numbered.map(entry));
        noted
    }

    pub(super) async fn add(&mut self, store: &dyn Store, records: Vec<Record>) -> Found {
        self.write(store, self.append(records)).await
    }

    /// The line that the index must have.
    pub(super) fn info(&self) -> ThreadInfo {
        let at = self.entries.last().map_or(self.since, |entry| entry.at);
        ThreadInfo::new(self.name.clone(), self.status, self.since, self.next().0, at)
    }

    /// The lines of the index of open questions.
    pub(super) fn rows(&self) -> Vec<InboxRow> {
        let row = |question: &OpenQuestion| InboxRow::new(self.name.clone(), *question);
        InboxQuery::new().limit(1_000).page(self.questions.iter().map(row).collect())
    }

    /// The store has all of it, and nothing else.
    pub(super) async fn is_kept(&self, store: &dyn Store) -> Found {
        let whole = store.load(&self.name, Reach::Whole).await?;
        let name = &self.name;
        must!(
            whole.snapshot == self.base,
            "thread {name:?} was loaded whole, and begins with {}, not with {}",
            told(whole.snapshot.as_ref()),
            told(self.base.as_ref())
        );
        self.are_kept(&whole.entries, self.first())?;
        let listed = line(store, name).await?;
        must!(listed == Some(self.info()), "thread {name:?} is listed as {listed:?}, not as {:?}", self.info());
        let (open, rows) = (asked::rows(store, name).await?, self.rows());
        must!(open == rows, "the index of open questions has {open:?} of thread {name:?}, and not {rows:?}");
        let (rings, mut told) = (alarms::of(store, name).await?, self.alarms.clone());
        told.sort();
        must!(rings == told, "the index of alarms has {rings:?} of thread {name:?}, and not {told:?}");
        Ok(())
    }

    /// These are the records from that position on.
    pub(super) fn are_kept(&self, found: &[Entry], from: Position) -> Found {
        let name = &self.name;
        let skipped = usize::try_from(from.0 - self.first().0).unwrap_or(usize::MAX);
        let kept = self.entries.get(skipped..).unwrap_or_default();
        for (found, kept) in found.iter().zip(kept) {
            let position = kept.position.0;
            must!(
                found == kept,
                "record {position} of thread {name:?} is not what was appended: {} instead of {}",
                short(found),
                short(kept)
            );
        }
        must!(
            found.len() == kept.len(),
            "thread {name:?} has {} records from {} on, and {} were acknowledged",
            found.len(),
            from.0,
            kept.len()
        );
        Ok(())
    }
}

fn told(snapshot: Option<&Snapshot>) -> String {
    snapshot.map_or_else(|| "no snapshot".to_owned(), |snapshot| format!("the snapshot at {}", snapshot.position().0))
}

/// Appends on this thread if the store can, and else the other way.
pub(super) async fn here(store: &dyn Store, append: Append) -> Result<Appended, StoreError> {
    let done = store.append_here(append, Some(&|act| act()));
    match done {
        Ok(done) => done,
        Err(append) => store.append(append).await,
    }
}

/// What the index says of a thread.
pub(super) async fn line(store: &dyn Store, name: &ThreadName) -> Result<Option<ThreadInfo>, Fault> {
    let found = store.threads(&ThreadQuery::new().prefix(name.as_str()).limit(1)).await?;
    Ok(found.into_iter().find(|thread| thread.name == *name))
}

/// There is no such thread, whichever way it is looked for.
pub(super) async fn is_nowhere(store: &dyn Store, name: &ThreadName) -> Found {
    for reach in [Reach::Newest, Reach::Whole, Reach::Before(Position(1))] {
        let Loaded { snapshot, entries, .. } = store.load(name, reach).await?;
        must!(
            snapshot.is_none() && entries.is_empty(),
            "there should be no thread {name:?}, and {} records of it are loaded ({reach:?}), with {}",
            entries.len(),
            told(snapshot.as_ref())
        );
    }
    let listed = line(store, name).await?;
    must!(listed.is_none(), "there should be no thread {name:?}, and it is listed: {listed:?}");
    let open = asked::rows(store, name).await?;
    must!(open.is_empty(), "there should be no thread {name:?}, and it has open questions: {open:?}");
    for status in ThreadStatus::ALL {
        let listed = store.threads(&ThreadQuery::new().status(status).order(Order::OldestFirst).limit(1_000)).await?;
        must!(
            listed.iter().all(|thread| thread.name != *name),
            "there should be no thread {name:?}, and it is listed as {status:?}"
        );
    }
    Ok(())
}

/// Refused because the log ends elsewhere, with the right numbers.
pub(super) fn is_refused<T: Debug>(result: &Result<T, StoreError>, name: &ThreadName, expected: u64, found: u64) -> Found {
    match result {
        Err(StoreError::Moved { thread, expected: e, found: f }) => {
            must!(
                (thread, e.0, f.0) == (name, expected, found),
                "what was refused at {expected} of thread {name:?}, which ends at {found}, speaks of thread {thread:?}, {} and {}",
                e.0,
                f.0
            );
            Ok(())
        }
        Err(error) => {
            Err(Fault(format!("an operation at {expected} of {name:?}, which ends at {found}, gives another error: {error}")))
        }
        Ok(_) => Err(Fault(format!(
            "an operation that expects thread {name:?} to end at {expected} is accepted, and it ends at {found}"
        ))),
    }
}
