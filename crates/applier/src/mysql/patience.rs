//! Time limits for packets of rows that exceeded them before. Pure.
//!
//! A packet that is given up is retried in another session, and would fail indefinitely where the target needs longer than the
//! limit: a large table without a primary key is searched for each row. So a batch gets twice the time with each attempt.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use binlog_format::gtid::Gtid;

/// The limits of abandoned batches and barriers, by their first transactions, until they are done.
#[derive(Debug, Default)]
pub(super) struct Patience {
    limits: Mutex<BTreeMap<Gtid, Duration>>,
}

impl Patience {
    /// Time limit for a packet of the batch that begins with this transaction; `usual` if it was not abandoned before.
    pub(super) fn limit(&self, first: Gtid, usual: Duration) -> Duration {
        self.lock().get(&first).copied().unwrap_or(usual)
    }

    /// A packet of it was abandoned after `limit`: returns the limit of its retry, at most `most`.
    pub(super) fn ran_out(&self, first: Gtid, limit: Duration, most: Duration) -> Duration {
        let next = limit.saturating_mul(2).min(most).max(limit);
        self.lock().insert(first, next);
        next
    }

    /// It is done.
    pub(super) fn done(&self, first: Gtid) {
        self.lock().remove(&first);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Gtid, Duration>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_again_and_again_gets_twice_the_time_up_to_a_bound() {
        let gtid = |gno: u32| format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:{gno}");
        let [slow, other] = [1, 2].map(|gno| gtid(gno).parse::<Gtid>().unwrap());
        let seconds = Duration::from_secs;
        let patience = Patience::default();
        let mut limits = Vec::new();
        for _ in 0..5 {
            let limit = patience.limit(slow, seconds(3));
            limits.push(limit.as_secs());
            patience.ran_out(slow, limit, seconds(20));
        }
        assert_eq!(limits, [3, 6, 12, 20, 20]);
        assert_eq!(patience.limit(other, seconds(3)), seconds(3));
        patience.done(slow);
        assert_eq!(patience.limit(slow, seconds(3)), seconds(3));
        // A bound below the limit has no effect.
        assert_eq!(patience.ran_out(slow, seconds(3), seconds(1)), seconds(3));
    }
}
