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
    /// Its name, without a directory.
    pub name: String,
    /// Bytes of it that are committed.
    pub bytes: u64,
}

/// Why bytes of the log could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The file is no longer in the log, because it was purged.
    #[error("the file was purged")]
    Gone,
    /// The disk reported an error.
    #[error("the log cannot be read: {0}")]
    Failed(String),
    /// An older file is unavailable at this moment; a later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// An older file is damaged or cannot be decrypted; an operator has to fix that before another attempt.
    #[error("{0}")]
    Unusable(String),
}

/// Why a log does not have everything that is committed in its ring.
#[derive(Debug, Error)]
pub enum CatchUpError {
    /// The ring did not report its commits.
    #[error("{0}")]
    Unknown(CommandError),
    /// They did not arrive in time.
    #[error("this member is far behind the ring")]
    Late,
    /// The log was closed.
    #[error("this member stops")]
    Stopping,
}

/// Keeps a file from being purged for as long as it lives.
pub type KeptFile = Box<dyn Send + Sync>;

/// A log in MySQL's binlog files, as far as it is committed.
#[async_trait]
pub trait CommittedFiles: Send + Sync + 'static {
    /// The files that are not purged, oldest first. The last one is the one that [`Self::committed`] is in.
    fn files(&self) -> Vec<LogFile>;

    /// A file's name, even if the file does not exist.
    fn name_of(&self, file: FileNumber) -> String;

    /// The file of a name, even if the file does not exist.
    fn number_of(&self, name: &str) -> Option<FileNumber>;

    /// Where the committed part ends. Never goes back; closed when the log is.
    fn committed(&self) -> watch::Receiver<Position>;

    /// Why the log gets no more transactions, or `None`: a consumer that has everything receives this as an error.
    fn over(&self) -> watch::Receiver<Option<String>> {
        watch::channel(None).1
    }

    /// The GTIDs of the committed part, those of purged files among them.
    fn gtids(&self) -> GtidSet;

    /// The GTIDs of files that are purged and are no older files either.
    fn purged(&self) -> GtidSet;

    /// The last file before which all transactions are in `have`; `None` if the log begins after others.
    fn begin_for(&self, have: &GtidSet) -> Option<FileNumber>;

    /// Waits until this log has everything that was committed in the ring at the time of the call.
    ///
    /// # Errors
    /// [`CatchUpError`] if the ring's commits are not known, or are not here in time.
    async fn catch_up(&self, patience: Duration) -> Result<(), CatchUpError>;

    /// Keeps a file, and all later ones, from being purged. `None` if it is purged already.
    fn keep(&self, file: FileNumber) -> Option<KeptFile>;

    /// At most `at_most` bytes of a file; fewer where it ends. Safe to cancel.
    ///
    /// # Errors
    /// [`ReadError`].
    async fn read(&self, from: Position, at_most: usize) -> Result<Bytes, ReadError>;

    /// Reports that the contents of a file differ from what was written, so that the file is repaired. Ignored for fetched files.
    fn damaged(&self, file: FileNumber, why: &str);

    // Older files: they were purged here and can be fetched from an archive. The defaults are for a log without them.

    /// The files that [`Self::fetch`] can get, oldest first, and without a gap up to the first one of [`Self::files`]; as last checked.
    fn older_files(&self) -> Vec<LogFile> {
        Vec::new()
    }

    /// As [`Self::older_files`], after a check, which may take as long as the archive takes to answer.
    ///
    /// # Errors
    /// [`ReadError`] if the check fails.
    async fn look_for_older_files(&self) -> Result<Vec<LogFile>, ReadError> {
        Ok(Vec::new())
    }

    /// As [`Self::begin_for`], among the older files.
    ///
    /// # Errors
    /// [`ReadError`] if the check fails.
    async fn older_begin_for(&self, _have: &GtidSet) -> Result<Option<FileNumber>, ReadError> {
        Ok(None)
    }

    /// Fetches an older file, which can be read while it is kept. May take minutes. Cancel-safe.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Gone`] if it is no longer an older file.
    async fn fetch(&self, _file: FileNumber) -> Result<KeptFile, ReadError> {
        Err(ReadError::Gone)
    }

    /// The version of the server whose events these are, as the newest format description has it.
    fn server_version(&self) -> String;

    /// True if an ignorable event with this body is the log's own. Replicas do not receive those.
    fn is_own(&self, body: &[u8]) -> bool;

    /// The contents of such an event as text.
    fn describe_own(&self, body: &[u8]) -> String;
}

// The two statements about binlog files that clients may execute.

/// Which of the oldest files to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeTo {
    /// All before the one of this name.
    File(String),
    /// All that were closed before this time, in seconds since the epoch.
    Time(u32),
}

/// The error of a command, whose text the client receives.
pub type CommandError = Box<dyn Error + Send + Sync>;

/// Executes the commands.
#[async_trait]
pub trait LogCommands: Send + Sync + 'static {
    /// `FLUSH BINARY LOGS`: ends the current file on all members. Returns once that is committed.
    ///
    /// # Errors
    /// If this member cannot do it, with the member that can.
    async fn flush(&self) -> Result<String, CommandError>;

    /// `PURGE BINARY LOGS`: removes old files of this member's log that no consumer and no member needs. Returns the removed files, and
    /// why the rest stays.
    ///
    /// # Errors
    /// If nothing was removed, because it is unknown which files are needed.
    async fn purge(&self, to: PurgeTo) -> Result<String, CommandError>;
}
