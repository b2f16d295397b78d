//! Base backups: copies of a database in the same storage as the log. A restore replays the log after one of them.
//!
//! A base backup is a mysqld data directory as one tar stream. The stream is cut into objects of some GiB, each of which is one zstd frame.
//! So `cat base/NAME/data-* | zstd -dc | tar -x` unpacks it without this program. The manifest is written last; a backup without a manifest
//! does not count. Objects never change. If an operator makes a backup with another tool, its manifest has no objects, only its location
//! and its position in the log.

mod contents;
mod download;
mod manifest;
mod survey;
mod unpack;
mod upload;

use std::io;
use std::path::PathBuf;

pub use self::contents::{Entry, assert_whole, list};
pub use self::download::{download, make_empty, verify};
pub use self::manifest::{
    BASE_FOLDER, BASE_VERSION, BaseForm, BaseManifest, BaseName, Tar, data_object,
};
pub use self::survey::{DamagedBase, Survey, free_name, remove_unfinished, survey};
#[cfg(feature = "fuzzing")]
pub(crate) use self::unpack::{Extent, Nowhere, unpack};
pub use self::upload::{OBJECT_BYTES, Packed, UploadOptions, finish, upload};
use crate::encryption::EncryptionError;
use crate::manifest::ManifestError;
use crate::storage::StorageError;

/// A failure concerning a base backup.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// A storage request failed, so it is unknown whether the contents are damaged.
    #[error(transparent)]
    Storage(StorageError),
    /// A failure of this host's disk.
    #[error("{}: {}", .0.display(), .1)]
    Disk(PathBuf, io::Error),
    /// The directory cannot be backed up or restored into. Names the directory, or an entry in it, and the reason.
    #[error("{}: {}", .0.display(), .1)]
    Unfit(PathBuf, &'static str),
    /// The caller stopped it.
    #[error("it was stopped")]
    Stopped,
    /// An object of the archive is damaged or missing. Names the object, or the base backup if the object is unknown, and the cause.
    #[error("{0}: {1}")]
    Damaged(String, String),
    /// The backup is encrypted, and no matching identity is available.
    #[error("{0}: {1}")]
    Encryption(String, EncryptionError),
    /// A manifest is unusable.
    #[error("{}: {}", .0.manifest(), .1)]
    Manifest(BaseName, ManifestError),
    /// A complete base backup of this name exists already.
    #[error("the archive has a base backup {0} already")]
    Taken(BaseName),
    /// The backup's data is not in the archive.
    #[error("{name} is only registered in the archive: restore it from {place} with {tool}")]
    Registered {
        /// The base backup.
        name: BaseName,
        /// The tool that restores it.
        tool: String,
        /// The location of the backup.
        place: String,
    },
}

impl BaseError {
    /// True if a part of the archive is damaged or missing, which a retry does not fix.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Manifest { .. })
    }

    /// Adds the path on this host's disk.
    pub(crate) fn disk(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Disk(path, error)
    }
}

/// If an object is missing, the archive is damaged; any other error is a failure of the storage.
impl From<StorageError> for BaseError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::NotFound(object) => {
                Self::Damaged(object, "the archive does not have it".to_owned())
            }
            error => Self::Storage(error),
        }
    }
}

/// Passes the error through readers and writers.
impl From<BaseError> for io::Error {
    fn from(error: BaseError) -> Self {
        Self::other(error)
    }
}

/// Returns the storage's error that a read or write error contains, if any.
fn of_storage(error: &io::Error) -> Option<StorageError> {
    error.get_ref()?.downcast_ref::<StorageError>().cloned()
}
