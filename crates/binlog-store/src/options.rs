//! Options of a store, with the only definition of each default.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use raft_types::RingId;
use serde::{Deserialize, Serialize};
use spilling_bytes::SpillFolder;

use crate::stats::StoreObserver;

/// The meaning of "durable" for entries. Votes are flushed to the disk in either case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// An entry is acknowledged after it is synced to the disk.
    #[default]
    Fsync,
    /// An entry is acknowledged after it is written to the operating system. A process crash loses nothing; a machine crash loses entries
    /// acknowledged in the last seconds.
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

/// The thread that writes to the log files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WriterMode {
    /// A separate thread, which groups queued requests into one fsync.
    #[default]
    Thread,
    /// The caller, within the call: for tests with one thread and no clock.
    Inline,
    /// The caller of [`LogHandle::write_waiting`](crate::LogHandle::write_waiting): for simulations of slow disks. Requests wait for that
    /// call as they wait for the thread.
    Stepped,
}

/// The part of the log that is verified on open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerifyAtStart {
    /// Every byte of every file.
    #[default]
    All,
    /// The headers of all files, and every byte starting with the file of the last committed entry, at least the last two files. Older data
    /// is verified when read.
    Recent,
    /// Like [`Self::Recent`], plus the preceding closed files that were never read back since they were written, up to four gibibytes. The
    /// scrub reads the rest.
    New,
}

/// Progress of the verification on open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Bytes read so far.
    pub done_bytes: u64,
    /// Total bytes to read.
    pub total_bytes: u64,
}

/// Called while the store opens.
pub type ProgressCallback = Arc<dyn Fn(VerifyProgress) + Send + Sync>;

/// Options of a store. Start with [`StoreOptions::new`] and change fields as needed.
#[derive(Clone)]
pub struct StoreOptions {
    /// The member's data directory; the files are in its `log/` directory.
    pub data_dir: PathBuf,
    /// The log's ring.
    pub ring: RingId,
    /// The GTIDs of transactions before the log's start. The same on every member of the ring; used only when the first file is created.
    pub origin: GtidSet,
    /// True if the data directory has had a log before. Then no new log is created, because it would lack the member's votes and
    /// acknowledged entries.
    pub begun: bool,
    /// When an entry counts as durable: after an fsync, or after the write to the operating system.
    pub durability: Durability,
    /// Identifies the machine's boot ([`crate::boot_id`]): with [`Durability::Os`], a log that was not closed cleanly is complete if the
    /// boot is the same. `None` never matches.
    pub boot_id: Option<String>,
    /// The thread that writes to the log files.
    pub writer: WriterMode,
    /// The part of the log to verify on open.
    pub verify_at_start: VerifyAtStart,
    /// Bytes of recent entries kept in memory for readers. Unwritten entries stay in memory even beyond that.
    pub cache_bytes: u64,
    /// Bytes of entries that may wait for the writer; `LogIntake::queue_room` waits beyond that. One entry always fits.
    pub queue_bytes: u64,
    /// Bytes of entries that one limited read returns at most; one entry always fits.
    pub read_batch_bytes: u64,
    /// Maximum total bytes of the log's files; `None` for no limit.
    pub disk_limit_bytes: Option<u64>,
    /// Bytes that must stay free on the log's file system.
    pub disk_reserve_bytes: u64,
    /// The store raises its alarm at this percentage of the disk budget.
    pub disk_alarm_percent: u8,
    /// The folder for large payloads that are read from the log; without a folder they stay in memory. Its files count against the log's
    /// disk budget, so the folder must be on the log's disk.
    pub spill: SpillFolder,
    /// Notified of every group of entries that became durable, for metrics.
    pub observer: Option<Arc<dyn StoreObserver>>,
    /// Notified of verification progress.
    pub progress: Option<ProgressCallback>,
}

impl StoreOptions {
    /// The defaults for a data directory and a ring.
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

    /// The directory of the log's files.
    pub fn log_dir(&self) -> PathBuf {
        log_dir(&self.data_dir)
    }
}

/// The directory of the log's files in a member's data directory.
pub(crate) fn log_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("log")
}
