//! The first bytes of a redb file, as far as they tell what redb itself does not: whether an older transaction is taken for the last one.

/// The beginning of the file: 64 bytes that say which of two slots holds the last transaction, and the slots, of 128 bytes each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header([u8; Header::BYTES]);

const FLAGS: usize = 9;
const SECOND_IS_LAST: u8 = 1;
const IN_USE: u8 = 2;
const SLOTS: usize = 64;
const SLOT: usize = 128;
const TRANSACTION: usize = 104;

impl Header {
    pub(super) const BYTES: usize = SLOTS + 2 * SLOT;

    /// Nothing if it is no header: that is for redb to say.
    pub(super) fn of(bytes: [u8; Self::BYTES]) -> Option<Self> {
        bytes.starts_with(super::file::REDB_MAGIC).then_some(Self(bytes))
    }

    /// Whether the file was closed: then its last transaction is complete, and what is not is damage.
    pub(super) fn was_closed(&self) -> bool {
        self.0[FLAGS] & IN_USE == 0
    }

    /// Whether the slot that counts is the newer one.
    pub(super) fn is_newest(&self) -> bool {
        let last = usize::from(self.0[FLAGS] & SECOND_IS_LAST != 0);
        self.transaction(last) >= self.transaction(1 - last)
    }

    fn transaction(&self, slot: usize) -> u64 {
        let at = SLOTS + slot * SLOT + TRANSACTION;
        self.0[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
    }
}
