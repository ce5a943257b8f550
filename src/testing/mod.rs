//! What holds a [`Store`](crate::store::Store) of one's own to its promises, and disks that fail on purpose. Feature `testing`.

mod disk;
mod suite;

pub use disk::{Counted, DiskFault, DiskOp, FaultyDisk, Unsynced};
pub use suite::{Broken, Check, Kept, StoreSuite};
