//! Bytes of records: a length, a checksum that covers the record's place, a version, MessagePack with names.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::record::{Entry, Record};
use super::snapshot::Snapshot;
use crate::id::{Position, ThreadName};

/// The version of the format of records that this program writes.
pub const RECORD_VERSION: u8 = 1;

const HEAD_BYTES: usize = 10;

/// Bytes that are no record of this thread at this position.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The checksum is wrong, or bytes are missing.
    #[error("record {position} of thread \"{thread}\" is damaged: {why}; restore the store from a copy", position = .position.0)]
    Damaged {
        /// The thread.
        thread: ThreadName,
        /// The record.
        position: Position,
        /// What is wrong.
        why: String,
    },
    /// A newer program wrote it.
    #[error(
        "record {position} of thread \"{thread}\" has format {found}, this program reads up to {RECORD_VERSION}; use the newer program",
        position = .position.0
    )]
    Newer {
        /// The thread.
        thread: ThreadName,
        /// The record.
        position: Position,
        /// The record's version.
        found: u8,
    },
    /// A value cannot be encoded.
    #[error("a record cannot be encoded")]
    Encode(#[from] rmp_serde::encode::Error),
}

/// Encodes the records of one append, the first of them at `position`.
pub(crate) fn encode(thread: &ThreadName, position: Position, records: &[Record]) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::with_capacity(records.len() * 128);
    for (offset, record) in (0_u64..).zip(records) {
        frame(&mut bytes, thread, Position(position.0 + offset), record)?;
    }
    Ok(bytes)
}

/// Decodes what [`encode`] made.
pub(crate) fn decode(thread: &ThreadName, position: Position, mut bytes: &[u8]) -> Result<Vec<Entry>, CodecError> {
    let mut entries = Vec::new();
    let mut position = position;
    while !bytes.is_empty() {
        let (record, rest) = unframe(bytes, thread, position)?;
        entries.push(Entry { position, record });
        bytes = rest;
        position.0 += 1;
    }
    Ok(entries)
}

pub(crate) fn encode_snapshot(thread: &ThreadName, snapshot: &Snapshot) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::new();
    frame(&mut bytes, thread, snapshot.position(), snapshot)?;
    Ok(bytes)
}

pub(crate) fn decode_snapshot(thread: &ThreadName, position: Position, bytes: &[u8]) -> Result<Snapshot, CodecError> {
    unframe(bytes, thread, position).map(|(snapshot, _)| snapshot)
}

fn frame<T: Serialize>(bytes: &mut Vec<u8>, thread: &ThreadName, position: Position, value: &T) -> Result<(), CodecError> {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEAD_BYTES]);
    bytes[start + 8] = RECORD_VERSION;
    rmp_serde::encode::write_named(bytes, value)?;
    let payload = bytes.len() - start - HEAD_BYTES;
    let length = u32::try_from(payload).map_err(|_| rmp_serde::encode::Error::Syntax("a record over 4 GiB".to_owned()))?;
    let checksum = checksum(thread, position, &bytes[start + 8..]);
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    bytes[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

fn unframe<'b, T: DeserializeOwned>(
    bytes: &'b [u8],
    thread: &ThreadName,
    position: Position,
) -> Result<(T, &'b [u8]), CodecError> {
    let damaged = |why: String| CodecError::Damaged { thread: thread.clone(), position, why };
    let number = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let (Some(length), Some(stored)) = (number(0), number(4)) else { return Err(damaged("its head is cut".to_owned())) };
    let end = HEAD_BYTES + length as usize;
    let Some(body) = bytes.get(8..end) else { return Err(damaged("it is cut".to_owned())) };
    if checksum(thread, position, body) != stored {
        return Err(damaged("its checksum is wrong".to_owned()));
    }
    if body[0] > RECORD_VERSION {
        return Err(CodecError::Newer { thread: thread.clone(), position, found: body[0] });
    }
    let value = rmp_serde::from_slice(&body[2..]).map_err(|e| damaged(e.to_string()))?;
    Ok((value, &bytes[end..]))
}

fn checksum(thread: &ThreadName, position: Position, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(thread.as_str().as_bytes());
    hasher.update(&position.0.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::RunId;
    use crate::log::{Fault, RunEnded, RunOutcome};

    fn thread(name: &str) -> ThreadName {
        ThreadName::new(name).expect("a good name")
    }

    fn records() -> Vec<Record> {
        let ended = |outcome| Record::RunEnded(Box::new(RunEnded { run: RunId(uuid::Uuid::nil()), outcome, at: Timestamp(7) }));
        let fault = Fault { code: "route".to_owned(), node: None, text: "ü".to_owned() };
        vec![ended(RunOutcome::Done), ended(RunOutcome::Failed(fault))]
    }

    #[test]
    fn reads_what_it_wrote_and_nothing_else() {
        let bytes = encode(&thread("a"), Position(3), &records()).expect("encodes");
        let entries = decode(&thread("a"), Position(3), &bytes).expect("decodes");
        assert_eq!(entries.iter().map(|e| e.position.0).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(entries.into_iter().map(|e| e.record).collect::<Vec<_>>(), records());
        assert!(decode(&thread("b"), Position(3), &bytes).is_err(), "another thread's record");
        assert!(decode(&thread("a"), Position(4), &bytes).is_err(), "another place");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_an_error_that_names_the_place() {
        let bytes = encode(&thread("a"), Position(3), &records()).expect("encodes");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = decode(&thread("a"), Position(3), &damaged).expect_err("a flipped bit").to_string();
            assert!(error.contains("of thread \"a\""), "{error}");
        }
        let whole: Vec<usize> = vec![0, bytes.len() - encode(&thread("a"), Position(4), &records()[1..]).expect("encodes").len()];
        for cut in (0..bytes.len()).filter(|cut| !whole.contains(cut)) {
            assert!(decode(&thread("a"), Position(3), &bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_as_such() {
        let mut bytes = encode(&thread("a"), Position(0), &records()[..1]).expect("encodes");
        bytes[8] = RECORD_VERSION + 1;
        let sum = checksum(&thread("a"), Position(0), &bytes[8..]);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(decode(&thread("a"), Position(0), &bytes), Err(CodecError::Newer { found: 2, .. })));
    }
}
