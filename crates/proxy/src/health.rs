//! Health of proxies and links: after a failure they are avoided for a while, longer after repeated failures. Pure:
//! the time is passed in.

use std::time::Duration;

use raft_types::{MemberId, OpId};
use thiserror::Error;
use tokio::time::Instant;

use crate::policy::ProxyOptions;

/// How long a proxy is avoided after its first failure.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// After this time without a failure, earlier failures no longer count.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// A proxy's failure.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// It cannot be called, or the connection broke.
    #[error("it cannot be reached")]
    Unreachable,
    /// It was silent although an answer was due.
    #[error("it was silent although an answer was due")]
    Silent,
    /// It reports that it forwards, and the member does not answer.
    #[error("the entries that it forwards are not answered")]
    Stuck,
    /// It waited for this entry and did not get it.
    #[error("entry {0} did not arrive there in time")]
    Lacks(OpId),
    /// It will never get this entry, which is purged there.
    #[error("entry {0} is purged there")]
    Purged(OpId),
    /// It could not call the member, or another proxy on the route.
    #[error("it cannot call member {0}")]
    CannotCall(MemberId),
    /// It gave an impossible answer.
    #[error("it sent an answer without a request")]
    Nonsense,
    /// It does not forward for this leader.
    #[error("it refuses to forward")]
    Refused,
}

/// What the leader avoids after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blamed {
    /// A proxy, for all targets.
    Proxy(MemberId),
    /// One of the links: from a proxy to the next member.
    Link(MemberId, MemberId),
}

impl Failure {
    /// The cause on the route through these proxies to the member; all possible causes where it is unclear.
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
                // It was not asked to call that one.
                None => Self::Nonsense.blamed(proxies, target),
            },
        }
    }

    /// The failure as the metric's label.
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
    /// Failures, each less than [`FORGIVEN_AFTER`] after the end of the one before.
    failures: u32,
    last: Option<(Instant, Failure)>,
}

impl Health {
    /// Records a failure; it lasts longer if it is not the first. A failure already in force is not counted again: all sessions over
    /// a proxy fail with it. Returns whether it is new.
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

    /// The failure in force, and for how long.
    pub(crate) fn trouble(&self, now: Instant) -> Option<(&Failure, Duration)> {
        let (until, failure) = self.last.as_ref()?;
        let left = until.saturating_duration_since(now);
        (!left.is_zero()).then_some((failure, left))
    }
}

// How long a leader tolerates a session that is silent, or one with signs of life and no answer. Pure.

/// How long one session may be silent, or send signs of life without an answer.
#[derive(Debug)]
pub(crate) struct Patience {
    silence: Duration,
    patience: Duration,
    /// Since when it has been silent while an answer is due.
    silent: Instant,
    /// Since when no answer has come while one is due.
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

    /// A request was sent to the proxy, which must answer or send a sign of life from now on.
    pub(crate) fn sent(&mut self, now: Instant) {
        if !self.due {
            (self.silent, self.unanswered, self.due) = (now, now, true);
        }
    }

    /// The proxy lives, although the member after it has not answered. `moves`: the answer due progresses.
    pub(crate) fn sign_of_life(&mut self, now: Instant, moves: bool) {
        self.silent = now;
        if moves {
            self.unanswered = now;
        }
    }

    /// The member answered; `more` when another answer is due.
    pub(crate) fn answered(&mut self, now: Instant, more: bool) {
        (self.silent, self.unanswered, self.due) = (now, now, more);
    }

    /// The request due is not at the proxies yet: its time begins when it is.
    pub(crate) fn is_on_its_way(&mut self, now: Instant) {
        self.unanswered = now;
    }

    /// The proxy's failure, if its time is over.
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

// How long a leader holds a large request back from a proxy that does not have its entries yet. Pure.

/// The slowest rate, in bytes a second, at which data is packed, or assembled and made durable.
const SLOWEST_WORK: usize = 16 << 20;

/// The progress of an entry on its way to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// So many pieces were sent, and more will be.
    Leaves(u64),
    /// All of it was sent.
    HasLeft,
    /// The proxy has acknowledged it.
    There,
}

impl Way {
    /// Of two proxies, the state of the one that has less.
    pub(crate) fn further_back(self, other: Self) -> Self {
        match (self, other) {
            (Self::Leaves(one), Self::Leaves(two)) => Self::Leaves(one.min(two)),
            (Self::Leaves(_), _) | (Self::HasLeft, Self::There) => self,
            _ => other,
        }
    }
}

/// A request that is held back.
#[derive(Debug)]
pub(crate) struct Hold {
    /// How long there may be no progress. Packing before the first piece and the proxy's work after the last one show no
    /// progress; in between, a busy disk may stop it.
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

    /// True if it is still held back: until it was sent, or is acknowledged where required, or progress stops.
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
            // It is packed, or its proxy accepts nothing.
            (false, 0, Way::Leaves(0), allowed),
            (false, 40, Way::HasLeft, second * 40),
            // The connection stalls in the middle.
            (false, 40, Way::Leaves(40), second * 39 + allowed),
            (true, 40, Way::There, second * 40),
            // It was requested too early once, and its disk stalls.
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
