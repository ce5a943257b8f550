//! Bytes that nobody wrote are never taken for records, and never end the process.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

use super::codec::{self, CodecError};
use super::large::{NoArtifacts, Shelf};
use super::{Entry, Exported, Record, Snapshot};
use crate::clock::Timestamp;
use crate::id::{Position, ThreadName};

const RECORDS: &str = include_str!("../testing/suite/records.jsonl");

fn cases(cases: u32) -> TestRunner {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

fn thread() -> ThreadName {
    ThreadName::new("t").expect("a good name")
}

fn records() -> Vec<Record> {
    RECORDS.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

fn unit() -> Vec<u8> {
    codec::encode(&thread(), Position(3), Timestamp(9), &records(), &mut Shelf::closed()).expect("it is encoded")
}

fn snapshot() -> (Snapshot, Vec<u8>) {
    let state = serde_json::json!({ "a": [1, 2.5, "x"], "b": null });
    let snapshot = Snapshot::sample(Position(3), state.as_object().cloned().expect("an object"));
    let bytes = codec::encode_snapshot(&thread(), &snapshot, &mut Shelf::closed()).expect("it is encoded");
    (snapshot, bytes)
}

fn decode(bytes: &[u8]) -> Result<Vec<Entry>, CodecError> {
    codec::decode(&thread(), Position(3), bytes, &mut NoArtifacts)
}

fn decode_snapshot(bytes: &[u8]) -> Result<Snapshot, CodecError> {
    codec::decode_snapshot(&thread(), Position(3), bytes, &mut NoArtifacts)
}

/// What damage does to bytes.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Cut(Index),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// A piece stands in the place of another one, as in a file of blocks.
    Move(Index, Index, usize),
}

impl Damage {
    fn any() -> impl Strategy<Value = Self> {
        let index = any::<Index>;
        prop_oneof![
            (index(), 1..=u8::MAX).prop_map(|(at, bits)| Self::Flip(at, bits)),
            index().prop_map(Self::Cut),
            (index(), prop::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Self::Insert(at, bytes)),
            (index(), 1_usize..20).prop_map(|(at, bytes)| Self::Remove(at, bytes)),
            (index(), index(), 1_usize..64).prop_map(|(from, to, bytes)| Self::Move(from, to, bytes)),
        ]
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let len = bytes.len();
        match self {
            Self::Flip(at, bits) => bytes[at.index(len)] ^= bits,
            Self::Cut(at) => bytes.truncate(at.index(len)),
            Self::Insert(at, more) => _ = bytes.splice(at.index(len)..at.index(len), more.iter().copied()),
            Self::Remove(at, count) => _ = bytes.drain(at.index(len)..(at.index(len) + count).min(len)),
            Self::Move(from, to, count) => {
                let (from, to) = (from.index(len), to.index(len));
                let count = (*count).min(len - from).min(len - to);
                bytes.copy_within(from..from + count, to);
            }
        }
    }
}

#[test]
fn bytes_that_nobody_wrote_are_no_records() {
    let run = |bytes: Vec<u8>| {
        prop_assert!(decode(&bytes).is_err() && decode_snapshot(&bytes).is_err());
        prop_assert!(Exported::read(&mut &*bytes).is_err());
        Ok(())
    };
    cases(2_000).run(&prop::collection::vec(any::<u8>(), 0..300), run).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn damaged_bytes_are_an_error_or_what_was_written() {
    let ((of_records, in_unit), (of_snapshot, in_snapshot)) = ((records(), unit()), snapshot());
    let run = |damages: Vec<Damage>| {
        let (mut unit, mut snapshot) = (in_unit.clone(), in_snapshot.clone());
        damages.iter().for_each(|damage| damage.apply(&mut unit));
        damages.iter().for_each(|damage| damage.apply(&mut snapshot));
        if let Ok(entries) = decode(&unit) {
            prop_assert_eq!(entries.into_iter().map(|entry| entry.record).collect::<Vec<_>>(), of_records.clone());
        }
        if let Ok(found) = decode_snapshot(&snapshot) {
            prop_assert_eq!(&found, &of_snapshot);
        }
        Ok(())
    };
    cases(2_000).run(&prop::collection::vec(Damage::any(), 1..4), run).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn payloads_that_make_no_sense_are_an_error_although_their_checksums_are_right() {
    let run = |payload: Vec<u8>| {
        for flags in [0, 1, 255] {
            let frame = codec::framed(&thread(), Position(3), flags, &payload);
            let unit = codec::unit(&thread(), Position(3), Timestamp(9), 1, &frame).expect("it is encoded");
            // Whether it is one is up to the payload; that it is looked at ends no process.
            let _ = decode(&unit);
            let _ = decode_snapshot(&frame);
        }
        Ok(())
    };
    let lists = (any::<Index>(), 0_usize..100_000).prop_map(|(kind, depth)| {
        // As deep as it is long: a list, a map, or a long list of little.
        let bytes: [&[u8]; 4] = [&[0x91], &[0x81, 0xA1, b'a'], &[0xDD, 0xFF, 0xFF, 0xFF, 0xFF], &[0xC6, 0xFF, 0xFF, 0xFF, 0xFF]];
        kind.get(&bytes).repeat(depth)
    });
    let damaged = prop::collection::vec(Damage::any(), 1..6).prop_map(|damages| {
        let mut payload = unit()[26..].to_vec();
        damages.iter().for_each(|damage| damage.apply(&mut payload));
        payload
    });
    let payloads = prop_oneof![prop::collection::vec(any::<u8>(), 0..300), lists, damaged];
    cases(500).run(&payloads, run).unwrap_or_else(|error| panic!("{error}"));
}
