//! What can go wrong with a store.

use std::path::PathBuf;

use crate::id::{Position, ThreadName};
use crate::log::CodecError;

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
    /// The file is not what was written to it.
    #[error(
        "the store {path} is damaged: {why}; restore it from a copy, or open it with `check_up_to(0)` to export what can still be read",
        path = .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
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
