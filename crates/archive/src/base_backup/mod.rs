//! Base backups: copies of a database in the same storage as the log, which is replayed after them.
//!
//! A base backup is a mysqld data directory as one tar stream, cut into objects of some GiB, each of which is one zstd frame: `cat
//! base/NAME/data-* | zstd -dc | tar -x` unpacks it without this program. Its manifest is written last; without one it does not count.
//! Objects never change. A backup that an operator makes with another tool is a manifest without objects, with its place and its position
//! in the log.

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
    /// A storage request failed, which does not show whether the contents are damaged.
    #[error(transparent)]
    Storage(StorageError),
    /// A failure of this host's disk.
    #[error("{}: {}", .0.display(), .1)]
    Disk(PathBuf, io::Error),
    /// The directory cannot be backed up, or cannot be restored into: the directory, or the entry in it, and the reason.
    #[error("{}: {}", .0.display(), .1)]
    Unfit(PathBuf, &'static str),
    /// The caller stopped it.
    #[error("it was stopped")]
    Stopped,
    /// An object of the archive is damaged or missing: the object, or the base backup where the object is unknown, and the cause.
    #[error("{0}: {1}")]
    Damaged(String, String),
    /// It is encrypted, and no matching identity is available.
    #[error("{0}: {1}")]
    Encryption(String, EncryptionError),
    /// A manifest is unusable.
    #[error("{}: {}", .0.manifest(), .1)]
    Manifest(BaseName, ManifestError),
    /// A complete base backup of this name exists already.
    #[error("the archive has a base backup {0} already")]
    Taken(BaseName),
    /// Its data are not in the archive.
    #[error("{name} is only registered in the archive: restore it from {place} with {tool}")]
    Registered {
        /// The base backup.
        name: BaseName,
        /// The tool that restores it.
        tool: String,
        /// Its place.
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

/// A missing object is a damaged archive; any other error is the storage's own failure.
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

/// Carries it through readers and writers.
impl From<BaseError> for io::Error {
    fn from(error: BaseError) -> Self {
        Self::other(error)
    }
}

/// The storage's error in a read or write error, if any.
fn of_storage(error: &io::Error) -> Option<StorageError> {
    error.get_ref()?.downcast_ref::<StorageError>().cloned()
}
