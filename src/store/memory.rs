//! A store that keeps everything in memory, and nothing beyond the process.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    Alarm, AlarmRow, Append, Appended, AtWork, Block, InboxQuery, InboxRow, Loaded, OpenQuestion, Pending, Prune, Pruned, Reach,
    ResourceKept, Restore, Store, StoreError, ThreadInfo, ThreadQuery, ThreadStatus,
};
use crate::clock::Timestamp;
use crate::id::{Position, ThreadName};
use crate::log::{Entry, Record, Snapshot};

/// What a record counts for when a snapshot is considered; nothing is encoded here.
const RECORD_BYTES: u64 = 256;

/// Keeps logs in memory, for tests and for work that may be lost with the process.
///
/// ```
/// use ferrata::store::{MemoryStore, Store};
/// # futures_executor::block_on(async {
/// let store = MemoryStore::new();
/// assert!(store.threads(&Default::default()).await.unwrap().is_empty());
/// # });
/// # mod futures_executor { pub fn block_on<F: Future>(f: F) -> F::Output {
/// #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f) } }
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    // A plain mutex: it is held for a few instructions and never across an await.
    threads: Mutex<BTreeMap<ThreadName, Kept>>,
    resources: Mutex<BTreeMap<String, ResourceKept>>,
    /// Those of all threads. Locked after the threads.
    alarms: Mutex<BTreeSet<AlarmRow>>,
    notes: Mutex<BTreeMap<String, Vec<u8>>>,
    at_work: AtWork,
}

#[derive(Debug)]
struct Kept {
    /// Position of the first record that is kept.
    first: Position,
    records: Vec<(Timestamp, Record)>,
    /// In the order of their positions.
    snapshots: Vec<Snapshot>,
    questions: Vec<OpenQuestion>,
    alarms: Vec<Alarm>,
    status: ThreadStatus,
    since: Timestamp,
    updated_at: Timestamp,
}

impl Kept {
    fn new(first: Position, status: ThreadStatus, at: Timestamp) -> Self {
        let (records, snapshots, questions, alarms) = Default::default();
        Self { first, records, snapshots, questions, alarms, status, since: at, updated_at: at }
    }

    fn next(&self) -> Position {
        Position(self.first.0 + self.records.len() as u64)
    }

    /// Whether the snapshot that is to stand for what is removed is there or comes along.
    fn can_forget(&self, prune: &Prune) -> bool {
        let position = |base: &Snapshot| base.position() == prune.before;
        prune.before <= self.next() && prune.base.as_deref().map_or_else(|| self.snapshots.iter().any(position), position)
    }

    fn load(&self, reach: Reach) -> Loaded {
        let newest_at = match reach {
            Reach::Newest => self.next(),
            Reach::Before(position) => position.max(self.first),
            Reach::Whole => self.first,
        };
        let snapshot = self.snapshots.iter().rev().find(|snapshot| snapshot.position() <= newest_at).cloned();
        let from = snapshot.as_ref().map_or(self.first, Snapshot::position);
        let skipped = usize::try_from(from.0 - self.first.0).unwrap_or(usize::MAX).min(self.records.len());
        let numbered = (from.0..).zip(&self.records[skipped..]);
        let entries: Vec<Entry> = numbered
            .map(|(position, (at, record))| Entry { position: Position(position), at: *at, record: record.clone() })
            .collect();
        let snapshot_bytes = snapshot.as_ref().map_or(0, |s| s.position().0 * RECORD_BYTES);
        let record_bytes = entries.len() as u64 * RECORD_BYTES;
        Loaded { snapshot, snapshot_bytes, entries, record_bytes }
    }

    fn info(&self, name: &ThreadName) -> ThreadInfo {
        ThreadInfo::new(name.clone(), self.status, self.since, self.next().0, self.updated_at)
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ThreadName, Kept>> {
        // Nothing here panics half-way through a change.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resources(&self) -> MutexGuard<'_, BTreeMap<String, ResourceKept>> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says when a thread rings from now on.
    fn ring(&self, thread: &ThreadName, before: &[Alarm], after: &[Alarm]) {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |alarm: &Alarm| AlarmRow::new(thread.clone(), *alarm);
        before.iter().for_each(|alarm| _ = alarms.remove(&row(alarm)));
        alarms.extend(after.iter().map(row));
    }

    fn append_now(&self, append: Append) -> Result<Appended, StoreError> {
        let mut threads = self.lock();
        let found = threads.get(&append.thread).map_or(Position(0), Kept::next);
        if found != append.expected {
            return Err(StoreError::Moved { thread: append.thread, expected: append.expected, found });
        }
        let kept = threads.entry(append.thread.clone()).or_insert_with(|| Kept::new(Position(0), append.status, append.at));
        let record_bytes = append.records.len() as u64 * RECORD_BYTES;
        kept.records.extend(append.records.into_iter().map(|record| (append.at, record)));
        let snapshot_bytes = append.snapshot.is_some().then(|| kept.next().0 * RECORD_BYTES);
        kept.snapshots.extend(append.snapshot.map(|snapshot| *snapshot));
        if (kept.status, append.status) != (ThreadStatus::Running, ThreadStatus::Running) {
            kept.since = append.at;
        }
        (kept.status, kept.updated_at) = (append.status, append.at);
        if let Some(questions) = append.questions {
            kept.questions = questions;
        }
        if let Some(alarms) = append.alarms {
            self.ring(&append.thread, &kept.alarms, &alarms);
            kept.alarms = alarms;
        }
        Ok(Appended { record_bytes, snapshot_bytes })
    }

    fn restore_now(&self, restore: Restore) -> Result<(), StoreError> {
        let mut threads = self.lock();
        if let Some(kept) = threads.get(&restore.thread) {
            return Err(StoreError::Moved { thread: restore.thread, expected: Position(0), found: kept.next() });
        }
        let at = restore.entries.last().map_or(Timestamp::default(), |entry| entry.at);
        let first = restore.base.as_ref().map_or(Position(0), |base| base.position());
        let mut kept = Kept::new(first, restore.status, at);
        kept.records = restore.entries.into_iter().map(|entry| (entry.at, entry.record)).collect();
        kept.snapshots.extend(restore.base.map(|base| *base));
        kept.questions = restore.questions;
        self.ring(&restore.thread, &[], &restore.alarms);
        kept.alarms = restore.alarms;
        threads.insert(restore.thread, kept);
        Ok(())
    }

    fn prune_now(&self, prune: Prune) -> Result<Pruned, StoreError> {
        let (mut threads, position) = (self.lock(), prune.before);
        let found = threads.get(&prune.thread).map_or(Position(0), Kept::next);
        let Some(kept) = threads.get_mut(&prune.thread).filter(|kept| found == prune.expected && kept.can_forget(&prune)) else {
            return Err(StoreError::Moved { thread: prune.thread, expected: prune.expected, found });
        };
        let gone = usize::try_from(position.0.saturating_sub(kept.first.0)).unwrap_or(usize::MAX);
        kept.records.drain(..gone);
        kept.first = position.max(kept.first);
        let before = kept.snapshots.len();
        kept.snapshots.retain(|snapshot| snapshot.position() >= position);
        let snapshots = (before - kept.snapshots.len()) as u64;
        if let Some(base) = prune.base {
            kept.snapshots.retain(|snapshot| snapshot.position() > position);
            kept.snapshots.insert(0, *base);
        }
        Ok(Pruned { records: gone as u64, snapshots })
    }
}

/// What is there at once.
fn ready<'a, T: Send + 'a>(value: T) -> Pending<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Store for MemoryStore {
    fn append(&self, append: Append) -> Pending<'_, Appended> {
        let result = self.append_now(append);
        Box::pin(std::future::ready(result))
    }

    fn append_here(&self, append: Append, _: Option<Block<'_>>) -> Result<Result<Appended, StoreError>, Append> {
        Ok(self.append_now(append))
    }

    fn load<'a>(&'a self, thread: &'a ThreadName, reach: Reach) -> Pending<'a, Loaded> {
        ready(self.lock().get(thread).map(|kept| kept.load(reach)).unwrap_or_default())
    }

    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Pending<'a, Vec<ThreadInfo>> {
        let found = self.lock().iter().map(|(name, kept)| kept.info(name)).collect();
        ready(query.page(found))
    }

    fn questions<'a>(&'a self, query: &'a InboxQuery) -> Pending<'a, Vec<InboxRow>> {
        let threads = self.lock();
        let rows = |(name, kept): (&ThreadName, &Kept)| {
            let row = |question: &OpenQuestion| InboxRow::new(name.clone(), *question);
            kept.questions.iter().map(row).collect::<Vec<_>>()
        };
        ready(query.page(threads.iter().flat_map(rows).collect()))
    }

    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool> {
        let mut threads = self.lock();
        let gone = threads.remove(thread);
        gone.iter().for_each(|kept| self.ring(thread, &kept.alarms, &[]));
        ready(gone.is_some())
    }

    fn restore(&self, restore: Restore) -> Pending<'_, ()> {
        let result = self.restore_now(restore);
        Box::pin(std::future::ready(result))
    }

    fn prune(&self, prune: Prune) -> Pending<'_, Pruned> {
        let result = self.prune_now(prune);
        Box::pin(std::future::ready(result))
    }

    fn resource<'a>(&'a self, name: &'a str) -> Pending<'a, Option<ResourceKept>> {
        ready(self.resources().get(name).cloned())
    }

    fn keep_resource<'a>(&'a self, name: &'a str, kept: &'a ResourceKept) -> Pending<'a, ()> {
        self.resources().insert(name.to_owned(), kept.clone());
        ready(())
    }

    fn alarms<'a>(&'a self, behind: Option<&'a AlarmRow>, most: usize) -> Pending<'a, Vec<AlarmRow>> {
        let alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        ready(alarms.range::<AlarmRow, _>((from, Bound::Unbounded)).take(most).cloned().collect())
    }

    fn note<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        ready(self.notes().get(key).cloned())
    }

    fn keep_note<'a>(&'a self, key: &'a str, note: Option<&'a [u8]>) -> Pending<'a, ()> {
        match note {
            Some(note) => _ = self.notes().insert(key.to_owned(), note.to_vec()),
            None => _ = self.notes().remove(key),
        }
        ready(())
    }

    fn notes<'a>(&'a self, prefix: &'a str, behind: Option<&'a str>, most: usize) -> Pending<'a, Vec<String>> {
        let notes = MemoryStore::notes(self);
        let from = behind.filter(|behind| *behind >= prefix).map_or(Bound::Included(prefix), Bound::Excluded);
        let keys = notes.range::<str, _>((from, Bound::Unbounded)).map(|(key, _)| key);
        ready(keys.take_while(|key| key.starts_with(prefix)).take(most).cloned().collect())
    }

    fn at_work(&self) -> Option<&AtWork> {
        Some(&self.at_work)
    }
}
