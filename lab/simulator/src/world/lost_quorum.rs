//! A permanently lost quorum, and its repair by the operator. The leader and a majority of its voters are alone for some time and then lose
//! power, so that only they have some acknowledged entries. The operator collects evidence from the other members, and then either accepts
//! the plan or brings the missing members back. Lost members rejoin some time after the repair, as in the product
//! ([`Asking`](crate::member::Asking)).

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use raft_types::MemberId;
use ring_admin::{MemberEvidence, RepairPlan, plan_repair};
use testkit::disk::Survival;

use super::World;
use super::playing::both_ways;
use super::slot::{FOR_GOOD, Slot};
use crate::dice::millis;
use crate::event::{Event, Repair};
use crate::faults::{Crash, Stress};
use crate::mutation::Mutation;
use crate::record::News;
use crate::shared::Shared;

/// How long the operator waits for the members' evidence. A member waits at most for a heartbeat of its leader.
const EVIDENCE: Duration = Duration::from_millis(550);
/// Pause between two checks of the operator.
const AGAIN: Duration = Duration::from_millis(600);
/// How long a survivor that will be lost is disconnected before its loss.
const UNHEARD: Duration = Duration::from_millis(150);
const BACK: Duration = Duration::from_secs(4);
/// Number of checks of the operator.
const LOOKS: u32 = 12;
/// The evidence that members have given so far.
type Given = Shared<Vec<MemberEvidence>>;

impl World {
    /// In a run of this scenario, plans the loss of the quorum at a random time.
    pub(super) fn plan_the_loss(&mut self) {
        let at_a_move = self.mutation.is_some_and(Mutation::concerns_narrowing);
        if self.intensity.stress == Stress::Lost && !at_a_move {
            let at = Duration::from_millis(self.dice.u64(500..6_000));
            self.ends_later(at, "quorum".to_owned(), |world| world.lose_quorum());
        }
    }

    /// Loses a quorum while the leader narrows it, which is the worst moment: the other members have only the joint quorum. Returns whether
    /// the quorum was lost.
    pub(super) fn loses_what_narrows(&mut self, news: News) -> bool {
        let narrows = matches!(news, News::Narrows(_));
        if self.intensity.stress != Stress::Lost || !narrows {
            return false;
        }
        let at_a_move = self.mutation.is_some_and(Mutation::concerns_narrowing);
        if self.dice.u32(0..3) > 0 && !at_a_move {
            return false;
        }
        self.lose_quorum();
        true
    }

    /// Leaves the leader and a majority of its voter set alone for a moment, and then cuts their power.
    fn lose_quorum(&mut self) {
        let Some(leader) = self.leader().filter(|_| !self.quorum_was_lost) else {
            return;
        };
        let view = self.leading_view().map(|(_, view)| view);
        let sets = view.map(|view| view.voter_sets).unwrap_or_default();
        let own = sets.iter().find(|set| set.contains(&leader));
        let Some(set) = own.or(sets.first()) else {
            return;
        };
        self.quorum_was_lost = true;
        let mut others: Vec<MemberId> = set.iter().copied().filter(|id| *id != leader).collect();
        self.dice.shuffle(&mut others);
        let majority = set.len() / 2 + 1;
        let lost = self.dice.usize(majority..=set.len());
        let lost: BTreeSet<MemberId> = std::iter::once(leader).chain(others).take(lost).collect();
        let left = self.slots.keys().copied().filter(|id| !lost.contains(id));
        let left: Vec<MemberId> = left.collect();
        let alone: Vec<MemberId> = lost.iter().copied().collect();
        self.record
            .fault(&format!("FAULT {lost:?} are alone, and will be lost"));
        let time = millis(&mut self.dice, 20..800);
        self.cut_for(both_ways(&alone, &left), time);
        self.ends_later(time, format!("time of {lost:?} alone"), move |world| {
            world.lose(&lost)
        });
    }

    fn lose(&mut self, lost: &BTreeSet<MemberId>) {
        for id in lost {
            let survival = match self.dice.bool() {
                true => Survival::Everything,
                false => Survival::Seeded(self.dice.u64(..)),
            };
            self.slot(*id).fall_permanently(Crash::PowerCut(survival));
        }
        let looks = millis(&mut self.dice, 100..2_000);
        self.later(looks, |world| world.look(LOOKS));
    }

    /// Makes the operator check again after all faults are fixed, if the quorum was lost. The survivor may have lost its power after it
    /// stored the term and before it wrote the entry. Then the ring waits for lost entries.
    pub(super) fn keep_looking(&mut self) {
        if self.quorum_was_lost {
            self.later(AGAIN, |world| world.look(LOOKS));
        }
    }

    /// Collects evidence from all members, as the operator does.
    fn look(&mut self, looks: u32) {
        let given = Given::default();
        for process in self.slots.values().filter_map(Slot::process) {
            let given = given.clone();
            process.spawn(|member| async move {
                let evidence = member.evidence().await;
                given.lock().push(evidence);
            });
        }
        self.later(EVIDENCE, move |world| world.decide(&given, looks));
    }

    /// Checks the plan, as the operator does.
    fn decide(&mut self, given: &Given, looks: u32) {
        let given = given.lock().clone();
        match plan_repair(&given) {
            Ok(_) if self.now < self.repairs_until => {}
            Ok(plan) if !self.are_lost(&plan.missing) => {
                self.record
                    .note("no repair: the missing members are about to start");
            }
            Ok(plan) => self.continue_with(plan, &given),
            Err(refusal) => self.record.note(&format!("no repair: {refusal}")),
        }
        if looks > 1 {
            self.later(AGAIN, move |world| world.look(looks - 1));
        }
    }

    /// Returns whether the missing members are lost. As the plan instructs, the operator does not give up a member with a process that may
    /// return without help.
    fn are_lost(&self, missing: &BTreeSet<MemberId>) -> bool {
        let soon = self.now.after(FOR_GOOD / 2);
        let mut slots = missing.iter().filter_map(|id| self.slots.get(id));
        slots.all(|slot| slot.is_down() && slot.start_at.is_none_or(|at| at > soon))
    }

    fn continue_with(&mut self, mut plan: RepairPlan, given: &[MemberEvidence]) {
        let answering: BTreeSet<MemberId> = given.iter().map(|one| one.member).collect();
        if self.mutation == Some(Mutation::BelieveAnySet)
            && plan.lost.iter().any(|set| set.is_subset(&answering))
        {
            plan.loss = None;
        }
        if plan.loss.is_some() && self.dice.u32(0..4) == 0 {
            self.record
                .note("the operator brings back those that are missing");
            self.bring_back(&plan.missing);
            return;
        }
        // The operator's clock is the world's clock.
        let clock = match self.mutation {
            Some(Mutation::RepairWithoutAClock) => UNIX_EPOCH,
            _ => UNIX_EPOCH + self.now.elapsed(),
        };
        let repair = Repair {
            after: plan.log_end,
            term: plan.term_at(clock).0,
            loss: plan.loss.is_some(),
        };
        for slot in self.slots.values_mut() {
            slot.repaired = true;
        }
        // The survivor waits for the end of a lease, and asks the members that the repair leaves out again. They may return only after
        // that.
        let timers = &self.shape.timers;
        let done = timers.lease + timers.heartbeat;
        self.repairs_until = self.now.after(done);
        let back = millis(&mut self.dice, 300..4_000);
        self.return_later(done + back, plan.missing.clone());
        self.lose_the_survivor(plan.survivor);
        let Some(process) = self.process(plan.survivor) else {
            return;
        };
        let record = self.record.clone();
        process.spawn(|member| async move {
            record.saw(&Event::Repaired(repair));
            let accepted = plan.loss.as_ref().and_then(|loss| loss.after);
            let outcome = member.repair_quorum(&plan, accepted, clock, "anna").await;
            record.note(&format!(
                "member {} repairs the quorum: {outcome:?}",
                member.id()
            ));
        });
    }

    /// For a mutation, makes the survivor of the first repair fail before it has contacted other members. It returns after the second
    /// repair.
    fn lose_the_survivor(&mut self, survivor: MemberId) {
        let wanted = self.mutation == Some(Mutation::RepairWithoutAClock);
        if !wanted || std::mem::replace(&mut self.survivor_was_lost, true) {
            return;
        }
        self.isolate(survivor, UNHEARD);
        let survivor = BTreeSet::from([survivor]);
        let lost = survivor.clone();
        self.ends_later(UNHEARD, "first survivor".to_owned(), move |world| {
            world.lose(&lost)
        });
        self.return_later(BACK, survivor);
    }

    fn return_later(&mut self, time: Duration, members: BTreeSet<MemberId>) {
        self.ends_later(time, format!("absence of {members:?}"), move |world| {
            world.bring_back(&members);
        });
    }

    fn bring_back(&mut self, missing: &BTreeSet<MemberId>) {
        let now = self.now;
        for id in missing {
            let slot = self.slot(*id);
            if slot.is_down() {
                slot.start_at = Some(now);
            }
        }
    }
}
