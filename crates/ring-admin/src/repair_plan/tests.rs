//! Tests the no-loss proof with a simulated ring of six members in two regions. Elections, replication and changes of the membership follow
//! the engine's rules, in any order. The test knows the whole state of the ring. After each schedule, a plan is made for every subset of
//! answering members. If the plan promises no loss, the survivor must have all committed entries.

use std::collections::{BTreeMap, BTreeSet};

use consensus::quorum::{VoterSets, is_safe_step, majority_of};
use proptest::prelude::*;
use raft_types::{LogId, MemberId, MemberRecord, Membership, OpId, StoredMembership, Term};

use super::{MemberEvidence, RepairRefusal, plan_repair};

const MEMBERS: usize = 6;

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    term: u64,
    /// A membership; `None` for a transaction.
    sets: Option<VoterSets>,
}

#[derive(Debug, Clone)]
struct Node {
    term: u64,
    leads: bool,
    log: Vec<Entry>,
    /// The number of entries that this member has recorded as committed.
    committed: usize,
    /// On a leader: the number of entries that each member has acknowledged.
    acknowledged: BTreeMap<MemberId, usize>,
}

impl Node {
    /// Returns the positions of the last two memberships in the log.
    fn memberships(&self) -> (usize, Option<usize>) {
        let mut found = (0..self.log.len())
            .rev()
            .filter(|at| self.log[*at].sets.is_some());
        let last = found.next().unwrap_or(0);
        (last, found.next())
    }

    fn sets(&self) -> &VoterSets {
        let (last, _) = self.memberships();
        self.log[last].sets.as_ref().unwrap()
    }

    fn end(&self) -> (u64, usize) {
        (self.log.last().map_or(0, |last| last.term), self.log.len())
    }
}

#[derive(Debug, Clone)]
enum Turn {
    /// A member (first field) campaigns. The members in the bits of the second field receive its requests.
    Campaign(usize, u8),
    /// The leader accepts a transaction.
    Write(usize),
    /// A leader (first field) sends a member (second field) up to this many further entries (third field).
    Send(usize, usize, usize),
    /// The leader appends these voter sets, if the engine permits the step.
    Change(usize, Vec<u8>),
}

/// Decodes a set of members from bits.
fn ids(bits: u8) -> BTreeSet<MemberId> {
    (0..MEMBERS)
        .filter(|at| bits & (1 << at) != 0)
        .map(|at| MemberId(at as u64 + 1))
        .collect()
}

fn at(id: MemberId) -> usize {
    id.0 as usize - 1
}

struct World {
    nodes: Vec<Node>,
    /// The acknowledged entries, in the order of the log.
    acknowledged: Vec<Entry>,
}

impl World {
    fn new(first: &[u8]) -> Self {
        let sets = first.iter().map(|bits| ids(*bits)).collect();
        let node = Node {
            term: 0,
            leads: false,
            log: vec![Entry {
                term: 0,
                sets: Some(sets),
            }],
            committed: 1,
            acknowledged: BTreeMap::new(),
        };
        Self {
            acknowledged: node.log.clone(),
            nodes: vec![node; MEMBERS],
        }
    }

    fn take(&mut self, turn: &Turn) {
        match turn {
            Turn::Campaign(actor, reached) => self.campaign(*actor, *reached),
            Turn::Write(actor) => self.append(*actor, None),
            Turn::Send(actor, to, most) => self.send(*actor, *to, *most),
            Turn::Change(actor, sets) => self.change(*actor, sets),
        }
    }

    fn campaign(&mut self, actor: usize, reached: u8) {
        let (term, end) = (self.nodes[actor].term + 1, self.nodes[actor].end());
        let mut granted = BTreeSet::new();
        for id in ids(reached | (1 << actor)) {
            let voter = &mut self.nodes[at(id)];
            if voter.term < term && voter.end() <= end {
                voter.term = term;
                voter.leads = false;
                granted.insert(id);
            }
        }
        let elected = is_quorum(self.nodes[actor].sets(), &granted);
        self.nodes[actor].leads = elected;
        self.nodes[actor].acknowledged.clear();
        self.append(actor, None);
    }

    fn append(&mut self, actor: usize, sets: Option<VoterSets>) {
        let node = &mut self.nodes[actor];
        if node.leads {
            let term = node.term;
            node.log.push(Entry { term, sets });
            let own = MemberId(actor as u64 + 1);
            node.acknowledged.insert(own, node.log.len());
            self.commit(actor);
        }
    }

    fn send(&mut self, actor: usize, to: usize, most: usize) {
        let leader = self.nodes[actor].clone();
        let follower = &mut self.nodes[to];
        if !leader.leads || actor == to || follower.term > leader.term {
            return;
        }
        follower.term = leader.term;
        follower.leads = false;
        let equal = |(one, other): &(&Entry, &Entry)| one == other;
        let common = leader
            .log
            .iter()
            .zip(&follower.log)
            .take_while(equal)
            .count();
        let upto = leader.log.len().min(common + most);
        if upto > common {
            follower.log.truncate(common);
            follower.log.extend_from_slice(&leader.log[common..upto]);
        }
        follower.committed = follower.committed.max(leader.committed.min(upto));
        let acknowledged = &mut self.nodes[actor].acknowledged;
        let matched = acknowledged.entry(MemberId(to as u64 + 1)).or_default();
        *matched = upto.max(*matched);
        self.commit(actor);
    }

    /// Commits the entries that a quorum has acknowledged to this leader, and records them as acknowledged.
    fn commit(&mut self, actor: usize) {
        let leader = &self.nodes[actor];
        let has = |upto: usize| -> BTreeSet<MemberId> {
            let matched = leader.acknowledged.iter();
            let has = matched.filter(|(_, matched)| **matched >= upto);
            has.map(|(id, _)| *id).collect()
        };
        let own = |upto: &usize| leader.log[upto - 1].term == leader.term;
        let reached = (leader.committed + 1..=leader.log.len())
            .rev()
            .filter(own)
            .find(|upto| is_quorum(leader.sets(), &has(*upto)));
        let Some(upto) = reached else {
            return;
        };
        let committed = leader.log[..upto].to_vec();
        self.nodes[actor].committed = upto;
        let shared = committed.len().min(self.acknowledged.len());
        assert_eq!(
            committed[..shared],
            self.acknowledged[..shared],
            "the model itself loses what it committed"
        );
        if committed.len() > self.acknowledged.len() {
            self.acknowledged = committed;
        }
    }

    fn change(&mut self, actor: usize, sets: &[u8]) {
        let leader = &self.nodes[actor];
        let sets: VoterSets = sets.iter().map(|bits| ids(*bits)).collect();
        let (last, _) = leader.memberships();
        let own_is_committed =
            leader.committed > 0 && leader.log[leader.committed - 1].term == leader.term;
        let allowed = leader.leads
            && own_is_committed
            && leader.committed > last
            && sets != *leader.sets()
            && is_safe_step(leader.sets(), &sets);
        if allowed {
            self.append(actor, Some(sets));
        }
    }

    fn evidence(&self, answering: u8) -> Vec<MemberEvidence> {
        let members: BTreeMap<MemberId, MemberRecord> = ids(u8::MAX)
            .into_iter()
            .map(|id| (id, MemberRecord::default()))
            .collect();
        let one = |id: MemberId| {
            let node = &self.nodes[at(id)];
            let op_id = |index: usize| OpId::new(node.log[index].term, index as u64);
            let stored = |index: usize| {
                let sets = node.log[index].sets.clone().unwrap();
                let membership = Membership::new(sets, members.clone()).unwrap();
                StoredMembership::new(Some(LogId::from(op_id(index))), membership)
            };
            let (last, before) = node.memberships();
            let settled = match before {
                Some(before) if node.committed <= last => before,
                _ => last,
            };
            MemberEvidence {
                member: id,
                term: Term(node.term),
                log_end: Some(op_id(node.log.len() - 1)),
                committed: node.committed.checked_sub(1).map(op_id),
                membership: stored(last),
                settled: Some(stored(settled)),
                leader: None,
                doubted_tail: false,
                elects_from: None,
            }
        };
        ids(answering).into_iter().map(one).collect()
    }

    /// Makes a plan for every subset of the members, and checks it. Returns the number of plans that promised no loss.
    fn check(&self) -> usize {
        let mut promised = 0;
        for answering in 1..1u8 << MEMBERS {
            let plan = match plan_repair(&self.evidence(answering)) {
                Ok(plan) => plan,
                Err(RepairRefusal::NotLost) => continue,
                Err(refusal) => panic!("{refusal}"),
            };
            if plan.loss.is_some() {
                continue;
            }
            promised += 1;
            let log = &self.nodes[at(plan.survivor)].log;
            let kept = log.get(..self.acknowledged.len());
            assert!(
                kept == Some(&self.acknowledged),
                "{:?} answer, nothing is said to be lost, and member {} lacks what was acknowledged: {:?}, where its log is {log:?}",
                ids(answering),
                plan.survivor,
                self.acknowledged,
            );
        }
        promised
    }
}

fn is_quorum(sets: &VoterSets, members: &BTreeSet<MemberId>) -> bool {
    sets.iter()
        .all(|set| set.intersection(members).count() >= majority_of(set.len()))
}

/// Voter sets for changes: regions of three members, sets with single members added or removed, and intermediate sets.
const SETS: [&[u8]; 16] = [
    &[0b00_0111],
    &[0b11_1000],
    &[0b11_1000, 0b00_0111],
    &[0b00_0111, 0b11_1000],
    &[0b00_0011],
    &[0b00_1111],
    &[0b00_1111, 0b11_0000],
    &[0b11_0000],
    &[0b10_0000],
    &[0b11_0000, 0b00_0111],
    &[0b00_1011],
    &[0b11_1111],
    &[0b11_1111, 0b00_0111],
    &[0b00_0001],
    &[0b00_0011, 0b11_1100],
    &[0b11_1100],
];

fn a_turn() -> impl Strategy<Value = Turn> {
    // Two members lead in most schedules, so that the schedules make progress.
    let leader = || prop_oneof![4 => 0..2usize, 1 => 3..4usize, 1 => 0..MEMBERS];
    prop_oneof![
        2 => (leader(), 0u8..64).prop_map(|(actor, reached)| Turn::Campaign(actor, reached)),
        2 => leader().prop_map(Turn::Write),
        12 => (leader(), 0..MEMBERS, 1..6usize).prop_map(|(actor, to, most)| Turn::Send(actor, to, most)),
        4 => (leader(), proptest::sample::select(SETS.to_vec()))
            .prop_map(|(actor, sets)| Turn::Change(actor, sets.to_vec())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn where_nothing_is_said_to_be_lost_the_survivor_has_all_that_was_committed(
        first in proptest::sample::select(SETS.to_vec()),
        turns in proptest::collection::vec(a_turn(), 1..120),
    ) {
        let mut world = World::new(first);
        for turn in &turns {
            world.take(turn);
        }
        world.check();
    }
}

#[test]
fn there_are_plans_that_promise_that_nothing_is_lost() {
    // For example, two members of the set of four are lost, so that set cannot commit, and both members of the other set answer.
    let world = World::new(&[0b00_1111, 0b11_0000]);
    assert!(world.check() > 0);
}

/// This schedule disproves a simpler rule: that nothing is lost if all members of one voter set answer.
#[test]
fn an_unseen_set_that_committed_alone_is_not_promised() {
    let (a, b) = (0b00_0111, 0b11_1000);
    let mut world = World::new(&[b]);
    let to_all = |actor: usize| (0..MEMBERS).map(move |to| Turn::Send(actor, to, 9));
    let mut turns = vec![Turn::Campaign(3, 0b11_1000)];
    turns.extend(to_all(3));
    turns.push(Turn::Change(3, vec![b, a]));
    turns.extend(to_all(3));
    // Member 1 leads, and moves the quorum back to region a. Only member 2 receives that entry.
    turns.push(Turn::Campaign(0, 0b11_1111));
    turns.extend(to_all(0));
    turns.push(Turn::Change(0, vec![a]));
    turns.push(Turn::Send(0, 1, 9));
    turns.extend([Turn::Write(0), Turn::Write(0), Turn::Send(0, 1, 9)]);
    for turn in &turns {
        world.take(turn);
    }
    assert_eq!(world.acknowledged.len(), world.nodes[0].log.len());
    assert!(world.nodes[5].log.len() < world.nodes[0].log.len());
    let plan = plan_repair(&world.evidence(0b11_1100)).unwrap();
    assert!(plan.loss.is_some(), "{plan:?}");
    world.check();
}
