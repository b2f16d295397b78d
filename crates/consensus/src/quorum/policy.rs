//! Quorum policies: which voter sets a ring should have. A commit and an election need a majority of every set that is
//! in force; the sets in force stand in the log, the policy only says where the next step should lead.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use raft_types::{MemberId, MemberRecord, Region};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::majority::majority_of;

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
    /// A majority of the voting members of each of so many of these regions. The leader's region is one of them, and the
    /// others follow whoever is able: a region that falls silent is left for one that answers.
    SomeRegions {
        /// How many.
        required: usize,
        /// Of which.
        regions: BTreeSet<Region>,
    },
    /// A policy of a later version, in its words. The quorum stays as it is.
    Unknown(String),
}

impl fmt::Display for QuorumPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SingleRegionDynamic => f.write_str("single-region-dynamic"),
            Self::Majority => f.write_str("majority"),
            Self::Regions(regions) => {
                write!(f, "regions({})", names(regions))
            }
            Self::SomeRegions { required, regions } => {
                write!(f, "{required} of regions({})", names(regions))
            }
            Self::Unknown(words) => write!(f, "unknown ({words})"),
        }
    }
}

fn names(regions: &BTreeSet<Region>) -> String {
    let names: Vec<&str> = regions.iter().map(|region| region.0.as_str()).collect();
    names.join(", ")
}

/// What the operator wants of a ring's quorum. It stands in the log; a member's file only says what a new ring begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingRules {
    /// Who decides a commit.
    pub policy: QuorumPolicy,
    /// Where the leadership goes when it leaves a region: the first of these that can take it, then the others by name.
    pub region_preference: Vec<Region>,
    /// How many voting members regions are expected to have. A region that has so few that a majority of them would be
    /// smaller than one of the expected ones decides no commit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expected_voters: BTreeMap<Region, usize>,
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
    /// A majority of those that vote would be smaller than what the operator counts on.
    #[error(
        "{} {voters} of {expected} expected voting members, and a majority of {voters} is smaller than one of {expected}; add members, or expect fewer (`witness quorum set --expect`)", match .region {
            Some(region) => format!("region {region} has"),
            None => "the ring has".to_owned(),
        }
    )]
    TooFewVoters {
        /// Where; without: in all regions together.
        region: Option<Region>,
        /// How many there are.
        voters: usize,
        /// How many there should be.
        expected: usize,
    },
    /// There are not so many regions with voting members.
    #[error("{required} of the regions {} are wanted, and {possible} of them have enough voting members", names(.regions))]
    TooFewRegions {
        /// How many are needed.
        required: usize,
        /// How many could decide.
        possible: usize,
        /// Of which.
        regions: BTreeSet<Region>,
    },
    /// A later version wrote the policy.
    #[error("this version does not know the policy {0}; run a later one, or set another policy")]
    UnknownPolicy(String),
}

impl From<QuorumPolicy> for RingRules {
    fn from(policy: QuorumPolicy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }
}

impl QuorumPolicy {
    /// Whether the quorum follows which members answer, so that a leader has to look often.
    pub(crate) fn follows_answers(&self) -> bool {
        matches!(self, Self::SomeRegions { .. })
    }
}

impl RingRules {
    /// The voter sets that these rules want while the leader is in `home`.
    ///
    /// # Errors
    /// [`PolicyGap`] where a set would be empty, or smaller than it may be.
    pub fn voter_sets(
        &self,
        members: &BTreeMap<MemberId, MemberRecord>,
        home: &Region,
    ) -> Result<VoterSets, PolicyGap> {
        self.voter_sets_among(members, home, |_| 0)
    }

    /// The same, where `rank` says of each region and its voters how gladly they are taken if there is a choice: the lowest
    /// first. The leader's region comes before all.
    pub(crate) fn voter_sets_among(
        &self,
        members: &BTreeMap<MemberId, MemberRecord>,
        home: &Region,
        rank: impl Fn(&BTreeSet<MemberId>) -> u8,
    ) -> Result<VoterSets, PolicyGap> {
        let voters_where = |wanted: &dyn Fn(&MemberRecord) -> bool| -> BTreeSet<MemberId> {
            let voting = members.iter().filter(|(_, record)| record.votes);
            let wanted = voting.filter(|(_, record)| wanted(record));
            wanted.map(|(id, _)| *id).collect()
        };
        let of_region = |region: &Region| {
            let voters = voters_where(&|record| record.region == *region);
            if voters.is_empty() {
                return Err(PolicyGap::NoVoters(region.clone()));
            }
            let expected = self.expected_voters.get(region).copied().unwrap_or(0);
            enough(voters, Some(region), expected)
        };
        match &self.policy {
            QuorumPolicy::SingleRegionDynamic => Ok(vec![of_region(home)?]),
            QuorumPolicy::Majority => match voters_where(&|_| true) {
                voters if voters.is_empty() => Err(PolicyGap::NoVotersAtAll),
                voters => Ok(vec![enough(
                    voters,
                    None,
                    self.expected_voters.values().sum(),
                )?]),
            },
            QuorumPolicy::Regions(regions) if regions.is_empty() => Err(PolicyGap::NoVotersAtAll),
            QuorumPolicy::Regions(regions) => regions.iter().map(of_region).collect(),
            QuorumPolicy::SomeRegions { required, regions } => {
                let able = regions
                    .iter()
                    .filter_map(|region| Some((region, of_region(region).ok()?)));
                let mut able: Vec<_> = able.collect();
                if able.len() < *required || *required == 0 {
                    return Err(PolicyGap::TooFewRegions {
                        required: *required,
                        possible: able.len(),
                        regions: regions.clone(),
                    });
                }
                // Stable: what is equally good stays in the order of the names.
                able.sort_by_key(|(region, voters)| (*region != home, rank(voters)));
                able.truncate(*required);
                Ok(able.into_iter().map(|(_, voters)| voters).collect())
            }
            QuorumPolicy::Unknown(words) => Err(PolicyGap::UnknownPolicy(words.clone())),
        }
    }
}

/// The voters, if a majority of them is not smaller than one of those that are expected. (The engine knows majorities of
/// voters that there are; one of voters that should be there cannot be asked for.)
fn enough(
    voters: BTreeSet<MemberId>,
    region: Option<&Region>,
    expected: usize,
) -> Result<BTreeSet<MemberId>, PolicyGap> {
    if expected > 0 && majority_of(voters.len()) < majority_of(expected) {
        return Err(PolicyGap::TooFewVoters {
            region: region.cloned(),
            voters: voters.len(),
            expected,
        });
    }
    Ok(voters)
}
