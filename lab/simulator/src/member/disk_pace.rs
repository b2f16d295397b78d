//! The time that a member's disk needs for a sync. openraft's requests to the store wait for this time. Requests that arrive in the
//! meantime are written and synced together. So openraft continues before its log is written, as with the product's writer thread, and a
//! power cut may lose unwritten data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use binlog_store::LogHandle;
use tokio::time::Instant;

use crate::shared::Shared;

/// The speed of a disk. Clones share the disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskPace {
    /// Duration of a sync without faults.
    usual: Duration,
    /// Additional duration of a sync, in microseconds.
    slower_by: Arc<AtomicU64>,
}

impl DiskPace {
    /// Creates a disk; `usual` is the duration of a sync without faults.
    pub(crate) fn new(usual: Duration) -> Self {
        Self {
            usual,
            slower_by: Arc::default(),
        }
    }

    /// Adds this duration to every sync from now on.
    pub(crate) fn set(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.slower_by.store(micros, Ordering::Relaxed);
    }

    fn delay(&self) -> Duration {
        self.usual + Duration::from_micros(self.slower_by.load(Ordering::Relaxed))
    }
}

/// Schedules a store's writes: after the time that the disk needs, in the order of the requests. Clones share the disk.
#[derive(Clone)]
pub(super) struct DiskWork {
    log: LogHandle,
    pace: DiskPace,
    /// When the last scheduled write is due. Later writes are not due earlier.
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

    /// Schedules a write of all work that is queued by then. The caller must have queued the work, or must queue it before its task yields.
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
