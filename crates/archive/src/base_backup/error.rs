//! Errors of taking, storing, reading and verifying base backups.

use std::io;
use std::path::PathBuf;

use super::manifest::BaseManifestError;
use super::name::BaseName;
use crate::encryption::EncryptionError;
use crate::storage::StorageError;

/// A failure concerning a base backup.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// A storage request failed, which does not show whether the contents are damaged.
    #[error(transparent)]
    Storage(StorageError),
    /// A failure of this host's disk.
    #[error("{}: {error}", .path.display())]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The directory cannot be backed up, or cannot be restored into.
    #[error("{}: {what}", .path.display())]
    Unfit {
        /// The directory, or the entry in it.
        path: PathBuf,
        /// The reason.
        what: &'static str,
    },
    /// The caller stopped it.
    #[error("it was stopped")]
    Stopped,
    /// The storage acknowledged an object, but it is missing or has another size.
    #[error("the storage took {name} with {expected} bytes, and has {found:?}")]
    Lost {
        /// The object.
        name: String,
        /// Bytes uploaded.
        expected: u64,
        /// Bytes stored; `None` if the object is missing.
        found: Option<u64>,
    },
    /// An object of the archive is damaged or missing.
    #[error("{object}: {what}")]
    Damaged {
        /// The object, or the base backup where the object is unknown.
        object: String,
        /// The cause.
        what: String,
    },
    /// It is encrypted, and no matching identity is available.
    #[error("{object}: {error}")]
    Encryption {
        /// The object.
        object: String,
        /// What is missing.
        error: EncryptionError,
    },
    /// A manifest is unusable.
    #[error("{}: {error}", .name.manifest())]
    Manifest {
        /// Its base backup.
        name: BaseName,
        /// The cause.
        error: BaseManifestError,
    },
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
    /// Whether a part of the archive is damaged or missing, which a retry does not fix.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Manifest { .. })
    }

    /// Adds the path on this host's disk.
    pub(super) fn disk(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Disk { path, error }
    }
}

/// A missing object is a damaged archive; any other error is the storage's own failure.
impl From<StorageError> for BaseError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::NotFound(object) => Self::Damaged {
                object,
                what: "the archive does not have it".to_owned(),
            },
            error => Self::Storage(error),
        }
    }
}

/// The storage's error behind a read or write error, if any.
pub(super) fn of_storage(error: &io::Error) -> Option<StorageError> {
    error.get_ref()?.downcast_ref::<StorageError>().cloned()
}
