//! The store in a redb file. redb's types stay in this folder.

mod alarms;
mod artifacts;
#[cfg(feature = "testing")]
mod disk;
mod file;
mod header;
mod layout;
mod notes;
mod questions;
mod read;
mod resources;
mod trouble;
mod unfinished;
mod upgrade;
mod verify;
mod write;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    AlarmRow, Append, Appended, AtWork, Block, InboxQuery, InboxRow, Loaded, Pending, Prune, Pruned, Reach, ResourceKept,
    Restore, Store, StoreError, ThreadInfo, ThreadQuery,
};
use crate::id::ThreadName;
use file::{Disk as Place, File, Settings};
use writer::Worker;

#[cfg(feature = "testing")]
pub use disk::Disk;
pub use verify::Verified;

/// How much of the file is kept in memory if nobody says otherwise.
const CACHE_BYTES: usize = 64 * 1024 * 1024;
/// Values above this size are artifacts if nobody says otherwise.
const ARTIFACTS_ABOVE: usize = 64 * 1024;
/// Files up to this size are looked through when they are opened if nobody says otherwise.
const CHECK_UP_TO: u64 = 512 * 1024;

/// Keeps logs in a redb file: one append is one transaction and one sync of the disk.
///
/// One process at a time can open a file; a second one gets [`StoreError::InUse`]. Clones share the file. One writer takes everything that
/// waits into one transaction, in order, so that many threads at work share the cost of a sync; a thread that is alone does not wait for it.
/// What waits is bounded: whoever appends more waits with it.
///
/// A write that fails, for example because the disk is full, is an error to all who shared it, and the store opens its file again before the next
/// one. What was acknowledged is there.
///
/// # Large values
///
/// A value of more than 64 KiB (see [`RedbOptions::artifacts_above`]) is kept as a file of its own in the folder `FILE.artifacts`, named by the BLAKE3
/// hash of its content, and checked when it is read. It is durable before the record that refers to it is. A copy of the store is the file
/// and this folder. Files that nothing refers to any more go when the store is [compacted](Self::compact).
///
/// # Opening
///
/// A file of up to 512 KiB (see [`RedbOptions::check_up_to`]) is looked through when it is opened, and refused if it is damaged. In a larger one damage is
/// found by what reads it, and all of it by [`verify`](Self::verify): looking through takes about 5 ms per MB, and opening is not to depend on the size.
///
/// A file of an older format is brought up to this program's, in one transaction, and older programs refuse it from then on. That reads every thread as
/// opening it would, once.
///
/// A file that was not closed is brought back to its last transaction, which takes as long. In a file of 64 MiB and more each commit also keeps what makes that
/// unnecessary, which makes it about 1.7 times as dear.
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
    file: Arc<File>,
    writer: Arc<Worker>,
    reader: Arc<Worker>,
    at_work: AtWork,
}

/// How a [`RedbStore`] is opened.
///
/// ```
/// use ferrata::store::{RedbOptions, StoreError};
/// # let dir = std::env::temp_dir().join(format!("ferrata-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # let path = dir.join("orders.redb");
/// let store = RedbOptions::new().cache_bytes(16 << 20).artifacts_above(1 << 20).open(&path)?;
/// assert_eq!(store.path(), path);
/// # drop(store);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RedbOptions {
    settings: Settings,
}

impl Default for RedbOptions {
    fn default() -> Self {
        Self {
            settings: Settings {
                cache_bytes: CACHE_BYTES,
                artifacts_above: ARTIFACTS_ABOVE,
                artifacts_in: None,
                check_up_to: CHECK_UP_TO,
            },
        }
    }
}

impl RedbOptions {
    /// What [`RedbStore::open`] uses.
    pub fn new() -> Self {
        Self::default()
    }

    /// How much of the file is kept in memory, in bytes; 64 MiB if not set.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.settings.cache_bytes = bytes;
        self
    }

    /// Values larger than this, in bytes, are kept outside the file; 64 KiB if not set. Stores of any setting can be read with any other.
    pub fn artifacts_above(mut self, bytes: usize) -> Self {
        self.settings.artifacts_above = bytes;
        self
    }

    /// The folder of large values; `FILE.artifacts` beside the file if not set. It is made when the first one is stored.
    pub fn artifacts_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.settings.artifacts_in = Some(folder.into());
        self
    }

    /// A file up to this size, in bytes, is looked through when it is opened, and refused if it is damaged; up to 512 KiB if not set. It takes
    /// about 5 ms per MB. With 0 a damaged file can be opened, to save what can still be read: what is found damaged then is an error,
    /// but only [`RedbStore::verify`] finds all of it.
    pub fn check_up_to(mut self, bytes: u64) -> Self {
        self.settings.check_up_to = bytes;
        self
    }

    /// Opens the file, or makes it. An empty file becomes a store; any other file that is no store is refused and not touched.
    ///
    /// Blocks for as long as the disk takes.
    pub fn open(self, path: impl AsRef<Path>) -> Result<RedbStore, StoreError> {
        let path = path.as_ref();
        let mut settings = self.settings;
        settings.artifacts_in.get_or_insert_with(|| beside(path));
        RedbStore::start(File::open(path, Place::File, settings)?)
    }

    /// Opens a store on a disk of one's own. Large values stay in their records unless a folder for them is named.
    #[cfg(feature = "testing")]
    pub fn open_on(self, disk: Arc<dyn Disk>) -> Result<RedbStore, StoreError> {
        RedbStore::start(File::open(Path::new("a disk under test"), Place::Other(disk), self.settings)?)
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".artifacts");
    name.into()
}

/// What a compaction gained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Bytes of the file before.
    pub before: u64,
    /// Bytes of the file now.
    pub after: u64,
    /// Bytes of artifacts that nothing referred to any more.
    pub artifacts: u64,
}

impl RedbStore {
    /// Opens the file, or makes it, as [`RedbOptions::open`] does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        RedbOptions::new().open(path)
    }

    fn start(file: File) -> Result<Self, StoreError> {
        let file = Arc::new(file);
        Ok(Self {
            writer: Arc::new(Worker::start("ferrata-writer", &file)?),
            reader: Arc::new(Worker::start("ferrata-reader", &file)?),
            file,
            at_work: AtWork::default(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The folder of large values, if there is a place for them. It exists once there is one.
    pub fn artifacts(&self) -> Option<&Path> {
        self.file.artifacts.as_ref().map(artifacts::Artifacts::folder)
    }

    /// Makes the file as small as it can be, and removes artifacts that nothing refers to. Deleting and pruning make room in the file that is used
    /// again; only this gives it back.
    ///
    /// Nothing else is read or written meanwhile. Takes time and room for up to a whole copy of what is stored.
    pub async fn compact(&self) -> Result<Compacted, StoreError> {
        let compact = |file: &File| {
            let artifacts = write::sweep(file)?;
            let before = file.len();
            file.compact()?;
            Ok(Compacted { before, after: file.len(), artifacts })
        };
        self.writer.call(compact).await
    }

    /// Looks at every record, snapshot and artifact, and at the file's own checksums. What is wrong is told, and nothing is changed, but that the
    /// database mends what it can mend of its own. That the records also make sense together is told by
    /// [`Runner::verify`](crate::Runner::verify), which knows the graph.
    ///
    /// Nothing is written meanwhile. Takes as long as reading the whole store.
    pub async fn verify(&self) -> Result<Verified, StoreError> {
        self.writer.call(verify::verify).await
    }
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Store for RedbStore {
    fn append(&self, append: Append) -> Pending<'_, Appended> {
        Box::pin(self.writer.append(append))
    }

    fn append_here(&self, append: Append, block: Option<Block<'_>>) -> Result<Result<Appended, StoreError>, Append> {
        match block {
            Some(block) => self.writer.append_here(append, block),
            None => Err(append),
        }
    }

    fn load<'a>(&'a self, thread: &'a ThreadName, reach: Reach) -> Pending<'a, Loaded> {
        let thread = thread.clone();
        Box::pin(self.reader.call(move |file| read::load(file, &thread, reach)))
    }

    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Pending<'a, Vec<ThreadInfo>> {
        let query = query.clone();
        Box::pin(self.reader.call(move |file| read::threads(file, &query)))
    }

    fn questions<'a>(&'a self, query: &'a InboxQuery) -> Pending<'a, Vec<InboxRow>> {
        let query = query.clone();
        Box::pin(self.reader.call(move |file| questions::list(file, &query)))
    }

    fn resource<'a>(&'a self, name: &'a str) -> Pending<'a, Option<ResourceKept>> {
        let name = name.to_owned();
        Box::pin(self.reader.call(move |file| resources::read(file, &name)))
    }

    fn alarms<'a>(&'a self, behind: Option<&'a AlarmRow>, most: usize) -> Pending<'a, Vec<AlarmRow>> {
        let behind = behind.cloned();
        Box::pin(self.reader.call(move |file| alarms::list(file, behind.as_ref(), most)))
    }

    fn note<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        let key = key.to_owned();
        Box::pin(self.reader.call(move |file| notes::read(file, &key)))
    }

    fn notes<'a>(&'a self, prefix: &'a str, behind: Option<&'a str>, most: usize) -> Pending<'a, Vec<String>> {
        let (prefix, behind) = (prefix.to_owned(), behind.map(str::to_owned));
        Box::pin(self.reader.call(move |file| notes::list(file, &prefix, behind.as_deref(), most)))
    }

    // What follows goes through the writer, so that it stands in line with the appends.

    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool> {
        let thread = thread.clone();
        Box::pin(self.writer.call(move |file| write::delete(file, &thread)))
    }

    fn restore(&self, restore: Restore) -> Pending<'_, ()> {
        Box::pin(self.writer.call(move |file| write::restore(file, &restore)))
    }

    fn prune(&self, prune: Prune) -> Pending<'_, Pruned> {
        Box::pin(self.writer.call(move |file| write::prune(file, &prune)))
    }

    fn keep_resource<'a>(&'a self, name: &'a str, kept: &'a ResourceKept) -> Pending<'a, ()> {
        let (name, kept) = (name.to_owned(), kept.clone());
        Box::pin(self.writer.call(move |file| resources::write(file, &name, &kept)))
    }

    fn keep_note<'a>(&'a self, key: &'a str, note: Option<&'a [u8]>) -> Pending<'a, ()> {
        let (key, note) = (key.to_owned(), note.map(<[u8]>::to_vec));
        Box::pin(self.writer.call(move |file| notes::write(file, &key, note.as_deref())))
    }

    fn at_work(&self) -> Option<&AtWork> {
        Some(&self.at_work)
    }
}
