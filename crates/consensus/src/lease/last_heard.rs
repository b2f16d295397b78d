//! When this member last heard from who leads. The engine goes on naming a leader that has long been silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The moment of the last call of a leader that was listened to.
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

    /// It was heard just now.
    pub(crate) fn now(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.at.store(millis + 1, Ordering::Relaxed);
    }

    /// Whether it was heard less than this long ago.
    pub(crate) fn within(&self, age: Duration) -> bool {
        match self.at.load(Ordering::Relaxed).checked_sub(1) {
            Some(millis) => self.begun.elapsed() < Duration::from_millis(millis) + age,
            None => false,
        }
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
