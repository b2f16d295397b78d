//! How a store is opened; every default stands here once.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use raft_types::RingId;
use serde::{Deserialize, Serialize};
use spilling_bytes::SpillFolder;

use crate::stats::StoreObserver;

/// What "durable" means for entries. Votes are flushed to the disk in either case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// An entry is acknowledged when the disk has it.
    #[default]
    Fsync,
    /// An entry is acknowledged when the operating system has it. A crash of the process loses
    /// nothing; a crash of the machine loses what was acknowledged in the last seconds.
    Os,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fsync => "fsync",
            Self::Os => "os",
        })
    }
}

/// Which thread writes to the log files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WriterMode {
    /// A thread of its own, which groups what waits into one fsync.
    #[default]
    Thread,
    /// The caller, within the call: for tests that want one thread and no clock.
    Inline,
    /// Whoever calls [`LogHandle::write_waiting`](crate::LogHandle::write_waiting): for simulations in which the disk takes
    /// time. What was asked for waits until then, as it waits for the thread.
    Stepped,
}

/// How much of the log is read and verified when the store opens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerifyAtStart {
    /// Every byte of every file.
    #[default]
    All,
    /// The headers of all files, and every byte from the file of the last committed entry on, at
    /// least the last two files. What is older is verified when it is read.
    Recent,
    /// What [`Self::Recent`] reads, and before it the closed files that were never read back since they were written, as far
    /// as they take no more than four gibibytes. The scrub reads the rest.
    New,
}

/// How far verification at the start has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Bytes that were read so far.
    pub done_bytes: u64,
    /// Bytes that will be read in all.
    pub total_bytes: u64,
}

/// Called while the store opens.
pub type ProgressCallback = Arc<dyn Fn(VerifyProgress) + Send + Sync>;

/// How a store is opened. Make one with [`StoreOptions::new`] and change fields as needed.
#[derive(Clone)]
pub struct StoreOptions {
    /// The member's data directory; the files stand in `log/` below it.
    pub data_dir: PathBuf,
    /// The ring whose log this is.
    pub ring: RingId,
    /// What the log begins behind: GTIDs that it takes as given. The same on every member of the ring; looked at only when
    /// the first file is made.
    pub origin: GtidSet,
    /// Whether the data directory has had a log before: none is made then, because the member's votes and what it acknowledged would
    /// be forgotten.
    pub begun: bool,
    /// When an entry counts as durable: once it is fsynced, or once the operating system has it.
    pub durability: Durability,
    /// What names the machine's life from its start to its end ([`crate::boot_id`]): with [`Durability::Os`], a log that was
    /// not closed in order has everything as long as that is the same. None is never the same.
    pub boot_id: Option<String>,
    /// Which thread writes to the log files.
    pub writer: WriterMode,
    /// How much is verified at the start.
    pub verify_at_start: VerifyAtStart,
    /// Bytes of recent entries that stay in memory for readers. Entries that are not yet written stay
    /// whatever this says.
    pub cache_bytes: u64,
    /// Bytes of entries that may wait for the writer: `LogIntake::queue_room` waits beyond that. One entry always fits.
    pub queue_bytes: u64,
    /// Bytes of entries that one limited read returns at most; one entry always fits.
    pub read_batch_bytes: u64,
    /// Bytes that the log's files may take together; `None` for no limit.
    pub disk_limit_bytes: Option<u64>,
    /// Bytes that must stay free on the log's file system.
    pub disk_reserve_bytes: u64,
    /// From this percentage of the disk budget on, the store raises its alarm.
    pub disk_alarm_percent: u8,
    /// Where large payloads are that are read from the log; without a folder in memory. What it has in use counts against the
    /// disk's room, so that it belongs onto the log's disk.
    pub spill: SpillFolder,
    /// Told of every group of entries that became durable, for metrics.
    pub observer: Option<Arc<dyn StoreObserver>>,
    /// Told of the progress of verification.
    pub progress: Option<ProgressCallback>,
}

/// An option that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A size is zero; the text names the option.
    #[error("{0} must be greater than zero")]
    Zero(&'static str),
    /// `disk_alarm_percent` is not between 1 and 100.
    #[error("disk_alarm_percent is {0}; it must be from 1 to 100")]
    Percentage(u8),
    /// `data_dir` is empty.
    #[error("data_dir must name a directory")]
    NoDirectory,
}

impl StoreOptions {
    /// The defaults for a data directory and a ring.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>, ring: RingId) -> Self {
        Self {
            data_dir: data_dir.into(),
            ring,
            origin: GtidSet::new(),
            begun: false,
            durability: Durability::Fsync,
            boot_id: None,
            writer: WriterMode::Thread,
            verify_at_start: VerifyAtStart::All,
            cache_bytes: 64 << 20,
            queue_bytes: 64 << 20,
            read_batch_bytes: 4 << 20,
            disk_limit_bytes: None,
            disk_reserve_bytes: 256 << 20,
            disk_alarm_percent: 90,
            spill: SpillFolder::default(),
            observer: None,
            progress: None,
        }
    }

    /// Where the log's files stand.
    #[must_use]
    pub fn log_dir(&self) -> PathBuf {
        log_dir(&self.data_dir)
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`OptionsError`] names the first that makes no sense.
    pub fn validate(&self) -> Result<(), OptionsError> {
        if self.data_dir.as_os_str().is_empty() {
            return Err(OptionsError::NoDirectory);
        }
        let sizes = [
            ("cache_bytes", self.cache_bytes),
            ("queue_bytes", self.queue_bytes),
            ("read_batch_bytes", self.read_batch_bytes),
            ("disk_limit_bytes", self.disk_limit_bytes.unwrap_or(1)),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(OptionsError::Zero(name));
        }
        if !(1..=100).contains(&self.disk_alarm_percent) {
            return Err(OptionsError::Percentage(self.disk_alarm_percent));
        }
        Ok(())
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("data_dir", &self.data_dir)
            .field("ring", &self.ring)
            .field("origin", &self.origin.to_string())
            .field("begun", &self.begun)
            .field("durability", &self.durability)
            .field("boot_id", &self.boot_id)
            .field("writer", &self.writer)
            .field("verify_at_start", &self.verify_at_start)
            .field("cache_bytes", &self.cache_bytes)
            .field("queue_bytes", &self.queue_bytes)
            .field("read_batch_bytes", &self.read_batch_bytes)
            .field("disk_limit_bytes", &self.disk_limit_bytes)
            .field("disk_reserve_bytes", &self.disk_reserve_bytes)
            .field("disk_alarm_percent", &self.disk_alarm_percent)
            .finish_non_exhaustive()
    }
}

/// The directory of the log's files below a member's data directory.
pub(crate) fn log_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_mistakes_are_named() {
        let options = StoreOptions::new("data", RingId::default());
        assert_eq!(options.validate(), Ok(()));
        type Mistake = fn(&mut StoreOptions);
        let mistakes: [(Mistake, OptionsError); 4] = [
            (
                |options| options.data_dir = PathBuf::new(),
                OptionsError::NoDirectory,
            ),
            (
                |options| options.queue_bytes = 0,
                OptionsError::Zero("queue_bytes"),
            ),
            (
                |options| options.disk_limit_bytes = Some(0),
                OptionsError::Zero("disk_limit_bytes"),
            ),
            (
                |options| options.disk_alarm_percent = 101,
                OptionsError::Percentage(101),
            ),
        ];
        for (mistake, error) in mistakes {
            let mut options = options.clone();
            mistake(&mut options);
            assert_eq!(options.validate(), Err(error));
        }
    }
}
