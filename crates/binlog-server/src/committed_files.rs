//! The log that is served, as this crate sees it: files of bytes, of which a part that only grows is committed.
//! Nothing beyond that part is ever asked for.

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
    /// The file behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A place between two events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The file that the place is in.
    pub file: FileNumber,
    /// Bytes of the file before the place.
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
    /// An older file cannot be had at this moment; whoever asks again may get it.
    #[error("{0}")]
    Unavailable(String),
    /// An older file is not what it should be, or cannot be decrypted; asking again does not help before somebody has mended that.
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

    /// A file's name, whether it is there or not.
    fn name_of(&self, file: FileNumber) -> String;

    /// The file of a name, whether it is there or not.
    fn number_of(&self, name: &str) -> Option<FileNumber>;

    /// Where the committed part ends. Never goes back; closed when the log is.
    fn committed(&self) -> watch::Receiver<Position>;

    /// Why the log gets no more transactions, while that is so: a consumer that has everything gets this as an error. Nothing where
    /// more may come.
    fn over(&self) -> watch::Receiver<Option<String>> {
        watch::channel(None).1
    }

    /// The GTIDs of the committed part, those of purged files among them.
    fn gtids(&self) -> GtidSet;

    /// The GTIDs of files that are purged and are no older files either.
    fn purged(&self) -> GtidSet;

    /// The last file that follows nothing but transactions of `have`; `None` when the log begins behind others.
    fn begin_for(&self, have: &GtidSet) -> Option<FileNumber>;

    /// Waits until everything is committed here that was committed anywhere when this was asked.
    ///
    /// # Errors
    /// [`CatchUpError`] if the ring's commits are not known, or are not here in time.
    async fn catch_up(&self, patience: Duration) -> Result<(), CatchUpError>;

    /// Keeps a file, and all behind it, from being purged. `None` when it is purged already.
    fn keep(&self, file: FileNumber) -> Option<KeptFile>;

    /// At most `at_most` bytes of a file; fewer where it ends. Safe to cancel.
    ///
    /// # Errors
    /// [`ReadError`].
    async fn read(&self, from: Position, at_most: usize) -> Result<Bytes, ReadError>;

    /// Hears that what was read of a file cannot be what was written, so that the file is mended. A fetched one is no concern of it.
    fn damaged(&self, file: FileNumber, why: &str);

    // Older files: those that were purged here and can be had from elsewhere. A log without them has what stands here.

    /// The files that [`Self::fetch`] can get, oldest first, and without a gap up to the first one of [`Self::files`]; as far as that
    /// is known without asking anybody.
    fn older_files(&self) -> Vec<LogFile> {
        Vec::new()
    }

    /// As [`Self::older_files`], as they are now. May take as long as elsewhere does to answer.
    ///
    /// # Errors
    /// [`ReadError`] when that is not known.
    async fn look_for_older_files(&self) -> Result<Vec<LogFile>, ReadError> {
        Ok(Vec::new())
    }

    /// As [`Self::begin_for`], among the older files.
    ///
    /// # Errors
    /// [`ReadError`] when that is not known.
    async fn older_begin_for(&self, _have: &GtidSet) -> Result<Option<FileNumber>, ReadError> {
        Ok(None)
    }

    /// Gets an older file, which can be read for as long as it is kept. May take minutes. Safe to cancel.
    ///
    /// # Errors
    /// [`ReadError`]; [`ReadError::Gone`] when it is no older file any more.
    async fn fetch(&self, _file: FileNumber) -> Result<KeptFile, ReadError> {
        Err(ReadError::Gone)
    }

    /// The version of the server whose events these are, as the newest format description has it.
    fn server_version(&self) -> String;

    /// Whether an ignorable event with this body is the log's own. Replicas do not get those.
    fn is_own(&self, body: &[u8]) -> bool;

    /// What such an event says, for people.
    fn describe_own(&self, body: &[u8]) -> String;
}

// What clients may order: the two statements that are about binlog files.

/// Which of the oldest files are to go.
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
    /// `FLUSH BINARY LOGS`: ends the current file everywhere. Returns when that is committed.
    ///
    /// # Errors
    /// When it cannot be done here, with the place where it can.
    async fn flush(&self) -> Result<String, CommandError>;

    /// `PURGE BINARY LOGS`: removes old files of this member's log, as far as nobody needs them. What went, and why the
    /// rest stays.
    ///
    /// # Errors
    /// When nothing was removed because it is not known what is needed.
    async fn purge(&self, to: PurgeTo) -> Result<String, CommandError>;
}
