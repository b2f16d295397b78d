//! Whether somebody may be relied on after what went wrong: for a while not, and the longer the more often it went wrong. Pure:
//! the time is passed in.

use std::fmt;
use std::time::Duration;

use raft_types::{MemberId, OpId};
use tokio::time::Instant;

use crate::policy::ProxyOptions;

/// How long a proxy is left alone after its first failure.
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
    /// It could not call the member, or another proxy on the route.
    CannotCall(MemberId),
    /// It answered what cannot be.
    Nonsense,
    /// It does not send on for this leader.
    Refused,
}

/// Whom the leader leaves out after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blamed {
    /// A proxy, whoever it sends on to.
    Proxy(MemberId),
    /// One of the links: from a proxy to who is next.
    Link(MemberId, MemberId),
}

impl Failure {
    /// Who is to blame on the route through these proxies to the member; where it cannot be told, all who may be.
    pub(crate) fn blamed(&self, proxies: &[MemberId], target: MemberId) -> Vec<Blamed> {
        let behind = proxies.iter().skip(1).chain([&target]);
        let mut links = proxies.iter().copied().zip(behind.copied());
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

    /// The failure as the metric's label has it.
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
            Self::Stuck => f.write_str("the entries that it forwards are not answered"),
            Self::Lacks(op_id) => write!(f, "entry {op_id} did not arrive there in time"),
            Self::Purged(op_id) => write!(f, "entry {op_id} is purged there"),
            Self::CannotCall(member) => write!(f, "it cannot call member {member}"),
            Self::Nonsense => f.write_str("it sent an answer that nobody asked for"),
            Self::Refused => f.write_str("it refuses to forward"),
        }
    }
}

/// What went wrong in a row, and when it did last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    /// Failures, each less than [`FORGIVEN_AFTER`] after the end of the one before.
    failures: u32,
    last: Option<(Instant, Failure)>,
}

impl Health {
    /// Notes a failure; it lasts longer if it is not the first. What is known already is not counted again: all sessions over
    /// a proxy fail with it. Whether it is news.
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

    /// What is held against it, and until when.
    pub(crate) fn trouble(&self, now: Instant) -> Option<(&Failure, Duration)> {
        let (until, failure) = self.last.as_ref()?;
        let left = until.saturating_duration_since(now);
        (!left.is_zero()).then_some((failure, left))
    }
}

// How long a leader bears a session that says nothing, or one that says that it lives and brings no answer. Pure.

/// How long one session may say nothing, or say that it lives and bring no answer.
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

    /// A request was sent to the proxy, which has to answer or show that it lives from now on.
    pub(crate) fn sent(&mut self, now: Instant) {
        if !self.due {
            (self.silent, self.unanswered, self.due) = (now, now, true);
        }
    }

    /// The proxy lives, although the member behind it has not answered. What it has to answer gets on, or not.
    pub(crate) fn sign_of_life(&mut self, now: Instant, moves: bool) {
        self.silent = now;
        if moves {
            self.unanswered = now;
        }
    }

    /// The member answered; whether more is due.
    pub(crate) fn answered(&mut self, now: Instant, more: bool) {
        (self.silent, self.unanswered, self.due) = (now, now, more);
    }

    /// What the member has to answer is not at the proxies yet: its time begins when it is.
    pub(crate) fn is_on_its_way(&mut self, now: Instant) {
        self.unanswered = now;
    }

    /// What is to be held against the proxy.
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

/// Bytes a second that are packed, or put together and made durable, at least.
const SLOWEST_WORK: usize = 16 << 20;

/// How far an entry is on its way to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// So many pieces have left, and more will.
    Leaves(u64),
    /// All of it has left.
    HasLeft,
    /// The proxy has acknowledged it.
    There,
}

impl Way {
    /// Of two proxies, that of the one that has less.
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
    /// How long nothing may move. Packing, before the first piece leaves, and what a proxy does behind the last one take their time
    /// without anything to be seen, and in between a busy disk does.
    allowed: Duration,
    way: Option<Way>,
    /// Since when the way has been the same.
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

    /// Whether it is still held back: until it has left, or is acknowledged where that is asked for, or nothing moves.
    pub(crate) fn goes_on(&mut self, way: Way, acknowledged: bool, now: Instant) -> bool {
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
    fn a_large_request_is_held_back_while_it_moves_and_no_longer_than_work_on_it_takes() {
        let options = ProxyOptions::default();
        let allowed = options.patience() + Duration::from_secs(25);
        let second = Duration::from_secs(1);
        for (acknowledged, moves, then, expected) in [
            // It is packed, or its proxy takes nothing.
            (false, 0, Way::Leaves(0), allowed),
            (false, 40, Way::HasLeft, second * 40),
            // The line hangs in the middle.
            (false, 40, Way::Leaves(40), second * 39 + allowed),
            (true, 40, Way::There, second * 40),
            // It was asked for too early once, and its disk hangs.
            (true, 40, Way::HasLeft, second * 40 + allowed),
        ] {
            let begun = Instant::now();
            let mut hold = Hold::new(&options, SLOWEST_WORK * 25, begun);
            let mut now = begun;
            for piece in 1..=moves {
                assert!(hold.goes_on(Way::Leaves(piece), acknowledged, now));
                now += second;
            }
            while hold.goes_on(then, acknowledged, now) {
                now += second;
            }
            assert_eq!(now - begun, expected, "{then:?}");
        }
    }

    #[test]
    fn of_several_proxies_the_one_that_has_least_counts() {
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
    fn a_fresh_one_is_fit_and_one_that_failed_comes_back() {
        let begun = Instant::now();
        let mut health = Health::default();
        assert!(health.trouble(begun).is_none());
        health.failed(begun, Failure::Silent);
        assert_eq!(health.trouble(begun), Some((&Failure::Silent, SHORTEST)));
        assert!(health.trouble(begun + SHORTEST).is_none());
    }

    #[test]
    fn one_that_flaps_stays_away_longer_each_time_and_is_forgiven_after_a_good_minute() {
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
    fn who_cannot_be_the_cause_is_not_blamed() {
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
    fn only_who_owes_an_answer_can_be_too_late() {
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
    fn signs_of_life_are_not_enough_for_ever() {
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
    fn a_large_entry_that_moves_is_not_stuck_and_one_that_does_not_move_any_more_is() {
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
