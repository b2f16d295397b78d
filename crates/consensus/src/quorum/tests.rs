//! Properties over random rings, policies, moves and membership changes. The quorums before and after each step intersect, the engine
//! accepts each step, and every move completes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use raft_types::{MemberId, MemberKind, MemberRecord, Region};

use crate::quorum::plan::{QuorumPlan, is_safe_step, plan};
use crate::quorum::policy::{QuorumPolicy, RingRules, VoterSets, majority_of};
use crate::ring_view::tests::Ring;

const REGIONS: [&str; 3] = ["a", "b", "c"];

fn is_quorum(sets: &VoterSets, members: &BTreeSet<MemberId>) -> bool {
    sets.iter()
        .all(|set| set.intersection(members).count() >= majority_of(set.len()))
}

/// Returns true if every quorum of one list intersects all quorums of the other; tries every subset.
fn all_quorums_intersect(one: &VoterSets, other: &VoterSets) -> bool {
    let all: Vec<MemberId> = {
        let all: BTreeSet<MemberId> = one.iter().chain(other).flatten().copied().collect();
        all.into_iter().collect()
    };
    (0u32..1 << all.len()).all(|chosen| {
        let (inside, outside): (Vec<_>, Vec<_>) = all
            .iter()
            .enumerate()
            .partition(|(at, _)| chosen & (1 << at) != 0);
        let ids = |of: Vec<(usize, &MemberId)>| of.into_iter().map(|(_, id)| *id).collect();
        !(is_quorum(one, &ids(inside)) && is_quorum(other, &ids(outside)))
    })
}

#[derive(Debug, Clone)]
enum Turn {
    /// The policy changes.
    Policy(QuorumPolicy),
    /// This region is expected to have this many voters.
    Expect(usize, usize),
    /// A member moves to another region, or gets or loses the right to vote.
    Update(u64, usize, bool),
    /// The leader is, or shall be, in this region.
    Home(usize),
    /// These members do not answer from now on.
    Silent(BTreeSet<u64>),
    /// A member joins this region, voting or not.
    Join(usize, bool),
    /// A member leaves.
    Leave(u64),
}

fn a_policy() -> impl Strategy<Value = QuorumPolicy> {
    let regions = proptest::sample::subsequence(REGIONS.to_vec(), 1..=3);
    let some = (
        1usize..=3,
        proptest::sample::subsequence(REGIONS.to_vec(), 1..=3),
    );
    prop_oneof![
        Just(QuorumPolicy::SingleRegionDynamic),
        Just(QuorumPolicy::Majority),
        regions.prop_map(|names| {
            let regions = names.into_iter().map(|name| Region(name.to_owned()));
            QuorumPolicy::Regions(regions.collect())
        }),
        some.prop_map(|(required, names)| {
            let regions = names.into_iter().map(|name| Region(name.to_owned()));
            let regions = regions.collect();
            QuorumPolicy::SomeRegions { required, regions }
        }),
    ]
}

fn a_turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        2 => a_policy().prop_map(Turn::Policy),
        1 => (0..REGIONS.len(), 0usize..4).prop_map(|(region, voters)| Turn::Expect(region, voters)),
        1 => (1u64..12, 0..REGIONS.len(), any::<bool>())
            .prop_map(|(id, region, votes)| Turn::Update(id, region, votes)),
        4 => (0..REGIONS.len()).prop_map(Turn::Home),
        2 => proptest::collection::btree_set(1u64..12, 0..4).prop_map(Turn::Silent),
        2 => (0..REGIONS.len(), any::<bool>()).prop_map(|(region, votes)| Turn::Join(region, votes)),
        2 => (1u64..12).prop_map(Turn::Leave),
    ]
}

#[derive(Clone)]
struct History {
    rules: RingRules,
    members: BTreeMap<u64, (usize, bool)>,
    silent: BTreeSet<u64>,
    sets: VoterSets,
    home: usize,
    next_id: u64,
}

impl History {
    fn ring(&self) -> Ring {
        let in_region = |region: usize| {
            let members = self.members.iter().filter(|(_, (of, _))| *of == region);
            let names = members.map(|(id, (_, votes))| match votes {
                true => format!("{id}w"),
                false => format!("{id}n"),
            });
            format!(
                "{}: {}",
                REGIONS[region],
                names.collect::<Vec<_>>().join(" ")
            )
        };
        let text: Vec<String> = (0..REGIONS.len()).map(in_region).collect();
        let sets: Vec<Vec<u64>> = self
            .sets
            .iter()
            .map(|set| set.iter().map(|id| id.0).collect())
            .collect();
        let sets: Vec<&[u64]> = sets.iter().map(Vec::as_slice).collect();
        let silent: Vec<u64> = self
            .silent
            .iter()
            .copied()
            .filter(|id| self.members.contains_key(id))
            .collect();
        Ring::new(&text.join(" | "))
            .with_sets(&sets)
            .silent(&silent)
    }

    /// Executes one turn as far as possible, and returns every list of voter sets on the way.
    fn take(&mut self, turn: &Turn) -> Vec<VoterSets> {
        match turn {
            Turn::Policy(policy) => self.rules.policy = policy.clone(),
            Turn::Expect(region, voters) => {
                let region = Region(REGIONS[*region].to_owned());
                self.rules.expected_voters.insert(region, *voters);
            }
            Turn::Update(id, region, votes) => {
                if let Some(member) = self.members.get_mut(id) {
                    *member = (*region, *votes);
                }
            }
            Turn::Home(home) => self.home = *home,
            Turn::Silent(silent) => self.silent = silent.clone(),
            Turn::Join(region, votes) if self.members.len() < 10 => {
                self.members.insert(self.next_id, (*region, *votes));
                self.next_id += 1;
            }
            Turn::Join(..) => {}
            Turn::Leave(id) => return self.leave(*id),
        }
        self.settle()
    }

    /// Removes a member from every set, if no set becomes empty, as the roster does.
    fn leave(&mut self, id: u64) -> Vec<VoterSets> {
        let alone = self.sets.iter().any(|set| set.iter().eq([&MemberId(id)]));
        let mut without = self.sets.clone();
        for set in &mut without {
            set.remove(&MemberId(id));
        }
        if alone || self.members.len() == 1 || !is_safe_step(&self.sets, &without) {
            return Vec::new();
        }
        if self.members.remove(&id).is_none() {
            return Vec::new();
        }
        self.sets = without;
        let mut seen = vec![self.sets.clone()];
        seen.extend(self.settle());
        seen
    }

    fn settle(&mut self) -> Vec<VoterSets> {
        let mut seen = Vec::new();
        let home = Region(REGIONS[self.home].to_owned());
        loop {
            let view = self.ring().view();
            let QuorumPlan::Step(next) = plan(&self.rules, &view, &home) else {
                return seen;
            };
            self.sets.clone_from(&next);
            seen.push(next);
            assert!(seen.len() < 20, "the move does not arrive: {seen:?}");
        }
    }
}

proptest! {
    #[test]
    fn consecutive_quorums_intersect(
        policy in a_policy(),
        sizes in proptest::array::uniform3(1u64..4),
        turns in proptest::collection::vec(a_turn(), 1..12),
    ) {
        let mut members = BTreeMap::new();
        for (region, size) in sizes.into_iter().enumerate() {
            for _ in 0..size {
                members.insert(members.len() as u64 + 1, (region, true));
            }
        }
        let records: BTreeMap<MemberId, MemberRecord> = members
            .iter()
            .map(|(id, (region, votes))| (MemberId(*id), MemberRecord {
                region: Region(REGIONS[*region].to_owned()),
                kind: MemberKind::Witness,
                votes: *votes,
                ..MemberRecord::default()
            }))
            .collect();
        let rules = RingRules::from(policy);
        // If these members cannot satisfy the policy, the ring starts with another policy.
        let home = Region("a".to_owned());
        let sets = rules.voter_sets(&records, &home);
        let sets = sets.or_else(|_| RingRules::default().voter_sets(&records, &home)).unwrap();
        let next_id = members.len() as u64 + 1;
        let silent = BTreeSet::new();
        let mut history = History { rules, members, silent, sets, home: 0, next_id };
        for turn in &turns {
            let mut before = history.sets.clone();
            for after in history.take(turn) {
                prop_assert!(is_safe_step(&before, &after), "{turn:?}: {before:?} to {after:?}");
                prop_assert!(all_quorums_intersect(&before, &after), "{turn:?}: {before:?} to {after:?}");
                before = after;
            }
        }
    }

    #[test]
    fn what_the_engine_takes_intersects(
        one in proptest::collection::vec(proptest::collection::btree_set(1u64..7, 0..5), 0..3),
        other in proptest::collection::vec(proptest::collection::btree_set(1u64..7, 0..5), 0..3),
    ) {
        let sets = |of: Vec<BTreeSet<u64>>| -> VoterSets {
            of.into_iter().map(|set| set.into_iter().map(MemberId).collect()).collect()
        };
        let (one, other) = (sets(one), sets(other));
        if is_safe_step(&one, &other) {
            prop_assert!(all_quorums_intersect(&one, &other), "{one:?} to {other:?}");
        }
    }
}

// The planner over the table in `testdata/quorum_plans.txt`.

struct PlanCase {
    rules: RingRules,
    ring: Ring,
    home: Region,
}

fn policy(text: &str) -> QuorumPolicy {
    let regions = text
        .strip_prefix("regions(")
        .and_then(|text| text.strip_suffix(')'));
    match (text, regions) {
        ("majority", _) => QuorumPolicy::Majority,
        (_, None) if text.contains(" of regions(") => {
            let (required, of) = text.split_once(" of ").unwrap();
            let QuorumPolicy::Regions(regions) = policy(of) else {
                panic!("no policy `{text}`");
            };
            let required = required.parse().unwrap();
            QuorumPolicy::SomeRegions { required, regions }
        }
        ("single-region-dynamic", _) => QuorumPolicy::SingleRegionDynamic,
        (_, Some(regions)) => {
            let names = regions.split(", ").map(|name| Region(name.to_owned()));
            QuorumPolicy::Regions(names.collect())
        }
        _ => panic!("no policy `{text}`"),
    }
}

/// Parses a policy and, after `expecting`, the expected number of voters of regions.
fn rules(text: &str) -> RingRules {
    let (policy_text, expected) = text.split_once(" expecting ").unwrap_or((text, ""));
    let expected = expected.split_whitespace().map(|one| {
        let (region, voters) = one.split_once('=').unwrap();
        (Region(region.to_owned()), voters.parse().unwrap())
    });
    RingRules {
        expected_voters: expected.collect(),
        ..policy(policy_text).into()
    }
}

fn sets(text: &str) -> VoterSets {
    let ids = |set: &str| {
        set.split_whitespace()
            .map(|id| MemberId(id.parse().unwrap()))
            .collect()
    };
    let sets = text.split('{').skip(1);
    sets.map(|set| ids(set.split('}').next().unwrap()))
        .collect()
}

fn shown(sets: &[BTreeSet<MemberId>]) -> String {
    let set = |set: &BTreeSet<MemberId>| {
        let ids: Vec<String> = set.iter().map(MemberId::to_string).collect();
        format!("{{{}}}", ids.join(" "))
    };
    sets.iter().map(set).collect::<Vec<_>>().join(" ")
}

fn case(line: &str) -> PlanCase {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [rules_text, members, in_force, home, troubles] = columns[..] else {
        panic!("five columns in `{line}`");
    };
    let (sets_text, leader) = in_force.rsplit_once('}').unwrap();
    let in_force = sets(&format!("{sets_text}}}"));
    let numbers: Vec<Vec<u64>> = in_force
        .iter()
        .map(|set| set.iter().map(|id| id.0).collect())
        .collect();
    let numbers: Vec<&[u64]> = numbers.iter().map(Vec::as_slice).collect();
    let mut ring = Ring::new(&members.replace(';', "|"))
        .led_by(leader.trim().parse().unwrap())
        .with_sets(&numbers);
    for trouble in troubles.split_whitespace() {
        ring = match (trouble.strip_suffix('?'), trouble.split_once('<')) {
            (Some(id), _) => ring.silent(&[id.parse().unwrap()]),
            (None, Some((id, lag))) => ring.with(id.parse().unwrap(), |peer| {
                peer.lag = Some(lag.parse().unwrap());
            }),
            (None, None) => panic!("no trouble `{trouble}`"),
        };
    }
    PlanCase {
        rules: rules(rules_text),
        ring,
        home: Region(home.to_owned()),
    }
}

#[test]
fn every_row_has_its_plan() {
    let mut wrong = Vec::new();
    let table = include_str!("../../testdata/quorum_plans.txt");
    let rows = table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in rows {
        let (given, expected) = line.split_once("=>").unwrap();
        let PlanCase { rules, ring, home } = case(given);
        let planned = match plan(&rules, &ring.view(), &home) {
            QuorumPlan::Settled => "settled".to_owned(),
            QuorumPlan::Step(next) => shown(&next),
            QuorumPlan::Blocked(why) => format!("blocked: {why}"),
        };
        if planned != expected.trim() {
            wrong.push(format!("{line}\n  is planned as: {planned}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// Checks whether the engine can express "a majority in each of K of R regions". The engine requires majorities of all of its sets. This
// test tries all sets. Its result is the reason why the policy for some of the regions changes the voter sets (decision 46).

/// A case with voters as bits. Region r has the `size` bits from `r * size` on.
struct SetCase {
    regions: u32,
    size: u32,
    required: u32,
}

impl SetCase {
    fn voters(&self) -> u32 {
        self.regions * self.size
    }

    /// Returns true if these members are a majority in the required number of regions.
    fn is_quorum(&self, members: u32) -> bool {
        let region = |r: u32| ((1 << self.size) - 1) << (r * self.size);
        let met = (0..self.regions).filter(|r| is_majority(members, region(*r)));
        met.count() as u32 >= self.required
    }

    /// Returns true if voter sets exist whose joint majorities are exactly these quorums.
    fn can_be_said(&self) -> bool {
        let all = || 0u32..1 << self.voters();
        let quorums: Vec<u32> = all().filter(|members| self.is_quorum(*members)).collect();
        // The sets of which every quorum has a majority. Together, they are the strictest possible requirement.
        let sets: Vec<u32> = all()
            .skip(1)
            .filter(|set| quorums.iter().all(|quorum| is_majority(*quorum, *set)))
            .collect();
        let mut others = all().filter(|members| !self.is_quorum(*members));
        others.all(|other| !sets.iter().all(|set| is_majority(other, *set)))
    }
}

fn is_majority(members: u32, of: u32) -> bool {
    (members & of).count_ones() as usize >= majority_of(of.count_ones() as usize)
}

#[test]
fn some_regions_of_three_voters_are_no_majorities_of_sets() {
    for (regions, size) in [
        (2, 1),
        (2, 2),
        (2, 3),
        (3, 1),
        (3, 2),
        (3, 3),
        (4, 1),
        (5, 1),
    ] {
        // With fewer required regions, two quorums need not intersect.
        for required in regions / 2 + 1..=regions {
            let case = SetCase {
                regions,
                size,
                required,
            };
            let expected = required == regions || size < 3;
            assert_eq!(
                case.can_be_said(),
                expected,
                "{required} of {regions} regions of {size}"
            );
        }
    }
}
