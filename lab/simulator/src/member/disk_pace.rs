//! Time of a member's disk for durability. Requests of the engine to the store wait for it, and are written and synced together with those
//! that arrive in between. So the engine continues before its log is written, as with the product's writer thread, and a power cut may lose
//! unwritten data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use binlog_store::LogHandle;
use tokio::time::Instant;

use crate::shared::Shared;

/// Clones share the disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskPace {
    /// Time without faults.
    usual: Duration,
    /// Current additional time, in microseconds.
    slower_by: Arc<AtomicU64>,
}

impl DiskPace {
    /// A disk with this time without faults.
    pub(crate) fn new(usual: Duration) -> Self {
        Self {
            usual,
            slower_by: Arc::default(),
        }
    }

    /// Adds this time to every sync from now on.
    pub(crate) fn set(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.slower_by.store(micros, Ordering::Relaxed);
    }

    fn delay(&self) -> Duration {
        self.usual + Duration::from_micros(self.slower_by.load(Ordering::Relaxed))
    }
}

/// When a store writes: after the disk's pace, in the order of requests. Clones share the disk.
#[derive(Clone)]
pub(super) struct DiskWork {
    log: LogHandle,
    pace: DiskPace,
    /// When the last pending answer is due; later ones are not earlier.
    last_due: Shared<Instant>,
}

impl DiskWork {
    pub(super) fn new(log: LogHandle, pace: DiskPace) -> Self {
        Self {
            log,
            pace,
            last_due: Shared::new(Instant::now()),
        }
    }

    /// Work is queued, or will be before this task yields: the store does all queued work after the disk's time.
    pub(super) fn soon(&self) {
        let mut last_due = self.last_due.lock();
        *last_due = (*last_due).max(Instant::now() + self.pace.delay());
        let (due, log) = (*last_due, self.log.clone());
        tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            log.write_waiting();
        });
    }
}
