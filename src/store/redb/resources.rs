//! What is known of resources, by name: a version, a checksum that covers the name, MessagePack with names.

use redb::{Database, ReadableDatabase, ReadableTable, TableError};

use super::file::{File, Io};
use super::layout::RESOURCES;
use super::trouble;
use super::verify::Verified;
use super::write::change;
use crate::store::{ResourceKept, StoreError};

/// The version of the bytes that this program writes.
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 5;

pub(super) fn read(file: &File, name: &str) -> Result<Option<ResourceKept>, StoreError> {
    let read = |database: &Database| -> Result<Option<Vec<u8>>, Io> {
        match database.begin_read()?.open_table(RESOURCES) {
            Ok(table) => Ok(table.get(name)?.map(|bytes| bytes.value().to_vec())),
            Err(error) => none_if_absent(error),
        }
    };
    let bytes = file.read(|database| read(database).map_err(|e| file.error("read", e)))?;
    bytes.map(|bytes| decode(file, name, &bytes)).transpose()
}

pub(super) fn write(file: &File, name: &str, kept: &ResourceKept) -> Result<(), StoreError> {
    let bytes = encode(name, kept).map_err(|e| file.error("written", e))?;
    change(file, |transaction| {
        transaction.open_table(RESOURCES)?.insert(name, &*bytes)?;
        Ok(Ok(()))
    })
}

/// Names, with what is kept.
type Rows = Vec<(String, Vec<u8>)>;

/// Every row must be readable.
pub(super) fn look_at(file: &File, verified: &mut Verified) -> Result<(), StoreError> {
    let read = |database: &Database| -> Result<Rows, Io> {
        let table = match database.begin_read()?.open_table(RESOURCES) {
            Ok(table) => table,
            Err(error) => return none_if_absent(error).map(Option::unwrap_or_default),
        };
        let mut rows = Rows::new();
        for row in table.iter()? {
            let (name, bytes) = row?;
            rows.push((name.value().to_owned(), bytes.value().to_vec()));
        }
        Ok(rows)
    };
    let rows = file.read(|database| read(database).map_err(|e| file.error("read", e)))?;
    for (name, bytes) in rows {
        verified.faults.extend(decode(file, &name, &bytes).err().map(|error| error.to_string()));
    }
    Ok(())
}

/// The table comes with the first resource of which something is to be kept; no program has to have made it.
fn none_if_absent<T>(error: TableError) -> Result<Option<T>, Io> {
    match error {
        TableError::TableDoesNotExist(_) => Ok(None),
        error => Err(error.into()),
    }
}

fn encode(name: &str, kept: &ResourceKept) -> Result<Vec<u8>, Io> {
    let mut bytes = vec![0; HEAD_BYTES];
    bytes[0] = VERSION;
    rmp_serde::encode::write_named(&mut bytes, kept)?;
    let sum = checksum(name, VERSION, &bytes[HEAD_BYTES..]);
    bytes[1..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
    Ok(bytes)
}

fn decode(file: &File, name: &str, bytes: &[u8]) -> Result<ResourceKept, StoreError> {
    let wrong = |why: &str| trouble::damaged(&file.path, format!("what is kept of the resource \"{name}\" {why}"));
    let Some((&[version, a, b, c, d], payload)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Err(wrong("is cut")) };
    if u32::from_le_bytes([a, b, c, d]) != checksum(name, version, payload) {
        return Err(wrong("has a wrong checksum"));
    }
    if version > VERSION {
        return Err(StoreError::Newer { path: file.path.clone(), found: version.into(), known: VERSION.into() });
    }
    rmp_serde::from_slice(payload).map_err(|error| wrong(&format!("makes no sense: {error}")))
}

fn checksum(name: &str, version: u8, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(name.as_bytes());
    hasher.update(&[version]);
    hasher.update(payload);
    hasher.finalize()
}
