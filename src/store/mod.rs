//! Where logs are kept: the [`Store`] trait, in memory, and in a redb file.

mod at_work;
mod memory;
mod redb;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{Position, ThreadName};
use crate::log::{CodecError, Entry, Record, Snapshot};

pub use self::redb::RedbStore;
pub use at_work::AtWork;
pub(crate) use at_work::Claim;
pub use memory::MemoryStore;

/// A store's answer that is not there yet.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps the logs of threads.
///
/// # What an implementation guarantees
///
/// - An append is all or nothing, and durable when it returns, as far as the store is durable at all.
/// - It happens only if the thread's next position is the expected one; of two writers one gets [`StoreError::Moved`].
/// - What was appended is read back as it was, or is an error that names thread and position.
///
/// Each method may be called from many tasks at once, and none may block the thread it is polled on.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Appends records at a thread's expected position.
    fn append(&self, append: Append) -> Pending<'_, Appended>;

    /// The newest snapshot of a thread and the records behind it; no records if there is no such thread.
    fn load<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, Loaded>;

    /// The records of a thread from a position on; none if there is no such thread.
    fn read<'a>(&'a self, thread: &'a ThreadName, from: Position) -> Pending<'a, Vec<Entry>>;

    /// Threads in the order of their names, at most `limit`, those after `after` if it is given.
    fn threads<'a>(&'a self, after: Option<&'a ThreadName>, limit: usize) -> Pending<'a, Vec<ThreadInfo>>;

    /// Removes everything of a thread. False if there is no such thread.
    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool>;

    /// By what runners over this store, or over clones of it, know that a thread is at work, so that only one of them runs it. A store
    /// around another one hands on what that one has.
    ///
    /// Without it, two runners can both begin to run a thread, nodes included; one of them gets [`StoreError::Moved`] when it appends.
    fn at_work(&self) -> Option<&AtWork> {
        None
    }
}

/// A store that several runners share.
///
/// ```
/// # use std::sync::Arc;
/// # use ferrata::{END, Graph, Runner, START, State, View, store::MemoryStore};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// # struct Count { n: u64 }
/// # async fn add(s: View<Count>) -> ferrata::Result<CountUpdate> { Ok(Count::update().n(s.n + 1)) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// # let graph = || Graph::<Count>::new("count").node("add", add).edge(START, "add").edge("add", END).build();
/// let store = Arc::new(MemoryStore::new());
/// Runner::new(graph()?, Arc::clone(&store)).thread("t").run(Count::update().n(1)).await?;
/// let other = Runner::new(graph()?, store);
/// assert_eq!(other.thread("t").state().await?.values.n, 2);
/// # Ok(()) }
/// ```
impl<S: Store + ?Sized> Store for Arc<S> {
    fn append(&self, append: Append) -> Pending<'_, Appended> {
        (**self).append(append)
    }

    fn load<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, Loaded> {
        (**self).load(thread)
    }

    fn read<'a>(&'a self, thread: &'a ThreadName, from: Position) -> Pending<'a, Vec<Entry>> {
        (**self).read(thread, from)
    }

    fn threads<'a>(&'a self, after: Option<&'a ThreadName>, limit: usize) -> Pending<'a, Vec<ThreadInfo>> {
        (**self).threads(after, limit)
    }

    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool> {
        (**self).delete(thread)
    }

    fn at_work(&self) -> Option<&AtWork> {
        (**self).at_work()
    }
}

/// Records to append as a unit.
#[derive(Debug)]
pub struct Append {
    /// The thread.
    pub thread: ThreadName,
    /// Where the writer believes the log ends.
    pub expected: Position,
    /// What to append; at least one record.
    pub records: Vec<Record>,
    /// A snapshot of everything up to the end of this append, if one is due.
    pub snapshot: Option<Box<Snapshot>>,
    /// What the index of threads should say from now on.
    pub status: ThreadStatus,
    /// The time for the index.
    pub at: Timestamp,
}

/// What an append took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Bytes of the records.
    pub record_bytes: u64,
    /// Bytes of the snapshot, if there was one.
    pub snapshot_bytes: Option<u64>,
}

/// A thread as it was last stored.
#[derive(Debug)]
pub struct Loaded {
    /// The newest snapshot.
    pub snapshot: Option<Snapshot>,
    /// Its size in bytes.
    pub snapshot_bytes: u64,
    /// The records behind it.
    pub entries: Vec<Entry>,
    /// Their size in bytes.
    pub record_bytes: u64,
}

/// What a thread is doing, as its log tells. `Running` also stands for a thread whose process died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThreadStatus {
    /// A run is going on, or its process died.
    Running,
    /// Nothing is left to do.
    Done,
    /// It waits for a person.
    Waiting,
    /// It was stopped and can be resumed.
    Suspended,
    /// The last run failed; the thread can be resumed.
    Failed,
}

/// A line of the index of threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// The thread.
    pub name: ThreadName,
    /// What it is doing.
    pub status: ThreadStatus,
    /// How many records it has.
    pub records: u64,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// What can go wrong with a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else wrote the thread in the meantime.
    #[error(
        "thread \"{thread}\" was written by somebody else (it ends at {found}, not at {expected}); one of the two runners must stop",
        found = .found.0, expected = .expected.0
    )]
    Moved {
        /// The thread.
        thread: ThreadName,
        /// Where the writer believed the log to end.
        expected: Position,
        /// Where it ends.
        found: Position,
    },
    /// A record is damaged or of a newer format.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The file is open in another process.
    #[error("the store {path} is in use by another process; stop that one, or use another file", path = .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The path cannot hold a store.
    #[error("{path} cannot be used as a store: {why}", path = .path.display())]
    NoStore {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
        /// What the system says.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// A newer program made the file.
    #[error("the store {path} has format {found}, this program knows {known}; use the newer program", path = .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest known format.
        known: u64,
    },
    /// The store could not be read or written.
    #[error("the store {path} could not be {what}: {source}; what was stored before is safe", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Read or written.
        what: &'static str,
        /// What the database says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store was closed while somebody still used it.
    #[error("the store is closed")]
    Closed,
}
