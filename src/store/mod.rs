//! Where logs are kept: the [`Store`] trait, in memory, and in a redb file.

mod at_work;
mod error;
mod hand_on;
mod inbox;
mod kept;
mod kinds;
mod memory;
mod query;
mod redb;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

#[cfg(feature = "testing")]
pub use self::redb::Disk;
pub use self::redb::{Compacted, RedbOptions, RedbStore, Verified};
#[doc(no_inline)]
pub use crate::id::ThreadName;
pub use at_work::AtWork;
pub(crate) use at_work::{Claim, Supervises};
pub use error::StoreError;
pub use inbox::InboxQuery;
pub use kept::{BreakerKept, ResourceKept};
pub use kinds::{
    Alarm, AlarmRow, Append, Appended, InboxRow, Loaded, OpenQuestion, Prune, Pruned, Reach, Restore, ThreadInfo, ThreadStatus,
};
pub(crate) use kinds::{alarms_of, open_to_people};
pub use memory::MemoryStore;
pub use query::{Order, ThreadQuery};

/// A store's answer that is not there yet.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Does something that blocks, where that holds up nobody else.
pub type Block<'b> = &'b dyn Fn(&mut dyn FnMut());

/// Keeps the logs of threads.
///
/// # What an implementation guarantees
///
/// - An append is all or nothing, and durable when it returns, as far as the store is durable at all.
/// - It happens only if the thread's next position is the expected one; of two writers one gets [`StoreError::Moved`].
/// - What was appended is read back as it was, or is an error that names thread and position.
/// - The indexes of threads, of open questions and of alarms change with the append that says so, or not at all.
/// - What is done with one thread never touches another one, whatever their names.
/// - The index of alarms and the notes are as reliable: a supervisor rings by the one, and keeps what it has to do by the others.
/// - What is kept of a resource is what was said of it last, under exactly its name.
///
/// `testing::StoreSuite` holds a store to all of it (feature `testing`).
///
/// Each method may be called from many tasks at once, and none may block the thread it is polled on.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Appends records at a thread's expected position.
    fn append(&self, append: Append) -> Pending<'_, Appended>;

    /// Appends on the calling thread, or hands the append back, which is then to be appended the other way. What blocks is done through `block`, and
    /// not at all without it. For stores that gain by it: two threads that wake each other up cost more than half a sync of the disk.
    #[allow(clippy::result_large_err, reason = "the error is the append itself, handed back")]
    fn append_here(&self, append: Append, block: Option<Block<'_>>) -> Result<Result<Appended, StoreError>, Append> {
        let _ = block;
        Err(append)
    }

    /// A thread, as far as it is asked for; nothing in it if there is no such thread.
    fn load<'a>(&'a self, thread: &'a ThreadName, reach: Reach) -> Pending<'a, Loaded>;

    /// The threads that are asked for.
    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Pending<'a, Vec<ThreadInfo>>;

    /// The open questions that are asked for, over all threads: what the last append of each thread that said something of its questions said, or its
    /// restore. A page that is not full is the last one.
    fn questions<'a>(&'a self, query: &'a InboxQuery) -> Pending<'a, Vec<InboxRow>>;

    /// The alarms that come first, over all threads, in the order of [`AlarmRow`]: at most `most` of those behind a line. What the last append of each
    /// thread that said something of its alarms said, or its restore. A page that is not full is the last one.
    fn alarms<'a>(&'a self, behind: Option<&'a AlarmRow>, most: usize) -> Pending<'a, Vec<AlarmRow>>;

    /// What is kept under a key beside the threads; `None` if nothing is.
    fn note<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Vec<u8>>>;

    /// Keeps a note under a key, in place of what was kept, or removes it; durable when it returns, as an append is.
    fn keep_note<'a>(&'a self, key: &'a str, note: Option<&'a [u8]>) -> Pending<'a, ()>;

    /// The keys that begin like this, behind one, in the order of their bytes: at most `most`. A page that is not full is the last one.
    fn notes<'a>(&'a self, prefix: &'a str, behind: Option<&'a str>, most: usize) -> Pending<'a, Vec<String>>;

    /// Removes everything of a thread. False if there is no such thread.
    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool>;

    /// Puts a whole thread in, all or nothing; [`StoreError::Moved`] if there is one of that name.
    fn restore(&self, restore: Restore) -> Pending<'_, ()>;

    /// Forgets the records before a snapshot, all or nothing. The snapshot takes their place.
    fn prune(&self, prune: Prune) -> Pending<'_, Pruned>;

    /// What is kept of the resource of that name; `None` if nothing ever was.
    fn resource<'a>(&'a self, name: &'a str) -> Pending<'a, Option<ResourceKept>>;

    /// Keeps what is known of the resource of that name, in place of what was kept before; durable when it returns, as an append is.
    fn keep_resource<'a>(&'a self, name: &'a str, kept: &'a ResourceKept) -> Pending<'a, ()>;

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

    fn append_here(&self, append: Append, block: Option<Block<'_>>) -> Result<Result<Appended, StoreError>, Append> {
        (**self).append_here(append, block)
    }

    fn load<'a>(&'a self, thread: &'a ThreadName, reach: Reach) -> Pending<'a, Loaded> {
        (**self).load(thread, reach)
    }

    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Pending<'a, Vec<ThreadInfo>> {
        (**self).threads(query)
    }

    fn questions<'a>(&'a self, query: &'a InboxQuery) -> Pending<'a, Vec<InboxRow>> {
        (**self).questions(query)
    }

    fn alarms<'a>(&'a self, behind: Option<&'a AlarmRow>, most: usize) -> Pending<'a, Vec<AlarmRow>> {
        (**self).alarms(behind, most)
    }

    fn note<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        (**self).note(key)
    }

    fn keep_note<'a>(&'a self, key: &'a str, note: Option<&'a [u8]>) -> Pending<'a, ()> {
        (**self).keep_note(key, note)
    }

    fn notes<'a>(&'a self, prefix: &'a str, behind: Option<&'a str>, most: usize) -> Pending<'a, Vec<String>> {
        (**self).notes(prefix, behind, most)
    }

    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool> {
        (**self).delete(thread)
    }

    fn restore(&self, restore: Restore) -> Pending<'_, ()> {
        (**self).restore(restore)
    }

    fn prune(&self, prune: Prune) -> Pending<'_, Pruned> {
        (**self).prune(prune)
    }

    fn resource<'a>(&'a self, name: &'a str) -> Pending<'a, Option<ResourceKept>> {
        (**self).resource(name)
    }

    fn keep_resource<'a>(&'a self, name: &'a str, kept: &'a ResourceKept) -> Pending<'a, ()> {
        (**self).keep_resource(name, kept)
    }

    fn at_work(&self) -> Option<&AtWork> {
        (**self).at_work()
    }
}
