//! The compared setups.

use std::collections::BTreeSet;

use consensus::quorum::{QuorumPolicy, RingRules};
use raft_types::Region;
use serde::Serialize;

use super::distances::Distances;

/// A kind of ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Setup {
    /// Three members of one region, without other members.
    RegionAlone,
    /// Nine members in three regions; the leader's region is the quorum.
    SingleRegionDynamic,
    /// The same nine members; the quorum is a majority of all.
    Majority,
    /// The same nine members; the quorum is a majority of each region.
    Regions,
    /// The same nine members with unmodified openraft.
    PlainOpenraft,
}

/// The regions' names.
pub(crate) const REGIONS: [&str; 3] = ["a", "b", "c"];

impl Setup {
    pub(crate) const ALL: [Self; 5] = [
        Self::RegionAlone,
        Self::SingleRegionDynamic,
        Self::Majority,
        Self::Regions,
        Self::PlainOpenraft,
    ];

    /// Returns the setup's name in the table and in the figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RegionAlone => "region_alone",
            Self::SingleRegionDynamic => "single_region_dynamic",
            Self::Majority => "majority",
            Self::Regions => "regions",
            Self::PlainOpenraft => "plain_openraft",
        }
    }

    /// Returns the number of regions with members.
    pub(crate) fn regions(self) -> usize {
        match self {
            Self::RegionAlone => 1,
            _ => REGIONS.len(),
        }
    }

    /// Returns the quorum rules of the setup's members.
    pub(crate) fn rules(self) -> RingRules {
        let policy = match self {
            Self::SingleRegionDynamic => QuorumPolicy::SingleRegionDynamic,
            Self::RegionAlone | Self::Majority | Self::PlainOpenraft => QuorumPolicy::Majority,
            Self::Regions => {
                let all = REGIONS.map(|name| Region(name.to_owned()));
                QuorumPolicy::Regions(BTreeSet::from(all))
            }
        };
        RingRules {
            policy,
            ..RingRules::default()
        }
    }

    /// Returns the lower bound of a commit's latency: its round trip plus one durable write.
    pub(crate) fn limit_ms(self, distances: Distances, durable_write_ms: f64) -> f64 {
        let within = matches!(self, Self::RegionAlone | Self::SingleRegionDynamic);
        distances.round_trip_ms(within) + durable_write_ms
    }
}
