//! Bytes of records: a length, a checksum that covers the record's place, a version, MessagePack with names. Records that are appended
//! together are a unit, with a head of its own.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::large::{Fetch, Shelf};
use super::record::{Entry, Record};
use super::snapshot::Snapshot;
use crate::clock::Timestamp;
use crate::id::{Position, ThreadName};

/// The version of the format of records that this program writes.
pub const RECORD_VERSION: u8 = 1;

const HEAD_BYTES: usize = 10;
const UNIT_HEAD_BYTES: usize = 16;

/// A value may have a depth of 100, and the record around it has some of its own.
const NESTING_MAX: usize = 200;

/// The payload is the value's JSON form, in which references stand for large values.
const HAS_ARTIFACTS: u8 = 1;

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
    /// A value that is kept outside the log is not there, or is another one.
    #[error(
        "record {position} of thread \"{thread}\" refers to the artifact {hash}, {why}; bring the folder of artifacts back from a copy",
        position = .position.0
    )]
    Artifact {
        /// The thread.
        thread: ThreadName,
        /// The record.
        position: Position,
        /// The artifact's content hash.
        hash: String,
        /// What is wrong.
        why: String,
    },
    /// A value cannot be encoded.
    #[error("a record cannot be encoded")]
    Encode(#[from] rmp_serde::encode::Error),
}

/// Where bytes stand.
#[derive(Clone, Copy)]
struct Spot<'a> {
    thread: &'a ThreadName,
    position: Position,
}

impl Spot<'_> {
    fn damaged(self, why: impl Into<String>) -> CodecError {
        CodecError::Damaged { thread: self.thread.clone(), position: self.position, why: why.into() }
    }

    fn checksum(self, body: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(self.thread.as_str().as_bytes());
        hasher.update(&self.position.0.to_le_bytes());
        hasher.update(body);
        hasher.finalize()
    }
}

/// Encodes the records of one append, the first of them at `position`. Values that are too large for a record go on the shelf.
pub(crate) fn encode(
    thread: &ThreadName,
    position: Position,
    at: Timestamp,
    records: &[Record],
    shelf: &mut Shelf,
) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::with_capacity(UNIT_HEAD_BYTES + records.len() * 128);
    put_unit_head(&mut bytes, Spot { thread, position }, at, records.len() as u64)?;
    for (offset, record) in (0_u64..).zip(records) {
        frame(&mut bytes, Spot { thread, position: Position(position.0 + offset) }, record, shelf)?;
    }
    Ok(bytes)
}

/// Decodes what [`encode`] made.
pub(crate) fn decode(
    thread: &ThreadName,
    position: Position,
    bytes: &[u8],
    fetch: &mut dyn Fetch,
) -> Result<Vec<Entry>, CodecError> {
    let spot = Spot { thread, position };
    let (at, count, mut bytes) = unit_head(spot, bytes)?;
    let mut entries = Vec::new();
    let mut position = position;
    while !bytes.is_empty() {
        let (record, rest) = unframe(bytes, Spot { thread, position }, fetch)?;
        entries.push(Entry { position, at, record });
        bytes = rest;
        position.0 += 1;
    }
    if entries.len() != count as usize {
        return Err(Spot { thread, position }.damaged("it is missing"));
    }
    Ok(entries)
}

/// A unit of records that are encoded already.
pub(crate) fn unit(
    thread: &ThreadName,
    position: Position,
    at: Timestamp,
    records: u64,
    frames: &[u8],
) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::with_capacity(UNIT_HEAD_BYTES + frames.len());
    put_unit_head(&mut bytes, Spot { thread, position }, at, records)?;
    bytes.extend_from_slice(frames);
    Ok(bytes)
}

fn put_unit_head(bytes: &mut Vec<u8>, spot: Spot<'_>, at: Timestamp, records: u64) -> Result<(), CodecError> {
    let count = u32::try_from(records).map_err(|_| too_large())?;
    bytes.extend_from_slice(&at.0.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    let sum = spot.checksum(bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    Ok(())
}

fn unit_head<'b>(spot: Spot<'_>, bytes: &'b [u8]) -> Result<(Timestamp, u32, &'b [u8]), CodecError> {
    let cut = || spot.damaged("its head is cut");
    let (head, rest) = bytes.split_at_checked(UNIT_HEAD_BYTES).ok_or_else(cut)?;
    let (Some(at), Some(count), Some(sum)) = (number(head, 0), number(head, 8), number(head, 12)) else { return Err(cut()) };
    if spot.checksum(&head[..12]) != u32::from_le_bytes(sum) {
        return Err(spot.damaged("the checksum of its head is wrong"));
    }
    Ok((Timestamp(u64::from_le_bytes(at)), u32::from_le_bytes(count), rest))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

pub(crate) fn encode_snapshot(thread: &ThreadName, snapshot: &Snapshot, shelf: &mut Shelf) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::new();
    frame(&mut bytes, Spot { thread, position: snapshot.position() }, snapshot, shelf)?;
    Ok(bytes)
}

pub(crate) fn decode_snapshot(
    thread: &ThreadName,
    position: Position,
    bytes: &[u8],
    fetch: &mut dyn Fetch,
) -> Result<Snapshot, CodecError> {
    let spot = Spot { thread, position };
    let (snapshot, rest) = unframe::<Snapshot>(bytes, spot, fetch)?;
    match (rest.is_empty(), snapshot.position() == position) {
        (true, true) => Ok(snapshot),
        (false, _) => Err(spot.damaged("there is more than was written")),
        (_, false) => Err(spot.damaged("it is the snapshot of another place")),
    }
}

fn frame<T: Serialize>(bytes: &mut Vec<u8>, spot: Spot<'_>, value: &T, shelf: &mut Shelf) -> Result<(), CodecError> {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEAD_BYTES]);
    bytes[start + 8] = RECORD_VERSION;
    rmp_serde::encode::write_named(bytes, value)?;
    if shelf.is_outsized(bytes.len() - start) {
        let json = serde_json::to_value(value).map_err(|e| rmp_serde::encode::Error::Syntax(e.to_string()))?;
        if let Some(lighter) = shelf.take(json) {
            bytes.truncate(start + HEAD_BYTES);
            bytes[start + 9] = HAS_ARTIFACTS;
            rmp_serde::encode::write_named(bytes, &lighter)?;
        }
    }
    let length = u32::try_from(bytes.len() - start - HEAD_BYTES).map_err(|_| too_large())?;
    let checksum = spot.checksum(&bytes[start + 8..]);
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    bytes[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// Reads MessagePack, no deeper than a record can be: what is nested deeper would end the process.
fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, rmp_serde::decode::Error> {
    let mut from = rmp_serde::Deserializer::from_read_ref(bytes);
    from.set_max_depth(NESTING_MAX);
    T::deserialize(&mut from)
}

fn too_large() -> CodecError {
    rmp_serde::encode::Error::Syntax("a record over 4 GiB".to_owned()).into()
}

fn unframe<'b, T: DeserializeOwned>(bytes: &'b [u8], spot: Spot<'_>, fetch: &mut dyn Fetch) -> Result<(T, &'b [u8]), CodecError> {
    let number = |at: usize| number(bytes, at).map(u32::from_le_bytes);
    let (Some(length), Some(stored)) = (number(0), number(4)) else { return Err(spot.damaged("its head is cut")) };
    let end = HEAD_BYTES + length as usize;
    let Some(body) = bytes.get(8..end) else { return Err(spot.damaged("it is cut")) };
    if spot.checksum(body) != stored {
        return Err(spot.damaged("its checksum is wrong"));
    }
    if body[0] > RECORD_VERSION {
        return Err(CodecError::Newer { thread: spot.thread.clone(), position: spot.position, found: body[0] });
    }
    let value = if body[1] & HAS_ARTIFACTS == 0 {
        unpack(&body[2..]).map_err(|e| spot.damaged(e.to_string()))?
    } else {
        let lighter: Value = unpack(&body[2..]).map_err(|e| spot.damaged(e.to_string()))?;
        let whole = super::large::resolve(lighter, fetch).map_err(|missing| CodecError::Artifact {
            thread: spot.thread.clone(),
            position: spot.position,
            hash: missing.hash,
            why: missing.why,
        })?;
        serde_json::from_value(whole).map_err(|e| spot.damaged(e.to_string()))?
    };
    Ok((value, &bytes[end..]))
}

/// A frame with any payload.
#[cfg(test)]
pub(super) fn framed(thread: &ThreadName, position: Position, flags: u8, payload: &[u8]) -> Vec<u8> {
    let body = [&[RECORD_VERSION, flags], payload].concat();
    let checksum = Spot { thread, position }.checksum(&body);
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes()[..], &checksum.to_le_bytes(), &body].concat()
}

#[cfg(test)]
mod tests {
    use super::super::large::NoArtifacts;
    use super::*;
    use crate::id::RunId;
    use crate::log::{Fault, RunEnded, RunOutcome};

    fn encode(thread: &ThreadName, position: Position, records: &[Record]) -> Result<Vec<u8>, CodecError> {
        super::encode(thread, position, Timestamp(9), records, &mut Shelf::closed())
    }

    fn decode(thread: &ThreadName, position: Position, bytes: &[u8]) -> Result<Vec<Entry>, CodecError> {
        super::decode(thread, position, bytes, &mut NoArtifacts)
    }

    fn thread(name: &str) -> ThreadName {
        ThreadName::new(name).expect("a good name")
    }

    fn records() -> Vec<Record> {
        let ended = |outcome| {
            Record::RunEnded(Box::new(RunEnded { run: RunId(uuid::Uuid::nil()), outcome, why: None, at: Timestamp(7) }))
        };
        let fault = Fault { code: "route".to_owned(), node: None, text: "ü".to_owned(), failure: None };
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
        for cut in 0..bytes.len() {
            assert!(decode(&thread("a"), Position(3), &bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_as_such() {
        let mut bytes = encode(&thread("a"), Position(0), &records()[..1]).expect("encodes");
        let record = UNIT_HEAD_BYTES;
        bytes[record + 8] = RECORD_VERSION + 1;
        let sum = Spot { thread: &thread("a"), position: Position(0) }.checksum(&bytes[record + 8..]);
        bytes[record + 4..record + 8].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(decode(&thread("a"), Position(0), &bytes), Err(CodecError::Newer { found: 2, .. })));
    }
}
