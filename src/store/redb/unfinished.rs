//! What is left when the making of a file was cut off, by a kill or a full disk. redb writes its first bytes last, and refuses a file without them,
//! although nothing was ever stored in it.

use std::fs::{OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::store::StoreError;

/// No file is larger before something is stored in it.
const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// What redb begins a file with: a header, padded to a page. Nothing else is written before the file is made.
const PAGE: usize = 4096;
const HEADER: usize = 320;
const MAGIC: usize = 9;
const PAGE_SIZE_AT: usize = 12;
/// Each of the two begins with a version, and with whether anything is stored.
const SLOTS_AT: [usize; 2] = [64, 192];
const SLOT_OF_NOTHING: [u8; 3] = [3, 0, 0];

/// Empties the file if that is all it is, so that a store can be made in it.
pub(super) fn begin_anew(path: &Path) -> Result<(), StoreError> {
    // Who cannot write here is told by the opening itself.
    let Ok(mut file) = OpenOptions::new().read(true).write(true).open(path) else { return Ok(()) };
    let no_store = |source: io::Error| StoreError::NoStore {
        path: path.to_owned(),
        why: format!("its making was cut off, and it cannot be made anew: {source}"),
        source: Some(Box::new(source)),
    };
    if !is_unfinished(&mut file).map_err(no_store)? {
        return Ok(());
    }
    match file.try_lock() {
        // Whoever is making it now keeps it locked.
        Err(TryLockError::WouldBlock) => return Err(StoreError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => return Err(no_store(error)),
        Ok(()) => {}
    }
    if is_unfinished(&mut file).map_err(no_store)? {
        file.set_len(0).map_err(no_store)?;
        tracing::warn!(path = %path.display(), "the making of this store was cut off; it is made anew");
    }
    Ok(())
}

/// The same for a disk of one's own, which nobody else can have open.
#[cfg(feature = "testing")]
pub(super) fn begin_disk_anew(path: &Path, disk: &dyn super::Disk) -> Result<(), StoreError> {
    let begin_anew = || -> io::Result<()> {
        let length = disk.len()?;
        if length > BYTES_MAX {
            return Ok(());
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        disk.read(0, &mut bytes)?;
        if is_unfinished(&mut io::Cursor::new(bytes))? { disk.set_len(0) } else { Ok(()) }
    };
    let why = |source: io::Error| StoreError::NoStore {
        path: path.to_owned(),
        why: source.to_string(),
        source: Some(Box::new(source)),
    };
    begin_anew().map_err(why)
}

fn is_unfinished(file: &mut (impl Read + Seek)) -> io::Result<bool> {
    let length = file.seek(SeekFrom::End(0))?;
    if !(1..=BYTES_MAX).contains(&length) {
        return Ok(false);
    }
    file.rewind()?;
    let mut page = [0; PAGE];
    // What was written may be there without the length that it was given before.
    let begun = usize::try_from(length).unwrap_or(PAGE).min(PAGE);
    file.read_exact(&mut page[..begun])?;
    let mut is_empty = is_begun(&page);
    while is_empty {
        let read = file.read(&mut page)?;
        if read == 0 {
            return Ok(true);
        }
        is_empty = page[..read].iter().all(|byte| *byte == 0);
    }
    Ok(false)
}

/// Nothing, or a header that lacks its first bytes and says that nothing is stored.
fn is_begun(page: &[u8; PAGE]) -> bool {
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let says_nothing = || {
        let page_size = page[PAGE_SIZE_AT..PAGE_SIZE_AT + 4] == 4096_u32.to_le_bytes();
        page_size && SLOTS_AT.iter().all(|at| page[*at..*at + 3] == SLOT_OF_NOTHING)
    };
    is_zero(&page[..MAGIC]) && is_zero(&page[HEADER..]) && (is_zero(&page[..HEADER]) || says_nothing())
}
