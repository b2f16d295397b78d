//! Members come and go one at a time. A new one joins without a vote, receives the log, and gets its vote from the steward
//! when it is caught up and its turn comes; one that leaves must not take its region's majority with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use raft_types::{MemberId, MemberRecord, OpId, Region};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::leadership::Leadership;
use crate::mover::{self, MembershipStep, MoveError};
use crate::quorum::{VoterSets, is_safe_step, majority_of};
use crate::seat::Seat;
use crate::standing::{RingView, Standing};

/// Why a member was not added or removed.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RosterError {
    /// Only the leader changes the members.
    #[error("this member does not lead{}", match .leader {
        Some(leader) => format!("; ask member {leader}"),
        None => "; nobody does at the moment".to_owned(),
    })]
    NotLeader {
        /// Who leads, when that is known.
        leader: Option<MemberId>,
    },
    /// The leader does not serve.
    #[error("the leader does not serve: {0}")]
    NotServing(String),
    /// The number is taken.
    #[error("the ring has a member {0} already; give the new one a number that was never used")]
    NumberTaken(MemberId),
    /// A name, address or data directory is taken.
    #[error("member {with} has the same {what}; give the new member its own")]
    Same {
        /// Who has it.
        with: MemberId,
        /// Name, address or data directory.
        what: String,
    },
    /// There is no such member.
    #[error("the ring has no member {0}; see `witness members list`")]
    NoSuchMember(MemberId),
    /// The leader cannot be removed.
    #[error("member {0} leads; promote another member first")]
    Leads(MemberId),
    /// The primary of a pause cannot be removed.
    #[error(
        "failover is paused for member {0}; run `witness resume`, or promote another member first"
    )]
    PausedPrimary(MemberId),
    /// It would be the end of the quorum.
    #[error(
        "member {0} is the only voter of a quorum that is in force; add or promote another member first"
    )]
    LastVoter(MemberId),
    /// Its region would lose its majority.
    #[error(
        "without member {member}, only {healthy} of the {voters} voters of region {region} would answer and {required} are needed; bring the silent ones back, or remove them first"
    )]
    LeavesNoMajority {
        /// Who would go.
        member: MemberId,
        /// Its region.
        region: Region,
        /// How many voters would be left.
        voters: usize,
        /// How many of them answer.
        healthy: usize,
        /// How many have to.
        required: usize,
    },
    /// Something else changes the members, the quorum or the leader: a member is only let go between two moves.
    #[error(
        "another change of the quorum, the members or the leader is under way; wait for its end"
    )]
    Busy,
    /// The change did not get into the log, or was not committed.
    #[error(transparent)]
    Move(#[from] MoveError),
}

/// Whether the ring can take a member.
pub(crate) fn check_add(
    view: &RingView,
    id: MemberId,
    record: &MemberRecord,
) -> Result<(), RosterError> {
    let same = |what: &str, is_same: fn(&MemberRecord, &MemberRecord) -> bool| {
        let mut members = view.members.iter();
        let found = members.find(|standing| is_same(&standing.record, record));
        found.map_or(Ok(()), |standing| {
            Err(RosterError::Same {
                with: standing.id,
                what: what.to_owned(),
            })
        })
    };
    if view.member(id).is_some() {
        return Err(RosterError::NumberTaken(id));
    }
    same("name", |one, other| one.name == other.name)?;
    same("address", |one, other| one.address == other.address)?;
    same("data directory", |one, other| {
        one.incarnation == other.incarnation
    })
}

/// Whether the ring can do without a member.
fn check_remove(view: &RingView, id: MemberId, lease: Duration) -> Result<(), RosterError> {
    let leaving = view.member(id).ok_or(RosterError::NoSuchMember(id))?;
    if id == view.own {
        return Err(RosterError::Leads(id));
    }
    if !leaving.record.pause.is_none() {
        return Err(RosterError::PausedPrimary(id));
    }
    if view.voter_sets.iter().any(|set| set.iter().eq([&id])) {
        return Err(RosterError::LastVoter(id));
    }
    // Who does not answer helps nobody; without it the majority is easier to reach.
    if !leaving.record.votes || !leaving.answers(lease) {
        return Ok(());
    }
    let region = &leaving.record.region;
    let left: Vec<&Standing> = view
        .members
        .iter()
        .filter(|standing| {
            standing.id != id && standing.record.votes && standing.record.region == *region
        })
        .collect();
    let healthy = left
        .iter()
        .filter(|standing| standing.answers(lease))
        .count();
    let required = majority_of(left.len());
    // A region that is not in force may be given up as a whole.
    if left.is_empty() || healthy >= required {
        return Ok(());
    }
    Err(RosterError::LeavesNoMajority {
        member: id,
        region: region.clone(),
        voters: left.len(),
        healthy,
        required,
    })
}

fn without(sets: &VoterSets, id: MemberId) -> VoterSets {
    let kept = sets.iter().map(|set| {
        let others = set.iter().copied().filter(|member| *member != id);
        others.collect::<BTreeSet<_>>()
    });
    kept.filter(|set| !set.is_empty()).collect()
}

/// Takes a member in, without a vote at first.
pub(crate) async fn add(
    seat: &Seat,
    id: MemberId,
    record: MemberRecord,
) -> Result<OpId, RosterError> {
    change(seat, |view, members| {
        check_add(view, id, &record)?;
        members.insert(id, record);
        Ok(view.voter_sets.clone())
    })
    .await
}

/// Lets a member go.
pub(crate) async fn remove(seat: &Seat, id: MemberId) -> Result<OpId, RosterError> {
    let lease = seat.timers.lease;
    change(seat, |view, members| {
        check_remove(view, id, lease)?;
        members.remove(&id);
        Ok(without(&view.voter_sets, id))
    })
    .await
}

async fn change(
    seat: &Seat,
    decide: impl FnOnce(
        &RingView,
        &mut BTreeMap<MemberId, MemberRecord>,
    ) -> Result<VoterSets, RosterError>,
) -> Result<OpId, RosterError> {
    let course = tokio::time::timeout(seat.timers.lease, seat.course.lock());
    let _course = course.await.map_err(|_| RosterError::Busy)?;
    let view = seat.ring_view();
    if !view.leads {
        let leader = view.leader;
        return Err(RosterError::NotLeader { leader });
    }
    if let Leadership::LeaderNotServing { why, .. } = seat.leadership() {
        return Err(RosterError::NotServing(why.to_string()));
    }
    let role = seat.role();
    let base = role.membership.membership();
    let mut members: BTreeMap<MemberId, MemberRecord> = base
        .nodes()
        .map(|(id, record)| (*id, record.clone()))
        .collect();
    let sets = decide(&view, &mut members)?;
    if !is_safe_step(&view.voter_sets, &sets) {
        return Err(RosterError::Busy);
    }
    let step = MembershipStep {
        term: role.term,
        base: (*role.membership).clone(),
        sets,
        members,
    };
    let op_id = mover::append(&seat.raft, step, seat.timers.longest_election()).await?;
    Ok(op_id)
}

#[cfg(test)]
mod tests {
    use raft_types::Incarnation;

    use super::*;
    use crate::standing::tests::{LEASE, Ring};

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
            let said = checked
                .err()
                .map_or_else(String::new, |error| error.to_string());
            assert!(
                said.contains(words) && said.is_empty() == words.is_empty(),
                "{said}"
            );
        }
    }

    #[test]
    fn nobody_takes_the_majority_of_its_region_along() {
        let remove = |ring: &Ring, id: u64| {
            let checked = check_remove(&ring.view(), MemberId(id), LEASE);
            checked
                .err()
                .map_or_else(String::new, |error| error.to_string())
        };
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
}
