//! Over random rings, policies, moves and members that come and go: any two consecutive definitions of the quorum
//! intersect, each step is one that the engine takes, and every move arrives.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use raft_types::{MemberId, MemberKind, MemberRecord, Region};

use super::majority::majority_of;
use super::plan::{QuorumPlan, plan};
use super::policy::{QuorumPolicy, RingRules, VoterSets};
use super::transition::is_safe_step;
use crate::ring_view::tests::{LEASE, Ring};

const REGIONS: [&str; 3] = ["a", "b", "c"];

fn is_quorum(sets: &VoterSets, members: &BTreeSet<MemberId>) -> bool {
    sets.iter()
        .all(|set| set.intersection(members).count() >= majority_of(set.len()))
}

/// Whether no quorum of one is disjoint from all quorums of the other, by trying every subset.
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
    /// This region is expected to have so many voters.
    Expect(usize, usize),
    /// A member moves to another region, or gets or loses the right to vote.
    Update(u64, usize, bool),
    /// The leader is, or shall be, in this region.
    Home(usize),
    /// These members do not answer for now.
    Silent(BTreeSet<u64>),
    /// A member joins this region, voting or not.
    Join(usize, bool),
    /// A member goes.
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

    /// Takes one turn as far as it goes, and gives back every definition of the quorum on the way.
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

    /// A member goes as the roster lets it: out of every set, if none of them is left empty.
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
            let QuorumPlan::Step { next } = plan(&self.rules, &view, &home, LEASE) else {
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
        // With a policy that these members cannot keep, a ring begins as another did.
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
