//! The quorum as an operator asks for it: region by region, who votes, who answers, and who holds a commit back.

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
    /// The voter whose answer would bring the region's majority forward next, if it is behind the leader's log.
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
        // The most advanced first: the one at the majority's place decides how far the region is.
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
