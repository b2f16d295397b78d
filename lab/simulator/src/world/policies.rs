//! [`Scenario::Policies`]: the members' configuration files have different policies. An operator sets policies through the log while
//! leaders change. After all faults are fixed, the quorum must be as the log's policy requires, under any leader, and must stay so.
//!
//! [`Scenario::Policies`]: crate::scenario::Scenario::Policies

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::quorum::{QuorumPolicy, RingRules, VoterSets};
use consensus::{MoveError, RingView};
use fastrand::Rng;
use raft_types::{MemberId, MemberRecord, OpId, Region};
use ring_admin::{Member, ReconfigurationError, RulesChange};

use crate::dice::{millis, pick, pick_some};
use crate::event::Event;
use crate::faults::{Crash, Fault, Stress};
use crate::mutation::Mutation;
use crate::shape::Shape;
use crate::shared::Shared;
use crate::world::World;
use crate::world::healing::time_to_commit;

/// Number of attempts of the operator. `AGAIN` is the pause between two attempts, because the ring may be busy.
const TRIES: u32 = 12;
const AGAIN: Duration = Duration::from_millis(700);
/// Time limit for a quorum move, in addition to an election. A move has several steps, and each step waits until the next members have
/// caught up.
const TIME_TO_MOVE: Duration = Duration::from_secs(10);
/// How long the quorum must stay unchanged without faults.
const STAYS: Duration = Duration::from_secs(2);

/// Returns the rules in a member's configuration file. The bootstrapping member has the seed's choice, and the others have one of two
/// policies.
pub(super) fn of_the_file(shape: &Shape, makes_the_ring: bool, dice: &mut Rng) -> RingRules {
    if makes_the_ring {
        return shape.rules.clone();
    }
    RingRules {
        policy: match dice.bool() {
            true => QuorumPolicy::SingleRegionDynamic,
            false => QuorumPolicy::Majority,
        },
        ..shape.rules.clone()
    }
}

impl World {
    /// Chooses another policy, for a run of this scenario.
    pub(super) fn another_policy(&mut self) -> Option<Fault> {
        let policies = self.other_policies();
        let policy = pick(&mut self.dice, &policies).clone();
        Some(Fault::SetPolicy(policy))
    }

    /// Returns all policies except the one in the leader's log.
    fn other_policies(&self) -> Vec<QuorumPolicy> {
        let regions: BTreeSet<Region> = self.regions().into_values().collect();
        let mut policies = vec![
            QuorumPolicy::SingleRegionDynamic,
            QuorumPolicy::Majority,
            QuorumPolicy::Regions(regions.clone()),
            QuorumPolicy::SomeRegions {
                required: 2,
                regions,
            },
        ];
        let now = self.logged_policy();
        policies.retain(|policy| Some(policy) != now.as_ref());
        policies
    }

    /// Makes the operator request a policy from the current leader until it is in force.
    pub(super) fn set_policy(&mut self, policy: QuorumPolicy) {
        self.ask_for_policy(policy, TRIES, Shared::default());
    }

    fn ask_for_policy(&mut self, policy: QuorumPolicy, tries: u32, done: Shared<bool>) {
        if *done.lock() {
            return;
        }
        if tries > 1 {
            let (policy, done) = (policy.clone(), done.clone());
            self.later(AGAIN, move |world| {
                world.ask_for_policy(policy, tries - 1, done)
            });
        }
        self.order("sets the policy".to_owned(), move |leader| async move {
            let rules = RulesChange {
                policy: Some(policy),
                ..RulesChange::default()
            };
            let outcome = leader.set_rules(&rules, false, "anna").await;
            let is_done = matches!(&outcome, Ok(_) | Err(ReconfigurationError::AsItIs));
            *done.lock() |= is_done;
            outcome.map(|done| (done.after.policy, done.entry))
        });
    }

    /// Checks, after all faults are fixed, that the quorum moves as the log's policy requires and then stays. Then checks the same with
    /// another policy.
    pub(super) fn the_quorum_follows_the_log(&mut self) {
        self.the_quorum_goes_and_stays();
        let others = self.other_policies();
        let other = pick(&mut self.dice, &others).clone();
        self.set_policy(other.clone());
        let allowed = time_to_commit(&self.shape) + TIME_TO_MOVE;
        self.wait_until("the policy cannot be set", allowed, |world| {
            world.logged_policy().as_ref() == Some(&other)
        });
        self.the_quorum_goes_and_stays();
    }

    fn logged_policy(&self) -> Option<QuorumPolicy> {
        let leader = self.leader_process()?;
        Some(leader.with(Member::status).rules.policy)
    }

    fn the_quorum_goes_and_stays(&mut self) {
        let allowed = time_to_commit(&self.shape) + TIME_TO_MOVE;
        let mut since = None;
        let stays = self.happens_within(allowed + STAYS, |world| {
            since = match world.quorum_and_policy() {
                Ok(()) => since.or(Some(world.now)),
                Err(_) => None,
            };
            since.is_some_and(|since| world.now - since >= STAYS)
        });
        if !stays {
            let why = self.quorum_and_policy().err().unwrap_or_default();
            self.stuck(&format!(
                "the quorum does not stay where the log wants it, {allowed:?} after the repair: {why}"
            ));
        }
    }

    /// Checks that the quorum is as the leader's log requires. The error describes the quorum.
    fn quorum_and_policy(&self) -> Result<(), String> {
        let leader = self.leader_process().ok_or("no member leads")?;
        let status = leader.with(Member::status);
        let view = status.ring_view;
        let records = view.members.iter();
        let records: BTreeMap<_, _> = records
            .map(|standing| (standing.id, standing.record.clone()))
            .collect();
        let home = records.get(&view.own).map(|record| &record.region);
        let home = home.ok_or("the leader is no member")?;
        let policy = &status.rules.policy;
        match is_as_wanted(policy, &view.voter_sets, &records, home) {
            true => Ok(()),
            false => Err(format!(
                "member {} of {home} leads, the policy is {policy}, the voters are {}",
                view.own,
                crate::event::words(&view.voter_sets)
            )),
        }
    }
}

/// Returns whether the policy requires these voter sets while the leader is in `home`. This does not use the product's code.
fn is_as_wanted(
    policy: &QuorumPolicy,
    sets: &VoterSets,
    members: &BTreeMap<MemberId, MemberRecord>,
    home: &Region,
) -> bool {
    let voters_of = |wanted: &dyn Fn(&Region) -> bool| -> BTreeSet<MemberId> {
        let voters = members.iter();
        let voters = voters.filter(|(_, record)| record.votes && wanted(&record.region));
        voters.map(|(id, _)| *id).collect()
    };
    let of_region = |region: &Region| voters_of(&|other| other == region);
    let has = |set: &BTreeSet<MemberId>| sets.contains(set);
    match policy {
        QuorumPolicy::SingleRegionDynamic => sets.len() == 1 && has(&of_region(home)),
        QuorumPolicy::Majority => sets.len() == 1 && has(&voters_of(&|_| true)),
        QuorumPolicy::Regions(regions) => {
            sets.len() == regions.len() && regions.iter().all(|region| has(&of_region(region)))
        }
        QuorumPolicy::SomeRegions { required, regions } => {
            let chosen = regions.iter().filter(|region| has(&of_region(region)));
            sets.len() == *required && chosen.count() == *required && has(&of_region(home))
        }
        QuorumPolicy::Unknown(_) => false,
    }
}

// [`Scenario::Removals`]: members fail permanently, one or a few at a time, and an operator removes other members. These may be dead, or
// may answer. The ring may refuse a removal. If it removes a member, the members that answered must continue to commit.
//
// The rings have three regions with one or three members each, and the policy `majority`. So the number of voters in a region does not
// matter for the quorum.
//
// [`Scenario::Removals`]: crate::scenario::Scenario::Removals

/// How long an operator waits for the result of a removal.
const PATIENCE: Duration = Duration::from_secs(8);
/// Time limit for openraft to remove a member in a deliberately broken ring.
const BROKEN_PATIENCE: Duration = Duration::from_millis(400);

/// The result of a removal; `None` until it is known.
type Outcome = Shared<Option<Result<OpId, ReconfigurationError>>>;

/// Makes a ring of three equal regions, in which a majority of all voters decides and every member may lead.
pub(super) fn with_a_majority(shape: &mut Shape, dice: &mut Rng) {
    while !is_over_three_equal_regions(shape) {
        *shape = Shape::choose(Stress::Everything, dice);
    }
    shape.rules.policy = QuorumPolicy::Majority;
    shape.members.retain(|_, member| !member.spare);
    shape.with_databases_only();
}

fn is_over_three_equal_regions(shape: &Shape) -> bool {
    let mut sizes: BTreeMap<&Region, usize> = BTreeMap::new();
    for member in shape.members.values().filter(|member| !member.spare) {
        *sizes.entry(&member.record.region).or_default() += 1;
    }
    let sizes: Vec<usize> = sizes.into_values().collect();
    sizes == [1, 1, 1] || sizes == [3, 3, 3]
}

impl World {
    pub(super) fn some_fail_and_one_is_removed(&mut self) {
        let calm = millis(&mut self.dice, 200..1_500);
        self.steps(calm);
        self.some_die();
        // To a leader, a member counts as answering for the length of a lease after its last answer.
        self.steps(self.shape.timers.lease * 2);
        if self.goes_on() {
            self.let_one_go();
        }
    }

    /// Makes some members fail permanently. The leader is not one of them, and a majority remains.
    fn some_die(&mut self) {
        let Some((leader, view)) = self.leading_view() else {
            return;
        };
        let voters: BTreeSet<MemberId> = view.voter_sets.into_iter().flatten().collect();
        let mut others: Vec<MemberId> = voters.iter().copied().collect();
        others.retain(|id| self.runs(*id));
        let spare = others.len().saturating_sub(voters.len() / 2 + 1);
        others.retain(|id| *id != leader);
        self.dice.shuffle(&mut others);
        let dying = self.dice.usize(0..=spare);
        for member in others.into_iter().take(dying) {
            self.record
                .fault(&format!("FAULT member {member} dies permanently"));
            self.slot(member).fall_permanently(Crash::Kill);
        }
    }

    /// Makes an operator remove a member other than the leader, and checks that the ring continues.
    fn let_one_go(&mut self) {
        let Some((leader, view)) = self.leading_view() else {
            return;
        };
        let others = view.members.iter().map(|standing| standing.id);
        let others: Vec<MemberId> = others.filter(|id| *id != leader).collect();
        let Some(leaving) = pick_some(&mut self.dice, &others) else {
            return;
        };
        self.record
            .note(&format!("an operator lets member {leaving} go"));
        let outcome = match self.mutation == Some(Mutation::RemoveByRegion) {
            true => self.remove_by_region(&view, leaving),
            false => self.remove_and_report(leaving),
        };
        self.happens_within(PATIENCE, |_| outcome.lock().is_some());
        let told = outcome.lock().take();
        let let_go = match told {
            // The change is in the log, and is in force from then on.
            Some(Ok(_) | Err(ReconfigurationError::Move(MoveError::Uncommitted(_)))) => true,
            Some(Err(refusal)) => {
                self.record.note(&format!("it is refused: {refusal}"));
                false
            }
            None => false,
        };
        let allowed = time_to_commit(&self.shape);
        if let_go && !self.commits_within(allowed) {
            let words = format!(
                "member {leaving} was removed, no member has died since, and no transaction was committed within {allowed:?}; {}",
                self.standing()
            );
            self.record.saw(&Event::Wedged { words });
        }
    }

    fn remove_and_report(&mut self, leaving: MemberId) -> Outcome {
        let removed = self.removed.clone();
        self.ask_leader(move |leading| async move {
            let result = leading.remove_member(leaving, "anna").await;
            if result.is_ok() {
                removed.lock().push(leaving);
            }
            result
        })
    }

    /// Removes a member for [`Mutation::RemoveByRegion`]: only the other voters of the member's region are checked.
    fn remove_by_region(&mut self, view: &RingView, leaving: MemberId) -> Outcome {
        if !its_region_can_do_without(view, leaving, self.shape.timers.lease) {
            return Outcome::default();
        }
        let voters = view.voter_sets.iter().flatten().copied();
        let left: BTreeSet<MemberId> = voters.filter(|id| *id != leaving).collect();
        self.ask_leader(move |leading| async move {
            let change = leading.engine().change_membership(left, false);
            // The result is visible in the log.
            let waited = BROKEN_PATIENCE;
            let _ = tokio::time::timeout(waited, change).await;
            Err(ReconfigurationError::Move(MoveError::Uncommitted(waited)))
        })
    }

    /// Returns the leader, and its view of the ring.
    pub(super) fn leading_view(&self) -> Option<(MemberId, RingView)> {
        let leader = self.leader()?;
        let process = self.process(leader)?;
        Some((leader, process.with(|member| member.status().ring_view)))
    }
}

/// The rule of earlier versions of the product.
fn its_region_can_do_without(view: &RingView, leaving: MemberId, lease: Duration) -> bool {
    let Some(standing) = view.member(leaving) else {
        return false;
    };
    if !standing.answers(lease) {
        return true;
    }
    let region = &standing.record.region;
    let left = view.members.iter().filter(|other| {
        other.id != leaving && other.record.votes && other.record.region == *region
    });
    let (answering, silent): (Vec<_>, Vec<_>) = left.partition(|other| other.answers(lease));
    let all = answering.len() + silent.len();
    // The last voter of a region may be removed.
    all == 0 || answering.len() > all / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quorum_of_each_policy() {
        let region = |name: &str| Region(name.to_owned());
        let member = |(id, at, votes): (u64, &str, bool)| {
            let record = MemberRecord {
                region: region(at),
                votes,
                ..MemberRecord::default()
            };
            (MemberId(id), record)
        };
        let members = [
            (1, "a", true),
            (2, "a", true),
            (3, "a", false),
            (4, "b", true),
            (5, "c", true),
        ];
        let members: BTreeMap<_, _> = members.map(member).into();
        let all: BTreeSet<Region> = ["a", "b", "c"].map(region).into();
        let single = QuorumPolicy::SingleRegionDynamic;
        let regions = QuorumPolicy::Regions(all.clone());
        let two = QuorumPolicy::SomeRegions {
            required: 2,
            regions: all,
        };
        let table: [(&QuorumPolicy, &[&[u64]], bool); 11] = [
            (&single, &[&[1, 2]], true),
            (&single, &[&[4]], false),
            (&single, &[&[1, 2], &[4]], false),
            (&single, &[&[1, 2, 3]], false),
            (&QuorumPolicy::Majority, &[&[1, 2, 4, 5]], true),
            (&QuorumPolicy::Majority, &[&[1, 2]], false),
            (&regions, &[&[4], &[1, 2], &[5]], true),
            (&regions, &[&[1, 2], &[5]], false),
            (&two, &[&[1, 2], &[5]], true),
            (&two, &[&[4], &[5]], false),
            (&two, &[&[1, 2], &[4], &[5]], false),
        ];
        for (policy, sets, expected) in table {
            let set = |set: &&[u64]| set.iter().copied().map(MemberId).collect();
            let sets: VoterSets = sets.iter().map(set).collect();
            let wanted = is_as_wanted(policy, &sets, &members, &region("a"));
            assert_eq!(wanted, expected, "{policy} {sets:?}");
        }
    }
}
