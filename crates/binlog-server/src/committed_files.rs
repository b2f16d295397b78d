//! The served log: files of bytes with a committed part that only grows. The server reads only the committed part.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use thiserror::Error;
use tokio::sync::watch;

/// A file's number; files follow one another without a gap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u64);

impl FileNumber {
    /// The file after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A position between two events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The file.
    pub file: FileNumber,
    /// Bytes of the file before the position.
    pub offset: u64,
}

/// A file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Number of the file in the log.
    pub number: FileNumber,
    /// The file's name, without a directory.
    pub name: String,
    /// Number of committed bytes of the file.
    pub bytes: u64,
}

/// Why bytes of the log could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The file was purged from the log.
    #[error("the file was purged")]
    Gone,
    /// The disk reported an error.
    #[error("the log cannot be read: {0}")]
    Failed(String),
    /// An older file is temporarily unavailable; a later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// An older file is damaged or cannot be decrypted. An operator must fix that before another attempt.
    #[error("{0}")]
    Unusable(String),
}

/// Why a log does not have all committed entries of its ring.
#[derive(Debug, Error)]
pub enum CatchUpError {
    /// The ring's commit index is unknown.
    #[error("{0}")]
    Unknown(CommandError),
    /// The entries did not arrive in time.
    #[error("this member is far behind the ring")]
    Late,
    /// The log was closed.
    #[error("this member stops")]
    Stopping,
}

/// While this value exists, the file is not purged.
pub type KeptFile = Box<dyn Send + Sync>;

/// The committed part of a log in MySQL's binlog files.
#[async_trait]
pub trait CommittedFiles: Send + Sync + 'static {
    /// The unpurged files, oldest first. The last one contains the end of the committed part ([`Self::committed`]).
    fn files(&self) -> Vec<LogFile>;

    /// The name of a file, even if the file does not exist.
    fn name_of(&self, file: FileNumber) -> String;

    /// The number of the file with this name, even if the file does not exist.
    fn number_of(&self, name: &str) -> Option<FileNumber>;

    /// The end of the committed part. It never decreases; the channel closes when the log is closed.
    fn committed(&self) -> watch::Receiver<Position>;

    /// The reason why the log gets no more transactions, or `None`. A consumer that has received everything receives it as an error.
    fn over(&self) -> watch::Receiver<Option<String>> {
        watch::channel(None).1
    }

    /// The GTIDs of the committed part, including those of purged files.
    fn gtids(&self) -> GtidSet;

    /// The GTIDs of files that are purged and cannot be fetched as older files.
    fn purged(&self) -> GtidSet;

    /// The last file that is preceded only by transactions in `have`; `None` if other transactions are purged.
    fn begin_for(&self, have: &GtidSet) -> Option<FileNumber>;

    /// Waits until this log has everything that was committed in the ring at the time of the call.
    ///
    /// # Errors
    /// [`CatchUpError`] if the ring's commit index is unknown, or the entries do not arrive in time.
    async fn catch_up(&self, patience: Duration) -> Result<(), CatchUpError>;

    /// Keeps a file, and all later ones, from being purged. `None` if the file is already purged.
    fn keep(&self, file: FileNumber) -> Option<KeptFile>;

    /// Reads at most `at_most` bytes of a file; fewer at its end. The call may be cancelled.
    ///
    /// # Errors
    /// [`ReadError`].
    async fn read(&self, from: Position, at_most: usize) -> Result<Bytes, ReadError>;

    /// Reports that the contents of a file differ from the written ones, so that the file is repaired. Ignored for fetched files.
    fn damaged(&self, file: FileNumber, why: &str);

    // Older files were purged on this member but can be fetched from an archive. The defaults are for a log without an archive.

    /// The files that [`Self::fetch`] can fetch, oldest first, as of the last check. They have no gap, and end before the first one of
    /// [`Self::files`].
    fn older_files(&self) -> Vec<LogFile> {
        Vec::new()
    }

    /// Checks the archive, and returns the older files as [`Self::older_files`]. Takes as long as the archive takes to answer.
    ///
    /// # Errors
    /// [`ReadError`] if the check fails.
    async fn look_for_older_files(&self) -> Result<Vec<LogFile>, ReadError> {
        Ok(Vec::new())
    }

    /// As [`Self::begin_for`], for the older files.
    ///
    /// # Errors
    /// [`ReadError`] if the check fails.
    async fn older_begin_for(&self, _have: &GtidSet) -> Result<Option<FileNumber>, ReadError> {
        Ok(None)
    }

    /// Fetches an older file, which can be read until the result is dropped. May take minutes. The call may be cancelled.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Gone`] if the file is not an older file, or no longer.
    async fn fetch(&self, _file: FileNumber) -> Result<KeptFile, ReadError> {
        Err(ReadError::Gone)
    }

    /// The version of the server that wrote the events, from the newest format description.
    fn server_version(&self) -> String;

    /// True if an ignorable event with this body is the log's own marker, which replicas do not receive.
    fn is_own(&self, body: &[u8]) -> bool;

    /// The contents of the log's own marker as text.
    fn describe_own(&self, body: &[u8]) -> String;
}

// The statements on binlog files that clients may execute.

/// Which of the oldest files to purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeTo {
    /// All files before the file of this name.
    File(String),
    /// All files that were closed before this time, in seconds since the epoch.
    Time(u32),
}

/// The error of a command, whose text the client receives.
pub type CommandError = Box<dyn Error + Send + Sync>;

/// Executes the statements that change the log.
#[async_trait]
pub trait LogCommands: Send + Sync + 'static {
    /// `FLUSH BINARY LOGS`: ends the current file on all members. Returns after the rotation is committed.
    ///
    /// # Errors
    /// If this member cannot do it; the error names a member that can.
    async fn flush(&self) -> Result<String, CommandError>;

    /// `PURGE BINARY LOGS`: removes old files of this member's log that no consumer and no member needs. Returns the removed files, and why
    /// the other files stay.
    ///
    /// # Errors
    /// If it is unknown which files are needed; nothing is removed then.
    async fn purge(&self, to: PurgeTo) -> Result<String, CommandError>;
}
