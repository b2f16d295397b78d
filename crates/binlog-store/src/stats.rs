//! The store's counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One group of entries that became durable together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushSample {
    /// Number of entries that became durable together.
    pub entries: u64,
    /// Their bytes in the file.
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
    /// Time spent making entries durable.
    pub sync_time: Duration,
    /// Votes stored since the store was opened.
    pub votes: u64,
    /// Entries that readers got from memory.
    pub cache_hits: u64,
    /// Entries that readers got from files.
    pub cache_misses: u64,
    /// Number of failed reads of entries for another member.
    pub read_failures: u64,
    /// Bytes of entries that wait for the writer.
    pub queued_bytes: u64,
    /// Bytes of entries in memory for readers.
    pub cached_bytes: u64,
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
    /// Its file system has no free inodes, although it may have free space.
    pub no_inodes: bool,
    /// Duration of the writer's current operation; zero while idle. Only this figure shows an operation that does not end.
    pub busy_for: Duration,
}

/// The counters that writer and readers update.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) appended_entries: AtomicU64,
    pub(crate) appended_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) sync_nanos: AtomicU64,
    pub(crate) votes: AtomicU64,
    pub(crate) cache_hits: AtomicU64,
    pub(crate) cache_misses: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) free_bytes: AtomicU64,
    pub(crate) left_bytes: AtomicU64,
    pub(crate) disk_alarm: AtomicBool,
    pub(crate) disk_refuses: AtomicBool,
    pub(crate) no_inodes: AtomicBool,
    busy_since: Mutex<Option<Instant>>,
}

impl Counters {
    /// The writer starts an operation (`Some`) or has ended it.
    pub(crate) fn busy(&self, since: Option<Instant>) {
        *self
            .busy_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = since;
    }

    pub(crate) fn flushed(&self, sample: &FlushSample) {
        self.appended_entries
            .fetch_add(sample.entries, Ordering::Relaxed);
        self.appended_bytes
            .fetch_add(sample.bytes, Ordering::Relaxed);
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(sample.sync.as_nanos()).unwrap_or(u64::MAX);
        self.sync_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Entries that a reader got from memory.
    pub(crate) fn hit(&self, entries: usize) {
        self.cache_hits.fetch_add(entries as u64, Ordering::Relaxed);
    }

    /// Entries that a reader got from files.
    pub(crate) fn miss(&self, entries: usize) {
        self.cache_misses
            .fetch_add(entries as u64, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self, queued_bytes: u64, cached_bytes: u64) -> StoreStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let busy_since = *self
            .busy_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        StoreStats {
            appended_entries: get(&self.appended_entries),
            appended_bytes: get(&self.appended_bytes),
            flushes: get(&self.flushes),
            sync_time: Duration::from_nanos(get(&self.sync_nanos)),
            votes: get(&self.votes),
            cache_hits: get(&self.cache_hits),
            cache_misses: get(&self.cache_misses),
            read_failures: 0,
            queued_bytes,
            cached_bytes,
            log_bytes: get(&self.log_bytes),
            free_bytes: get(&self.free_bytes),
            left_bytes: get(&self.left_bytes),
            disk_alarm: self.disk_alarm.load(Ordering::Relaxed),
            disk_refuses: self.disk_refuses.load(Ordering::Relaxed),
            no_inodes: self.no_inodes.load(Ordering::Relaxed),
            busy_for: busy_since.map_or(Duration::ZERO, |since| since.elapsed()),
        }
    }
}
