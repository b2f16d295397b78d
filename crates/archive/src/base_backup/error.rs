//! Why a base backup could not be taken, stored, read or relied on.

use std::io;
use std::path::PathBuf;

use super::manifest::BaseManifestError;
use super::name::BaseName;
use crate::encryption::EncryptionError;
use crate::storage::StorageError;

/// What went wrong with a base backup.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The storage does not do what it is asked, which says nothing of what is in it.
    #[error(transparent)]
    Storage(StorageError),
    /// Something on the disk of this host.
    #[error("{}: {error}", .path.display())]
    Disk {
        /// What of it.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A directory is not one that can be backed up, or not one to restore into.
    #[error("{}: {what}", .path.display())]
    Unfit {
        /// The directory, or what in it.
        path: PathBuf,
        /// Why not.
        what: &'static str,
    },
    /// Whoever waited for it has given it up.
    #[error("it was stopped")]
    Stopped,
    /// The storage said that it has an object, and does not have it as it is.
    #[error("the storage took {name} with {expected} bytes, and has {found:?}")]
    Lost {
        /// The object.
        name: String,
        /// How many bytes it was given.
        expected: u64,
        /// How many it has; none where it has no such object.
        found: Option<u64>,
    },
    /// An object of the archive is not what it should be, or is missing.
    #[error("{object}: {what}")]
    Damaged {
        /// The object, or the base backup where it is not known which one.
        object: String,
        /// What is wrong with it.
        what: String,
    },
    /// It is encrypted, and what it could be decrypted with is not there.
    #[error("{object}: {error}")]
    Encryption {
        /// The object.
        object: String,
        /// What is missing.
        error: EncryptionError,
    },
    /// A manifest cannot be relied on.
    #[error("{}: {error}", .name.manifest())]
    Manifest {
        /// Of which base backup.
        name: BaseName,
        /// What is wrong with it.
        error: BaseManifestError,
    },
    /// There is a finished base backup of that name already.
    #[error("the archive has a base backup {0} already")]
    Taken(BaseName),
    /// Its data are not in the archive.
    #[error("{name} is only registered in the archive: restore it from {place} with {tool}")]
    Registered {
        /// Which one.
        name: BaseName,
        /// What restores it.
        tool: String,
        /// Where it is.
        place: String,
    },
}

impl BaseError {
    /// Whether something of the archive is damaged or missing, which trying again does not mend.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Manifest { .. })
    }

    /// With the place on this host's disk where it happened.
    pub(super) fn disk(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Disk { path, error }
    }
}

/// An object that is not there is missing from the archive; everything else is the storage's own failure.
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

/// What the storage says, where an error of reading or writing is one of the storage.
pub(super) fn of_storage(error: &io::Error) -> Option<StorageError> {
    error.get_ref()?.downcast_ref::<StorageError>().cloned()
}
