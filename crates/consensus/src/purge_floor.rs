//! The progress of each region, and the resulting purge floor of the log. Pure functions; only a leader has the input.
//!
//! Any region may have to lead next. So an entry is kept until a majority of each region's voting members holds it, no matter how long
//! these members are absent. An operator who removes members declares that they will not return. A single absent member delays the purge
//! only for a limited time, because its log can begin with a later file.

use std::collections::BTreeMap;
use std::time::Duration;

use raft_types::{MemberId, OpId, Region};
use serde::{Deserialize, Serialize};

use crate::quorum::policy::majority_of;
use crate::ring_view::{RingMember, RingView};

/// The reason why the purge floor is not higher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NeededBy {
    /// A majority of the region's voting members does not hold later entries.
    Region(Region),
    /// The member answers or answered recently, and lacks later entries.
    Member(MemberId),
}

/// The end of the log that the ring no longer needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeFloor {
    /// The last entry that no member needs; `None` if all entries are needed.
    pub upto: Option<OpId>,
    /// The region or member that needs the next entry; `None` if all members have the whole log.
    pub needed_by: Option<NeededBy>,
}

/// Returns the purge floor in the view of a leader that has led for `led_for`. A member that did not answer for `absent_after` does not
/// delay the purge.
pub fn purge_floor(view: &RingView, led_for: Duration, absent_after: Duration) -> PurgeFloor {
    let regions = region_quorums(view)
        .into_iter()
        .filter(|region| !region.voters.is_empty())
        .map(|region| (region.held_by_majority, NeededBy::Region(region.region)));
    let members = view
        .members
        .iter()
        .filter(|peer| peer.answered.unwrap_or(led_for) < absent_after)
        .map(|peer| (peer.matched, NeededBy::Member(peer.id)));
    let lowest = regions.chain(members).min_by_key(|(held, _)| *held);
    match lowest {
        Some((held, needed_by)) => PurgeFloor {
            upto: held,
            needed_by: (held < view.last_log).then_some(needed_by),
        },
        None => PurgeFloor {
            upto: None,
            needed_by: None,
        },
    }
}

// The quorum by region, for an operator: its voters, the voters that answer, and the voter that delays a commit.

/// One region's part in the quorum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionQuorum {
    /// The region whose voters are counted here.
    pub region: Region,
    /// The voters in the region.
    pub voters: Vec<MemberId>,
    /// The voters that answered within the lease.
    pub healthy: Vec<MemberId>,
    /// The size of a majority of the voters.
    pub required: usize,
    /// True if commits wait for this region now.
    pub in_force: bool,
    /// The last entry that a majority of the region's voters holds durably.
    pub held_by_majority: Option<OpId>,
    /// The last entry that at least one of the region's members holds durably.
    pub held_by_any: Option<OpId>,
    /// The next voter whose answer would advance the region's majority, if that voter lags the leader's log.
    pub held_back_by: Option<MemberId>,
}

/// Every region of a ring as its leader sees it.
pub fn region_quorums(view: &RingView) -> Vec<RegionQuorum> {
    let mut regions: BTreeMap<&Region, Vec<&RingMember>> = BTreeMap::new();
    for peer in &view.members {
        let members = regions.entry(&peer.record.region).or_default();
        members.push(peer);
    }
    let quorums = regions.into_iter().map(|(region, members)| {
        let voting = members.iter().filter(|peer| peer.record.votes);
        let mut voters: Vec<&RingMember> = voting.copied().collect();
        let required = majority_of(voters.len());
        let voter_ids = voters.iter().map(|peer| peer.id).collect();
        let healthy = voters.iter().filter(|peer| view.answers(peer));
        let healthy = healthy.map(|peer| peer.id).collect();
        // The most advanced voter first. A majority holds every entry that the voter at position `required` holds.
        voters.sort_by_key(|peer| std::cmp::Reverse((peer.matched, peer.id)));
        let deciding = voters.get(required - 1).copied();
        RegionQuorum {
            region: region.clone(),
            voters: voter_ids,
            healthy,
            required,
            in_force: voters.iter().any(|peer| peer.voter),
            held_by_majority: deciding.and_then(|peer| peer.matched),
            held_by_any: members.iter().filter_map(|peer| peer.matched).max(),
            held_back_by: deciding
                .filter(|peer| peer.matched < view.last_log)
                .map(|peer| peer.id),
        }
    });
    quorums.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring_view::tests::Ring;

    fn at(index: u64) -> Option<OpId> {
        Some(OpId::new(2, index))
    }

    /// Three regions; the leader, 1, has entries up to 2.9.
    fn ring(held: &[(u64, Option<OpId>)]) -> Ring {
        let ring = Ring::new("a: 1d 2w 3w | b: 4d 5w 6w 7n | c: 8n");
        held.iter().fold(ring, |ring, (id, held)| {
            ring.with(*id, |peer| peer.matched = *held)
        })
    }

    #[test]
    fn a_region_is_as_far_as_its_majority() {
        type Row = (Vec<(u64, Option<OpId>)>, [(Option<OpId>, Option<OpId>); 3]);
        let full = (at(9), at(9));
        let rows: [Row; 5] = [
            (vec![], [full, full, (None, at(9))]),
            // One lagging member leaves every majority complete; two lagging members do not.
            (vec![(2, at(4))], [full, full, (None, at(9))]),
            (
                vec![(2, at(4)), (3, at(6))],
                [(at(6), at(9)), full, (None, at(9))],
            ),
            // A member without a vote counts only for the highest entry.
            (
                vec![(4, at(3)), (5, None), (6, at(5)), (8, None)],
                [full, (at(3), at(9)), (None, None)],
            ),
            (
                vec![(4, None), (5, None), (6, at(5)), (7, None)],
                [full, (None, at(5)), (None, at(9))],
            ),
        ];
        for (held, expected) in rows {
            let found: Vec<_> = region_quorums(&ring(&held).view())
                .into_iter()
                .map(|region| (region.held_by_majority, region.held_by_any))
                .collect();
            assert_eq!(found, expected, "{held:?}");
        }
    }

    #[test]
    fn the_floor_is_the_lowest_needed_entry() {
        let hour = Duration::from_secs(3_600);
        let region = |name: &str| Some(NeededBy::Region(Region(name.to_owned())));
        let member = |id: u64| Some(NeededBy::Member(MemberId(id)));
        let away = |ring: Ring, id: u64| ring.with(id, |peer| peer.answered = Some(hour));
        let rows = [
            (ring(&[]), at(9), None),
            // A member that answers delays the purge, whether it votes or not.
            (ring(&[(2, at(4))]), at(4), member(2)),
            (ring(&[(8, None)]), None, member(8)),
            // A long-absent member does not delay the purge. Its region does if it lacks a majority.
            (away(ring(&[(2, at(4))]), 2), at(9), None),
            (
                away(away(ring(&[(2, at(4)), (3, at(6))]), 2), 3),
                at(6),
                region("a"),
            ),
            (away(ring(&[(2, at(4)), (3, at(6))]), 2), at(6), region("a")),
        ];
        for (ring, upto, needed_by) in rows {
            let floor = purge_floor(&ring.view(), hour * 2, hour);
            assert_eq!(floor, PurgeFloor { upto, needed_by });
        }
    }

    #[test]
    fn a_new_leader_waits_for_members_without_an_answer() {
        let hour = Duration::from_secs(3_600);
        let unheard = ring(&[(2, at(4))]).with(2, |peer| peer.answered = None);
        let floor = |led_for| purge_floor(&unheard.view(), led_for, hour).upto;
        assert_eq!(floor(Duration::ZERO), at(4));
        assert_eq!(floor(hour), at(9));
    }
}

#[cfg(test)]
mod regions_tests {
    use super::*;
    use crate::ring_view::tests::Ring;

    #[test]
    fn a_region_waits_for_the_voter_at_its_majoritys_place() {
        let at = |index| Some(OpId::new(2, index));
        let ids = |ids: &[u64]| -> Vec<MemberId> { ids.iter().copied().map(MemberId).collect() };
        // The leader, 1, has entries up to 2.9.
        let ring = Ring::new("a: 1d 2w 3w 4n | b: 5d 6w 7w 8w | c: 9n | d: 10d 11w")
            .with_sets(&[&[1, 2, 3]])
            .silent(&[3, 4, 7]);
        let held = [(2, 5), (3, 4), (6, 8), (7, 7), (8, 6), (9, 3)];
        let ring = held.iter().fold(ring, |ring, (id, index)| {
            ring.with(*id, |peer| peer.matched = at(*index))
        });
        let region = |name: &str| RegionQuorum {
            region: Region(name.to_owned()),
            voters: Vec::new(),
            healthy: Vec::new(),
            required: 1,
            in_force: false,
            held_by_majority: None,
            held_by_any: at(9),
            held_back_by: None,
        };
        let expected = [
            RegionQuorum {
                voters: ids(&[1, 2, 3]),
                healthy: ids(&[1, 2]),
                required: 2,
                in_force: true,
                held_by_majority: at(5),
                held_back_by: Some(MemberId(2)),
                ..region("a")
            },
            // Three of the four voters are required, so commits wait for the third, even if it is silent.
            RegionQuorum {
                voters: ids(&[5, 6, 7, 8]),
                healthy: ids(&[5, 6, 8]),
                required: 3,
                held_by_majority: at(7),
                held_back_by: Some(MemberId(7)),
                ..region("b")
            },
            // The region has no voter, so no commit waits for it.
            RegionQuorum {
                held_by_any: at(3),
                ..region("c")
            },
            RegionQuorum {
                voters: ids(&[10, 11]),
                healthy: ids(&[10, 11]),
                required: 2,
                held_by_majority: at(9),
                ..region("d")
            },
        ];
        assert_eq!(region_quorums(&ring.view()), expected);
    }
}
