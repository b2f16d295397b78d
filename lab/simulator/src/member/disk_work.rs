//! When a store writes: after the disk's pace, in the order in which it was asked.

use std::sync::{Arc, Mutex, PoisonError};

use binlog_store::LogHandle;
use tokio::time::Instant;

use super::disk_pace::DiskPace;

/// Clones are the same disk's.
#[derive(Clone)]
pub(super) struct DiskWork {
    log: LogHandle,
    pace: DiskPace,
    /// When the last answer on its way is due; later ones are not earlier.
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

    /// Something waits, or will before this task yields: the store does it, and all that waits by then, when the disk has
    /// taken its time.
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
