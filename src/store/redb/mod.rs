//! The store in a redb file. redb's types stay in this folder.

mod tables;
mod worker;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, DatabaseError, StorageError};

use super::{Append, Appended, AtWork, Loaded, Pending, Store, StoreError, ThreadInfo};
use crate::id::{Position, ThreadName};
use crate::log::Entry;
use worker::Worker;

/// The first bytes of every redb file.
const REDB_MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// Keeps logs in a redb file: one append is one transaction and one sync of the disk.
///
/// One process at a time can open a file; a second one gets [`StoreError::InUse`]. Clones share the file. A thread of its own writes: it takes
/// everything that waits into one transaction, so that many threads at work share the cost of a sync.
///
/// ```
/// use ferrata::store::{RedbStore, StoreError};
/// # let dir = std::env::temp_dir().join(format!("ferrata-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// let path = dir.join("orders.redb");
/// let store = RedbStore::open(&path)?;
/// assert!(matches!(RedbStore::open(&path), Err(StoreError::InUse { .. })));
/// # drop(store);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Clone)]
pub struct RedbStore {
    path: Arc<PathBuf>,
    writer: Arc<Worker>,
    reader: Arc<Worker>,
    at_work: AtWork,
}

impl RedbStore {
    /// Opens the file, or makes it. An empty file becomes a store; any other file that is no store is refused and not touched.
    ///
    /// Blocks for as long as the disk takes.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        refuse_other_files(path)?;
        let database = Database::create(path).map_err(|error| open_error(path, error))?;
        tables::prepare(&database, path)?;
        let database = Arc::new(database);
        let path = Arc::new(path.to_owned());
        Ok(Self {
            writer: Arc::new(Worker::start("ferrata-writer", Arc::clone(&database), Arc::clone(&path))?),
            reader: Arc::new(Worker::start("ferrata-reader", database, Arc::clone(&path))?),
            path,
            at_work: AtWork::default(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("path", &self.path).finish_non_exhaustive()
    }
}

fn refuse_other_files(path: &Path) -> Result<(), StoreError> {
    let refuse = |why: &str| Err(StoreError::NoStore { path: path.to_owned(), why: why.to_owned(), source: None });
    if path.is_dir() {
        return refuse("it is a directory; name a file in it");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return refuse("its directory does not exist; make it first");
    }
    let mut head = Vec::new();
    if let Ok(file) = File::open(path) {
        let read = file.take(REDB_MAGIC.len() as u64).read_to_end(&mut head);
        if read.is_ok() && !head.is_empty() && head != REDB_MAGIC {
            return refuse("it holds something else; it was not touched, name another file");
        }
    }
    Ok(())
}

fn open_error(path: &Path, error: DatabaseError) -> StoreError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path },
        DatabaseError::Storage(StorageError::Io(source)) => {
            StoreError::NoStore { path, why: source.to_string(), source: Some(Box::new(source)) }
        }
        error => StoreError::NoStore { path, why: error.to_string(), source: Some(Box::new(error)) },
    }
}

impl Store for RedbStore {
    fn append(&self, append: Append) -> Pending<'_, Appended> {
        Box::pin(self.writer.append(append))
    }

    fn load<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, Loaded> {
        let thread = thread.clone();
        Box::pin(self.reader.call(move |database, path| tables::load(database, path, &thread)))
    }

    fn read<'a>(&'a self, thread: &'a ThreadName, from: Position) -> Pending<'a, Vec<Entry>> {
        let thread = thread.clone();
        Box::pin(self.reader.call(move |database, path| tables::read(database, path, &thread, from)))
    }

    fn threads<'a>(&'a self, after: Option<&'a ThreadName>, limit: usize) -> Pending<'a, Vec<ThreadInfo>> {
        let after = after.cloned();
        Box::pin(self.reader.call(move |database, path| tables::threads(database, path, after.as_ref(), limit)))
    }

    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool> {
        let thread = thread.clone();
        // Through the writer, so that it stands in line with the appends.
        Box::pin(self.writer.call(move |database, path| tables::delete(database, path, &thread)))
    }

    fn at_work(&self) -> Option<&AtWork> {
        Some(&self.at_work)
    }
}
