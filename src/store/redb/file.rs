//! The file: opened, held, opened again after it failed, and whether it is worth a quick repair.

use std::fs::File as StdFile;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use redb::{Builder, CompactionError, Database};

use super::artifacts::Artifacts;
use super::header::Header;
use super::{trouble, unfinished, upgrade};
use crate::log::large::{Fetch, NoArtifacts, Shelf};
use crate::store::StoreError;

/// The first bytes of every redb file.
pub(super) const REDB_MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// From this size on, commits also keep what makes the file quick to open after a crash; see [`RedbStore`](super::RedbStore).
const QUICK_REPAIR_FROM: u64 = 64 * 1024 * 1024;
/// How many commits are made between two looks at the size of the file.
const COMMITS_PER_LOOK: u32 = 64;

pub(super) type Io = Box<dyn std::error::Error + Send + Sync>;

/// What a store is opened with.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) cache_bytes: usize,
    /// Values above this size are artifacts.
    pub(super) artifacts_above: usize,
    pub(super) artifacts_in: Option<PathBuf>,
    /// A file up to this size is looked through when it is opened.
    pub(super) check_up_to: u64,
}

/// Where the bytes are.
pub(super) enum Disk {
    File,
    #[cfg(feature = "testing")]
    Other(std::sync::Arc<dyn super::disk::Disk>),
}

/// One open store file. Everything here blocks.
pub(super) struct File {
    pub(super) path: PathBuf,
    disk: Disk,
    settings: Settings,
    pub(super) artifacts: Option<Artifacts>,
    /// Readers and the writer share it; opening again and compacting need it alone. Empty if it could not be opened again.
    database: RwLock<Option<Database>>,
    /// Something failed: redb refuses all that follows, and the next one opens the file again.
    broken: AtomicBool,
    /// Held by whoever writes.
    writing: Mutex<()>,
    /// Commits so far, and whether the file was large when its size was looked at last.
    commits: AtomicU32,
    is_large: AtomicBool,
}

impl File {
    pub(super) fn open(path: &Path, disk: Disk, settings: Settings) -> Result<Self, StoreError> {
        match &disk {
            Disk::File => {
                unfinished::begin_anew(path)?;
                refuse_other_files(path)?;
            }
            #[cfg(feature = "testing")]
            Disk::Other(disk) => unfinished::begin_disk_anew(path, &**disk)?,
        }
        let artifacts = settings.artifacts_in.clone().map(Artifacts::at);
        let file = Self {
            path: path.to_owned(),
            disk,
            settings,
            artifacts,
            database: RwLock::new(None),
            broken: AtomicBool::new(false),
            writing: Mutex::new(()),
            commits: AtomicU32::new(0),
            is_large: AtomicBool::new(false),
        };
        *file.database.write().unwrap_or_else(PoisonError::into_inner) = Some(file.connect()?);
        Ok(file)
    }

    fn connect(&self) -> Result<Database, StoreError> {
        let header = self.header();
        let was_closed = header.is_some_and(|header| header.was_closed());
        if header.is_some_and(|header| was_closed && !header.is_newest()) {
            return Err(trouble::damaged(&self.path, "it does not begin with its last transaction"));
        }
        let mut builder = Builder::new();
        builder.set_cache_size(self.settings.cache_bytes);
        builder.set_check_integrity_on_open(self.len() <= self.settings.check_up_to);
        let path = self.path.clone();
        builder.set_repair_callback(move |repair| {
            // It gets there only if the last transaction is not whole: after a crash that is as it should be.
            match (repair.progress() > 0.2 && repair.progress() < 0.5, was_closed) {
                (true, true) => repair.abort(),
                (true, false) => tracing::warn!(path = %path.display(), "the last transaction was not complete, and is undone"),
                _ => {}
            }
        });
        self.guarded(|| {
            let opened = match &self.disk {
                Disk::File => builder.create(&self.path),
                #[cfg(feature = "testing")]
                Disk::Other(disk) => builder.create_with_backend(super::disk::Backend(std::sync::Arc::clone(disk))),
            };
            let database = opened.map_err(|error| trouble::of_opening(&self.path, error))?;
            upgrade::prepare(self, &database)?;
            Ok(database)
        })
    }

    /// What the file says of itself before it is opened.
    fn header(&self) -> Option<Header> {
        let mut bytes = [0; Header::BYTES];
        match &self.disk {
            Disk::File => StdFile::open(&self.path).ok()?.read_exact(&mut bytes).ok()?,
            #[cfg(feature = "testing")]
            Disk::Other(disk) => disk.read(0, &mut bytes).ok()?,
        }
        Header::of(bytes)
    }

    fn guarded<T>(&self, act: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        trouble::guarded(&self.path, act)
    }

    /// An error of the database, as this store's.
    pub(super) fn error(&self, what: &'static str, source: impl Into<Io>) -> StoreError {
        trouble::error(&self.path, what, source.into())
    }

    /// Takes the right to write.
    pub(super) fn to_write(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the right to write if nobody has it.
    pub(super) fn to_write_now(&self) -> Option<MutexGuard<'_, ()>> {
        match self.writing.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Reads. After a failure the file is opened again first, which restores everything that was acknowledged.
    pub(super) fn read<T>(&self, act: impl FnOnce(&Database) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.broken.load(Ordering::Acquire) {
            self.reopen()?;
        }
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &*database else { return Err(StoreError::Closed) };
        self.noting(self.guarded(|| act(database)))
    }

    /// Writes, as [`read`](Self::read) reads.
    pub(super) fn write<T>(
        &self,
        _right: &MutexGuard<'_, ()>,
        act: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.read(act)
    }

    /// Remembers that something failed.
    fn noting<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if matches!(result, Err(StoreError::Io { .. } | StoreError::Damaged { .. })) {
            self.broken.store(true, Ordering::Release);
        }
        result
    }

    fn reopen(&self) -> Result<(), StoreError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        if !self.broken.load(Ordering::Acquire) {
            // Somebody else did it meanwhile.
            return Ok(());
        }
        // The old one holds the lock of the file.
        self.close(&mut database);
        *database = Some(self.connect()?);
        self.broken.store(false, Ordering::Release);
        tracing::warn!(path = %self.path.display(), "the store was opened again after a failure");
        Ok(())
    }

    fn close(&self, database: &mut Option<Database>) {
        // What goes wrong here is found when the file is opened again.
        let closed = self.guarded(|| {
            *database = None;
            Ok(())
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "the store could not be closed cleanly");
        }
    }

    /// Gives freed room back to the file system.
    pub(super) fn compact(&self) -> Result<(), StoreError> {
        self.alone(|database| {
            loop {
                match database.compact() {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(CompactionError::Storage(error)) => return Err(self.error("compacted", error)),
                    Err(error) => return Err(self.error("compacted now", error)),
                }
            }
        })
    }

    /// Whether the file's own checksums are right.
    pub(super) fn is_sound(&self) -> Result<bool, StoreError> {
        self.alone(|database| database.check_integrity().map_err(|error| self.error("checked", error)))
    }

    fn alone<T>(&self, act: impl FnOnce(&mut Database) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.broken.load(Ordering::Acquire) {
            self.reopen()?;
        }
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &mut *database else { return Err(StoreError::Closed) };
        self.noting(self.guarded(|| act(database)))
    }

    /// Whether commits should keep what makes the file quick to open after a crash. Its size is looked at now and then.
    pub(super) fn is_large(&self) -> bool {
        if self.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(COMMITS_PER_LOOK) {
            self.is_large.store(self.len() >= QUICK_REPAIR_FROM, Ordering::Relaxed);
        }
        self.is_large.load(Ordering::Relaxed)
    }

    /// Bytes of the file.
    pub(super) fn len(&self) -> u64 {
        match &self.disk {
            Disk::File => std::fs::metadata(&self.path).map_or(0, |file| file.len()),
            #[cfg(feature = "testing")]
            Disk::Other(disk) => disk.len().unwrap_or(0),
        }
    }

    /// A shelf for what is too large for a record.
    pub(super) fn shelf(&self) -> Shelf {
        if self.artifacts.is_some() { Shelf::above(self.settings.artifacts_above) } else { Shelf::closed() }
    }

    /// Reads artifacts.
    pub(super) fn with_artifacts<T>(&self, act: impl FnOnce(&mut dyn Fetch) -> T) -> T {
        match &self.artifacts {
            Some(artifacts) => act(&mut &*artifacts),
            None => act(&mut NoArtifacts),
        }
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
    if let Ok(file) = StdFile::open(path) {
        let read = file.take(REDB_MAGIC.len() as u64).read_to_end(&mut head);
        if read.is_ok() && !head.is_empty() && head != REDB_MAGIC {
            return refuse("it holds something else; it was not touched, name another file");
        }
    }
    Ok(())
}

impl Drop for File {
    fn drop(&mut self) {
        let mut database = std::mem::take(self.database.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.close(&mut database);
    }
}
