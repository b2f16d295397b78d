//! The store's counters.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One group of entries that became durable together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushSample {
    /// Number of entries that became durable together.
    pub entries: u64,
    /// Bytes of these entries in the file.
    pub bytes: u64,
    /// Duration of the write.
    pub write: Duration,
    /// Duration of the sync; zero with [`crate::Durability::Os`].
    pub sync: Duration,
}

/// Called by the writer in its own thread: keep it short.
pub trait StoreObserver: Send + Sync {
    /// A group of entries was written and, if so configured, synced.
    fn flushed(&self, sample: &FlushSample);
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Entries appended since the store was opened.
    pub appended_entries: u64,
    /// Bytes written to log files since the store was opened.
    pub appended_bytes: u64,
    /// Number of flushes that made entries durable.
    pub flushes: u64,
    /// Entries that readers got from memory.
    pub cache_hits: u64,
    /// Entries that readers got from files.
    pub cache_misses: u64,
    /// Number of failed reads of entries for another member.
    pub read_failures: u64,
    /// Bytes of entries that wait for the writer.
    pub queued_bytes: u64,
    /// Total bytes of the log's files.
    pub log_bytes: u64,
    /// Free bytes on the log's file system at the last check.
    pub free_bytes: u64,
    /// Bytes left for transactions; if zero, they are refused, and only the ring's own entries are written.
    pub left_bytes: u64,
    /// The disk budget is nearly used up: purge, or add space, before transactions are refused.
    pub disk_alarm: bool,
    /// The disk refused a write for lack of room, and the writer waits until the disk accepts it.
    pub disk_refuses: bool,
    /// The log's file system has no free inodes, although it may have free space.
    pub no_inodes: bool,
    /// Duration of the writer's current operation; zero while idle. No other counter shows an operation that does not end.
    pub busy_for: Duration,
}

/// The counters that writer and readers update.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    stats: Mutex<StoreStats>,
    busy_since: Mutex<Option<Instant>>,
}

impl Counters {
    pub(crate) fn change(&self, change: impl FnOnce(&mut StoreStats)) {
        // A panic leaves the numbers consistent, so the lock is used even if poisoned.
        change(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The writer starts an operation (`Some`) or has ended it.
    pub(crate) fn busy(&self, since: Option<Instant>) {
        *self
            .busy_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = since;
    }

    pub(crate) fn flushed(&self, sample: &FlushSample) {
        self.change(|stats| {
            stats.appended_entries += sample.entries;
            stats.appended_bytes += sample.bytes;
            stats.flushes += 1;
        });
    }

    /// The counters that the writer and the readers update; other components add the rest.
    pub(crate) fn snapshot(&self) -> StoreStats {
        let busy_since = self.busy_since.lock();
        let busy_since = *busy_since.unwrap_or_else(PoisonError::into_inner);
        StoreStats {
            busy_for: busy_since.map_or(Duration::ZERO, |since| since.elapsed()),
            ..*self.stats.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
