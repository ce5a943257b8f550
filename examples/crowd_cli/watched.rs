//! A store, and a disk below it, that write down what they are given and what they acknowledge.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata::store::{Append, Appended, AtWork, Block, Disk, Pending, RedbOptions, RedbStore, Store, StoreError};

use super::ledger::Ledger;
use super::line::{Line, Written, written};
use super::options::Halt;

/// A redb store whose appends stand in the ledger.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: RedbStore,
    ledger: Arc<Ledger>,
}

/// An append as it is written down.
struct Unit {
    keeps: Line,
    kinds: Vec<String>,
}

impl Watched {
    pub(crate) fn open(path: &Path, halt: Option<&Halt>, ledger: &Arc<Ledger>) -> Result<Self, Box<dyn std::error::Error>> {
        let inner = if halt.is_some_and(Halt::is_of_the_disk) {
            let artifacts = format!("{}.artifacts", path.display());
            RedbOptions::new().artifacts_in(artifacts).open_on(Arc::new(WatchedDisk::open(path, ledger)?))?
        } else {
            RedbStore::open(path)?
        };
        Ok(Self { inner, ledger: Arc::clone(ledger) })
    }

    pub(crate) fn store(&self) -> &RedbStore {
        &self.inner
    }

    fn gives(&self, append: &Append) -> Unit {
        let (thread, position) = (append.thread.to_string(), append.expected.0);
        let records: Vec<Written> = append.records.iter().map(written).collect();
        let mut kinds: Vec<String> = records.iter().map(|record| record.kind.clone()).collect();
        kinds.sort();
        kinds.dedup();
        self.ledger.gives(&Line::Gives { thread: thread.clone(), position, records });
        kinds.iter().for_each(|kind| self.ledger.comes_to(&format!("before:{kind}")));
        Unit { keeps: Line::Keeps { thread, position }, kinds }
    }

    fn keeps(&self, unit: &Unit) {
        self.ledger.keeps(&unit.keeps);
        unit.kinds.iter().for_each(|kind| self.ledger.comes_to(&format!("after:{kind}")));
    }
}

impl Store for Watched {
    ferrata::hand_on_store!(inner);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        let unit = self.gives(&append);
        Box::pin(async move {
            let appended = self.inner.append(append).await?;
            self.keeps(&unit);
            Ok(appended)
        })
    }

    fn append_here(&self, append: Append, block: Option<Block<'_>>) -> Result<Result<Appended, StoreError>, Append> {
        let unit = self.gives(&append);
        let result = self.inner.append_here(append, block);
        match &result {
            Ok(Ok(_)) => self.keeps(&unit),
            Ok(Err(_)) => {}
            Err(_) => self.ledger.takes_back(),
        }
        result
    }

    fn at_work(&self) -> Option<&AtWork> {
        self.inner.at_work()
    }
}

/// A plain file as the store's disk, where a process can stand still in the middle of a transaction of several threads.
#[derive(Debug)]
struct WatchedDisk {
    file: Mutex<File>,
    ledger: Arc<Ledger>,
}

impl WatchedDisk {
    fn open(path: &Path, ledger: &Arc<Ledger>) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { file: Mutex::new(file), ledger: Arc::clone(ledger) })
    }

    fn file(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn comes_to(&self, place: &str) {
        if self.ledger.is_shared() {
            self.ledger.comes_to(place);
        }
    }
}

impl Disk for WatchedDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file().metadata()?.len())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut file = self.file();
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(into)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file().set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.comes_to("sync");
        self.file().sync_data()?;
        self.comes_to("synced");
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.file();
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)?;
        drop(file);
        self.comes_to("written");
        Ok(())
    }
}
