//! Who takes the leadership over from a witness: a decision about one view of the ring.

use std::time::Duration;

use raft_types::{MemberId, MemberKind};

use crate::quorum::{QuorumPlan, RingRules, is_near, plan};
use crate::standing::{RingView, Standing};

/// Chooses the heir: a voting database member that answers, is caught up, and in whose region commits are possible. Those in
/// `failed` come last, and members of priority 0; then the own region comes first, then the operator's order of regions,
/// the higher priority, the smaller lag, the lower number.
///
/// # Errors
/// What keeps all of them from leading, in words.
pub(crate) fn choose(
    view: &RingView,
    rules: &RingRules,
    lease: Duration,
    failed: &[MemberId],
) -> Result<MemberId, String> {
    let own_region = view.member(view.own).map(|own| &own.record.region);
    let databases: Vec<&Standing> = view
        .members
        .iter()
        .filter(|standing| {
            standing.record.kind == MemberKind::Database
                && standing.record.votes
                && standing.id != view.own
                && !view.keeps_a_place(standing.id)
        })
        .collect();
    let fit = databases
        .iter()
        .filter(|standing| obstacle(view, rules, lease, standing).is_none());
    let heir = fit.min_by_key(|standing| {
        let record = &standing.record;
        (
            failed.contains(&standing.id),
            record.priority == 0,
            own_region != Some(&record.region),
            rules.rank(&record.region),
            &record.region,
            std::cmp::Reverse(record.priority),
            standing.behind,
            standing.id,
        )
    });
    match heir {
        Some(heir) => Ok(heir.id),
        None => Err(why_nobody(view, rules, lease, &databases)),
    }
}

/// What keeps one database member from leading now, in words.
pub(crate) fn obstacle(
    view: &RingView,
    rules: &RingRules,
    lease: Duration,
    standing: &Standing,
) -> Option<String> {
    let (id, name) = (standing.id, &standing.record.name);
    if !standing.answers(lease) {
        return Some(format!(
            "database member {id} ({name}) does not answer; bring it back"
        ));
    }
    if !is_near(standing, lease) {
        return Some(format!(
            "database member {id} ({name}) is {} entries behind; it is catching up",
            standing.behind.unwrap_or(u64::MAX),
        ));
    }
    match plan(rules, view, &standing.record.region, lease) {
        QuorumPlan::Blocked { why } => Some(format!(
            "database member {id} ({name}) could not commit: {why}"
        )),
        QuorumPlan::Settled if !standing.voter => Some(format!(
            "database member {id} ({name}) is outside the quorum that the policy {} wants",
            rules.policy
        )),
        QuorumPlan::Settled | QuorumPlan::Step { .. } => None,
    }
}

fn why_nobody(
    view: &RingView,
    rules: &RingRules,
    lease: Duration,
    databases: &[&Standing],
) -> String {
    let nearest = databases
        .iter()
        .min_by_key(|standing| (!standing.answers(lease), standing.behind, standing.id));
    let why = nearest.and_then(|nearest| obstacle(view, rules, lease, nearest));
    let why = why.unwrap_or_else(|| {
        "the ring has no voting database member that could lead; add one".to_owned()
    });
    match view.pause() {
        Some(paused) if paused.primary == view.own => format!(
            "failover is paused, and member {} stays the primary; `witness resume` ends that",
            paused.primary
        ),
        Some(paused) => format!(
            "failover is paused until member {} is the primary again: {why}; `witness promote` makes another one the primary, \
             `witness resume` ends the pause",
            paused.primary
        ),
        None => why,
    }
}

#[cfg(test)]
mod tests {
    use raft_types::Region;

    use super::*;
    use crate::standing::tests::{LEASE, Ring};

    fn chosen(ring: &Ring, rules: &RingRules, failed: &[u64]) -> Result<u64, String> {
        let failed: Vec<MemberId> = failed.iter().copied().map(MemberId).collect();
        choose(&ring.view(), rules, LEASE, &failed).map(|heir| heir.0)
    }

    /// Member 2, a witness of region a, leads; the database members are 1 in a, 4 in b, 7 and 8 in c.
    fn ring() -> Ring {
        Ring::new("a: 1d 2w 3w | b: 4d 5w 6w | c: 7d 8d 9w")
            .led_by(2)
            .with_sets(&[&[1, 2, 3]])
    }

    #[test]
    fn the_own_region_first_then_the_order_of_regions_then_priority() {
        let rules = RingRules::default();
        assert_eq!(chosen(&ring(), &rules, &[]), Ok(1));
        let without_1 = ring().silent(&[1]);
        assert_eq!(chosen(&without_1, &rules, &[]), Ok(4));
        let prefers_c = RingRules {
            region_preference: vec![Region("c".to_owned())],
            ..RingRules::default()
        };
        assert_eq!(chosen(&without_1, &prefers_c, &[]), Ok(7));
        let prefers_8 = without_1.with(8, |standing| standing.record.priority = 101);
        assert_eq!(chosen(&prefers_8, &prefers_c, &[]), Ok(8));
        let never_7_and_8 = ring()
            .silent(&[1])
            .with(7, |standing| standing.record.priority = 0)
            .with(8, |standing| standing.record.priority = 0);
        assert_eq!(chosen(&never_7_and_8, &prefers_c, &[]), Ok(4));
        assert_eq!(chosen(&never_7_and_8, &prefers_c, &[4]), Ok(7));
    }

    #[test]
    fn the_smaller_lag_decides_between_equals() {
        let rules = RingRules {
            region_preference: vec![Region("c".to_owned())],
            ..RingRules::default()
        };
        let ring = ring()
            .silent(&[1])
            .with(7, |standing| standing.behind = Some(9));
        assert_eq!(chosen(&ring, &rules, &[]), Ok(8));
    }

    #[test]
    fn a_region_that_could_not_commit_is_passed_over() {
        let ring = ring().silent(&[1, 5, 6]);
        assert_eq!(chosen(&ring, &RingRules::default(), &[]), Ok(7));
    }

    #[test]
    fn it_says_why_it_keeps_the_leadership() {
        let rules = RingRules::default();
        let why = |ring: &Ring| chosen(ring, &rules, &[]).unwrap_err();
        let nobody_answers = ring().silent(&[1, 4, 7, 8]);
        assert!(why(&nobody_answers).contains("database member 1 (member-1) does not answer"));
        let behind = nobody_answers.with(7, |standing| {
            standing.answered = Some(Duration::ZERO);
            standing.behind = Some(100_000);
        });
        assert!(why(&behind).contains("database member 7 (member-7) is 100000 entries behind"));
        let no_majority = ring().silent(&[1, 5, 6, 7, 8]);
        let words = why(&no_majority);
        assert!(
            words.contains("database member 4 (member-4) could not commit"),
            "{words}"
        );
        let witnesses = Ring::new("a: 1w 2w 3w").led_by(2).with_sets(&[&[1, 2, 3]]);
        assert!(why(&witnesses).contains("no voting database member"));
    }
}
