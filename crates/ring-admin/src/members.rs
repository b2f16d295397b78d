//! Adds and removes members, one at a time. A new member joins without a vote and receives the log. The leader tasks give it a vote after
//! it has caught up, when its region is in the quorum. After a removal, every voter set must still have a majority that answers.

use std::collections::{BTreeMap, BTreeSet};

use consensus::quorum::{
    MoveObstacle, QuorumPlan, QuorumPolicy, RingRules, VoterSets, is_safe_step, obstacle, plan,
};
use consensus::{HistoryEvent, MoveError, Named, NotServing, RingMember, RingView};
use raft_types::{
    FormatMismatch, FormatRange, MemberId, MemberKind, MemberRecord, OpId, Pause, Region,
};
use serde_json::Value;
use thiserror::Error;

use crate::administration::Administration;
use crate::formats;
use crate::history;
use crate::member::Member;

/// The result of a change, or of its check.
pub(crate) type Reconfigured<T = ()> = Result<T, ReconfigurationError>;

/// Why the members, the rules, the pause of failover or the scheduled switchover were not changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReconfigurationError {
    /// This member is not the leader, which alone changes the members.
    #[error("this member does not lead{}", match .leader {
        Some(leader) => format!("; ask member {leader}"),
        None => "; nobody does at the moment".to_owned(),
    })]
    NotLeader {
        /// The leader, if known.
        leader: Option<MemberId>,
    },
    /// The leader does not serve clients.
    #[error("the leader does not serve: {0}")]
    NotServing(#[from] NotServing),
    /// A present member has this number.
    #[error("the ring has a member {0} already; give the new one a number that was never used")]
    NumberTaken(MemberId),
    /// A former member had this number.
    #[error("a member {0} was in the ring before; give the new one a number that was never used")]
    NumberUsed(MemberId),
    /// Another member has this name, address or data directory.
    #[error("member {with} has the same {what}; give the new member its own")]
    Same {
        /// The member that already has it.
        with: MemberId,
        /// Name, address or data directory.
        what: String,
    },
    /// The new member does not support the ring's format.
    #[error("the ring's format is {}, and the new member speaks {}: {}", .0.found, .0.speaks, match .0.found > .0.speaks.newest() {
        true => "install a later version of witness there",
        false => "install an earlier version of witness there, and the later one when the ring's format has risen",
    })]
    Format(#[from] FormatMismatch),
    /// No member has this number.
    #[error("the ring has no member {0}; see `witness members list`")]
    NoSuchMember(MemberId),
    /// The leader cannot be removed.
    #[error("member {0} leads; promote another member first")]
    Leads(MemberId),
    /// The primary during a failover pause cannot be removed.
    #[error(
        "failover is paused for member {0}; run `witness resume`, or promote another member first"
    )]
    PausedPrimary(MemberId),
    /// The removal would leave a quorum without voters.
    #[error(
        "member {0} is the only voter of a quorum that is in force; add or promote another member first"
    )]
    LastVoter(MemberId),
    /// No other member could be the primary.
    #[error(
        "member {0} is the only database member that may vote: without it nobody can be the primary; add another one first"
    )]
    LastDatabase(MemberId),
    /// Voter sets that are or will be in force would lose their majority.
    #[error("without member {member}, {why}{}", or_remove(.why))]
    LeavesNoMajority {
        /// The member to be removed.
        member: MemberId,
        /// The obstacle to commits.
        why: MoveObstacle,
    },
    /// The log already has the requested state.
    #[error("nothing would change: the ring's log says that already")]
    AsItIs,
    /// The address is unusable.
    #[error("`{0}` is not an address; write it as HOST:PORT")]
    NotAnAddress(String),
    /// The name is empty.
    #[error("a name must not be empty")]
    NoName,
    /// An expectation or a preference names a region without members, which is probably a typing error.
    #[error("no member of the ring runs in region {0}")]
    NoSuchRegion(Region),
    /// After the change, the leader would not be a voter.
    #[error(
        "member {0}, which leads, would be outside of the quorum; promote a database member in one of the regions first"
    )]
    OutsideTheQuorum(MemberId),
    /// The quorum cannot be moved to where the change requires it.
    #[error("the quorum could not follow: {0}")]
    QuorumCannotFollow(MoveObstacle),
    /// The member cannot be the primary.
    #[error(
        "member {0} cannot be the primary: it is a witness, or has no vote; choose a database member"
    )]
    CannotLead(MemberId),
    /// The scheduled time is in the past.
    #[error("that time is over already, by the clock of the leader; write a later one")]
    TimeIsOver,
    /// No switchover is scheduled.
    #[error("no switchover is scheduled")]
    NothingScheduled,
    /// There is no primary whose place a pause could reserve.
    #[error(
        "member {0} leads, which is a witness, so that there is no primary now; pause when a database member leads"
    )]
    NoPrimary(MemberId),
    /// Failover is not paused, or the pause has expired.
    #[error("failover is not paused")]
    NotPaused,
    /// A text of a pause is too long. Every later membership contains these texts.
    #[error("{what} has {bytes} bytes; write {} at most", Pause::MOST_TEXT_BYTES)]
    TooLong {
        /// The name of the text.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
    /// Another change of the members, the quorum or the leader is in progress. Only one change is made at a time.
    #[error(
        "another change of the quorum, the members or the leader is under way; wait for its end"
    )]
    Busy,
    /// The change was not appended to the log, or not committed.
    #[error(transparent)]
    Move(#[from] MoveError),
}

/// Checks that the ring can accept a member.
pub(crate) fn check_add(view: &RingView, id: MemberId, record: &MemberRecord) -> Reconfigured {
    if view.member(id).is_some() {
        return Err(ReconfigurationError::NumberTaken(id));
    }
    let records = view.members.iter().map(|peer| &peer.record);
    if of(records).contains(&id) {
        return Err(ReconfigurationError::NumberUsed(id));
    }
    check_unique(view, id, record)
}

/// Checks that no other member has the same name, address or data directory.
pub(crate) fn check_unique(view: &RingView, id: MemberId, record: &MemberRecord) -> Reconfigured {
    let same = |what: &str, is_same: fn(&MemberRecord, &MemberRecord) -> bool| {
        let mut others = view.members.iter().filter(|other| other.id != id);
        match others.find(|other| is_same(&other.record, record)) {
            Some(other) => Err(ReconfigurationError::Same {
                with: other.id,
                what: what.to_owned(),
            }),
            None => Ok(()),
        }
    };
    same("name", |one, other| one.name == other.name)?;
    same("address", |one, other| one.address == other.address)?;
    same("data directory", |one, other| {
        one.incarnation == other.incarnation
    })
}

/// Checks that the ring can lose a member.
pub(crate) fn check_remove(view: &RingView, id: MemberId, rules: &RingRules) -> Reconfigured {
    let leaving = view
        .member(id)
        .ok_or(ReconfigurationError::NoSuchMember(id))?;
    if id == view.own {
        return Err(ReconfigurationError::Leads(id));
    }
    if leaving.record.pause.is_some() {
        return Err(ReconfigurationError::PausedPrimary(id));
    }
    if view.voter_sets.iter().any(|set| set.iter().eq([&id])) {
        return Err(ReconfigurationError::LastVoter(id));
    }
    let can_be_primary =
        |one: &&RingMember| one.record.kind == MemberKind::Database && one.record.votes;
    let mut primaries = view.members.iter().filter(can_be_primary);
    if can_be_primary(&leaving) && primaries.all(|one| one.id == id) {
        return Err(ReconfigurationError::LastDatabase(id));
    }
    // A member that does not answer contributes nothing to a majority. Its removal only makes majorities easier to reach.
    if !view.answers(leaving) {
        return Ok(());
    }
    match majority_lost(view, leaving, rules) {
        Some(why) => Err(ReconfigurationError::LeavesNoMajority { member: id, why }),
        None => Ok(()),
    }
}

/// Returns the obstacle to commits that the removal of this member would cause, if any. The check covers every set with the member, after
/// its removal: the sets in force, and the sets of each step to the quorum that the policy requires. If the quorum moves with the leader,
/// the check also covers the voters of the member's region: commits need them as soon as the leader moves there.
fn majority_lost(view: &RingView, leaving: &RingMember, rules: &RingRules) -> Option<MoveObstacle> {
    let left = RingView {
        voter_sets: without(&view.voter_sets, leaving.id),
        members: {
            let others = view.members.iter().filter(|other| other.id != leaving.id);
            others.cloned().collect()
        },
        ..view.clone()
    };
    let counts = view.is_near(leaving);
    // If the member to be removed lags itself, its removal is not the reason for a lag of the remaining members.
    let is_missed = |why: &MoveObstacle| counts || !matches!(why, MoveObstacle::Lagging { .. });
    let in_force = left.voter_sets.iter();
    let new = in_force.filter(|set| !view.voter_sets.contains(set));
    let stopped = new.filter_map(|set| obstacle(&left, set)).find(is_missed);
    if stopped.is_some() || !leaving.record.votes {
        return stopped;
    }
    let home = view.member(view.own).map(|own| &own.record.region)?;
    let stuck = |ring: &RingView| stuck_at(rules, ring, home).filter(is_missed);
    if stuck(view).is_none()
        && let Some(why) = stuck(&left)
    {
        return Some(why);
    }
    if rules.policy != QuorumPolicy::SingleRegionDynamic {
        return None;
    }
    let region: BTreeSet<MemberId> = {
        let voters = left.members.iter().filter(|other| other.record.votes);
        let there = voters.filter(|other| other.record.region == leaving.record.region);
        there.map(|other| other.id).collect()
    };
    // If the region's voters are not in force, all of them may be removed, and the remaining ones may lag. They must only answer.
    let lost = (!region.is_empty()).then(|| obstacle(&left, &region));
    lost.flatten()
        .filter(|why| matches!(why, MoveObstacle::Silent { .. }))
}

/// Returns the obstacle at which the quorum's move to the sets that the policy requires would stop.
fn stuck_at(rules: &RingRules, view: &RingView, home: &Region) -> Option<MoveObstacle> {
    let mut view = view.clone();
    // Each step adds a member, or enters or leaves a joint quorum.
    for _ in 0..view.members.len() + 2 {
        match plan(rules, &view, home) {
            QuorumPlan::Settled => return None,
            QuorumPlan::Blocked(why) => return Some(why),
            QuorumPlan::Step(next) => view.voter_sets = next,
        }
    }
    None
}

fn or_remove(why: &MoveObstacle) -> &'static str {
    match why {
        MoveObstacle::Silent { .. } | MoveObstacle::Lagging { .. } => ", or remove it first",
        MoveObstacle::Policy(_) => "",
    }
}

fn without(sets: &VoterSets, id: MemberId) -> VoterSets {
    let kept = sets.iter().map(|set| set - &BTreeSet::from([id]));
    kept.filter(|set| !set.is_empty()).collect()
}

impl Member {
    /// Checks whether the ring could add this member. Changes nothing.
    ///
    /// # Errors
    /// The [`ReconfigurationError`] that [`Member::add_member`] would return.
    pub fn check_new_member(&self, id: MemberId, record: &MemberRecord) -> Reconfigured {
        check_add(&self.node().ring_view(), id, record)
    }

    /// Checks whether a new member that supports these formats could take part in the ring. Changes nothing.
    ///
    /// # Errors
    /// [`ReconfigurationError::Format`].
    pub fn check_new_member_speaks(&self, speaks: FormatRange) -> Reconfigured {
        Ok(speaks.check(self.ring_format())?)
    }

    /// Checks whether the ring could remove this member. Changes nothing.
    ///
    /// # Errors
    /// The [`ReconfigurationError`] that [`Member::remove_member`] would return.
    pub fn check_removal(&self, id: MemberId) -> Reconfigured {
        let admin = self.admin();
        check_remove(&leading_view(admin)?, id, &admin.rules())
    }

    /// Adds a member. It receives the log, and gets its vote after it has caught up, when its region is in the quorum. `speaks` are the
    /// formats of its program. If they are unknown, the member is added, too; it refuses entries that it does not support.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn add_member(
        &self,
        id: MemberId,
        record: MemberRecord,
        speaks: Option<FormatRange>,
        by: &str,
    ) -> Reconfigured<OpId> {
        change(self.admin(), by, |view, members| {
            check_add(view, id, &record)?;
            // The format is checked with the membership to which the member is added: it may have risen since the member was queried.
            if let Some(speaks) = speaks {
                speaks.check(formats::of(members.values()))?;
            }
            let member = Named::of(id, &record);
            members.insert(id, record);
            Ok((view.voter_sets.clone(), HistoryEvent::Added { member }))
        })
        .await
    }

    /// Removes a member. Its data directory can no longer be used in this ring.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn remove_member(&self, id: MemberId, by: &str) -> Reconfigured<OpId> {
        let admin = self.admin();
        change(admin, by, |view, members| {
            check_remove(view, id, &admin.rules())?;
            let leaving = view.member(id);
            let leaving = leaving.ok_or(ReconfigurationError::NoSuchMember(id))?;
            let member = Named::of(id, &leaving.record);
            retire(members, id);
            let sets = without(&view.voter_sets, id);
            Ok((sets, HistoryEvent::Removed { member }))
        })
        .await
    }
}

/// Returns the ring view of a leader that serves clients.
pub(crate) fn leading_view(admin: &Administration) -> Reconfigured<RingView> {
    let view = admin.node.ring_view();
    if !view.leads {
        let leader = view.leader;
        return Err(ReconfigurationError::NotLeader { leader });
    }
    admin.node.ensure_serving()?;
    Ok(view)
}

/// Changes the members with one entry, as `decide` determines. This member must be a leader that serves clients, and no other change may be
/// in progress. The same entry records the event and its initiator in the ring's history.
pub(crate) async fn change(
    admin: &Administration,
    by: &str,
    decide: impl FnOnce(
        &RingView,
        &mut BTreeMap<MemberId, MemberRecord>,
    ) -> Reconfigured<(VoterSets, HistoryEvent)>,
) -> Reconfigured<OpId> {
    let _lock = admin.lock().await.ok_or(ReconfigurationError::Busy)?;
    let view = leading_view(admin)?;
    let role = admin.node.role();
    let mut members = admin.members_to_be(&role);
    let told = history::words(members.values());
    let (sets, event) = decide(&view, &mut members)?;
    history::put(&mut members, told, &[admin.entry_now(by, event)]);
    if !is_safe_step(&view.voter_sets, &sets) {
        return Err(ReconfigurationError::Busy);
    }
    Ok(admin.node.append_membership(&role, sets, members).await?)
}

// Numbers of removed members are never reused. The engine and other code use the number as the key for data about a member, and a message
// of the removed member may still be in flight. Every member's record contains all retired numbers. So every leader has them, even if its
// log begins after the removal, and the removal of a member does not lose any.

/// The key of the retired numbers in the records.
const NAME: &str = "retired";

/// Returns all retired numbers in these records.
pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> BTreeSet<MemberId> {
    let lists = records
        .into_iter()
        .filter_map(|record| record.extras.get(NAME)?.as_array());
    lists
        .flatten()
        .filter_map(Value::as_u64)
        .map(MemberId)
        .collect()
}

/// Removes a member and retires its number.
pub(crate) fn retire(members: &mut BTreeMap<MemberId, MemberRecord>, id: MemberId) {
    let mut retired = of(members.values());
    retired.insert(id);
    members.remove(&id);
    let words: Vec<Value> = retired.iter().map(|id| Value::from(id.0)).collect();
    for record in members.values_mut() {
        record.extras.set(NAME, Value::Array(words.clone()));
    }
}

#[cfg(test)]
mod tests {
    use raft_types::{FormatVersion, Incarnation};

    use super::*;
    use crate::test_ring::Ring;

    fn ring() -> Ring {
        Ring::new("a: 1d 2w 3w | b: 4d 5w 6n").with_sets(&[&[1, 2, 3]])
    }

    fn newcomer() -> MemberRecord {
        MemberRecord {
            name: "member-7".to_owned(),
            address: "host7:7000".to_owned(),
            incarnation: Incarnation::random(),
            ..MemberRecord::default()
        }
    }

    #[test]
    fn a_newcomer_has_everything_of_its_own() {
        type Change = fn(&mut MemberRecord);
        let table: [(u64, Change, &str); 4] = [
            (7, |_| {}, ""),
            (4, |_| {}, "the ring has a member 4 already"),
            (
                7,
                |record| record.name = "member-2".to_owned(),
                "member 2 has the same name",
            ),
            (
                7,
                |record| record.incarnation = Incarnation::default(),
                "member 1 has the same data directory",
            ),
        ];
        for (id, change, words) in table {
            let mut record = newcomer();
            change(&mut record);
            let checked = check_add(&ring().view(), MemberId(id), &record);
            let refusal = checked
                .err()
                .map_or_else(String::new, |error| error.to_string());
            assert!(
                refusal.contains(words) && refusal.is_empty() == words.is_empty(),
                "{refusal}"
            );
        }
    }

    #[test]
    fn a_newcomer_without_support_is_refused_with_the_needed_version() {
        let check = |ring, speaks: &str| -> Reconfigured {
            let speaks: FormatRange = speaks.parse().unwrap();
            Ok(speaks.check(FormatVersion(ring))?)
        };
        assert_eq!(check(2, "1-2").and(check(2, "2-3")), Ok(()));
        let old = check(2, "1").unwrap_err().to_string();
        assert!(old.contains("speaks 1: install a later version"), "{old}");
        let new = check(1, "2-3").unwrap_err().to_string();
        assert!(
            new.contains("speaks 2-3: install an earlier version"),
            "{new}"
        );
    }

    /// Returns the refusal to remove `id` as text; empty if it may be removed.
    fn remove(ring: &Ring, policy: &QuorumPolicy, id: u64) -> String {
        let rules = RingRules::from(policy.clone());
        let checked = check_remove(&ring.view(), MemberId(id), &rules);
        let refused = checked.err();
        refused.map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn a_removal_keeps_the_majority_of_the_region() {
        let remove = |ring: &Ring, id: u64| remove(ring, &QuorumPolicy::SingleRegionDynamic, id);
        assert_eq!(remove(&ring(), 2), "");
        assert_eq!(remove(&ring(), 6), "");
        assert!(remove(&ring(), 1).contains("member 1 leads; promote another"));
        assert!(remove(&ring(), 9).contains("no member 9"));
        let one_down = ring().silent(&[3]);
        assert!(remove(&one_down, 2).contains("only 1 of the 2 voters of region a"));
        assert_eq!(remove(&one_down, 3), "");
        let other_region = ring().silent(&[5]);
        assert!(remove(&other_region, 4).contains("only 0 of the 1 voters of region b"));
        assert_eq!(remove(&other_region, 5), "");
        let lone = Ring::new("a: 1d 2n | b: 4d").with_sets(&[&[4]]);
        assert!(remove(&lone, 4).contains("the only voter"));
        assert_eq!(
            without(&vec![[1, 2].map(MemberId).into()], MemberId(2)),
            vec![BTreeSet::from([MemberId(1)])]
        );
    }

    #[test]
    fn the_last_database_member_stays() {
        let remove = |members, id| {
            let ring = Ring::new(members).with_sets(&[&[1, 2, 3]]);
            remove(&ring.silent(&[3]), &QuorumPolicy::Majority, id)
        };
        let only = "the only database member that may vote: without it nobody can be the primary; add another one first";
        assert!(remove("a: 1w 2w 3d", 3).contains(only));
        assert!(remove("a: 1w 2w 3d 4n", 3).contains(only));
        assert_eq!(remove("a: 1w 2w 3d 4d", 3), "");
        assert_eq!(remove("a: 1d 2w 3d", 3), "");
        assert_eq!(remove("a: 1w 2w 3w", 3), "");
    }

    #[test]
    fn every_set_that_results_keeps_its_majority() {
        use QuorumPolicy::Majority;
        use QuorumPolicy::SingleRegionDynamic;
        let regions = |names: &[&str]| {
            let names = names.iter().map(|name| Region((*name).to_owned()));
            QuorumPolicy::Regions(names.collect())
        };
        let one_each = || Ring::new("a: 1d | b: 2d | c: 3d").with_sets(&[&[1, 2, 3]]);
        let three_each =
            |sets: &[&[u64]]| Ring::new("a: 1d 2w 3w | b: 4d 5w 6w | c: 7d 8w 9w").with_sets(sets);
        let all: &[&[u64]] = &[&[1, 2, 3, 4, 5, 6, 7, 8, 9]];
        let both: &[&[u64]] = &[&[1, 2, 3], &[4, 5, 6]];
        let five_answer = three_each(all).silent(&[3, 6, 8, 9]);
        let lags = |ring: Ring, id: u64| ring.with(id, |one| one.lag = Some(9000));
        let table: [(Ring, QuorumPolicy, u64, &str); 15] = [
            (one_each(), Majority, 2, ""),
            (
                one_each().silent(&[3]),
                Majority,
                2,
                "without member 2, only 1 of the 2 voters that the ring would have answer and 2 are needed; bring member 3 \
                 back, or remove it first",
            ),
            (one_each().silent(&[3]), Majority, 3, ""),
            (
                five_answer.clone(),
                Majority,
                2,
                "only 4 of the 8 voters that the ring would have answer and 5 are needed; bring member 3 back",
            ),
            (five_answer, Majority, 9, ""),
            (three_each(all).silent(&[3, 6, 9]), Majority, 2, ""),
            // The sets that the policy requires also need a majority, even with voters in another region.
            (
                three_each(&[&[1, 2, 3]]).silent(&[3, 6, 8, 9]),
                Majority,
                5,
                "only 4 of the 8 voters that the ring would have answer and 5 are needed",
            ),
            // The set had no majority before, so the removal makes nothing worse.
            (
                three_each(&[&[1, 2, 3]]).silent(&[3, 4, 6, 8, 9]),
                Majority,
                5,
                "",
            ),
            (
                three_each(both).silent(&[6]),
                regions(&["a", "b"]),
                5,
                "without member 5, only 1 of the 2 voters of region b answer",
            ),
            (three_each(both).silent(&[9]), regions(&["a", "b"]), 8, ""),
            (
                Ring::new("a: 1d 2w 3w | b: 4d").with_sets(&[&[1, 2, 3]]),
                regions(&["a", "b"]),
                4,
                "without member 4, region b has no voting member; add one, or choose another policy",
            ),
            // During a quorum move, both sets need a majority.
            (
                three_each(both).silent(&[6]),
                SingleRegionDynamic,
                5,
                "without member 5, only 1 of the 2 voters of region b answer",
            ),
            // The remaining members must have caught up if the removed one has.
            (
                lags(ring(), 3),
                SingleRegionDynamic,
                2,
                "member 3 is 9000 behind: wait for it, or remove it first",
            ),
            (lags(lags(ring(), 3), 2), SingleRegionDynamic, 2, ""),
            (lags(ring(), 5), SingleRegionDynamic, 4, ""),
        ];
        for (ring, policy, id, words) in table {
            let refusal = remove(&ring, &policy, id);
            assert!(
                refusal.contains(words) && refusal.is_empty() == words.is_empty(),
                "{policy}, without {id}: {refusal:?}, not {words:?}"
            );
        }
    }
}

#[cfg(test)]
mod retired_numbers_tests {
    use super::*;

    fn ids(of: &[u64]) -> BTreeSet<MemberId> {
        of.iter().copied().map(MemberId).collect()
    }

    #[test]
    fn retired_numbers_survive_every_removal() {
        let record = |id: u64| (MemberId(id), MemberRecord::default());
        let mut members: BTreeMap<MemberId, MemberRecord> = [1, 2, 5].map(record).into();
        assert_eq!(of(members.values()), ids(&[]));
        retire(&mut members, MemberId(5));
        // The record of the joining member does not contain the retired numbers yet, and all other members are removed.
        members.extend([record(7)]);
        retire(&mut members, MemberId(2));
        retire(&mut members, MemberId(1));
        assert_eq!(members.keys().copied().collect::<BTreeSet<_>>(), ids(&[7]));
        assert_eq!(of(members.values()), ids(&[1, 2, 5]));
        let json = serde_json::to_string(&members).unwrap();
        let read: BTreeMap<MemberId, MemberRecord> = serde_json::from_str(&json).unwrap();
        assert_eq!(of(read.values()), ids(&[1, 2, 5]));
    }
}
