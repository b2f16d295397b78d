//! When a store writes: after the disk's pace, in the order of requests.

use std::sync::{Arc, Mutex, PoisonError};

use binlog_store::LogHandle;
use tokio::time::Instant;

use super::disk_pace::DiskPace;

/// Clones share the disk.
#[derive(Clone)]
pub(super) struct DiskWork {
    log: LogHandle,
    pace: DiskPace,
    /// When the last pending answer is due; later ones are not earlier.
    last_due: Arc<Mutex<Instant>>,
}

impl DiskWork {
    pub(super) fn new(log: LogHandle, pace: DiskPace) -> Self {
        Self {
            log,
            pace,
            last_due: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Work is queued, or will be before this task yields: the store does all queued work after the disk's time.
    pub(super) fn soon(&self) {
        let mut last_due = self.last_due.lock().unwrap_or_else(PoisonError::into_inner);
        *last_due = (*last_due).max(Instant::now() + self.pace.delay());
        let (due, log) = (*last_due, self.log.clone());
        tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            log.write_waiting();
        });
    }
}
