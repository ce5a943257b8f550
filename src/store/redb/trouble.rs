//! What goes wrong in redb, as errors of a store.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use redb::{CommitError, DatabaseError, StorageError, TableError, TransactionError};

use super::file::Io;
use crate::log::CodecError;
use crate::store::StoreError;

pub(super) fn damaged(path: &Path, why: impl Into<String>) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), why: why.into() }
}

/// redb panics over some damage that it does not look for. That is an error here, and not the end of the thread that works for everyone.
pub(super) fn guarded<T>(path: &Path, act: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(damaged(path, format!("the database cannot make sense of it ({})", text.unwrap_or("it panicked"))))
    })
}

/// An error of reading or writing.
pub(super) fn error(path: &Path, what: &'static str, source: Io) -> StoreError {
    let source = match source.downcast::<CodecError>() {
        Ok(error) => return StoreError::Codec(*error),
        Err(source) => source,
    };
    match corruption(&*source) {
        Some(why) => damaged(path, why),
        None => StoreError::Io { path: path.to_owned(), what, source },
    }
}

/// Why a file could not be opened.
pub(super) fn of_opening(path: &Path, error: DatabaseError) -> StoreError {
    let no_store = |why: String, source: Io| StoreError::NoStore { path: path.to_owned(), why, source: Some(source) };
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.to_owned() },
        DatabaseError::RepairAborted => damaged(path, "a page is not what was written"),
        DatabaseError::Storage(StorageError::Corrupted(why)) => damaged(path, why),
        DatabaseError::Storage(StorageError::Io(source)) => no_store(source.to_string(), Box::new(source)),
        error => no_store(error.to_string(), Box::new(error)),
    }
}

/// Why the database says that the file is damaged, if that is what it says.
fn corruption(error: &(dyn Error + 'static)) -> Option<String> {
    let storage = |error: &StorageError| match error {
        StorageError::Corrupted(why) => Some(why.clone()),
        _ => None,
    };
    if let Some(error) = error.downcast_ref::<StorageError>() {
        return storage(error);
    }
    match (error.downcast_ref::<TableError>(), error.downcast_ref::<TransactionError>(), error.downcast_ref::<CommitError>()) {
        (Some(TableError::Storage(error)), ..) => storage(error),
        // The tables are made with the file.
        (Some(error), ..) => Some(error.to_string()),
        (_, Some(TransactionError::Storage(error)), _) | (.., Some(CommitError::Storage(error))) => storage(error),
        _ => match error.downcast_ref::<DatabaseError>() {
            Some(DatabaseError::Storage(error)) => storage(error),
            _ => None,
        },
    }
}
