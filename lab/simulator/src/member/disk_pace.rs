//! How long a member's disk takes to make things durable. What the engine asks the store for waits until then, and is written
//! and synced together with what was asked for meanwhile: so the engine goes on before its log is written, as with the
//! writer's thread of the product, and a cut of the power finds what was never written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Clones are the same disk's.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskPace {
    /// What the disk takes when nothing is wrong with it.
    usual: Duration,
    /// What it takes besides now, in microseconds.
    slower_by: Arc<AtomicU64>,
}

impl DiskPace {
    /// A disk that takes this long when nothing is wrong with it.
    pub(crate) fn new(usual: Duration) -> Self {
        Self {
            usual,
            slower_by: Arc::default(),
        }
    }

    /// From now on every sync takes this much longer.
    pub(crate) fn set(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.slower_by.store(micros, Ordering::Relaxed);
    }

    pub(super) fn delay(&self) -> Duration {
        self.usual + Duration::from_micros(self.slower_by.load(Ordering::Relaxed))
    }
}
