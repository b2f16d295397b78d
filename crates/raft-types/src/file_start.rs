//! The start of a log file: all that a log needs to begin there instead of at the first entry. It is
//! what a leader sends to a member whose entries are purged, in place of a snapshot: a log has no other
//! state. Declared here, because the log offers and takes it and the consensus engine carries it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use openraft::type_config::alias::SnapshotOf;
use openraft::{Snapshot, SnapshotMeta};
use serde::{Deserialize, Serialize};

use crate::doubted_tail::DoubtedTail;
use crate::op_id::OpId;
use crate::type_config::{StoredMembership, TypeConfig};

/// Where a file begins, and the bytes with which it begins on every member.
#[derive(Clone, PartialEq, Eq)]
pub struct FileStart {
    /// The last entry before the file: the floor of a log that begins here. It is committed.
    pub before: OpId,
    /// The membership in force there.
    pub membership: StoredMembership,
    /// The file's header: which file of which ring it is, its format description, its previous GTIDs and
    /// its time. Only the log reads it.
    pub header: Bytes,
}

/// What the engine calls the content of a snapshot: where a log can begin instead of at its first entry.
/// None where a snapshot only marks up to where a log without files may be purged.
pub type OfferedStart = Option<FileStart>;

impl FileStart {
    /// The start as the engine takes it.
    pub fn snapshot(self) -> SnapshotOf<TypeConfig, OfferedStart> {
        Snapshot {
            meta: SnapshotMeta {
                last_log_id: Some(self.before.into()),
                last_membership: self.membership.clone(),
            },
            snapshot: Some(self),
        }
    }
}

impl fmt::Debug for FileStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "FileStart(behind {}, header of {} bytes)",
            self.before,
            self.header.len()
        )
    }
}

/// A piece of a closed file of the log, for a member whose own copy is damaged. The entries around it say which file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// The number in the file's name.
    pub file: u64,
    /// The entry before the file.
    pub before: Option<OpId>,
    /// Its last entry.
    pub last: OpId,
    /// Where in it the piece begins.
    pub offset: u64,
}

/// A log's answer that takes time.
pub type FileStartAnswer<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A log as a row of files, of which another member's log may begin with any.
pub trait FileStarts: Send + Sync + 'static {
    /// The first file start that the log has whose last entry before it is `from` or a later one, and
    /// that is not purged away. None when nothing is purged and `from` is not given: then there is no
    /// need to begin later than at the first entry.
    ///
    /// # Errors
    /// The file cannot be read.
    fn first_start(&self, from: Option<OpId>) -> FileStartAnswer<'_, Option<FileStart>>;

    /// Whether a log could begin with this start: its header is whole, of this ring, and says the same.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check_start(&self, start: &FileStart) -> io::Result<()>;

    /// Lets the log begin with this start; durable when it returns. A log that has the entry before the
    /// start only forgets what comes up to there. Any other log loses all its entries: they are older
    /// than the start, and what the ring committed of them it has seen off.
    ///
    /// # Errors
    /// The log could not be made anew, and does nothing more. Asking again after a restart completes it.
    fn begin_at(&self, start: FileStart) -> FileStartAnswer<'_, ()>;

    /// That the log had to cut bytes off which it may have acknowledged, until that is settled.
    fn doubted_tail(&self) -> Option<DoubtedTail> {
        None
    }

    /// Forgets [`FileStarts::doubted_tail`], durably, if the durable log ends at `from` or behind it; whether it is
    /// settled now.
    ///
    /// # Errors
    /// It could not be stored.
    fn settle_tail(&self, _from: OpId) -> FileStartAnswer<'_, bool> {
        Box::pin(async { Ok(true) })
    }

    /// Bytes of a closed file whose entries are all committed, from an offset on; as many as are handy.
    ///
    /// # Errors
    /// `NotFound` when the log does not have that very file; `Unsupported` when it has none; what the disk reports.
    fn part_of_file(&self, part: FilePart) -> FileStartAnswer<'_, Bytes> {
        let _ = part;
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }
}
