//! [`Scenario::SlowDisk`]: the leader's own disk takes longer for a sync than others wait for a leader, while clients write large
//! transactions. The others' disks decide the commits, so that nothing is amiss: it goes on leading, and commits.
//!
//! [`Scenario::SlowDisk`]: crate::scenario::Scenario::SlowDisk

use std::time::Duration;

use super::World;
use crate::event::Event;
use crate::workload::Workload;

/// How much may wait for a disk: some transactions.
pub(super) const QUEUE: u64 = 64 << 10;
/// Bytes of a large transaction at most; every second one is large.
const LARGE: usize = 40_000;
/// How long a new leader has the ring to itself before.
const SETTLES: Duration = Duration::from_secs(2);
/// A sync takes so many times the longest election.
const SLOWER: u32 = 2;
/// So many of them are waited for.
const SYNCS: u32 = 3;

/// Clients write much at once.
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
        if let Some(slot) = self.slots.get(&leader) {
            slot.seat.pace.set(sync);
        }
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
    }
}
