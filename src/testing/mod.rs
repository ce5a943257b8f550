//! What crashes a graph of one's own at every moment, what holds a [`Store`](crate::store::Store) of one's own to its promises, and disks that fail on
//! purpose. Feature `testing`.

mod crash;
mod disk;
mod suite;

pub use crash::{
    CrashFault, CrashFaults, CrashPoint, CrashReport, CrashTest, IntoFound, IntoGraph, crash_everywhere, crash_everywhere_in,
};
pub use disk::{Counted, DiskFault, DiskOp, FaultyDisk, Unsynced};
pub use suite::{Broken, Check, Kept, StoreSuite};
