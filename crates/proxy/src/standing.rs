//! Whether somebody may be relied on after what went wrong: for a while not, and the longer the more often it went wrong. Pure:
//! the time is passed in.

use std::fmt;
use std::time::Duration;

use raft_types::{MemberId, OpId};
use tokio::time::Instant;

/// After a first failure.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// Whoever did well for so long begins anew.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// What went wrong with a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It cannot be called, or the connection broke.
    Unreachable,
    /// It said nothing although an answer was due.
    Silent,
    /// It says that it sends on, and the member answers nothing.
    Stuck,
    /// It waited for this entry and did not get it.
    Lacks(OpId),
    /// It will never get this entry: it is purged there.
    Purged(OpId),
    /// It could not call the member, or another proxy on the way.
    CannotCall(MemberId),
    /// It answered what cannot be.
    Nonsense,
    /// It does not send on for this leader.
    Refused,
}

impl Failure {
    /// Whether it tells of the proxy itself and not of the way between it and one member.
    pub(crate) fn is_of_the_proxy(&self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::Silent | Self::Nonsense | Self::Refused
        )
    }

    /// For metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Silent => "silent",
            Self::Stuck => "stuck",
            Self::Lacks(_) => "lacks_entries",
            Self::Purged(_) => "purged_entries",
            Self::CannotCall(_) => "cannot_call",
            Self::Nonsense => "nonsense",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("it cannot be reached"),
            Self::Silent => f.write_str("it was silent although an answer was due"),
            Self::Stuck => f.write_str("what it sends on is not answered"),
            Self::Lacks(op_id) => write!(f, "entry {op_id} did not arrive there in time"),
            Self::Purged(op_id) => write!(f, "entry {op_id} is purged there"),
            Self::CannotCall(member) => write!(f, "it cannot call member {member}"),
            Self::Nonsense => f.write_str("it answered what it was not asked"),
            Self::Refused => f.write_str("it refuses to send on"),
        }
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    /// In a row.
    failures: u32,
    last: Option<(Instant, Failure)>,
}

impl Standing {
    /// Notes a failure; it lasts longer if it is not the first.
    pub(crate) fn failed(&mut self, now: Instant, failure: Failure) {
        self.failures = match &self.last {
            Some((until, _)) if now.saturating_duration_since(*until) >= FORGIVEN_AFTER => 1,
            _ => self.failures.saturating_add(1),
        };
        let doubled = 2_u32.saturating_pow(self.failures - 1);
        let lasts = SHORTEST.saturating_mul(doubled).min(LONGEST);
        self.last = Some((now + lasts, failure));
    }

    /// What is held against it, and until when.
    pub(crate) fn trouble(&self, now: Instant) -> Option<(&Failure, Duration)> {
        let (until, failure) = self.last.as_ref()?;
        let left = until.saturating_duration_since(now);
        (!left.is_zero()).then_some((failure, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_one_is_fit_and_one_that_failed_comes_back() {
        let begun = Instant::now();
        let mut standing = Standing::default();
        assert!(standing.trouble(begun).is_none());
        standing.failed(begun, Failure::Silent);
        assert_eq!(standing.trouble(begun), Some((&Failure::Silent, SHORTEST)));
        assert!(standing.trouble(begun + SHORTEST).is_none());
    }

    #[test]
    fn one_that_flaps_stays_away_longer_each_time_and_is_forgiven_after_a_good_minute() {
        let mut now = Instant::now();
        let mut standing = Standing::default();
        let mut lasted = Vec::new();
        for _ in 0..8 {
            standing.failed(now, Failure::Unreachable);
            let (_, left) = standing.trouble(now).unwrap();
            lasted.push(left.as_secs());
            now += left + Duration::from_secs(1);
        }
        assert_eq!(lasted, [1, 2, 4, 8, 16, 32, 60, 60]);
        now += FORGIVEN_AFTER;
        standing.failed(now, Failure::Unreachable);
        assert_eq!(standing.trouble(now).unwrap().1, SHORTEST);
    }
}
