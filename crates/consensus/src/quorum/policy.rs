//! Quorum policies, which determine the voter sets of a ring. A commit and an election need a majority of every set in force, which the
//! engine counts (see [`crate::quorum`]). The sets in force are in the log; the policy is only the target of the next step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use raft_types::{MemberId, MemberRecord, Region};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// The voter sets of a ring at one moment.
pub type VoterSets = Vec<BTreeSet<MemberId>>;

/// The operator's choice of the voters that decide a commit.
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
    /// A majority of the voting members, in each of `required` of these regions. The leader's region is one of them. The others depend on
    /// availability: a region that falls silent is replaced by a region that answers.
    SomeRegions {
        /// The number of regions in which a majority is needed; at least one.
        required: usize,
        /// The regions from which they are chosen.
        regions: BTreeSet<Region>,
    },
    /// A policy of a later version, as written. The quorum stays unchanged.
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

/// The operator's rules for a ring's quorum. They are stored in the log. The rules in a member's configuration file apply only to a new
/// ring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingRules {
    /// The members whose majority decides a commit.
    pub policy: QuorumPolicy,
    /// The regions to which the leadership is transferred when it leaves a region: the first of these that can accept it. If none can, the
    /// other regions follow in the order of their names.
    pub region_preference: Vec<Region>,
    /// The number of voting members that each region is expected to have. A majority of a region's voters must not be smaller than a
    /// majority of the expected number; otherwise, the region decides no commit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expected_voters: BTreeMap<Region, usize>,
}

impl RingRules {
    /// Returns a region's place in the order of preference. The lowest place is preferred.
    pub fn rank(&self, region: &Region) -> usize {
        let mut preferred = self.region_preference.iter();
        let rank = preferred.position(|preferred| preferred == region);
        rank.unwrap_or(self.region_preference.len())
    }
}

/// The policy cannot be satisfied with these members.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyGap {
    /// A region that the policy needs has no voting member.
    #[error("region {0} has no voting member; add one, or choose another policy")]
    NoVoters(Region),
    /// No member could vote at all.
    #[error("the ring has no voting member; add one")]
    NoVotersAtAll,
    /// A majority of the voters would be smaller than the operator expects.
    #[error(
        "{} {voters} of {expected} expected voting members, and a majority of {voters} is smaller than one of {expected}; add members, or expect fewer (`witness quorum set --expect`)", match .region {
            Some(region) => format!("region {region} has"),
            None => "the ring has".to_owned(),
        }
    )]
    TooFewVoters {
        /// The region; `None` means all regions together.
        region: Option<Region>,
        /// The number of voting members.
        voters: usize,
        /// The expected number of voting members.
        expected: usize,
    },
    /// Too few regions have voting members.
    #[error("{required} of the regions {} are wanted, and {possible} of them have enough voting members", names(.regions))]
    TooFewRegions {
        /// How many regions the policy needs.
        required: usize,
        /// How many regions have enough voting members.
        possible: usize,
        /// The regions that the policy names.
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
    /// Returns true if the quorum depends on which members answer, so that a leader must check often.
    pub fn follows_answers(&self) -> bool {
        matches!(self, Self::SomeRegions { .. })
    }
}

impl RingRules {
    /// Returns the voter sets that these rules require while the leader is in `home`.
    ///
    /// # Errors
    /// [`PolicyGap`] if a set would be empty, or smaller than allowed.
    pub fn voter_sets(
        &self,
        members: &BTreeMap<MemberId, MemberRecord>,
        home: &Region,
    ) -> Result<VoterSets, PolicyGap> {
        self.voter_sets_among(members, home, |_| 0)
    }

    /// Returns the voter sets that these rules require. If several regions are possible, `rank` of a region and its voters decides; the
    /// lowest comes first. The leader's region comes before all others.
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
                // The sort is stable: equal ranks stay in the order of the names.
                able.sort_by_key(|(region, voters)| (*region != home, rank(voters)));
                able.truncate(*required);
                Ok(able.into_iter().map(|(_, voters)| voters).collect())
            }
            QuorumPolicy::Unknown(words) => Err(PolicyGap::UnknownPolicy(words.clone())),
        }
    }
}

/// Returns the voters, if a majority of them is not smaller than a majority of the expected number. (The engine counts only majorities of
/// existing voters, not of expected ones.)
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

// The rules of a ring in its log. Every member's record has the same text. So the rules stay when a member is removed, and the engine's
// membership needs no field for them. If an older log has no rules, the rules in the leader's configuration file apply.

/// The key of the rules in a member's record.
const NAME: &str = "rules";

/// Returns the rules in force: the rules in the log, or otherwise the rules in this member's configuration file.
pub fn in_force<'a>(
    records: impl IntoIterator<Item = &'a MemberRecord>,
    configured: &RingRules,
) -> RingRules {
    logged(records).map_or_else(|| configured.clone(), read)
}

/// Writes rules into all records. Additional fields of a later version are kept.
pub fn write(members: &mut BTreeMap<MemberId, MemberRecord>, rules: &RingRules) {
    let Ok(Value::Object(mut words)) = serde_json::to_value(rules) else {
        return;
    };
    if let Some(Value::Object(before)) = logged(members.values()) {
        let known = ["policy", "region_preference", "expected_voters"];
        let others = before
            .iter()
            .filter(|(name, _)| !known.contains(&name.as_str()));
        words.extend(others.map(|(name, value)| (name.clone(), value.clone())));
    }
    put(members, &Value::Object(words));
}

/// Copies the rules of the log, unchanged, into a membership that follows another one. If the log has no rules yet, the rules in the
/// leader's configuration file are written.
pub fn carry_on(members: &mut BTreeMap<MemberId, MemberRecord>, configured: &RingRules) {
    match logged(members.values()).cloned() {
        Some(words) => put(members, &words),
        None => write(members, configured),
    }
}

fn put(members: &mut BTreeMap<MemberId, MemberRecord>, words: &Value) {
    for record in members.values_mut() {
        record.extras.set(NAME, words.clone());
    }
}

fn logged<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> Option<&'a Value> {
    let mut records = records.into_iter();
    records.find_map(|record| record.extras.get(NAME))
}

/// Rules of a later version are not interpreted, so no quorum moves by an unknown policy.
fn read(words: &Value) -> RingRules {
    serde_json::from_value(words.clone())
        .unwrap_or_else(|_| QuorumPolicy::Unknown(words["policy"].to_string()).into())
}

// The size of a majority. The engine counts the commits: see [`crate::quorum`].

/// Returns how many of `voters` are a majority. Any two majorities of the same voters share a voter.
pub const fn majority_of(voters: usize) -> usize {
    voters / 2 + 1
}

/// Returns true if there is at least one set, and these members include a majority of every set.
pub fn have_majorities(sets: &[BTreeSet<MemberId>], members: &BTreeSet<MemberId>) -> bool {
    let has = |set: &BTreeSet<_>| set.intersection(members).count() >= majority_of(set.len());
    !sets.is_empty() && sets.iter().all(has)
}

#[cfg(test)]
mod tests {
    use raft_types::Region;
    use serde_json::json;

    use super::*;

    fn members() -> BTreeMap<MemberId, MemberRecord> {
        let of = |id| (MemberId(id), MemberRecord::default());
        [of(1), of(2)].into()
    }

    fn some() -> RingRules {
        RingRules {
            policy: QuorumPolicy::SomeRegions {
                required: 2,
                regions: ["a", "b", "c"].map(|name| Region(name.to_owned())).into(),
            },
            region_preference: vec![Region("b".to_owned())],
            expected_voters: [(Region("a".to_owned()), 3)].into(),
        }
    }

    #[test]
    fn a_policy_is_shown_with_its_regions() {
        let regions = || ["a", "b"].map(|name| Region(name.to_owned())).into();
        let rows = [
            (QuorumPolicy::SingleRegionDynamic, "single-region-dynamic"),
            (QuorumPolicy::Majority, "majority"),
            (QuorumPolicy::Regions(regions()), "regions(a, b)"),
            (some().policy, "2 of regions(a, b, c)"),
            (QuorumPolicy::Unknown("x".to_owned()), "unknown (x)"),
        ];
        for (policy, told) in rows {
            assert_eq!(policy.to_string(), told);
        }
    }

    #[test]
    fn only_policies_with_a_choice_of_regions_follow_answers() {
        assert!(some().policy.follows_answers());
        let all = QuorumPolicy::Regions([Region("a".to_owned())].into());
        for policy in [
            QuorumPolicy::SingleRegionDynamic,
            QuorumPolicy::Majority,
            all,
        ] {
            assert!(!policy.follows_answers(), "{policy}");
        }
    }

    #[test]
    fn rules_in_the_log_override_the_file() {
        let configured = RingRules::from(QuorumPolicy::Majority);
        let mut ring = members();
        assert_eq!(in_force(ring.values(), &configured), configured);
        carry_on(&mut ring, &configured);
        let other_file = RingRules::default();
        assert_eq!(in_force(ring.values(), &other_file), configured);
        write(&mut ring, &some());
        carry_on(&mut ring, &other_file);
        // The rules stay when a member is removed. A new member gets them with the next change.
        ring.remove(&MemberId(1));
        ring.insert(MemberId(0), MemberRecord::default());
        let json = serde_json::to_string(&ring).unwrap();
        let ring: BTreeMap<MemberId, MemberRecord> = serde_json::from_str(&json).unwrap();
        assert_eq!(in_force(ring.values(), &other_file), some());
    }

    #[test]
    fn a_majority_in_no_region_at_all_is_no_quorum() {
        let none = RingRules::from(QuorumPolicy::Regions(BTreeSet::new()));
        let wanted = none.voter_sets(&members(), &Region::default());
        assert_eq!(wanted, Err(PolicyGap::NoVotersAtAll));
    }

    #[test]
    fn rules_of_a_later_version_are_not_guessed_at_and_not_lost() {
        let mut ring = members();
        let later = json!({"policy": {"moon-phase": 3}, "region_preference": [], "tides": true});
        put(&mut ring, &later);
        let rules = in_force(ring.values(), &RingRules::default());
        assert_eq!(
            rules.policy,
            QuorumPolicy::Unknown("{\"moon-phase\":3}".to_owned())
        );
        let wanted = rules.voter_sets(&ring, &Region::default()).unwrap_err();
        assert!(
            wanted.to_string().contains("does not know the policy"),
            "{wanted}"
        );
        carry_on(&mut ring, &RingRules::default());
        assert_eq!(logged(ring.values()), Some(&later));
        write(&mut ring, &some());
        assert_eq!(logged(ring.values()).unwrap()["tides"], true);
        assert_eq!(in_force(ring.values(), &RingRules::default()), some());
    }
}

#[cfg(test)]
mod majority_tests {
    use super::majority_of;

    #[test]
    fn two_majorities_always_share_a_voter() {
        for voters in 1..100 {
            let majority = majority_of(voters);
            assert!(2 * majority > voters && majority <= voters, "{voters}");
            assert!(2 * (majority - 1) <= voters, "{voters}");
        }
    }
}
