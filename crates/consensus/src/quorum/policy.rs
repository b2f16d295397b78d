//! Quorum policies: which voter sets a ring should have. A commit and an election need a majority of every set that is
//! in force; the sets in force stand in the log, the policy only says where the next step should lead.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use raft_types::{MemberId, MemberRecord, Region};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The voter sets of a ring at one moment.
pub type VoterSets = Vec<BTreeSet<MemberId>>;

/// Who decides a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuorumPolicy {
    /// A majority of the voting members of the leader's region; it moves with the leader.
    #[default]
    SingleRegionDynamic,
    /// A majority of all voting members.
    Majority,
    /// A majority of the voting members of each of these regions.
    Regions(BTreeSet<Region>),
}

impl fmt::Display for QuorumPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SingleRegionDynamic => f.write_str("single-region-dynamic"),
            Self::Majority => f.write_str("majority"),
            Self::Regions(regions) => {
                let names: Vec<&str> = regions.iter().map(|region| region.0.as_str()).collect();
                write!(f, "regions({})", names.join(", "))
            }
        }
    }
}

/// What the operator wants of a ring's quorum. The same on every member; where it differs, the leader's counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingRules {
    /// Who decides a commit.
    pub policy: QuorumPolicy,
    /// Where the leadership goes when it leaves a region: the first of these that can take it, then the others by name.
    pub region_preference: Vec<Region>,
}

impl RingRules {
    /// A region's place in the order of preference; the lowest is preferred.
    pub(crate) fn rank(&self, region: &Region) -> usize {
        let preferred = self.region_preference.iter();
        let mut ranked = preferred.enumerate();
        let found = ranked.find(|(_, preferred)| *preferred == region);
        found.map_or(self.region_preference.len(), |(rank, _)| rank)
    }
}

/// The policy cannot be kept with these members.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyGap {
    /// Nobody could vote there.
    #[error("region {0} has no voting member; add one, or choose another policy")]
    NoVoters(Region),
    /// Nobody could vote at all.
    #[error("the ring has no voting member; add one")]
    NoVotersAtAll,
}

impl QuorumPolicy {
    /// The voter sets that this policy wants while the leader is in `home`.
    ///
    /// # Errors
    /// [`PolicyGap`] where a set would be empty.
    pub fn voter_sets(
        &self,
        members: &BTreeMap<MemberId, MemberRecord>,
        home: &Region,
    ) -> Result<VoterSets, PolicyGap> {
        let voters_where = |wanted: &dyn Fn(&MemberRecord) -> bool| -> BTreeSet<MemberId> {
            let voting = members.iter().filter(|(_, record)| record.votes);
            let wanted = voting.filter(|(_, record)| wanted(record));
            wanted.map(|(id, _)| *id).collect()
        };
        let of_region = |region: &Region| {
            let voters = voters_where(&|record| record.region == *region);
            match voters.is_empty() {
                true => Err(PolicyGap::NoVoters(region.clone())),
                false => Ok(voters),
            }
        };
        match self {
            Self::SingleRegionDynamic => Ok(vec![of_region(home)?]),
            Self::Majority => match voters_where(&|_| true) {
                voters if voters.is_empty() => Err(PolicyGap::NoVotersAtAll),
                voters => Ok(vec![voters]),
            },
            Self::Regions(regions) if regions.is_empty() => Err(PolicyGap::NoVotersAtAll),
            Self::Regions(regions) => regions.iter().map(of_region).collect(),
        }
    }
}
