//! Waits between failed attempts: each twice as long as the one before, up to a limit.

use std::time::Duration;

/// Growing waits between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first.min(longest),
        }
    }

    /// The wait after one more failure.
    pub fn fail(&mut self) -> Duration {
        let wait = self.next;
        self.next = self.next.saturating_mul(2).min(self.longest);
        wait
    }

    /// The attempt had begun and ended after `lasted`. It counts as a success only if it outlasted the longest wait: repeated immediate
    /// failures back off like failed starts.
    pub fn ended_after(&mut self, lasted: Duration) {
        if lasted >= self.longest {
            self.next = self.first.min(self.longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let waits: Vec<u128> = (0..4).map(|_| backoff.fail().as_millis()).collect();
        assert_eq!(waits, [100, 200, 350, 350]);
    }

    #[test]
    fn what_ends_at_once_again_and_again_is_waited_for_longer_each_time() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let mut wait_after = |lasted| {
            backoff.ended_after(Duration::from_millis(lasted));
            backoff.fail().as_millis()
        };
        assert_eq!([5, 5, 349].map(&mut wait_after), [100, 200, 350]);
        assert_eq!(wait_after(350), 100);
    }
}
