//! Scenarios in which disks are full or slow, or logs are purged.
//!
//! [`Scenario::Purges`]: a region is cut off for some time. All other members purge their logs as in the product, up to the entries that
//! the ring still needs. After its return, the region catches up, and leads next.
//!
//! [`Scenario::FullDisks`]: the disks of all members become full at the same time, as disks of equal size do. The leader then refuses
//! transactions, and no member stops. If the leader fails, another member is elected and serves. After space is freed, commits continue
//! without a restart.
//!
//! [`Scenario::SlowDisk`]: a sync of the leader's disk takes longer than the election timeout, and transactions are large. The other
//! members' disks decide the commits, so that the leader keeps leading and committing. Then the leader fails, and the disks of voters that
//! are needed for an election are as slow. A leader must be elected nevertheless.
//!
//! [`Scenario::Purges`]: crate::scenario::Scenario::Purges
//! [`Scenario::FullDisks`]: crate::scenario::Scenario::FullDisks
//! [`Scenario::SlowDisk`]: crate::scenario::Scenario::SlowDisk

use std::collections::BTreeSet;
use std::time::Duration;

use consensus::quorum::region_quorums;
use consensus::{RingView, Term};
use raft_types::{MemberId, OpId, Region};

use crate::dice::{millis, pick, pick_some};
use crate::event::Event;
use crate::faults::{Crash, Fault};
use crate::mutation::Mutation;
use crate::shape::Shape;
use crate::workload::Workload;
use crate::world::World;
use crate::world::healing::time_to_commit;
use crate::world::operator::purge_files;
use crate::world::slot::Slot;

// Purges.

/// Interval at which each member checks what it can purge.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// Time limit for a returning region to catch up.
const CATCHES_UP: Duration = Duration::from_secs(8);

/// Makes all members voters, so that each region has a majority, and makes log files short.
pub(super) fn with_short_files(shape: &mut Shape, workload: &mut Workload) {
    shape.with_databases_only();
    workload.write_pause = Duration::from_millis(40);
    workload.rotate_one_in = 4;
}

impl World {
    pub(super) fn report_the_regions(&mut self) {
        let members = self.slots.iter().filter(|(_, slot)| !slot.absent);
        let voting = members.map(|(id, slot)| (*id, slot.setup.record.region.clone()));
        let voting = voting.collect();
        self.record.saw(&Event::Regions { voting });
    }

    /// Cuts a region off while the other members purge. Afterwards the region must catch up, and lead next.
    pub(super) fn purge_without_a_region(&mut self) {
        let calm = millis(&mut self.dice, 500..1_500);
        self.steps(calm);
        self.purge_while_a_region_is_away();
        let goal = self.furthest();
        self.happens_within(CATCHES_UP, |world| world.everybody_has(goal));
        let primaries = self.primaries();
        if let Some(next) = pick_some(&mut self.dice, &primaries) {
            self.promote(next);
        }
    }

    fn purge_while_a_region_is_away(&mut self) {
        let Some(leader) = self.leader() else {
            return;
        };
        let regions = self.regions();
        let there = self.there().into_iter();
        let there: BTreeSet<Region> = there.filter_map(|id| regions.get(&id).cloned()).collect();
        let mut away: Vec<Region> = there.into_iter().collect();
        away.retain(|region| Some(region) != regions.get(&leader));
        if away.is_empty() {
            return;
        }
        let away = pick(&mut self.dice, &away).clone();
        let is_away = |id: &MemberId| regions.get(id) == Some(&away);
        let (from, to) = self.there().into_iter().partition(is_away);
        let time = millis(&mut self.dice, 1_500..4_000);
        self.play(Fault::Cut(from, to, time));
        let absent_after = Duration::from_millis(*pick(&mut self.dice, &[300, 1_000]));
        let until = self.now.after(time);
        while self.goes_on() && self.now < until {
            self.steps(BETWEEN_LOOKS);
            self.purge_unneeded_files(absent_after);
        }
    }

    /// Makes each member purge as much as its leader permits.
    fn purge_unneeded_files(&mut self, absent_after: Duration) {
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
                if let Some(floor) = floor {
                    purge_files(member, log, floor.index, record).await;
                }
            });
        }
    }
}

/// Returns the last entry that a majority of the leader's region has.
fn majority_at_home(view: &RingView) -> Option<OpId> {
    let home = &view.member(view.own)?.record.region;
    let mut regions = region_quorums(view).into_iter();
    let at_home = regions.find(|region| region.region == *home)?;
    at_home.held_by_majority
}

// Full disks.

/// Reserved space of each disk. It is for the ring's own entries, and for proposals that the leader accepts before it notices that space is
/// short. The leader checks every two heartbeats, at most a second here, in which clients write about 35 kB.
const RESERVE: u64 = 80_000;
/// Space for transactions, in bytes.
const ROOM: u64 = 4_000;
/// A disk with less space than this is full. Clients write up to a few hundred bytes at a time.
const FULL: u64 = 800;
/// With less space than this, the largest transaction with the log's overhead may not fit. The disks that decide may have less space than
/// most disks.
const NEARLY_FULL: u64 = 3_000;
/// If no transaction was written for this time, a nearly full disk counts as full, because clients always try.
const NOTHING_FITS: Duration = Duration::from_secs(3);
/// Time limit for clients to fill the space.
const TIME_TO_FILL: Duration = Duration::from_secs(10);
/// How long clients continue to try. If their transactions were accepted, these would fill the reserve in that time.
const STAYS_FULL: Duration = Duration::from_secs(4);

/// Gives each log a reserve, and makes clients write much without ending log files.
pub(super) fn with_reserves(shape: &mut Shape, workload: &mut Workload) {
    workload.write_pause = Duration::from_millis(40);
    workload.largest = 600;
    // The space is limited at one moment, and then the transactions in flight must fit into the reserve. In the product, the reserve has
    // room for them.
    workload.largest_of_all = 600;
    workload.rotate_one_in = u32::MAX;
    for member in shape.members.values_mut() {
        member.log.disk_reserve_bytes = RESERVE;
    }
}

impl World {
    pub(super) fn disks_fill(&mut self) {
        for slot in self.slots.values() {
            slot.setup.disk.leave_room(RESERVE + ROOM);
        }
        let mut last = (0, self.now);
        self.wait_until("the disks are not full", TIME_TO_FILL, |world| {
            let Some((left, written)) = world.left_and_written() else {
                return false;
            };
            if last.0 != written {
                last = (written, world.now);
            }
            left < FULL || left < NEARLY_FULL && world.now - last.1 >= NOTHING_FITS
        });
    }

    pub(super) fn the_leader_fails(&mut self) {
        if let Some((leader, term)) = self.serving() {
            self.kill(leader);
            self.wait_for_leader(Some(term));
        }
    }

    pub(super) fn disks_stay_full_for_a_while(&mut self) {
        self.steps(STAYS_FULL);
        let before = self.left_and_written().map_or(0, |(_, written)| written);
        for slot in self.slots.values() {
            slot.setup.disk.set_capacity(None);
        }
        let allowed = time_to_commit(&self.shape);
        self.wait_until("there is room, and no client writes", allowed, |world| {
            world
                .left_and_written()
                .is_some_and(|(_, written)| written > before)
        });
    }

    /// Returns the median of the members' space for transactions, and the number of transactions in the serving member's log. The leader
    /// may have more space, because the logs differed in length when the space was limited.
    fn left_and_written(&self) -> Option<(u64, u128)> {
        let (leader, _) = self.serving()?;
        let written = self.process(leader)?.log().gtid_set().count();
        let running = self.slots.values().filter_map(|slot| slot.process());
        let mut left: Vec<u64> = running
            .map(|process| process.log().stats().left_bytes)
            .collect();
        left.sort_unstable();
        Some((*left.get(left.len() / 2)?, written))
    }
}

// A slow disk.

/// Limit of the bytes queued for a disk: some transactions.
pub(super) const QUEUE: u64 = 64 << 10;
/// Maximum size of a large transaction in bytes. Every second transaction is large.
const LARGE: usize = 40_000;
/// How long a new leader runs without faults before its disk becomes slow.
const SETTLES: Duration = Duration::from_secs(2);
/// A sync of a slow disk takes this multiple of the longest election timeout.
const SLOWER: u32 = 2;
/// Number of slow syncs during which the leader must keep leading.
const SYNCS: u32 = 3;
/// Number of slow syncs within which a leader must be elected.
const VOTES: u32 = 12;

/// Makes clients write large transactions.
pub(super) fn with_large_transactions(workload: &mut Workload) {
    workload.write_pause = Duration::from_millis(60);
    workload.large_one_in = 2;
    workload.largest_of_all = LARGE;
}

impl World {
    /// Makes the leader's disk slow. The leader must keep leading and committing.
    pub(super) fn slow_leader(&mut self) {
        let Some((leader, term)) = self.settled_leader() else {
            return;
        };
        let sync = self.slow_sync();
        self.record
            .fault(&format!("FAULT a sync of member {leader} takes {sync:?}"));
        self.slow_down(leader, sync);
        let before = self.record.counts().acknowledged;
        let changes = |world: &mut Self| world.serving() != Some((leader, term));
        if self.happens_within(sync * SYNCS, changes) && self.goes_on() {
            self.stuck(&format!(
                "member {leader} of term {term:?} serves no more, although its disk is only slow"
            ));
        }
        if self.goes_on() && self.record.counts().acknowledged == before {
            self.stuck("nothing is committed while the leader's disk is slow");
        }
        self.slow_down(leader, Duration::ZERO);
    }

    fn slow_sync(&self) -> Duration {
        self.shape.timers.longest_election() * SLOWER
    }

    fn settled_leader(&mut self) -> Option<(MemberId, Term)> {
        self.wait_for_leader(None);
        self.steps(SETTLES);
        self.wait_for_leader(None);
        self.serving()
    }

    /// Makes each sync of a member's disk take longer by this duration.
    pub(super) fn slow_down(&self, member: MemberId, by: Duration) {
        self.slots[&member].setup.pace.set(by);
    }

    /// Kills the leader. On all other voters except one, storing a vote takes longer than a candidate waits.
    pub(super) fn slow_voters(&mut self) {
        let Some((leader, term)) = self.settled_leader() else {
            return;
        };
        let sync = self.slow_sync();
        let voters = match self.leading_view().map(|(_, view)| view.voter_sets) {
            Some(sets) if sets.len() == 1 => sets.into_iter().flatten(),
            _ => return,
        };
        let others: Vec<_> = voters.filter(|id| *id != leader).collect();
        if others.len() < 2 || !others.iter().all(|id| self.runs(*id)) {
            return;
        }
        let slow = &others[1..];
        self.record.fault(&format!(
            "FAULT member {leader} dies while a sync of {slow:?} takes {sync:?}"
        ));
        slow.iter().for_each(|member| self.slow_down(*member, sync));
        self.play(Fault::crash(leader, Crash::Kill, sync * VOTES * 2));
        let otherwise = "no leader is elected although disks are only slow";
        self.wait_until(otherwise, sync * VOTES, |world| {
            world.serving().map(|(_, serves)| serves) > Some(term)
        });
        for member in slow {
            self.slow_down(*member, Duration::ZERO);
        }
    }
}
