//! A store that keeps everything in memory, and nothing beyond the process.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Append, Appended, AtWork, Loaded, Pending, Store, StoreError, ThreadInfo, ThreadStatus};
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
/// assert!(store.threads(None, 10).await.unwrap().is_empty());
/// # });
/// # mod futures_executor { pub fn block_on<F: Future>(f: F) -> F::Output {
/// #     tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f) } }
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    // A plain mutex: it is held for a few instructions and never across an await.
    threads: Mutex<BTreeMap<ThreadName, Kept>>,
    at_work: AtWork,
}

#[derive(Debug)]
struct Kept {
    records: Vec<Record>,
    snapshot: Option<Box<Snapshot>>,
    status: ThreadStatus,
    updated_at: Timestamp,
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

    fn append_now(&self, append: Append) -> Result<Appended, StoreError> {
        let mut threads = self.lock();
        let found = Position(threads.get(&append.thread).map_or(0, |kept| kept.records.len() as u64));
        if found != append.expected {
            return Err(StoreError::Moved { thread: append.thread, expected: append.expected, found });
        }
        let kept = threads.entry(append.thread).or_insert_with(|| Kept {
            records: Vec::new(),
            snapshot: None,
            status: append.status,
            updated_at: append.at,
        });
        let record_bytes = append.records.len() as u64 * RECORD_BYTES;
        kept.records.extend(append.records);
        let snapshot_bytes = append.snapshot.is_some().then(|| kept.records.len() as u64 * RECORD_BYTES);
        kept.snapshot = append.snapshot.or(kept.snapshot.take());
        (kept.status, kept.updated_at) = (append.status, append.at);
        Ok(Appended { record_bytes, snapshot_bytes })
    }
}

fn entries(records: &[Record], from: Position) -> Vec<Entry> {
    let from = usize::try_from(from.0).unwrap_or(usize::MAX).min(records.len());
    let numbered = (from as u64..).zip(&records[from..]);
    numbered.map(|(position, record)| Entry { position: Position(position), record: record.clone() }).collect()
}

impl Store for MemoryStore {
    fn append(&self, append: Append) -> Pending<'_, Appended> {
        let result = self.append_now(append);
        Box::pin(std::future::ready(result))
    }

    fn load<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, Loaded> {
        let threads = self.lock();
        let (snapshot, entries) = match threads.get(thread) {
            None => (None, Vec::new()),
            Some(kept) => {
                let from = kept.snapshot.as_ref().map_or(Position(0), |s| s.position());
                (kept.snapshot.as_deref().cloned(), entries(&kept.records, from))
            }
        };
        let snapshot_bytes = snapshot.as_ref().map_or(0, |s| s.position().0 * RECORD_BYTES);
        let record_bytes = entries.len() as u64 * RECORD_BYTES;
        Box::pin(std::future::ready(Ok(Loaded { snapshot, snapshot_bytes, entries, record_bytes })))
    }

    fn read<'a>(&'a self, thread: &'a ThreadName, from: Position) -> Pending<'a, Vec<Entry>> {
        let found = self.lock().get(thread).map(|kept| entries(&kept.records, from)).unwrap_or_default();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn threads<'a>(&'a self, after: Option<&'a ThreadName>, limit: usize) -> Pending<'a, Vec<ThreadInfo>> {
        let threads = self.lock();
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let infos = threads.range::<ThreadName, _>(range).take(limit).map(|(name, kept)| ThreadInfo {
            name: name.clone(),
            status: kept.status,
            records: kept.records.len() as u64,
            updated_at: kept.updated_at,
        });
        Box::pin(std::future::ready(Ok(infos.collect())))
    }

    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool> {
        let removed = self.lock().remove(thread).is_some();
        Box::pin(std::future::ready(Ok(removed)))
    }

    fn at_work(&self) -> Option<&AtWork> {
        Some(&self.at_work)
    }
}
