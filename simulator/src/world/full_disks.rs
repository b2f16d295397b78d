//! [`Scenario::FullDisks`]: the disks of all members fill together, as they do where all are of one size and have the same log.
//! The leader refuses transactions then, and nothing stops: when it dies, somebody else is elected and serves, and once there is
//! room commits go on, without a restart of anybody.
//!
//! [`Scenario::FullDisks`]: crate::scenario::Scenario::FullDisks

use std::time::Duration;

use super::World;
use super::healing::time_to_commit;
use crate::event::Event;
use crate::shape::Shape;
use crate::workload::Workload;

/// What is kept of each disk for the ring's own entries.
const RESERVE: u64 = 40_000;
/// What transactions get.
const ROOM: u64 = 4_000;
/// Less than this is a full disk, for clients who write up to a few hundred bytes at a time.
const FULL: u64 = 800;
/// How long clients may take to write that much.
const TIME_TO_FILL: Duration = Duration::from_secs(10);
/// How long they go on trying: long enough for the reserve, if they were let in.
const STAYS_FULL: Duration = Duration::from_secs(4);

/// Each log keeps a reserve, and clients write much and end no files.
pub(super) fn with_reserves(shape: &mut Shape, workload: &mut Workload) {
    workload.write_pause = Duration::from_millis(40);
    workload.largest = 600;
    workload.rotate_one_in = u32::MAX;
    for member in shape.members.values_mut() {
        member.log.disk_reserve_bytes = RESERVE;
    }
}

impl World {
    pub(super) fn full_disks(&mut self) {
        self.wait_for_leader(None);
        for slot in self.slots.values() {
            slot.seat.disk.leave_room(RESERVE + ROOM);
        }
        let full = |left: Option<(u64, u128)>| left.is_some_and(|(left, _)| left < FULL);
        self.wait_until_leader("the disks are not full", TIME_TO_FILL, full);
        if let Some((leader, term)) = self.serving() {
            self.kill(leader);
            self.wait_for_leader(Some(term));
        }
        self.steps(STAYS_FULL);
        let before = self.left_and_written().map_or(0, |(_, written)| written);
        for slot in self.slots.values() {
            slot.seat.disk.set_capacity(None);
        }
        let allowed = time_to_commit(&self.shape);
        let goes_on = |now: Option<(u64, u128)>| now.is_some_and(|(_, written)| written > before);
        self.wait_until_leader("there is room, and nobody writes", allowed, goes_on);
    }

    /// What more than half of the members have no more than for transactions, and how many the log of whoever serves has. The
    /// leader may have more left: logs were not equally long when the room was given out.
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
        holds: impl Fn(Option<(u64, u128)>) -> bool,
    ) {
        let start = self.now;
        while self.goes_on() && !holds(self.left_and_written()) {
            if self.now - start > allowed {
                let words = format!("{otherwise}, within {allowed:?}");
                self.record.saw(&Event::Stuck { words });
            }
            self.step();
        }
    }
}
