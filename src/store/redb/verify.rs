//! Looks at everything in the file, and tells what is wrong.

use std::collections::BTreeSet;

use redb::{Database, ReadableDatabase, ReadableTable};

use super::file::{File, Io};
use super::layout::{BY_STATUS, HEAD, Head, LOG, SNAPSHOTS, name_of};
use super::{alarms, notes, questions, read, resources};
use crate::id::{Position, ThreadName};
use crate::log::codec;
use crate::store::{Reach, StoreError};

/// What was looked at, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Threads.
    pub threads: u64,
    /// Records that are kept.
    pub records: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Artifacts that something refers to.
    pub artifacts: u64,
    /// What is wrong, each with the thread and the place; nothing if the store is sound.
    pub faults: Vec<String>,
}

impl Verified {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

pub(super) fn verify(file: &File) -> Result<Verified, StoreError> {
    let mut verified = Verified::default();
    match file.is_sound() {
        Ok(true) => {}
        Ok(false) => verified.faults.push("the database's own checksums were wrong, and it was repaired".to_owned()),
        Err(error) => verified.faults.push(error.to_string()),
    }
    let names = read::names(file).unwrap_or_else(|error| {
        verified.faults.push(error.to_string());
        Vec::new()
    });
    for name in names {
        verified.threads += 1;
        match ThreadName::new(&name) {
            Ok(thread) => look_at(file, &thread, &mut verified),
            Err(error) => verified.faults.push(error.to_string()),
        }
    }
    let looks = [look_at_index, questions::look_at, alarms::look_at, notes::look_at, resources::look_at, look_at_artifacts];
    for looked in looks.map(|look| look(file, &mut verified)) {
        verified.faults.extend(looked.err().map(|error| error.to_string()));
    }
    Ok(verified)
}

fn look_at(file: &File, thread: &ThreadName, verified: &mut Verified) {
    match read::load(file, thread, Reach::Whole) {
        Ok(loaded) => verified.records += loaded.entries.len() as u64,
        Err(error) => verified.faults.push(error.to_string()),
    }
    match snapshots(file, thread) {
        Ok(found) => {
            for (position, bytes) in found {
                verified.snapshots += 1;
                let decoded = file.with_artifacts(|fetch| codec::decode_snapshot(thread, Position(position), &bytes, fetch));
                verified.faults.extend(decoded.err().map(|error| format!("the snapshot: {error}")));
            }
        }
        Err(error) => verified.faults.push(error.to_string()),
    }
}

fn snapshots(file: &File, thread: &ThreadName) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
    let name = thread.as_str();
    let read = |database: &Database| -> Result<Vec<(u64, Vec<u8>)>, Io> {
        let table = database.begin_read()?.open_table(SNAPSHOTS)?;
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        for row in table.range((name, 0)..=(name, HEAD))? {
            let (key, value) = row?;
            let (of, position) = key.value();
            if of != name || found.last().is_some_and(|(last, _)| *last >= position) {
                return Err(read::out_of_order(name, position).into());
            }
            found.push((position, value.value().to_vec()));
        }
        Ok(found)
    };
    file.read(|database| read(database).map_err(|e| file.error("read", e)))
}

/// Threads by status and time.
type Places = BTreeSet<(u8, u64, String)>;

/// The index by status must say what the heads say.
fn look_at_index(file: &File, verified: &mut Verified) -> Result<(), StoreError> {
    let read = |database: &Database| -> Result<(Places, Places), Io> {
        let transaction = database.begin_read()?;
        let (mut indexed, mut told) = (Places::new(), Places::new());
        for row in transaction.open_table(BY_STATUS)?.iter()? {
            let row = row?;
            let (status, since, name) = row.0.value();
            if !indexed.insert((status, since, name.to_owned())) {
                return Err(read::out_of_order(name, 0).into());
            }
        }
        let mut last = None;
        for row in transaction.open_table(LOG)?.iter()? {
            let (key, value) = row?;
            let (name, position) = key.value();
            let place = (name.to_owned(), position);
            if last.as_ref().is_some_and(|last| place <= *last) {
                return Err(read::out_of_order(name, position).into());
            }
            last = Some(place);
            if let (HEAD, Ok(head)) = (position, Head::decode(name, value.value())) {
                let (status, since, name) = head.place(name);
                told.insert((status, since, name.to_owned()));
            }
        }
        Ok((indexed, told))
    };
    let (indexed, told) = file.read(|database| read(database).map_err(|e| file.error("read", e)))?;
    for (_, _, name) in indexed.symmetric_difference(&told) {
        verified
            .faults
            .push(format!("the index by status does not fit thread \"{}\"; export and import the thread", name_of(name)));
    }
    Ok(())
}

fn look_at_artifacts(file: &File, verified: &mut Verified) -> Result<(), StoreError> {
    for hash in read::references(file)? {
        verified.artifacts += 1;
        let fault = match file.artifacts.as_ref().map(|artifacts| artifacts.get(&hash)) {
            None => Some("but the store was opened without a place for artifacts".to_owned()),
            Some(Err(error)) => Some(format!("which cannot be read: {error}")),
            Some(Ok(bytes)) => (crate::log::large::hash_of(&bytes) != hash).then(|| "which is damaged".to_owned()),
        };
        verified.faults.extend(fault.map(|why| format!("a record refers to the artifact {hash}, {why}")));
    }
    Ok(())
}
