//! When this member last received a call from the leader. The engine still names a leader that has long been silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The time of the last accepted call of a leader.
#[derive(Debug, Clone)]
pub(crate) struct LastHeard {
    begun: Instant,
    /// Milliseconds since `begun`, plus one; 0 for never.
    at: Arc<AtomicU64>,
}

impl LastHeard {
    pub(crate) fn never() -> Self {
        Self {
            begun: Instant::now(),
            at: Arc::default(),
        }
    }

    /// A call was accepted just now.
    pub(crate) fn now(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.at.store(millis + 1, Ordering::Relaxed);
    }

    /// How long ago the last call was accepted.
    pub(crate) fn age(&self) -> Option<Duration> {
        let millis = self.at.load(Ordering::Relaxed).checked_sub(1)?;
        let at = Duration::from_millis(millis);
        Some(self.begun.elapsed().saturating_sub(at))
    }

    /// Whether a call was accepted less than this long ago.
    pub(crate) fn within(&self, age: Duration) -> bool {
        self.age().is_some_and(|heard| heard < age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_noticed() {
        let heard = LastHeard::never();
        assert!(!heard.within(Duration::from_secs(60)));
        heard.now();
        assert!(heard.within(Duration::from_secs(60)));
        assert!(!heard.within(Duration::ZERO));
    }
}
