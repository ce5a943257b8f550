//! Where large values are: a folder of files named by their content, through `object_store`, so that other places can follow.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::log::large::{Artifact, Fetch};

/// The folder of a store. It is made when the first artifact is written.
#[derive(Debug)]
pub(super) struct Artifacts {
    folder: PathBuf,
    files: OnceLock<LocalFileSystem>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Artifacts {
    pub(super) fn at(folder: PathBuf) -> Self {
        Self { folder, files: OnceLock::new() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn files(&self) -> Result<&LocalFileSystem, Failure> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let files = LocalFileSystem::new_with_prefix(&self.folder)?.with_fsync(true).with_automatic_cleanup(true);
        Ok(self.files.get_or_init(|| files))
    }

    /// Writes an artifact, durably. One that is there already, and undamaged, is left alone.
    pub(super) fn put(&self, artifact: &Artifact) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.folder)?;
        let (files, key) = (self.files()?, key(&artifact.hash));
        if self.get(&artifact.hash).is_ok_and(|found| found == artifact.bytes) {
            return Ok(());
        }
        pollster::block_on(files.put(&key, PutPayload::from(artifact.bytes.clone())))?;
        Ok(())
    }

    pub(super) fn get(&self, hash: &str) -> Result<Vec<u8>, Failure> {
        let files = self.files()?;
        Ok(pollster::block_on(async { files.get(&key(hash)).await?.bytes().await })?.to_vec())
    }

    pub(super) fn remove(&self, hash: &str) -> Result<(), Failure> {
        match pollster::block_on(self.files()?.delete(&key(hash))) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The hashes of all artifacts in the folder, and their sizes.
    pub(super) fn list(&self) -> Result<Vec<(String, u64)>, Failure> {
        if !self.folder.is_dir() {
            return Ok(Vec::new());
        }
        let listed = pollster::block_on(self.files()?.list_with_delimiter(None))?;
        let mut found = Vec::new();
        for folder in listed.common_prefixes {
            let inside = pollster::block_on(self.files()?.list_with_delimiter(Some(&folder)))?;
            found.extend(inside.objects.iter().filter_map(|object| Some((object.location.filename()?.to_owned(), object.size))));
        }
        Ok(found)
    }
}

/// Two letters of the hash, and the hash: a folder with a million files is slow to work with.
fn key(hash: &str) -> Key {
    Key::from_iter([hash.get(..2).unwrap_or("xx"), hash])
}

impl Fetch for &Artifacts {
    fn fetch(&mut self, hash: &str) -> Result<Vec<u8>, String> {
        self.get(hash).map_err(|error| format!("which cannot be read from {}: {error}", self.folder.display()))
    }
}
