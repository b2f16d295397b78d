//! Errors of opening a log and of an open log. Every message includes the remedy.

use std::path::PathBuf;
use std::{fmt, io};

use raft_types::{OpId, RingId};

use crate::format::{FileNumber, InvalidEntry};
use crate::scan::Corruption;

/// Why an operation on an open log failed. All but [`StoreError::InvalidEntry`] are final: the store stops, so that the disk keeps
/// everything acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No file can hold the entry.
    #[error("{0}")]
    InvalidEntry(#[from] InvalidEntry),
    /// The disk was full where waiting is impossible: during a sync, or while the log was closing.
    #[error(
        "the disk is full while {0}; nothing acknowledged is lost. Free space on it (for instance by purging \
         old files of the log), then start this member again"
    )]
    DiskFull(String),
    /// The disk or the hard state reported an error.
    #[error(
        "{0}. The member stops writing, because what the disk has is no longer certain; check the machine's disk, then \
         start this member again, which verifies the log"
    )]
    Io(DiskError),
    /// The disk cannot return the requested bytes. The log continues to write.
    #[error("{0}. Check the machine's disk; the other members have what cannot be read here")]
    Unreadable(DiskError),
    /// Bytes that were intact are now damaged.
    #[error("{0}. Do not purge the other members, which have it whole")]
    Corrupt(Corruption),
    /// The engine requested a truncation of committed entries.
    #[error("refusing to truncate after {keep:?}: entry {committed} is committed")]
    TruncateCommitted {
        /// The last entry that would remain.
        keep: Option<OpId>,
        /// The last entry recorded as committed.
        committed: OpId,
    },
    /// The first entry of a file start from another member contradicts the committed entries of this log.
    #[error(
        "refusing to begin the log after {before}: entry {committed} is committed here, but {before} is not in \
         the log. This member's log or the one that was offered is not the ring's; compare them with `witness log diff`"
    )]
    StartContradicts {
        /// The last entry before the file start.
        before: OpId,
        /// The last entry recorded as committed here.
        committed: OpId,
    },
    /// The log was shut down.
    #[error("the log is closed")]
    Closed,
}

impl StoreError {
    /// An error of the disk or the hard state in the writer.
    pub(crate) fn io(doing: impl Into<String>, error: &io::Error) -> Self {
        if is_full(error) {
            return Self::DiskFull(doing.into());
        }
        Self::Io(DiskError::of(doing, error))
    }

    /// A disk error in a reader.
    pub(crate) fn unreadable(doing: impl Into<String>, error: &io::Error) -> Self {
        Self::Unreadable(DiskError::of(doing, error))
    }
}

/// A failed operation on the disk or the hard state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{doing} failed: {message}")]
pub struct DiskError {
    doing: String,
    kind: io::ErrorKind,
    message: String,
}

impl DiskError {
    fn of(doing: impl Into<String>, error: &io::Error) -> Self {
        Self {
            doing: doing.into(),
            kind: error.kind(),
            message: error.to_string(),
        }
    }
}

/// Names the writer's failed operation.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T, StoreError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T, StoreError> {
        self.map_err(|error| StoreError::io(what.to_string(), &error))
    }
}

/// True if a disk or a quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::InvalidEntry(_)
            | StoreError::TruncateCommitted { .. }
            | StoreError::StartContradicts { .. } => io::ErrorKind::InvalidInput,
            StoreError::DiskFull { .. } => io::ErrorKind::StorageFull,
            StoreError::Corrupt(_) => io::ErrorKind::InvalidData,
            StoreError::Closed => io::ErrorKind::BrokenPipe,
            StoreError::Io(error) | StoreError::Unreadable(error) => error.kind,
        };
        Self::new(kind, error)
    }
}

/// Why a log was not truncated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CutBackError {
    /// The log does not have the entry that should be its last.
    #[error(
        "the log cannot be cut back to {}: it {}. Nothing was changed; replace the member: remove it from the ring, and add it \
         again under a new number with an empty data directory",
        .to.map_or_else(|| "before its first entry".to_owned(), |to| to.to_string()),
        .found.map_or_else(|| "does not reach that far".to_owned(), |found| format!("has only {found} there"))
    )]
    NotThere {
        /// The requested last entry; `None` for an empty log.
        to: Option<OpId>,
        /// The entry at the requested index. If that entry was purged, the last purged entry.
        found: Option<OpId>,
    },
    /// The disk or the log failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An operator's action when a member's own state can no longer be trusted.
const REPLACE: &str = "Restore the whole data directory from a copy made while the member was stopped, if it has not run since, or replace \
                       the member: remove it from the ring, and add it again under a new number with an empty data directory";

/// Why a log cannot be opened. The disk is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk or the hard state reported an error.
    #[error("{0} failed: {1}")]
    Io(String, io::Error),
    /// A file is damaged where a torn write is impossible.
    #[error(
        "{} is damaged: {}. This is not a torn write at the log's end, so it is not cut off",
        .0.display(), .1
    )]
    Corrupt(PathBuf, Corruption),
    /// A file of the log is missing.
    #[error("{} is missing, although the log had it: acknowledged entries are gone. {REPLACE}", .0.display())]
    FileMissing(PathBuf),
    /// All files of the log are missing.
    #[error("{} has no log files, although this member has acknowledged entries. {REPLACE}", .0.display())]
    LogMissing(PathBuf),
    /// All files of the log and the hard state are missing.
    #[error(
        "{} no longer has a log (`log/`) or a hard state (`meta/`), although this member has had both: it does not know how it \
         has voted and what it has acknowledged, so that transactions could be lost if it took part. {REPLACE}",
        .0.display()
    )]
    AllMissing(PathBuf),
    /// The hard state is missing.
    #[error(
        "the log in {} is there, but the hard state next to it (`meta/`) is gone, and with it the vote: this member \
         could vote twice in one term. {REPLACE}",
        .0.display()
    )]
    MetaMissing(PathBuf),
    /// The hard state is damaged.
    #[error("{0}. {REPLACE}")]
    MetaDamaged(String),
    /// The hard state is older than the log.
    #[error(
        "the last entry {0} of the log is of a later term than the stored vote (term {1}): the hard state \
         next to the log (`meta/`) is an old copy, and this member could vote twice in one term. {REPLACE}"
    )]
    VoteOlderThanLog(OpId, u64),
    /// Committed or durable entries are missing.
    #[error(
        "entry {known} was {what} on this member, but the log ends {}: acknowledged entries are gone. {REPLACE}",
        end_text(*end)
    )]
    EntriesMissing {
        /// The missing entry.
        known: OpId,
        /// What the hard state records about the entry, as text: committed or durable.
        what: &'static str,
        /// The last entry of the log; `None` if it is empty.
        end: Option<OpId>,
    },
    /// The committed entry differs from the one in the log.
    #[error(
        "the hard state says that entry {committed} is committed, but the log has {found} there: log and hard state \
         are not of the same member or moment. {REPLACE}"
    )]
    CommittedDiffers {
        /// The committed entry in the hard state.
        committed: OpId,
        /// The entry at its index.
        found: OpId,
    },
    /// The log belongs to another ring.
    #[error(
        "the log belongs to ring {found}, but this member is configured for ring {expected}: check the configured \
         data directory"
    )]
    ForeignRing {
        /// The ring in the files or the hard state.
        found: RingId,
        /// The ring that the identity file names.
        expected: RingId,
    },
}

impl OpenError {
    /// True for damage or loss, false for a configuration mistake or a transient error.
    pub fn is_corruption(&self) -> bool {
        !matches!(self, Self::Io { .. } | Self::ForeignRing { .. })
    }

    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io(doing, source)
    }

    pub(crate) fn file_missing(dir: &std::path::Path, file: FileNumber) -> Self {
        Self::FileMissing(dir.join(file.name()))
    }
}

fn end_text(end: Option<OpId>) -> String {
    end.map_or_else(
        || "before its first entry".to_owned(),
        |end| format!("at entry {end}"),
    )
}
