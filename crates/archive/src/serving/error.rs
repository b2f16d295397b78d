//! Errors of serving a file of the archive.

use binlog_store::FileNumber;

use crate::encryption::EncryptionError;
use crate::name::PieceName;
use crate::reading::PieceFault;
use crate::sealed::SealError;
use crate::storage::StorageError;

/// Why the archive does not serve a file. The message is for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServingError {
    /// The storage failed, timed out or refused.
    #[error("the archive cannot be read: {0}")]
    Storage(#[from] StorageError),
    /// This host's disk failed.
    #[error("{0} of the archive cannot be written to this member's disk: {1}")]
    Disk(FileNumber, String),
    /// The disk has no room outside the log's reserve.
    #[error(
        "{file} of the archive has {bytes} bytes, for which this member's disk has no room: {free} are free, and {stays_free} stay free"
    )]
    DiskFull {
        /// The file to be fetched.
        file: FileNumber,
        /// The file's size in bytes.
        bytes: u64,
        /// Free bytes.
        free: u64,
        /// Bytes reserved for the log.
        stays_free: u64,
    },
    /// Files in use by other consumers take all the allowed space.
    #[error(
        "{0} of the archive has to wait for other consumers, whose files take the {1} bytes of archive.serve_bytes; a larger number lets more of them read concurrently"
    )]
    Full(FileNumber, u64),
    /// The file alone exceeds the allowed space.
    #[error(
        "{file} of the archive has {bytes} bytes, more than archive.serve_bytes ({most}) lets this member fetch"
    )]
    TooLarge {
        /// The file.
        file: FileNumber,
        /// The file's size in bytes.
        bytes: u64,
        /// The allowed space in bytes.
        most: u64,
    },
    /// This member cannot decrypt the file.
    #[error("{0} is in the archive alone, and this member cannot decrypt it: {1}")]
    Encrypted(FileNumber, String),
    /// The identities file is unusable.
    #[error("the identity for the archive (archive.identity_file): {0}")]
    IdentityFile(EncryptionError),
    /// A piece or its manifest is missing.
    #[error("{0} of the archive is missing: {1}")]
    Missing(PieceName, String),
    /// A piece or its manifest is damaged.
    #[error("{0} of the archive is damaged: {1}")]
    Damaged(PieceName, String),
    /// The archive lacks the file, or a part of the log between the file and the member's log.
    #[error("neither this member nor its archive has {0} and all that follows it")]
    Gone(FileNumber),
    /// A fetch was cancelled.
    #[error("fetching {0} from the archive was broken off")]
    BrokenOff(FileNumber),
}

impl ServingError {
    /// Returns whether a later retry may succeed without an operator's action.
    pub fn may_pass(&self) -> bool {
        use ServingError::{BrokenOff, Disk, DiskFull, Full, Storage};
        matches!(
            self,
            Storage(_) | Disk { .. } | DiskFull { .. } | Full { .. } | BrokenOff(_)
        )
    }

    /// Classifies a failure to read a piece.
    pub(super) fn of(piece: PieceName, fault: &PieceFault) -> Self {
        let (file, why) = (piece.file, fault.to_string());
        if fault.lacks_an_identity() {
            return Self::Encrypted(file, why);
        }
        if fault.is_missing() {
            return Self::Missing(piece, why);
        }
        if let Some(error) = fault.of_storage() {
            return match error {
                StorageError::TooLarge { .. } => Self::Damaged(piece, why),
                _ => Self::Storage(error.clone()),
            };
        }
        if let PieceFault::Seal(SealError::Write(_)) = fault {
            return Self::Disk(file, why);
        }
        Self::Damaged(piece, why)
    }
}
