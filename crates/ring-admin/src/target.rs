//! Selects the target of a leadership transfer: a pure decision from one view of the ring and the state of its mysqlds.

use consensus::quorum::{MoveObstacle, QuorumPlan, QuorumPolicy, RingRules, plan};
use consensus::{DatabaseState, Named, RingMember, RingView, Standings};
use raft_types::{MemberId, MemberKind};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::member::Member;
use crate::mysqld::{self, Asking, DatabaseStates, Fitness, SOON_THERE};

/// Why the leadership cannot be transferred to any member.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoTarget {
    /// The best candidate among the database members does not answer.
    #[error("database member {} ({}) does not answer; bring it back", .0.id, .0.name)]
    Silent(Named),
    /// The best candidate lacks this many entries of the log.
    #[error("database member {} ({}) is {} entries behind; it is catching up", .0.id, .0.name, .1)]
    Lagging(Named, u64),
    /// The quorum cannot be moved to the candidate's region, because of this obstacle.
    #[error("database member {} ({}) could not commit: {}", .0.id, .0.name, .1)]
    CannotCommit(Named, MoveObstacle),
    /// The ring's policy gives the candidate no vote.
    #[error(
        "database member {} ({}) is outside the quorum that the policy {} wants", .0.id, .0.name, .1
    )]
    OutsideTheQuorum(Named, QuorumPolicy),
    /// There is no other voting database member.
    #[error("the ring has no voting database member that could lead; add one")]
    NoDatabase,
    /// An interim leader has no voter to which it could transfer the leadership.
    #[error(
        "this member was elected because no voter had the end of its log, and no voter that answers has it yet"
    )]
    NoVoter,
    /// A pause reserves the primary's place for this member.
    #[error("failover is paused, and member {0} stays the primary; `witness resume` ends that")]
    StaysPrimary(MemberId),
    /// A pause reserves the primary's place for this member, which cannot lead for this reason.
    #[error(
        "failover is paused until member {0} is the primary again: {1}; `witness switchover` makes another one the primary, \
         `witness resume` ends the pause"
    )]
    Paused(MemberId, Box<NoTarget>),
}

impl Member {
    /// Returns the member to which this leader should transfer the leadership, and the state of its mysqld. First queries all
    /// candidates concurrently.
    ///
    /// # Errors
    /// Why no member can lead.
    pub async fn transfer_target(&self) -> Result<(MemberId, Option<DatabaseState>), NoTarget> {
        let admin = self.admin();
        let node = &admin.node;
        let view = node.ring_view();
        let (reports, primary) = (watch::Sender::default(), admin.local.database_version());
        let asking = Asking::begin(node, primary, &view, &reports);
        asking.wait().await;
        let mut reports = reports.send_replace(DatabaseStates::new());
        let failed = node.failed_targets.standings(Instant::now());
        let target = choose(&node.ring_view(), &admin.rules(), &failed, &reports)?;
        Ok((target, reports.remove(&target)))
    }
}

/// Chooses the target: a voting database member that answers, has caught up, and can commit in its region. Of two such members, the first
/// difference in this list decides which one is preferred:
///
/// 1. a member that is not in `failed`
/// 2. a mysqld that could be the primary, then an unknown state, then a mysqld that could not
/// 3. a priority other than 0
/// 4. a vote in the quorum in force, so that a quorum move in progress is not reversed for a member that answers a moment later
/// 5. the leader's own region, then the operator's order of regions
/// 6. a mysqld that would not delay clients
/// 7. the higher priority
/// 8. the mysqld that lacks fewer transactions, the smaller lag of the log, the lower number
///
/// If there is no better member, the target may have a mysqld that could not be the primary, or that is in an unknown state. A leader
/// without a primary is better than no leader, because pending commits can still complete.
///
/// # Errors
/// The obstacle of the best candidate.
pub(crate) fn choose(
    view: &RingView,
    rules: &RingRules,
    failed: &Standings,
    states: &DatabaseStates,
) -> Result<MemberId, NoTarget> {
    let own_region = view.member(view.own).map(|own| &own.record.region);
    let may_lead = |peer: &&RingMember| !view.pins_another_primary_than(peer.id);
    let databases: Vec<&RingMember> = mysqld::candidates(view).filter(may_lead).collect();
    let fit = databases
        .iter()
        .filter(|peer| obstacle(view, rules, peer).is_none());
    let target = fit.min_by_key(|peer| {
        let record = &peer.record;
        let state = states.get(&peer.id);
        let lacks = state.and_then(|state| state.lag).unwrap_or(0);
        (
            failed.contains_key(&peer.id),
            Fitness::of(state),
            record.priority == 0,
            !peer.voter,
            own_region != Some(&record.region),
            rules.rank(&record.region),
            &record.region,
            lacks > SOON_THERE,
            std::cmp::Reverse(record.priority),
            lacks,
            peer.lag,
            peer.id,
        )
    });
    match target {
        Some(target) => Ok(target.id),
        None => Err(no_target(view, rules, &databases)),
    }
}

/// Chooses the target of an interim leader: a voter that answers and has caught up. It prefers members that are not in `failed`, then
/// members that a pause does not exclude from being the primary, then database members: a witness would transfer the leadership again.
/// After that, the state of the mysqld and the priority decide.
///
/// # Errors
/// [`NoTarget::NoVoter`] if there is no such voter.
pub(crate) fn choose_voter(
    view: &RingView,
    failed: &Standings,
    states: &DatabaseStates,
) -> Result<MemberId, NoTarget> {
    let voters = view.members.iter();
    let voters = voters.filter(|peer| peer.voter && peer.id != view.own && view.is_near(peer));
    let target = voters.min_by_key(|peer| {
        (
            failed.contains_key(&peer.id),
            view.pins_another_primary_than(peer.id),
            peer.record.kind == MemberKind::Witness,
            Fitness::of(states.get(&peer.id)),
            std::cmp::Reverse(peer.record.priority),
            peer.lag,
            peer.id,
        )
    });
    target.map(|target| target.id).ok_or(NoTarget::NoVoter)
}

/// Returns the reason why a database member cannot lead now; `None` if it can.
fn obstacle(view: &RingView, rules: &RingRules, peer: &RingMember) -> Option<NoTarget> {
    let member = Named::of(peer.id, &peer.record);
    if !view.answers(peer) {
        return Some(NoTarget::Silent(member));
    }
    if !view.is_near(peer) {
        let lag = peer.lag.unwrap_or(u64::MAX);
        return Some(NoTarget::Lagging(member, lag));
    }
    match plan(rules, view, &peer.record.region) {
        QuorumPlan::Blocked(why) => Some(NoTarget::CannotCommit(member, why)),
        QuorumPlan::Settled if !peer.voter => {
            Some(NoTarget::OutsideTheQuorum(member, rules.policy.clone()))
        }
        QuorumPlan::Settled | QuorumPlan::Step(_) => None,
    }
}

fn no_target(view: &RingView, rules: &RingRules, databases: &[&RingMember]) -> NoTarget {
    let nearest = databases
        .iter()
        .min_by_key(|peer| (!view.answers(peer), peer.lag, peer.id));
    let why = nearest.and_then(|nearest| obstacle(view, rules, nearest));
    let why = why.unwrap_or(NoTarget::NoDatabase);
    match view.pause().map(|paused| paused.primary) {
        Some(primary) if primary == view.own => NoTarget::StaysPrimary(primary),
        Some(primary) => NoTarget::Paused(primary, Box::new(why)),
        None => why,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use consensus::TargetStanding;
    use raft_types::Region;

    use super::*;
    use crate::test_ring::Ring;

    fn chosen(ring: &Ring, rules: &RingRules, failed: &[u64]) -> Result<u64, NoTarget> {
        let last = |id: &u64| (MemberId(*id), TargetStanding::ComesLast);
        let failed = failed.iter().map(last).collect();
        choose(&ring.view(), rules, &failed, &DatabaseStates::new()).map(|target| target.0)
    }

    fn fit(lag: u64) -> DatabaseState {
        DatabaseState {
            lag: Some(lag),
            ..DatabaseState::default()
        }
    }

    fn unfit() -> DatabaseState {
        DatabaseState {
            unfit: Some("stopped: table d.t is not there".to_owned()),
            ..DatabaseState::default()
        }
    }

    /// Observed in a test: the mysqld of member 2 had been killed seconds before, and lacked 1,663 transactions. The mysqld of member 3 had
    /// caught up.
    #[test]
    fn the_state_of_each_mysqld_is_part_of_the_choice() {
        let five = Ring::new("a: 1d 2d 3d 4w 5w").with_sets(&[&[1, 2, 3, 4, 5]]);
        let behind_log = five.with(3, |peer| peer.lag = Some(4));
        let prefers_2 = five.with(2, |peer| peer.record.priority = 101);
        let never_3 = five.with(3, |peer| peer.record.priority = 0);
        let two_regions = Ring::new("a: 1d 2d 4w | b: 3d 5w 6w").with_sets(&[&[1, 2, 4]]);
        let table = [
            (
                "far behind, and level",
                &five,
                vec![(2, fit(1_663)), (3, fit(0))],
                3,
            ),
            (
                "its log lags a little",
                &behind_log,
                vec![(2, fit(1_663)), (3, fit(0))],
                3,
            ),
            (
                "both soon there: the one that lacks less",
                &five,
                vec![(2, fit(90)), (3, fit(3))],
                3,
            ),
            (
                "both soon there: the operator's preference",
                &prefers_2,
                vec![(2, fit(90)), (3, fit(3))],
                2,
            ),
            (
                "preferred, and far behind",
                &prefers_2,
                vec![(2, fit(1_663)), (3, fit(3))],
                3,
            ),
            ("stopped", &five, vec![(2, unfit()), (3, fit(1_663))], 3),
            (
                "stopped, and the other without a report",
                &five,
                vec![(2, unfit())],
                3,
            ),
            (
                "without a report, and the other is fit",
                &five,
                vec![(3, fit(0))],
                3,
            ),
            ("no reports", &five, vec![], 2),
            ("both stopped", &five, vec![(2, unfit()), (3, unfit())], 2),
            (
                "stopped, and the other one is the last resort",
                &never_3,
                vec![(2, unfit()), (3, fit(0))],
                3,
            ),
            (
                "far behind here, level in another region",
                &two_regions,
                vec![(2, fit(1_663)), (3, fit(0))],
                2,
            ),
            (
                "stopped here, level in another region",
                &two_regions,
                vec![(2, unfit()), (3, fit(0))],
                3,
            ),
        ];
        for (what, ring, states, expected) in table {
            let reports = states
                .into_iter()
                .map(|(id, state)| (MemberId(id), state))
                .collect();
            let none = Standings::new();
            let target = choose(&ring.view(), &RingRules::default(), &none, &reports);
            assert_eq!(target, Ok(MemberId(expected)), "{what}");
        }
    }

    /// Returns a ring that member 2, a witness in region a, leads. The database members are 1 in a, 4 in b, 7 and 8 in c.
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
        let prefers_8 = without_1.with(8, |peer| peer.record.priority = 101);
        assert_eq!(chosen(&prefers_8, &prefers_c, &[]), Ok(8));
        let never_7_and_8 = ring()
            .silent(&[1])
            .with(7, |peer| peer.record.priority = 0)
            .with(8, |peer| peer.record.priority = 0);
        assert_eq!(chosen(&never_7_and_8, &prefers_c, &[]), Ok(4));
        assert_eq!(chosen(&never_7_and_8, &prefers_c, &[4]), Ok(7));
    }

    #[test]
    fn a_quorum_on_its_way_does_not_turn_back() {
        let rules = RingRules {
            region_preference: vec![Region("c".to_owned())],
            ..RingRules::default()
        };
        let without_1 = ring().silent(&[1]);
        let joint: &[&[u64]] = &[&[1, 2, 3], &[4, 5, 6]];
        // If member 1, in the leader's own region, answers again, it still has a vote during the joint step.
        for (sets, when_1_is_back) in [(joint, 1), (&[&[4, 5, 6]], 4)] {
            let to_b = without_1.clone().with_sets(sets);
            assert_eq!(chosen(&to_b, &rules, &[]), Ok(4));
            assert_eq!(chosen(&to_b, &rules, &[4]), Ok(7));
            let back = chosen(&ring().with_sets(sets), &rules, &[]);
            assert_eq!(back, Ok(when_1_is_back));
        }
    }

    #[test]
    fn the_smaller_lag_decides_between_equals() {
        let rules = RingRules {
            region_preference: vec![Region("c".to_owned())],
            ..RingRules::default()
        };
        let ring = ring().silent(&[1]).with(7, |peer| peer.lag = Some(9));
        assert_eq!(chosen(&ring, &rules, &[]), Ok(8));
    }

    #[test]
    fn a_region_that_could_not_commit_is_passed_over() {
        let ring = ring().silent(&[1, 5, 6]);
        assert_eq!(chosen(&ring, &RingRules::default(), &[]), Ok(7));
    }

    #[test]
    fn a_leader_that_keeps_the_leadership_reports_the_obstacle() {
        let rules = RingRules::default();
        let why = |ring: &Ring| chosen(ring, &rules, &[]).unwrap_err();
        let named = |id| Named {
            id: MemberId(id),
            name: format!("member-{id}"),
        };
        let none_answers = ring().silent(&[1, 4, 7, 8]);
        assert_eq!(why(&none_answers), NoTarget::Silent(named(1)));
        let lags = none_answers.with(7, |peer| {
            peer.answered = Some(Duration::ZERO);
            peer.lag = Some(100_000);
        });
        let (member, lag) = (named(7), 100_000);
        assert_eq!(why(&lags), NoTarget::Lagging(member, lag));
        let no_majority = why(&ring().silent(&[1, 5, 6, 7, 8]));
        assert!(
            matches!(&no_majority, NoTarget::CannotCommit(member, _) if *member == named(4)),
            "{no_majority}"
        );
        let witnesses = Ring::new("a: 1w 2w 3w").led_by(2).with_sets(&[&[1, 2, 3]]);
        assert_eq!(why(&witnesses), NoTarget::NoDatabase);
    }
}
