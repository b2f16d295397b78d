//! What clients may order: the two statements that are about binlog files.

use async_trait::async_trait;

/// Which of the oldest files are to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeTo {
    /// All before the one of this name.
    File(String),
    /// All that were closed before this time, in seconds since the epoch.
    Time(u32),
}

/// Carries orders out. An error is in words, which the client is shown.
#[async_trait]
pub trait LogCommands: Send + Sync + 'static {
    /// `FLUSH BINARY LOGS`: ends the current file everywhere. Returns when that is committed.
    ///
    /// # Errors
    /// When it cannot be done here, with the place where it can.
    async fn flush(&self) -> Result<String, String>;

    /// `PURGE BINARY LOGS`: removes old files of this member's log, as far as nobody needs them. What went, and why the
    /// rest stays.
    ///
    /// # Errors
    /// When nothing was removed because it is not known what is needed.
    async fn purge(&self, to: PurgeTo) -> Result<String, String>;
}
