//! Scenarios with faults of the disks' space or speed.
//!
//! [`Scenario::Purges`]: a region is cut off for a while. All others purge their logs as the product's members do, as far as the ring no
//! longer needs them. When the region is back it catches up, and leads next.
//!
//! [`Scenario::FullDisks`]: the disks of all members fill together, as with equal sizes and logs. The leader then refuses transactions, and
//! nothing stops: when it fails, another member is elected and serves. Once there is room, commits continue without any restart.
//!
//! [`Scenario::SlowDisk`]: the leader's disk takes longer for a sync than others wait for a leader, under large transactions. The others'
//! disks decide the commits, so that it keeps leading and committing. Then it fails, and the disks of the voters needed for an election are
//! equally slow: a leader is elected nevertheless.
//!
//! [`Scenario::Purges`]: crate::scenario::Scenario::Purges
//! [`Scenario::FullDisks`]: crate::scenario::Scenario::FullDisks
//! [`Scenario::SlowDisk`]: crate::scenario::Scenario::SlowDisk

use std::collections::BTreeSet;
use std::time::Duration;

use consensus::{RingView, region_watermarks};
use raft_types::{MemberId, OpId, Region};

use crate::dice::pick;
use crate::event::Event;
use crate::faults::{Crash, Fault};
use crate::mutation::Mutation;
use crate::shape::Shape;
use crate::tick::Tick;
use crate::workload::Workload;
use crate::world::World;
use crate::world::healing::time_to_commit;
use crate::world::operator::last_file_before;
use crate::world::slot::Slot;

// Purges.

/// How often a region is cut off.
const CUTS: u32 = 2;
/// Interval of each member's purge checks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// Time for a returning region to catch up.
const CATCHES_UP: Duration = Duration::from_secs(8);

/// All members vote, so that every region has a majority, and files are short.
pub(super) fn with_short_files(shape: &mut Shape, workload: &mut Workload) {
    shape.with_databases_only();
    workload.write_pause = Duration::from_millis(40);
    workload.rotate_one_in = 4;
}

impl World {
    pub(super) fn purges(&mut self) {
        let members = self.slots.iter().filter(|(_, slot)| !slot.absent);
        let voting = members.map(|(id, slot)| (*id, slot.setup.record.region.clone()));
        let voting = voting.collect();
        self.record.saw(&Event::Regions { voting });
        for _ in 0..CUTS {
            let calm = Duration::from_millis(self.dice.u64(500..1_500));
            self.steps(calm);
            self.purge_while_a_region_is_away();
            let goal = self.furthest();
            let until = self.now.after(CATCHES_UP);
            while self.goes_on() && self.now < until && !self.everybody_has(goal) {
                self.step();
            }
            let primaries = self.primaries();
            if !primaries.is_empty() {
                let next = *pick(&mut self.dice, &primaries);
                self.promote(next);
            }
        }
    }

    fn purge_while_a_region_is_away(&mut self) {
        let Some((leader, _)) = self.leading_view() else {
            return;
        };
        let regions = self.regions();
        let there: BTreeSet<&Region> = self
            .there()
            .iter()
            .filter_map(|id| regions.get(id))
            .filter(|region| Some(*region) != regions.get(&leader))
            .collect();
        let away: Vec<&Region> = there.into_iter().collect();
        if away.is_empty() {
            return;
        }
        let away = (*pick(&mut self.dice, &away)).clone();
        let (from, to) = self
            .there()
            .into_iter()
            .partition(|id| regions.get(id) == Some(&away));
        let time = Duration::from_millis(self.dice.u64(1_500..4_000));
        self.play(Fault::Cut {
            from,
            to,
            both: true,
            time,
        });
        let absent_after = Duration::from_millis(*pick(&mut self.dice, &[300, 1_000]));
        let until = self.now.after(time);
        while self.goes_on() && self.now < until {
            self.steps(BETWEEN_LOOKS);
            self.purge_what_nobody_needs(absent_after);
        }
    }

    /// Every member purges as far as its leader permits.
    fn purge_what_nobody_needs(&mut self, absent_after: Duration) {
        let past_regions = self.mutation == Some(Mutation::PurgePastRegions);
        let view = self.leading_view().map(|(_, view)| view);
        let own_majority = view.as_ref().and_then(majority_at_home);
        for process in self.slots.values().filter_map(Slot::process) {
            let (record, log) = (self.record.clone(), process.log().clone());
            process.spawn(move |member| async move {
                let floor = match past_regions {
                    true => own_majority,
                    false => {
                        let floor = member.purge_floor(absent_after).await;
                        floor.ok().and_then(|floor| floor.upto)
                    }
                };
                let Some(floor) = floor else { return };
                if let Some(upto) = last_file_before(&log, floor.index).await {
                    let outcome = member.purge(upto).await;
                    record.note(&format!(
                        "member {} purges up to {upto}: {outcome:?}",
                        member.id()
                    ));
                }
            });
        }
    }
}

/// The last entry on a majority of the leader's own region.
fn majority_at_home(view: &RingView) -> Option<OpId> {
    let home = &view.member(view.own)?.record.region;
    let mut regions = region_watermarks(view).into_iter();
    regions.find(|region| region.region == *home)?.majority
}

// Full disks.

/// Space of each disk reserved for the ring's own entries, and for proposals before the leader notices the lack of room. It checks every
/// two heartbeats, up to a second here, in which clients write some 35 kB.
const RESERVE: u64 = 80_000;
/// Room for transactions.
const ROOM: u64 = 4_000;
/// Room below which a disk is full, for clients that write up to a few hundred bytes at a time.
const FULL: u64 = 800;
/// The largest transaction with the log's overhead may no longer fit with less room: the disks that decide may have less than most.
const NEARLY_FULL: u64 = 3_000;
/// Time without writes until a nearly full disk counts as full: clients try permanently.
const NOTHING_FITS: Duration = Duration::from_secs(3);
/// Time for clients to write that much.
const TIME_TO_FILL: Duration = Duration::from_secs(10);
/// How long they keep trying: long enough to fill the reserve, if they were admitted.
const STAYS_FULL: Duration = Duration::from_secs(4);

/// Each log keeps a reserve, and clients write much without ending files.
pub(super) fn with_reserves(shape: &mut Shape, workload: &mut Workload) {
    workload.write_pause = Duration::from_millis(40);
    workload.largest = 600;
    // The room disappears at one moment; transactions in flight then have to fit into the reserve, as designed for the product's.
    workload.largest_of_all = 600;
    workload.rotate_one_in = u32::MAX;
    for member in shape.members.values_mut() {
        member.log.disk_reserve_bytes = RESERVE;
    }
}

impl World {
    pub(super) fn full_disks(&mut self) {
        self.wait_for_leader(None);
        for slot in self.slots.values() {
            slot.setup.disk.leave_room(RESERVE + ROOM);
        }
        let mut last = (0, self.now);
        let full = |now, left: Option<(u64, u128)>| {
            left.is_some_and(|(left, written)| {
                if last.0 != written {
                    last = (written, now);
                }
                left < FULL || left < NEARLY_FULL && now - last.1 >= NOTHING_FITS
            })
        };
        self.wait_until_leader("the disks are not full", TIME_TO_FILL, full);
        if let Some((leader, term)) = self.serving() {
            self.kill(leader);
            self.wait_for_leader(Some(term));
        }
        self.steps(STAYS_FULL);
        let before = self.left_and_written().map_or(0, |(_, written)| written);
        for slot in self.slots.values() {
            slot.setup.disk.set_capacity(None);
        }
        let allowed = time_to_commit(&self.shape);
        let goes_on =
            |_, now: Option<(u64, u128)>| now.is_some_and(|(_, written)| written > before);
        self.wait_until_leader("there is room, and nobody writes", allowed, goes_on);
    }

    /// The room for transactions that more than half of the members have at most, and the entries in the serving member's log. The leader
    /// may have more: logs differed in length when the room was assigned.
    fn left_and_written(&self) -> Option<(u64, u128)> {
        let (leader, _) = self.serving()?;
        let written = self.slots.get(&leader)?.process()?.log().gtid_set().count();
        let running = self.slots.values().filter_map(|slot| slot.process());
        let mut left: Vec<u64> = running
            .map(|process| process.log().stats().left_bytes)
            .collect();
        left.sort_unstable();
        Some((*left.get(left.len() / 2)?, written))
    }

    fn wait_until_leader(
        &mut self,
        otherwise: &str,
        allowed: Duration,
        mut holds: impl FnMut(Tick, Option<(u64, u128)>) -> bool,
    ) {
        let start = self.now;
        loop {
            let seen = self.left_and_written();
            if !self.goes_on() || holds(self.now, seen) {
                return;
            }
            if self.now - start > allowed {
                let (left, written) = seen.unzip();
                let words = format!(
                    "{otherwise}, within {allowed:?}: bytes that are left {left:?}, transactions {written:?}"
                );
                self.record.saw(&Event::Stuck { words });
            }
            self.step();
        }
    }
}

// A slow disk.

/// Queued bytes per disk: some transactions.
pub(super) const QUEUE: u64 = 64 << 10;
/// Maximum bytes of a large transaction; every second one is large.
const LARGE: usize = 40_000;
/// How long a new leader runs without faults before.
const SETTLES: Duration = Duration::from_secs(2);
/// A sync takes this multiple of the longest election.
const SLOWER: u32 = 2;
/// Number of syncs to wait for.
const SYNCS: u32 = 3;
/// Maximum number of syncs until the election of a leader that needs votes from slow disks.
const VOTES: u32 = 12;

/// Clients write large transactions.
pub(super) fn with_large_transactions(workload: &mut Workload) {
    workload.write_pause = Duration::from_millis(60);
    workload.large_one_in = 2;
    workload.largest_of_all = LARGE;
}

impl World {
    pub(super) fn slow_disk(&mut self) {
        self.wait_for_leader(None);
        self.steps(SETTLES);
        self.wait_for_leader(None);
        let Some((leader, term)) = self.serving() else {
            return;
        };
        let sync = self.shape.timers.longest_election() * SLOWER;
        self.record
            .fault(&format!("FAULT a sync of member {leader} takes {sync:?}"));
        self.slow_down(leader, sync);
        let before = self.record.counts().acknowledged;
        let end = self.now.after(sync * SYNCS);
        while self.now < end && self.goes_on() {
            self.step();
            if self.serving() != Some((leader, term)) {
                let words = format!(
                    "member {leader} of term {term:?} serves no more, although its disk is only slow; {}",
                    self.standing()
                );
                self.record.saw(&Event::Stuck { words });
            }
        }
        if self.goes_on() && self.record.counts().acknowledged == before {
            let words = "nothing is committed while the leader's disk is slow".to_owned();
            self.record.saw(&Event::Stuck { words });
        }
        self.slow_down(leader, Duration::ZERO);
        self.slow_voters(sync);
    }

    /// Each sync of a member's disk takes this much longer from now on.
    pub(super) fn slow_down(&self, member: MemberId, by: Duration) {
        if let Some(slot) = self.slots.get(&member) {
            slot.setup.pace.set(by);
        }
    }

    /// The leader fails while the disks of all other voters but one save a vote more slowly than a candidate waits.
    fn slow_voters(&mut self, sync: Duration) {
        self.steps(SETTLES);
        self.wait_for_leader(None);
        let Some((leader, term)) = self.serving() else {
            return;
        };
        let voters = match self.leading_view().map(|(_, view)| view.voter_sets) {
            Some(sets) if sets.len() == 1 => sets.into_iter().flatten(),
            _ => return,
        };
        let runs = |id: &MemberId| self.slots.get(id).is_some_and(Slot::is_running);
        let others: Vec<_> = voters.filter(|id| *id != leader).collect();
        if others.len() < 2 || !others.iter().all(runs) {
            return;
        }
        let slow = &others[1..];
        self.record.fault(&format!(
            "FAULT member {leader} dies while a sync of {slow:?} takes {sync:?}"
        ));
        slow.iter().for_each(|member| self.slow_down(*member, sync));
        self.play(Fault::Crash {
            member: leader,
            crash: Crash::Kill,
            after_calls: 0,
            down: sync * VOTES * 2,
        });
        let end = self.now.after(sync * VOTES);
        while self.goes_on() && self.serving().map(|(_, serves)| serves) <= Some(term) {
            if self.now > end {
                let words = format!(
                    "nobody is elected within {:?} although disks are only slow",
                    sync * VOTES
                );
                self.record.saw(&Event::Stuck { words });
            }
            self.step();
        }
        slow.iter()
            .for_each(|member| self.slow_down(*member, Duration::ZERO));
    }
}
