//! Health of proxies and links. After a failure, a proxy or link is avoided: for a second at first, and twice as long after each further
//! failure, up to a minute. Pure functions; the time is an argument.

use std::time::Duration;

use raft_types::{MemberId, OpId};
use thiserror::Error;
use tokio::time::Instant;

use crate::policy::ProxyOptions;

/// How long a proxy is avoided after its first failure.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// If an avoided proxy works for this time, its earlier failures no longer count.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// Why a proxy is not used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// The proxy cannot be called, or the connection to it broke.
    #[error("it cannot be reached")]
    Unreachable,
    /// The proxy sent nothing, although an answer was due.
    #[error("it was silent although an answer was due")]
    Silent,
    /// The proxy reports that it forwards entries, but the member does not answer them.
    #[error("the entries that it forwards are not answered")]
    Stuck,
    /// The proxy waited for this entry, and did not receive it.
    #[error("entry {0} did not arrive there in time")]
    Lacks(OpId),
    /// The proxy will never get this entry, because it has purged it.
    #[error("entry {0} is purged there")]
    Purged(OpId),
    /// The proxy could not call the member, or another proxy on the route.
    #[error("it cannot call member {0}")]
    CannotCall(MemberId),
    /// The proxy gave an impossible answer.
    #[error("it sent an answer without a request")]
    Nonsense,
    /// The proxy does not forward for this leader.
    #[error("it refuses to forward")]
    Refused,
}

/// What a leader avoids after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blamed {
    /// A proxy, for all members.
    Proxy(MemberId),
    /// A link from a proxy to the next member.
    Link(MemberId, MemberId),
}

impl Failure {
    /// Returns the cause of the failure, on the route through these proxies to the member. If the cause is unclear, returns all possible
    /// causes.
    pub(crate) fn blamed(&self, proxies: &[MemberId], target: MemberId) -> Vec<Blamed> {
        let next = proxies.iter().skip(1).chain([&target]);
        let mut links = proxies.iter().copied().zip(next.copied());
        match self {
            Self::Unreachable => proxies.iter().take(1).copied().map(Blamed::Proxy).collect(),
            Self::Silent | Self::Nonsense => proxies.iter().copied().map(Blamed::Proxy).collect(),
            Self::Refused => links.map(|(from, to)| Blamed::Link(from, to)).collect(),
            Self::Stuck | Self::Lacks(_) | Self::Purged(_) => {
                let last = links.last();
                last.map(|(from, to)| Blamed::Link(from, to))
                    .into_iter()
                    .collect()
            }
            Self::CannotCall(member) => match links.find(|(_, to)| to == member) {
                Some((from, to)) => vec![Blamed::Link(from, to)],
                // The proxies were not asked to call that member.
                None => Self::Nonsense.blamed(proxies, target),
            },
        }
    }

    /// Returns the failure as a label of the metrics.
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

/// Consecutive failures, and the last one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    /// The number of consecutive failures: each began less than [`FORGIVEN_AFTER`] after the end of the previous one.
    failures: u32,
    last: Option<(Instant, Failure)>,
}

impl Health {
    /// Records a failure. Each consecutive failure lasts twice as long as the previous one. While a failure lasts, another one is not
    /// counted, because all sessions over a proxy fail together. Returns true if the failure was counted.
    pub(crate) fn failed(&mut self, now: Instant, failure: Failure) -> bool {
        if self.trouble(now).is_some() {
            return false;
        }
        self.failures = match &self.last {
            Some((until, _)) if now.saturating_duration_since(*until) >= FORGIVEN_AFTER => 1,
            _ => self.failures.saturating_add(1),
        };
        let doubled = 2_u32.saturating_pow(self.failures - 1);
        let lasts = SHORTEST.saturating_mul(doubled).min(LONGEST);
        self.last = Some((now + lasts, failure));
        true
    }

    /// Returns the failure that lasts now, and for how much longer.
    pub(crate) fn trouble(&self, now: Instant) -> Option<(&Failure, Duration)> {
        let (until, failure) = self.last.as_ref()?;
        let left = until.saturating_duration_since(now);
        (!left.is_zero()).then_some((failure, left))
    }
}

// How long a leader waits in a session for signs of life, and for answers. Pure functions.

/// The limits of one session: how long the proxy may send nothing, and how long it may send only signs of life without an answer.
#[derive(Debug)]
pub(crate) struct Patience {
    silence: Duration,
    patience: Duration,
    /// Since when the proxy has sent nothing while an answer is due.
    silent: Instant,
    /// Since when the proxy has sent no answer while one is due.
    unanswered: Instant,
    due: bool,
}

impl Patience {
    pub(crate) fn new(options: &ProxyOptions, now: Instant) -> Self {
        Self {
            silence: options.silence(),
            patience: options.patience(),
            silent: now,
            unanswered: now,
            due: false,
        }
    }

    /// Records that a request was sent to the proxy, which must answer or send signs of life from now on.
    pub(crate) fn sent(&mut self, now: Instant) {
        if !self.due {
            (self.silent, self.unanswered, self.due) = (now, now, true);
        }
    }

    /// Records a sign of life: the proxy works, although the next member has not answered. `moves` is true if the answer progresses.
    pub(crate) fn sign_of_life(&mut self, now: Instant, moves: bool) {
        self.silent = now;
        if moves {
            self.unanswered = now;
        }
    }

    /// Records an answer of the member; `more` is true if another answer is due.
    pub(crate) fn answered(&mut self, now: Instant, more: bool) {
        (self.silent, self.unanswered, self.due) = (now, now, more);
    }

    /// Records that the oldest request has not reached the proxies yet. The time for its answer begins when it does.
    pub(crate) fn is_on_its_way(&mut self, now: Instant) {
        self.unanswered = now;
    }

    /// Returns the proxy's failure, if one of the limits is exceeded.
    pub(crate) fn over(&self, now: Instant) -> Option<Failure> {
        let since = |then: Instant| now.saturating_duration_since(then);
        if !self.due {
            None
        } else if since(self.silent) >= self.silence {
            Some(Failure::Silent)
        } else if since(self.unanswered) >= self.patience {
            Some(Failure::Stuck)
        } else {
            None
        }
    }
}

// How long a leader delays a large request, if the proxy does not have the entries yet. Pure functions.

/// The slowest expected rate, in bytes per second, at which data is compressed, or assembled and made durable.
const SLOWEST_WORK: usize = 16 << 20;

/// The progress of an entry that is sent to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// This number of pieces was sent; more will follow.
    Leaves(u64),
    /// All pieces were sent.
    HasLeft,
    /// The proxy has acknowledged the entry.
    There,
}

impl Way {
    /// Returns the state of the proxy that has received less.
    pub(crate) fn further_back(self, other: Self) -> Self {
        match (self, other) {
            (Self::Leaves(one), Self::Leaves(two)) => Self::Leaves(one.min(two)),
            (Self::Leaves(_), _) | (Self::HasLeft, Self::There) => self,
            _ => other,
        }
    }
}

/// A request that is delayed.
#[derive(Debug)]
pub(crate) struct Hold {
    /// How long there may be no progress. No progress is visible while the entry is compressed before the first piece, and while the proxy
    /// works after the last piece. In between, a busy disk may stop the progress.
    allowed: Duration,
    way: Option<Way>,
    /// The time of the last progress.
    since: Instant,
}

impl Hold {
    pub(crate) fn new(options: &ProxyOptions, bytes: usize, now: Instant) -> Self {
        Self {
            allowed: options.patience() + Duration::from_secs((bytes / SLOWEST_WORK) as u64),
            way: None,
            since: now,
        }
    }

    /// Returns true while the request is delayed. The delay ends when the entry was sent, or was acknowledged if `acknowledged` is true, or
    /// when there is no progress for too long.
    pub(crate) fn continues(&mut self, way: Way, acknowledged: bool, now: Instant) -> bool {
        if self.way != Some(way) {
            (self.way, self.since) = (Some(way), now);
        }
        let there = way == Way::There || (way == Way::HasLeft && !acknowledged);
        !there && now.saturating_duration_since(self.since) < self.allowed
    }
}

#[cfg(test)]
mod hold_tests {
    use super::*;

    #[test]
    fn a_large_request_is_held_back_while_it_progresses() {
        let options = ProxyOptions::default();
        let allowed = options.patience() + Duration::from_secs(25);
        let second = Duration::from_secs(1);
        for (acknowledged, moves, then, expected) in [
            // The entry is being compressed, or its proxy accepts nothing.
            (false, 0, Way::Leaves(0), allowed),
            (false, 40, Way::HasLeft, second * 40),
            // The connection stalls in the middle of the entry.
            (false, 40, Way::Leaves(40), second * 39 + allowed),
            (true, 40, Way::There, second * 40),
            // The request was sent too early before, and the proxy's disk stalls.
            (true, 40, Way::HasLeft, second * 40 + allowed),
        ] {
            let begun = Instant::now();
            let mut hold = Hold::new(&options, SLOWEST_WORK * 25, begun);
            let mut now = begun;
            for piece in 1..=moves {
                assert!(hold.continues(Way::Leaves(piece), acknowledged, now));
                now += second;
            }
            while hold.continues(then, acknowledged, now) {
                now += second;
            }
            assert_eq!(now - begun, expected, "{then:?}");
        }
    }

    #[test]
    fn the_slowest_of_several_proxies_counts() {
        let ways = [Way::Leaves(0), Way::Leaves(3), Way::HasLeft, Way::There];
        for (at, less) in ways.iter().enumerate() {
            for more in &ways[at..] {
                assert_eq!(less.further_back(*more), *less);
                assert_eq!(more.further_back(*less), *less);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_proxy_is_used_again_later() {
        let begun = Instant::now();
        let mut health = Health::default();
        assert!(health.trouble(begun).is_none());
        health.failed(begun, Failure::Silent);
        assert_eq!(health.trouble(begun), Some((&Failure::Silent, SHORTEST)));
        assert!(health.trouble(begun + SHORTEST).is_none());
    }

    #[test]
    fn repeated_failures_last_longer_and_expire_after_a_minute() {
        let mut now = Instant::now();
        let mut health = Health::default();
        let mut lasted = Vec::new();
        for _ in 0..8 {
            health.failed(now, Failure::Unreachable);
            let (_, left) = health.trouble(now).unwrap();
            lasted.push(left.as_secs());
            now += left + Duration::from_secs(1);
        }
        assert_eq!(lasted, [1, 2, 4, 8, 16, 32, 60, 60]);
        now += FORGIVEN_AFTER;
        health.failed(now, Failure::Unreachable);
        assert_eq!(health.trouble(now).unwrap().1, SHORTEST);
    }

    #[test]
    fn sessions_that_fail_together_count_as_one_failure() {
        let now = Instant::now();
        let mut health = Health::default();
        assert!(health.failed(now, Failure::Silent));
        assert!(!health.failed(now + SHORTEST / 2, Failure::Unreachable));
        assert_eq!(health.trouble(now), Some((&Failure::Silent, SHORTEST)));
    }

    #[test]
    fn only_possible_causes_are_blamed() {
        use Blamed::Link;
        use Blamed::Proxy;
        let [near, far, target, other] = [2, 3, 4, 5].map(MemberId);
        let entry = OpId::new(1, 7);
        for (failure, expected) in [
            (Failure::Unreachable, vec![Proxy(near)]),
            (Failure::Silent, vec![Proxy(near), Proxy(far)]),
            (Failure::Nonsense, vec![Proxy(near), Proxy(far)]),
            (Failure::Refused, vec![Link(near, far), Link(far, target)]),
            (Failure::Stuck, vec![Link(far, target)]),
            (Failure::Lacks(entry), vec![Link(far, target)]),
            (Failure::Purged(entry), vec![Link(far, target)]),
            (Failure::CannotCall(far), vec![Link(near, far)]),
            (Failure::CannotCall(target), vec![Link(far, target)]),
            (Failure::CannotCall(other), vec![Proxy(near), Proxy(far)]),
        ] {
            assert_eq!(failure.blamed(&[near, far], target), expected, "{failure}");
        }
        let alone = Failure::Refused.blamed(&[near], target);
        assert_eq!(alone, [Link(near, target)]);
    }
}

#[cfg(test)]
mod patience_tests {
    use super::*;

    #[test]
    fn only_a_due_answer_can_be_late() {
        let options = ProxyOptions::default();
        let mut now = Instant::now();
        let mut patience = Patience::new(&options, now);
        now += Duration::from_secs(100);
        assert_eq!(patience.over(now), None);
        patience.sent(now);
        now += options.silence() - Duration::from_millis(1);
        assert_eq!(patience.over(now), None);
        patience.sent(now);
        now += Duration::from_millis(1);
        assert_eq!(
            patience.over(now),
            Some(Failure::Silent),
            "a later request is no sign of life"
        );
        patience.answered(now, false);
        now += Duration::from_secs(100);
        assert_eq!(patience.over(now), None);
    }

    #[test]
    fn signs_of_life_extend_the_wait_only_for_a_while() {
        let options = ProxyOptions::default();
        let mut now = Instant::now();
        let mut patience = Patience::new(&options, now);
        patience.sent(now);
        let begun = now;
        while patience.over(now).is_none() {
            now += options.sign_of_life();
            patience.sign_of_life(now, false);
        }
        assert_eq!(patience.over(now), Some(Failure::Stuck));
        assert!(now - begun >= options.patience());
    }

    #[test]
    fn a_large_entry_is_stuck_only_without_progress() {
        let options = ProxyOptions::default();
        let mut now = Instant::now();
        let mut patience = Patience::new(&options, now);
        patience.sent(now);
        let moved = now + 20 * options.patience();
        while now < moved {
            now += options.sign_of_life();
            patience.sign_of_life(now, true);
            assert_eq!(patience.over(now), None);
        }
        let hung = now;
        while patience.over(now).is_none() {
            now += options.sign_of_life();
            patience.sign_of_life(now, false);
        }
        assert_eq!(patience.over(now), Some(Failure::Stuck));
        assert!(now - hung < options.patience() + options.sign_of_life());
        patience.sign_of_life(hung, true);
        now = hung + options.silence();
        assert_eq!(patience.over(now), Some(Failure::Silent), "it was killed");
    }
}
