//! [`Scenario::Removals`]: members die for good, one or a few at a time, and an operator lets others go: those that are dead, and
//! those that answer. The ring may refuse; but where it lets a member go, those that answered then go on to commit.
//!
//! The rings are of three regions with one member each, or with three each, and the policy is `majority`: there the voters of a
//! region say nothing about the quorum.
//!
//! [`Scenario::Removals`]: crate::scenario::Scenario::Removals

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consensus::quorum::QuorumPolicy;
use consensus::{MoveError, RingView, RosterError};
use fastrand::Rng;
use raft_types::{MemberId, OpId, Region};

use super::World;
use super::healing::time_to_commit;
use crate::event::Event;
use crate::faults::{Crash, Stress};
use crate::mutation::Mutation;
use crate::shape::Shape;

/// How often an operator lets somebody go.
const REMOVALS: u32 = 4;
/// Longer than any run.
const FOR_GOOD: Duration = Duration::from_secs(3_600);
/// How long an operator waits to be told what came of it.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long the engine is given where the ring is broken on purpose.
const BROKEN_PATIENCE: Duration = Duration::from_millis(400);

/// What came of a removal, once it is known.
type Outcome = Arc<Mutex<Option<Result<OpId, RosterError>>>>;

/// A ring over three equal regions, in which a majority of all decides and everybody may lead.
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
    pub(super) fn removals(&mut self) {
        self.wait_for_leader(None);
        for _ in 0..REMOVALS {
            let calm = Duration::from_millis(self.dice.u64(200..1_500));
            self.steps(calm);
            self.some_die();
            // A leader counts on an answer for a lease.
            self.steps(self.shape.timers.lease * 2);
            if !self.goes_on() {
                return;
            }
            self.let_one_go();
        }
    }

    /// Some that do not lead die for good, as many as leave a majority at most.
    fn some_die(&mut self) {
        let Some((leader, view)) = self.leading_view() else {
            return;
        };
        let voters: BTreeSet<MemberId> = view.voter_sets.into_iter().flatten().collect();
        let running = |id: &MemberId| self.slots.get(id).is_some_and(|slot| slot.is_running());
        let running: Vec<MemberId> = voters.iter().copied().filter(running).collect();
        let spare = running.len().saturating_sub(voters.len() / 2 + 1);
        let mut others: Vec<MemberId> = running.into_iter().filter(|id| *id != leader).collect();
        self.dice.shuffle(&mut others);
        let dying = self.dice.usize(0..=spare);
        for member in others.into_iter().take(dying) {
            self.record
                .fault(&format!("FAULT member {member} dies for good"));
            if let Some(slot) = self.slots.get_mut(&member) {
                slot.crash = Some(Crash::Kill);
                slot.down_for = Some(FOR_GOOD);
                slot.start_at = None;
                slot.fall();
            }
        }
    }

    /// An operator lets somebody go who does not lead, and looks whether the ring goes on.
    fn let_one_go(&mut self) {
        let Some((leader, view)) = self.leading_view() else {
            return;
        };
        let others = view.members.iter().map(|standing| standing.id);
        let others: Vec<MemberId> = others.filter(|id| *id != leader).collect();
        if others.is_empty() {
            return;
        }
        let leaving = others[self.dice.usize(0..others.len())];
        self.record
            .note(&format!("an operator lets member {leaving} go"));
        let outcome = match self.mutation == Some(Mutation::RemoveByRegion) {
            true => self.remove_by_region(&view, leaving),
            false => self.remove_and_tell(leaving),
        };
        let told = |outcome: &Outcome| {
            let outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            outcome.clone()
        };
        let until = self.now.after(PATIENCE);
        while self.goes_on() && self.now < until && told(&outcome).is_none() {
            self.step();
        }
        let let_go = match told(&outcome) {
            // It is in the log, and counts from then on.
            Some(Ok(_) | Err(RosterError::Move(MoveError::Uncommitted { .. }))) => true,
            Some(Err(refusal)) => {
                self.record.note(&format!("it is refused: {refusal}"));
                false
            }
            None => false,
        };
        if let_go {
            self.goes_on_without(leaving);
        }
    }

    fn goes_on_without(&mut self, gone: MemberId) {
        let before = self.record.counts().acknowledged;
        let (start, allowed) = (self.now, time_to_commit(&self.shape));
        while self.goes_on() && self.record.counts().acknowledged == before {
            if self.now - start > allowed {
                let words = format!(
                    "member {gone} was let go, nobody has died since, and no transaction was committed within {allowed:?}; {}",
                    self.standing()
                );
                self.record.saw(&Event::Wedged { words });
            }
            self.step();
        }
    }

    fn remove_and_tell(&mut self, leaving: MemberId) -> Outcome {
        let outcome = Outcome::default();
        let (told, removed) = (outcome.clone(), self.removed.clone());
        if let Some(leader) = self.leader_process() {
            leader.spawn(|leading| async move {
                let result = leading.remove_member(leaving).await;
                if result.is_ok() {
                    let mut removed = removed.lock().unwrap_or_else(PoisonError::into_inner);
                    removed.push(leaving);
                }
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            });
        }
        outcome
    }

    /// As [`Mutation::RemoveByRegion`] has it: the other voters of its region are asked after, and nobody else.
    fn remove_by_region(&mut self, view: &RingView, leaving: MemberId) -> Outcome {
        let outcome = Outcome::default();
        if !its_region_can_do_without(view, leaving, self.shape.timers.lease) {
            return outcome;
        }
        let voters = view.voter_sets.iter().flatten().copied();
        let left: BTreeSet<MemberId> = voters.filter(|id| *id != leaving).collect();
        let (told, patience) = (outcome.clone(), BROKEN_PATIENCE);
        if let Some(leader) = self.leader_process() {
            leader.spawn(move |leading| async move {
                let change = leading.engine().change_membership(left, false);
                // What comes of it stands in the log.
                let _ = tokio::time::timeout(patience, change).await;
                let waited = RosterError::Move(MoveError::Uncommitted { waited: patience });
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(waited));
            });
        }
        outcome
    }

    /// Who leads, and the ring as it sees it.
    pub(super) fn leading_view(&self) -> Option<(MemberId, RingView)> {
        let leader = self.leader()?;
        let process = self.slots.get(&leader)?.process()?;
        Some((leader, process.with(|member| member.status().ring_view)))
    }
}

/// The rule that the product once had.
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
    // A region may be given up as a whole.
    all == 0 || answering.len() > all / 2
}
