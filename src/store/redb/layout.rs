//! The tables of the file, and the row that stands for a thread.

use redb::TableDefinition;

use crate::clock::Timestamp;
use crate::id::{Position, ThreadName};
use crate::log::CodecError;
use crate::store::{ThreadInfo, ThreadStatus};

/// The version of the file's layout.
pub(super) const FORMAT: u64 = 4;

/// What an append wrote, by the position of its first record; behind the last one, at [`HEAD`], the thread's head. The two stand side by
/// side, so that an append changes one place of one tree.
pub(super) const LOG: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("log");
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const SNAPSHOTS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("snapshots");
/// Threads by status and by the time of its beginning. Changes when a thread's status does, not with every append.
pub(super) const BY_STATUS: TableDefinition<'_, (u8, u64, &str), ()> = TableDefinition::new("by_status");
/// Which records and snapshots refer to which artifacts.
pub(super) const REFERENCES: TableDefinition<'_, (&str, u64, &str), ()> = TableDefinition::new("references");

/// Open questions by thread, with their deadlines; the end of time for none. Changes when a thread's questions do, not with every append.
pub(super) const QUESTIONS: TableDefinition<'_, (&str, u128), u64> = TableDefinition::new("questions");
/// The same by deadline.
pub(super) const BY_DEADLINE: TableDefinition<'_, (u64, &str, u128), ()> = TableDefinition::new("by_deadline");

/// Alarms by time, with the id of what they are about and the thread.
pub(super) const ALARMS: TableDefinition<'_, (u64, u128, &str), ()> = TableDefinition::new("alarms");
/// The same by thread and id.
pub(super) const ALARMS_OF: TableDefinition<'_, (&str, u128, u64), ()> = TableDefinition::new("alarms_of");

/// What is kept beside the threads, by key.
pub(super) const NOTES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("notes");

/// What is known of resources, by name. It is made when there is something to keep, in files of any age.
pub(super) const RESOURCES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("resources");

/// The position at which a thread's head stands. No record ever does.
pub(super) const HEAD: u64 = u64::MAX;

const HEAD_VERSION: u8 = 1;
const HEAD_BYTES: usize = 38;

/// What the file says of a thread as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: ThreadStatus,
    /// Position of the first record that is kept.
    pub(super) first: u64,
    /// Position of the next record.
    pub(super) next: u64,
    /// When the status began.
    pub(super) since: Timestamp,
    /// When the last append was made.
    pub(super) at: Timestamp,
}

impl Head {
    pub(super) fn encode(&self, thread: &str) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        (bytes[0], bytes[1]) = (HEAD_VERSION, status_number(self.status));
        for (index, number) in [self.first, self.next, self.since.0, self.at.0].into_iter().enumerate() {
            bytes[2 + 8 * index..10 + 8 * index].copy_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(thread, &bytes[..34]);
        bytes[34..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(thread: &str, bytes: &[u8]) -> Result<Self, CodecError> {
        let number = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let status = bytes.get(1).and_then(|number| status_of(*number));
        let sum = bytes.get(34..HEAD_BYTES).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let (Some(status), Some(first), Some(next), Some(since), Some(at)) =
            (status, number(2), number(10), number(18), number(26))
        else {
            return Err(damaged(thread, HEAD, "its head is cut"));
        };
        if bytes.len() != HEAD_BYTES || bytes[0] != HEAD_VERSION || sum != Some(checksum(thread, &bytes[..34])) {
            return Err(damaged(thread, next, "the checksum of the thread's head is wrong"));
        }
        Ok(Self { status, first, next, since: Timestamp(since), at: Timestamp(at) })
    }

    pub(super) fn info(&self, name: ThreadName) -> ThreadInfo {
        ThreadInfo::new(name, self.status, self.since, self.next, self.at)
    }

    /// The place of the thread in [`BY_STATUS`].
    pub(super) fn place<'t>(&self, thread: &'t str) -> (u8, u64, &'t str) {
        (status_number(self.status), self.since.0, thread)
    }

    /// The head after an append.
    pub(super) fn after(found: Option<Self>, records: u64, status: ThreadStatus, at: Timestamp) -> Self {
        let goes_on = |head: &Self| head.status == ThreadStatus::Running && status == ThreadStatus::Running;
        let since = found.filter(goes_on).map_or(at, |head| head.since);
        let (first, next) = found.map_or((0, 0), |head| (head.first, head.next));
        Self { status, first, next: next + records, since, at }
    }
}

fn checksum(thread: &str, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(thread.as_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

pub(super) fn status_number(status: ThreadStatus) -> u8 {
    match status {
        ThreadStatus::Running => 0,
        ThreadStatus::Done => 1,
        ThreadStatus::Waiting => 2,
        ThreadStatus::Suspended => 3,
        ThreadStatus::Failed => 4,
        ThreadStatus::Outside => 5,
        ThreadStatus::Ready => 6,
    }
}

fn status_of(number: u8) -> Option<ThreadStatus> {
    ThreadStatus::ALL.into_iter().find(|status| status_number(*status) == number)
}

/// The error for a record that is not what was stored.
pub(super) fn damaged(thread: &str, position: u64, why: &str) -> CodecError {
    CodecError::Damaged { thread: name_of(thread), position: Position(position), why: why.to_owned() }
}

/// The name in a key. One that no thread can have is shown as far as it goes.
pub(super) fn name_of(thread: &str) -> ThreadName {
    let plain = || thread.chars().map(|c| if c.is_control() { '?' } else { c }).take(100).collect::<String>();
    ThreadName::new(thread).or_else(|_| ThreadName::new(&plain())).unwrap_or_else(|_| ThreadName::unnamed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_head_every_cut_and_another_threads_head_are_errors() {
        let head = Head { status: ThreadStatus::Waiting, first: 3, next: 70_000, since: Timestamp(5), at: Timestamp(u64::MAX) };
        let bytes = head.encode("a");
        assert_eq!(Head::decode("a", &bytes).ok(), Some(head));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode("a", &damaged).is_err(), "bit {bit}");
        }
        assert!((0..bytes.len()).all(|cut| Head::decode("a", &bytes[..cut]).is_err()));
        assert!(Head::decode("a", &[&bytes[..], &[0]].concat()).is_err());
        assert!(Head::decode("b", &bytes).is_err());
    }
}
