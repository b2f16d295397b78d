//! Time of a member's disk for durability. Requests of the engine to the store wait for it, and are written and synced together with those
//! that arrive in between. So the engine continues before its log is written, as with the product's writer thread, and a power cut may lose
//! unwritten data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

    pub(super) fn delay(&self) -> Duration {
        self.usual + Duration::from_micros(self.slower_by.load(Ordering::Relaxed))
    }
}
