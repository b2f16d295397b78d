//! Members that did not take over the leadership when it was transferred to them. Until a failed transfer is detected, the ring has no
//! leader, so the same target is not tried again immediately. It must first win a mock election, which shows that it reaches its voters.
//! Otherwise two members would alternate as the primary for short periods. The records stay in memory across leaderships.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use raft_types::{MemberId, lock};
use tokio::time::Instant;

/// The longest time that a failed target is skipped.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A failure expires this long after the end of its pause.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// How a failed transfer target is treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetStanding {
    /// Other members are chosen before this one.
    ComesLast,
    /// The member must first win a mock election.
    ToBeTested,
    /// The member is not tried now; the text is the reason.
    Held(String),
}

/// The failed targets and how each one is treated.
pub type Standings = BTreeMap<MemberId, TargetStanding>;

#[derive(Debug)]
struct Failure {
    /// Consecutive failures.
    times: u32,
    not_before: Instant,
    /// True if the member has won a mock election since its failure.
    tested: bool,
    why: String,
}

/// The failed targets that this process has observed.
#[derive(Debug, Default)]
pub struct FailedTargets(Mutex<BTreeMap<MemberId, Failure>>);

impl FailedTargets {
    /// Records that `id` did not take over the leadership within `patience`.
    pub(crate) fn failed(&self, id: MemberId, patience: Duration, now: Instant) {
        let mut failures = lock(&self.0);
        let times = failures.get(&id).map_or(1, |before| before.times + 1);
        let pause = patience.saturating_mul(2_u32.saturating_pow(times));
        let failure = Failure {
            times,
            not_before: now + pause.min(LONGEST_PAUSE),
            tested: false,
            why: format!(
                "member {id} was given the leadership and did not take it, so it is passed over for a while"
            ),
        };
        failures.insert(id, failure);
    }

    /// Records that `id` was elected.
    pub(crate) fn took_over(&self, id: MemberId) {
        lock(&self.0).remove(&id);
    }

    /// Records that `id` has won a mock election, or why it lost. A mock election changes nothing, so it may be held as often as elections
    /// are allowed.
    pub fn tested(&self, id: MemberId, lost: Option<String>, pause: Duration, now: Instant) {
        if let Some(failure) = lock(&self.0).get_mut(&id) {
            failure.tested = lost.is_none();
            if let Some(why) = lost {
                failure.not_before = now + pause;
                failure.why = format!("it is not given the leadership again: {why}");
            }
        }
    }

    /// The current treatment of failed targets.
    pub fn standings(&self, now: Instant) -> Standings {
        let mut failures = lock(&self.0);
        failures.retain(|_, failure| now < failure.not_before + FORGOTTEN_AFTER);
        let standing = |failure: &Failure| match failure {
            failure if failure.tested => TargetStanding::ComesLast,
            failure if now < failure.not_before => TargetStanding::Held(failure.why.clone()),
            _ => TargetStanding::ToBeTested,
        };
        let standings = failures
            .iter()
            .map(|(id, failure)| (*id, standing(failure)));
        standings.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: MemberId = MemberId(1);
    const PATIENCE: Duration = Duration::from_secs(1);

    #[test]
    fn failed_targets_wait_longer_and_need_a_mock_election() {
        let (targets, mut now) = (FailedTargets::default(), Instant::now());
        let held = |now| {
            matches!(
                targets.standings(now).get(&ID),
                Some(TargetStanding::Held(_))
            )
        };
        assert_eq!(targets.standings(now), Standings::new());
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            targets.failed(ID, PATIENCE, now);
            assert!(held(now + Duration::from_secs(seconds - 1)), "{seconds}");
            now += Duration::from_secs(seconds);
            let to_be_tested = Standings::from([(ID, TargetStanding::ToBeTested)]);
            assert_eq!(targets.standings(now), to_be_tested, "{seconds}");
            targets.tested(
                ID,
                Some("no voter receives its requests".to_owned()),
                PATIENCE,
                now,
            );
            let why =
                "it is not given the leadership again: no voter receives its requests".to_owned();
            let lost = Standings::from([(ID, TargetStanding::Held(why))]);
            assert_eq!(targets.standings(now), lost);
            now += PATIENCE;
            assert_eq!(targets.standings(now), to_be_tested);
            targets.tested(ID, None, PATIENCE, now);
            let won = Standings::from([(ID, TargetStanding::ComesLast)]);
            assert_eq!(targets.standings(now), won);
        }
        targets.took_over(ID);
        assert_eq!(targets.standings(now), Standings::new());
    }

    #[test]
    fn a_failure_of_long_ago_is_forgotten() {
        let (targets, now) = (FailedTargets::default(), Instant::now());
        targets.failed(ID, PATIENCE, now);
        assert!(!targets.standings(now + FORGOTTEN_AFTER).is_empty());
        let later = now + FORGOTTEN_AFTER + LONGEST_PAUSE;
        assert_eq!(targets.standings(later), Standings::new());
        targets.failed(ID, PATIENCE, later);
        let again = targets.standings(later + PATIENCE * 2);
        assert_eq!(again, Standings::from([(ID, TargetStanding::ToBeTested)]));
    }
}
