//! Where a scenario's threads are kept: in memory, or in a redb file of its own.

use std::path::PathBuf;
use std::sync::Arc;

use ferrata::store::{MemoryStore, RedbStore, StoreError};

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
    Memory(Arc<MemoryStore>),
    Redb(PathBuf),
}

impl Stores {
    pub(crate) fn new(kind: &StoreKind, is_stored: bool) -> Self {
        match kind {
            _ if !is_stored => Self::None,
            StoreKind::Memory => Self::Memory(Arc::default()),
            StoreKind::Redb(folder) => Self::Redb(folder.join("scenario.redb")),
        }
    }

    /// A runner over the store as it stands.
    pub(crate) fn runner(&self, graph: Graph) -> Result<Runner, StoreError> {
        Ok(match self {
            Self::None => Runner::without_store(graph),
            Self::Memory(store) => Runner::new(graph, Arc::clone(store)),
            Self::Redb(path) => Runner::new(graph, RedbStore::open(path)?),
        })
    }
}
