//! Why a file of the archive cannot be served.

use binlog_store::FileNumber;

use crate::encryption::EncryptionError;
use crate::name::PieceName;
use crate::reading::PieceFault;
use crate::sealed::SealError;
use crate::storage::StorageError;

/// Why the archive does not serve a file, in words for whoever asked for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServingError {
    /// The storage failed, was silent, or refused.
    #[error("the archive cannot be read: {0}")]
    Storage(StorageError),
    /// This host's own disk failed.
    #[error("{file} of the archive cannot be written to this member's disk: {why}")]
    Disk {
        /// The file that was being fetched.
        file: FileNumber,
        /// What the disk says.
        why: String,
    },
    /// The disk has no room that the log does not need.
    #[error(
        "{file} of the archive has {bytes} bytes, for which this member's disk has no room: {free} are free, and {stays_free} stay free"
    )]
    DiskFull {
        /// The file that was to be fetched.
        file: FileNumber,
        /// Its size.
        bytes: u64,
        /// What is free.
        free: u64,
        /// What is left free in any case.
        stays_free: u64,
    },
    /// Other consumers read all that may be on disk at once.
    #[error(
        "{file} of the archive has to wait for other consumers, whose files take the {most} bytes of archive.serve_bytes; a larger number lets more of them read at once"
    )]
    Full {
        /// The file that was to be fetched.
        file: FileNumber,
        /// The bound.
        most: u64,
    },
    /// The file alone is larger than what may be on disk.
    #[error(
        "{file} of the archive has {bytes} bytes, more than archive.serve_bytes ({most}) lets this member fetch"
    )]
    TooLarge {
        /// The file.
        file: FileNumber,
        /// Its size.
        bytes: u64,
        /// The bound.
        most: u64,
    },
    /// Nobody can decrypt it here.
    #[error("{file} is in the archive alone, and this member cannot decrypt it: {why}")]
    Encrypted {
        /// The file.
        file: FileNumber,
        /// What is missing.
        why: String,
    },
    /// The file of the identities is of no use.
    #[error("the identity for the archive (archive.identity_file): {0}")]
    IdentityFile(EncryptionError),
    /// A piece, or its manifest, is not there.
    #[error("{piece} of the archive is missing: {why}")]
    Missing {
        /// Which piece.
        piece: PieceName,
        /// What the storage says.
        why: String,
    },
    /// A piece, or its manifest, is not what was archived.
    #[error("{piece} of the archive is damaged: {why}")]
    Damaged {
        /// Which piece.
        piece: PieceName,
        /// What is wrong with it.
        why: String,
    },
    /// The archive has no such file, or not all that comes behind it.
    #[error("neither this member nor its archive has {0} and all that follows it")]
    Gone(FileNumber),
    /// It was begun and not ended.
    #[error("fetching {0} from the archive was broken off")]
    BrokenOff(FileNumber),
}

/// What a failed write to a file of our own is told by, among failures of reading the archive.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct OwnDisk(pub(super) std::io::Error);

impl ServingError {
    /// Whether it may be otherwise when the same is asked again a little later, with nobody mending anything.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Storage(_)
            | Self::Disk { .. }
            | Self::DiskFull { .. }
            | Self::Full { .. }
            | Self::BrokenOff(_) => true,
            Self::TooLarge { .. }
            | Self::Encrypted { .. }
            | Self::IdentityFile(_)
            | Self::Missing { .. }
            | Self::Damaged { .. }
            | Self::Gone(_) => false,
        }
    }

    /// What stands in the way of reading a piece.
    pub(super) fn of(piece: PieceName, fault: &PieceFault) -> Self {
        let (file, why) = (piece.file, fault.to_string());
        if fault.lacks_an_identity() {
            return Self::Encrypted { file, why };
        }
        if fault.is_missing() {
            return Self::Missing { piece, why };
        }
        if let Some(error) = fault.of_storage() {
            return match error {
                StorageError::TooLarge { .. } => Self::Damaged { piece, why },
                _ => Self::Storage(error.clone()),
            };
        }
        if let PieceFault::Seal(SealError::Io(error)) = fault
            && let Some(OwnDisk(_)) = error.get_ref().and_then(|error| error.downcast_ref())
        {
            return Self::Disk { file, why };
        }
        Self::Damaged { piece, why }
    }
}
