//! Notes beside the threads, by key: a checksum that covers the key, and the bytes.

use std::ops::Bound;

use redb::{Database, ReadableDatabase, ReadableTable};

use super::file::{File, Io};
use super::layout::NOTES;
use super::trouble;
use super::verify::Verified;
use super::write::change;
use crate::store::StoreError;

pub(super) fn read(file: &File, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let read = |database: &Database| -> Result<Option<Vec<u8>>, Io> {
        Ok(database.begin_read()?.open_table(NOTES)?.get(key)?.map(|bytes| bytes.value().to_vec()))
    };
    let bytes = file.read(|database| read(database).map_err(|e| file.error("read", e)))?;
    bytes.map(|bytes| decode(file, key, &bytes)).transpose()
}

pub(super) fn write(file: &File, key: &str, note: Option<&[u8]>) -> Result<(), StoreError> {
    change(file, |transaction| {
        let mut notes = transaction.open_table(NOTES)?;
        match note {
            Some(note) => _ = notes.insert(key, &*[&checksum(key, note).to_le_bytes(), note].concat())?,
            None => _ = notes.remove(key)?,
        }
        Ok(Ok(()))
    })
}

pub(super) fn list(file: &File, prefix: &str, behind: Option<&str>, most: usize) -> Result<Vec<String>, StoreError> {
    let read = |database: &Database| -> Result<Vec<String>, Io> {
        let from = behind.filter(|behind| *behind >= prefix).map_or(Bound::Included(prefix), Bound::Excluded);
        let mut keys = Vec::new();
        for row in database.begin_read()?.open_table(NOTES)?.range::<&str>((from, Bound::Unbounded))?.take(most) {
            let key = row?.0.value().to_owned();
            if !key.starts_with(prefix) {
                break;
            }
            keys.push(key);
        }
        Ok(keys)
    };
    file.read(|database| read(database).map_err(|e| file.error("read", e)))
}

/// Every note must be what was kept.
pub(super) fn look_at(file: &File, verified: &mut Verified) -> Result<(), StoreError> {
    let read = |database: &Database| -> Result<Vec<(String, Vec<u8>)>, Io> {
        let table = database.begin_read()?.open_table(NOTES)?;
        let owned = |row: Result<(redb::AccessGuard<'_, &str>, redb::AccessGuard<'_, &[u8]>), redb::StorageError>| {
            row.map(|(key, bytes)| (key.value().to_owned(), bytes.value().to_vec()))
        };
        Ok(table.iter()?.map(owned).collect::<Result<_, _>>()?)
    };
    for (key, bytes) in file.read(|database| read(database).map_err(|e| file.error("read", e)))? {
        verified.faults.extend(decode(file, &key, &bytes).err().map(|error| error.to_string()));
    }
    Ok(())
}

fn decode(file: &File, key: &str, bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    match bytes.split_first_chunk::<4>() {
        Some((sum, note)) if u32::from_le_bytes(*sum) == checksum(key, note) => Ok(note.to_vec()),
        _ => Err(trouble::damaged(&file.path, format!("the note \"{key}\" has a wrong checksum"))),
    }
}

fn checksum(key: &str, note: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key.as_bytes());
    hasher.update(note);
    hasher.finalize()
}
