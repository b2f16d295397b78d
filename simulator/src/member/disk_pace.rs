//! How long a member's disk takes to make things durable. The store writes at once; what is slow is its answer, so that
//! the order of answers is kept and everything that waits for them waits in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Clones are the same disk's.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskPace(Arc<AtomicU64>);

impl DiskPace {
    /// From now on every answer takes this long.
    pub(crate) fn set(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.0.store(micros, Ordering::Relaxed);
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}
