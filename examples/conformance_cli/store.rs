//! Where a scenario's threads are kept: in memory, or in a redb file of its own.

use std::path::PathBuf;
use std::sync::Arc;

use ferrata::ThreadName;
use ferrata::store::{Append, Appended, Loaded, MemoryStore, Pending, RedbStore, Store, StoreError, ThreadInfo};
use ferrata::{Position, log::Entry};

use super::engine::{Graph, Runner};

/// Which store a scenario is run over.
#[derive(Clone, Debug)]
pub(crate) enum StoreKind {
    Memory,
    /// A file in this folder, which is there.
    Redb(PathBuf),
}

/// Opens the store again and again, as new processes would.
pub(crate) enum Stores {
    None,
    Memory(Shared),
    Redb(PathBuf),
}

impl Stores {
    pub(crate) fn new(kind: &StoreKind, is_stored: bool) -> Self {
        match kind {
            _ if !is_stored => Self::None,
            StoreKind::Memory => Self::Memory(Shared(Arc::new(MemoryStore::new()))),
            StoreKind::Redb(folder) => Self::Redb(folder.join("scenario.redb")),
        }
    }

    /// A runner over the store as it stands.
    pub(crate) fn runner(&self, graph: Graph) -> Result<Runner, StoreError> {
        Ok(match self {
            Self::None => Runner::without_store(graph),
            Self::Memory(store) => Runner::new(graph, store.clone()),
            Self::Redb(path) => Runner::new(graph, RedbStore::open(path)?),
        })
    }
}

/// Memory that outlives a runner.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<MemoryStore>);

impl Store for Shared {
    fn append(&self, append: Append) -> Pending<'_, Appended> {
        self.0.append(append)
    }

    fn load<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, Loaded> {
        self.0.load(thread)
    }

    fn read<'a>(&'a self, thread: &'a ThreadName, from: Position) -> Pending<'a, Vec<Entry>> {
        self.0.read(thread, from)
    }

    fn threads<'a>(&'a self, after: Option<&'a ThreadName>, limit: usize) -> Pending<'a, Vec<ThreadInfo>> {
        self.0.threads(after, limit)
    }

    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool> {
        self.0.delete(thread)
    }
}
