//! Faults of single links: one host loses the contact to another one, in one or both directions, while both reach the other hosts. These
//! faults use random numbers of their own, so that the rest of a seed is unchanged. They also give some members other values of
//! `raft.heartbeat` and `raft.lease`, from the beginning or after a restart, as in a rolling change.
//!
//! After the faults, the leader loses the contact to the other voters of one voter set. If these voters and the remaining members have a
//! quorum without the leader, they must elect another leader and commit in time. The first leader still reaches some of them.

use std::collections::BTreeSet;
use std::time::Duration;

use consensus::Timers;
use fastrand::Rng;
use raft_types::{MemberId, MemberKind};

use crate::dice::{millis, pick};
use crate::event::Event;
use crate::faults::{Fault, Stress};
use crate::scenario::Scenario;
use crate::tick::STEP;
use crate::world::World;
use crate::world::healing::time_to_commit;
use crate::world::slot::FOR_GOOD;

/// Mean time between two cuts of a single link.
const BETWEEN_CUTS: Duration = Duration::from_secs(2);
/// Number of leases allowed for an election. In this time the leader without a quorum twice sends calls and twice is silent.
const LEASES_TO_ELECT: u32 = 16;
/// The choices of a seed.
pub(super) struct SingleLinks {
    dice: Rng,
    cuts: bool,
    /// True if members may have different timers.
    timers_differ: bool,
}

impl SingleLinks {
    /// Makes the choices of a seed. `anything`: the run may have these faults.
    pub(super) fn choose(seed: u64, anything: bool) -> Self {
        let mut dice = Rng::with_seed(seed ^ 0x51_1e11_4b5e);
        Self {
            cuts: anything && dice.bool(),
            timers_differ: anything && dice.u32(0..3) == 0,
            dice,
        }
    }
}

impl SingleLinks {
    /// Chooses the timers of a starting member: those of the ring, which are the longest, or shorter ones.
    fn timers(&mut self, longest: Timers, before: Timers) -> Timers {
        if !self.timers_differ || self.dice.u32(0..3) > 0 {
            return before;
        }
        let heartbeat = Duration::from_millis(*pick(&mut self.dice, &[200, 300, 500]));
        Timers::from_heartbeat(heartbeat.min(longest.heartbeat))
    }
}

impl World {
    /// May change the timers of a starting member.
    pub(super) fn change_timers(&mut self, member: MemberId) {
        let (longest, before) = (self.shape.timers, self.slots[&member].setup.timers);
        let timers = self.single_links.timers(longest, before);
        self.slot(member).setup.timers = timers;
    }

    /// Cuts a single link at random times.
    pub(super) fn cut_single_links(&mut self) {
        // In runs with a lost quorum no link is cut, because a returning member must reach the survivor of the repair.
        let may = self.single_links.cuts && self.intensity.stress != Stress::Lost;
        let chance = STEP.as_secs_f64() / BETWEEN_CUTS.as_secs_f64();
        if !may || self.single_links.dice.f64() >= chance {
            return;
        }
        let mut members = self.there();
        let leader = self.leader();
        let dice = &mut self.single_links.dice;
        dice.shuffle(&mut members);
        let of_the_leader = dice.bool();
        let one = leader
            .filter(|_| of_the_leader)
            .or(members.first().copied());
        let other = members.iter().copied().find(|id| Some(*id) != one);
        let (Some(one), Some(other)) = (one, other) else {
            return;
        };
        let (from, to) = match dice.bool() {
            true => (one, other),
            false => (other, one),
        };
        let (both, time) = (dice.bool(), millis(dice, 200..4_000));
        self.play(Fault::cut(vec![from], vec![to], both, time));
    }

    /// Cuts the links between the leader and the other members of one voter set. Another member must lead in time.
    pub(super) fn the_leader_loses_links(&mut self) {
        let mixed = matches!(self.scenario, None | Some(Scenario::Policies));
        if !mixed || !self.single_links.cuts || !self.goes_on() {
            return;
        }
        let Some((leader, view)) = self.leading_view() else {
            return;
        };
        let sets = view.voter_sets;
        let do_without = |set: &BTreeSet<MemberId>| {
            let others = set.iter().filter(|id| **id != leader);
            others.count() > set.len() / 2
        };
        let voters: BTreeSet<MemberId> = sets.iter().flatten().copied().collect();
        let runs = |id: &MemberId| self.runs(*id);
        let is_database = |id: &MemberId| self.slots[id].setup.record.kind == MemberKind::Database;
        let may_lead = voters.iter().any(|id| *id != leader && is_database(id));
        if !may_lead || !sets.iter().all(do_without) || !voters.iter().all(runs) {
            return;
        }
        let set = pick(&mut self.single_links.dice, &sets).clone();
        let lost: Vec<MemberId> = set.into_iter().filter(|id| *id != leader).collect();
        let both = self.single_links.dice.bool();
        self.play(Fault::cut(lost, vec![leader], both, FOR_GOOD));
        let lease = self.shape.timers.lease;
        // In this time the first leader may still serve.
        self.steps(lease * 2);
        let allowed = time_to_commit(&self.shape) + lease * LEASES_TO_ELECT;
        if !self.commits_within(allowed) {
            let words = format!(
                "the leader, member {leader}, has lost sight of a voter set, and no transaction was committed within {allowed:?}; {}",
                self.standing()
            );
            self.record.saw(&Event::Wedged { words });
        }
        self.queue.links(|links| links.heal());
    }
}
