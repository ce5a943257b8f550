//! What holds a [`Store`](crate::store::Store) of one's own to its promises, and disks that fail on purpose. Feature `testing`.

mod suite;

pub use suite::{Broken, Check, Kept, StoreSuite};
