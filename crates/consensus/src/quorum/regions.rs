//! The quorum by region for an operator: its voters, the answering ones, and the one that delays a commit.

use std::collections::BTreeMap;
use std::time::Duration;

use raft_types::{MemberId, OpId, Region};
use serde::{Deserialize, Serialize};

use super::majority::majority_of;
use crate::purge_floor::region_watermarks;
use crate::ring_view::{RingMember, RingView};

/// One region's part in the quorum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionQuorum {
    /// The region whose voters are counted here.
    pub region: Region,
    /// Its members that may vote.
    pub voters: Vec<MemberId>,
    /// Those of them that answered within the lease.
    pub healthy: Vec<MemberId>,
    /// How many make a majority of them.
    pub required: usize,
    /// Whether commits wait for it now.
    pub in_force: bool,
    /// The last entry that a majority of its voters holds durably.
    pub held_by_majority: Option<OpId>,
    /// The last entry that any of its members holds durably.
    pub held_by_any: Option<OpId>,
    /// The voter whose answer would advance the region's majority next, if it lags the leader's log.
    pub held_back_by: Option<MemberId>,
}

/// Every region of a ring as its leader sees it.
pub fn region_quorums(view: &RingView, lease: Duration) -> Vec<RegionQuorum> {
    let mut regions: BTreeMap<&Region, Vec<&RingMember>> = BTreeMap::new();
    for peer in &view.members {
        let members = regions.entry(&peer.record.region).or_default();
        if peer.record.votes {
            members.push(peer);
        }
    }
    let watermarks = region_watermarks(view);
    let quorums = regions.into_iter().map(|(region, mut voters)| {
        let watermark = watermarks.iter().find(|of| of.region == *region);
        let required = majority_of(voters.len());
        let ids = |of: &[&RingMember]| of.iter().map(|peer| peer.id).collect::<Vec<_>>();
        let healthy: Vec<&RingMember> = voters
            .iter()
            .copied()
            .filter(|peer| peer.answers(lease))
            .collect();
        let voter_ids = ids(&voters);
        // The most advanced first: the one at the majority's position determines the region's progress.
        voters.sort_by_key(|peer| std::cmp::Reverse((peer.matched, peer.id)));
        let deciding = voters.get(required - 1).copied();
        RegionQuorum {
            region: region.clone(),
            healthy: ids(&healthy),
            required,
            in_force: voters.iter().any(|peer| peer.voter),
            held_by_majority: watermark.and_then(|watermark| watermark.majority),
            held_by_any: watermark.and_then(|watermark| watermark.any),
            held_back_by: deciding
                .filter(|peer| peer.matched < view.last_log)
                .map(|peer| peer.id),
            voters: voter_ids,
        }
    });
    quorums.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring_view::tests::{LEASE, Ring};

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
            // Of four, three are needed: the third is waited for, silent or not.
            RegionQuorum {
                voters: ids(&[5, 6, 7, 8]),
                healthy: ids(&[5, 6, 8]),
                required: 3,
                held_by_majority: at(7),
                held_back_by: Some(MemberId(7)),
                ..region("b")
            },
            // No voter, and none to wait for.
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
        assert_eq!(region_quorums(&ring.view(), LEASE), expected);
    }
}
