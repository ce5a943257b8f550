//! A disk of one's own under a store, to see what happens when it fails.

use std::fmt;
use std::io;
use std::sync::Arc;

use redb::StorageBackend;

/// Where a store keeps its bytes, for tests that break it: lose what was not synced, tear writes, fail.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// How many bytes there are.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are none.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills the buffer from this place on; an error if there are fewer bytes.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Makes it shorter, or longer with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes everything that was written durable.
    fn sync(&self) -> io::Result<()>;

    /// Writes from this place on.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
}

#[derive(Debug)]
pub(super) struct Backend(pub(super) Arc<dyn Disk>);

impl StorageBackend for Backend {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.0.write(offset, data)
    }
}
