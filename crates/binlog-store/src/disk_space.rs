//! The disk budget of a log and the state of its disk. The writer updates both; callers check them before they propose.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use raft_types::LogRoom;
use spilling_bytes::SpillFolder;

use crate::file_system::FileSystem;
use crate::options::StoreOptions;
use crate::stats::Counters;

/// The disk of one log: the log's budget, spilled payloads on the same disk, and refused writes.
pub(crate) struct DiskSpace {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    budget: Mutex<DiskBudget>,
    /// The spilled payloads. Their space is available to the log after they are removed.
    spill: SpillFolder,
    /// Start of the time in which the disk refuses the writer's writes; `None` if it accepts them.
    refused: Mutex<Option<Instant>>,
    counters: Arc<Counters>,
}

impl DiskSpace {
    /// Queries the free space of the disk.
    pub(crate) fn of(
        options: &StoreOptions,
        fs: &Arc<dyn FileSystem>,
        log_bytes: u64,
        counters: &Arc<Counters>,
    ) -> io::Result<Self> {
        let dir = options.log_dir();
        let budget = DiskBudget {
            limit: options.disk_limit_bytes,
            reserve: options.disk_reserve_bytes,
            alarm_percent: options.disk_alarm_percent,
            log_bytes,
            free: fs.free_space(&dir)?,
            ..DiskBudget::default()
        };
        let space = Self {
            fs: fs.clone(),
            dir,
            budget: Mutex::new(budget),
            spill: options.spill.clone(),
            refused: Mutex::new(None),
            counters: counters.clone(),
        };
        space.publish(&space.lock());
        Ok(space)
    }

    /// Records that the writer is about to write this many bytes.
    pub(crate) fn wrote(&self, bytes: u64) {
        let mut budget = self.lock();
        if budget.wants_check(bytes) {
            self.check(&mut budget);
        }
        budget.wrote(bytes);
        self.publish(&budget);
    }

    /// Records that the log has freed this many bytes.
    pub(crate) fn removed(&self, bytes: u64) {
        let mut budget = self.lock();
        budget.removed(bytes);
        self.publish(&budget);
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        self.lock().log_bytes
    }

    /// Records that the disk refuses a write and the writer waits. From now on no caller has room, even if the budget shows some: the
    /// budget does not include quotas or root's reserved blocks.
    pub(crate) fn refused(&self, doing: &str, error: &io::Error) {
        *self.since() = Some(Instant::now());
        let what = match self.has_no_inodes() {
            true => "has no free inodes, whatever space it has",
            false => "is full",
        };
        tracing::error!(
            doing,
            %error,
            dir = %self.dir.display(),
            "the log's disk {what}: nothing is written and nothing acknowledged until there is room. Purge old files of the log, \
             or remove other files; no restart is needed"
        );
        self.check_and_publish(&mut self.lock());
    }

    /// Records that the disk accepted the refused write (`taken`), or that the writer has given up.
    pub(crate) fn accepted(&self, taken: bool) {
        let since = self.since().take();
        let seconds = since.map_or(0.0, |since| since.elapsed().as_secs_f32());
        if taken {
            tracing::info!(
                seconds,
                "the log's disk has room again, and writing continues"
            );
        }
        self.check_and_publish(&mut self.lock());
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_no_inodes(&self) -> bool {
        matches!(self.fs.free_inodes(&self.dir), Ok(Some(0)))
    }

    fn is_refused(&self) -> bool {
        self.since().is_some()
    }

    /// Returns the room that remains after the queued writes; none while the disk refuses writes. If less than `needed` remains, checks the
    /// disk first.
    pub(crate) fn room(&self, needed: u64, queued: u64) -> LogRoom {
        if self.is_refused() {
            return LogRoom {
                transactions: 0,
                in_all: 0,
            };
        }
        let mut budget = self.lock();
        if needed.saturating_add(queued) > budget.left() {
            self.check_and_publish(&mut budget);
        }
        LogRoom {
            transactions: budget.left().saturating_sub(queued),
            in_all: budget.left_in_all().saturating_sub(queued),
        }
    }

    /// True if the disk currently has this much free space; always checks it.
    pub(crate) fn has_free(&self, bytes: u64) -> bool {
        let free = self.fs.free_space(&self.dir);
        free.is_ok_and(|free| free >= bytes)
    }

    fn check(&self, budget: &mut DiskBudget) {
        match self.fs.free_space(&self.dir) {
            Ok(free) => budget.checked(free),
            Err(error) => tracing::warn!(%error, "the free space of the log's disk is not known"),
        }
    }

    fn check_and_publish(&self, budget: &mut DiskBudget) {
        self.check(budget);
        self.publish(budget);
    }

    fn publish(&self, budget: &DiskBudget) {
        let refused = self.is_refused();
        let no_inodes = refused && self.has_no_inodes();
        self.counters.change(|stats| {
            stats.log_bytes = budget.log_bytes;
            stats.free_bytes = budget.free_now();
            stats.left_bytes = if refused { 0 } else { budget.left() };
            stats.disk_refuses = refused;
            stats.no_inodes = no_inodes;
            stats.disk_alarm = refused || budget.alarm();
        });
    }

    fn lock(&self) -> MutexGuard<'_, DiskBudget> {
        // A panic leaves the numbers consistent, so the lock is used even if poisoned.
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        budget.spilled = self.spill.bytes();
        budget
    }
}

// Computes how many bytes the log may still write, without side effects. The caller reports its writes, and queries the free space when
// [`DiskBudget::wants_check`] returns true.
//
// ```text
//   used by the log │ transactions │            reserve             │
//                   │              │ entries in flight │ the ring's │
//                   └ left ────────┤                   │ own entries│
//                   └ left_in_all ─┴───────────────────┤            │
// ```
//
// The budget refuses no entry from the engine: an entry cannot be skipped, so a log that refused one would stop its member. Instead,
// proposers stop at `left`; their entries in flight still fit into the reserve. Streams of entries wait at `left_in_all`. The rest is for
// blank entries of new leaders, memberships and rotations. So if all disks of a ring fill up together, the ring can still elect a leader,
// rotate and purge.

/// The free space is queried again after this many written bytes, because other programs write to the disk, too.
const CHECK_EVERY_BYTES: u64 = 16 << 20;

/// Transactions never use a quarter of the reserve, or this many bytes if that is less. Without transactions, the ring's own entries take
/// years to fill this part.
const OWN_ENTRIES_BYTES: u64 = 16 << 20;

/// The limits of a log and the known disk state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DiskBudget {
    pub(crate) limit: Option<u64>,
    pub(crate) reserve: u64,
    pub(crate) alarm_percent: u8,
    pub(crate) log_bytes: u64,
    /// Free bytes, and bytes in spilled payloads, at the last check.
    pub(crate) free: u64,
    pub(crate) written_since_check: u64,
    /// Current bytes in spilled payloads. They grow by gigabytes between two checks, and are short-lived.
    pub(crate) spilled: u64,
}

impl DiskBudget {
    /// Bytes that may still be proposed.
    pub(crate) fn left(&self) -> u64 {
        let by_limit = self
            .limit
            .map_or(u64::MAX, |limit| limit.saturating_sub(self.log_bytes));
        by_limit.min(self.free_now().saturating_sub(self.reserve))
    }

    /// Bytes of transactions that may still be written, including most of the reserve. The configured limit applies to proposals: entries
    /// that other members propose may exceed it by up to the reserve.
    pub(crate) fn left_in_all(&self) -> u64 {
        let by_limit = self.limit.map_or(u64::MAX, |limit| {
            limit
                .saturating_add(self.reserve)
                .saturating_sub(self.log_bytes)
        });
        let own_entries = (self.reserve / 4).min(OWN_ENTRIES_BYTES);
        by_limit.min(self.free_now()).saturating_sub(own_entries)
    }

    /// Whether to check the free space before writing this many bytes.
    pub(crate) fn wants_check(&self, needed: u64) -> bool {
        self.written_since_check + needed >= CHECK_EVERY_BYTES || needed > self.left()
    }

    /// Records the free space that the file system just reported.
    pub(crate) fn checked(&mut self, free: u64) {
        self.free = free + self.spilled;
        self.written_since_check = 0;
    }

    pub(crate) fn wrote(&mut self, bytes: u64) {
        self.log_bytes += bytes;
        self.written_since_check += bytes;
    }

    pub(crate) fn removed(&mut self, bytes: u64) {
        self.log_bytes = self.log_bytes.saturating_sub(bytes);
    }

    /// True if usage has reached the alarm percentage of the limit, or of the space outside the reserve.
    pub(crate) fn alarm(&self) -> bool {
        let used = |used: u64, of: u64| {
            u128::from(used) * 100 >= u128::from(of) * u128::from(self.alarm_percent)
        };
        let limit = self.limit.is_some_and(|limit| used(self.log_bytes, limit));
        // The space is the log's size plus its possible growth once spilled payloads are removed.
        let space = (self.log_bytes + self.free_now() + self.spilled).saturating_sub(self.reserve);
        limit || used(self.log_bytes, space)
    }

    pub(crate) fn free_now(&self) -> u64 {
        self.free
            .saturating_sub(self.written_since_check)
            .saturating_sub(self.spilled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(
        limit: Option<u64>,
        reserve: u64,
        alarm_percent: u8,
        log_bytes: u64,
        free: u64,
    ) -> DiskBudget {
        DiskBudget {
            limit,
            reserve,
            alarm_percent,
            log_bytes,
            free,
            ..DiskBudget::default()
        }
    }

    #[test]
    fn the_tighter_bound_counts() {
        let mut budget = disk(Some(1_000), 100, 90, 200, 700);
        assert_eq!(budget.left(), 600);
        budget.wrote(500);
        assert_eq!(
            (budget.left(), budget.log_bytes, budget.free_now()),
            (100, 700, 200)
        );
        budget.checked(5_000);
        assert_eq!(budget.left(), 300);
        budget.removed(400);
        assert_eq!(budget.left(), 700);
    }

    #[test]
    fn spilled_payloads_take_room_whenever_the_disk_was_checked() {
        let mut budget = disk(None, 100, 90, 0, 1_000);
        budget.spilled = 300; // since the check
        assert_eq!(budget.left(), 600);
        budget.checked(700);
        assert_eq!(budget.left(), 600);
        budget.spilled = 0;
        assert_eq!(budget.left(), 900);
        budget.spilled = 2_000;
        assert_eq!(budget.left(), 0);
    }

    #[test]
    fn proposed_entries_fit_the_reserve_and_leave_the_rings_own_part() {
        // Limit, reserve, used, free: left, left in all.
        for (limit, reserve, used, free, left, in_all) in [
            (None, 0, 500, 300, 300, 300),
            (None, 100, 500, 300, 200, 275),
            (None, 100, 500, 100, 0, 75),
            (None, 100, 500, 20, 0, 0),
            (Some(600), 100, 500, 1_000, 100, 175),
            (Some(600), 100, 600, 1_000, 0, 75),
            (Some(600), 100, 690, 1_000, 0, 0),
            (Some(600), 0, 600, 1_000, 0, 0),
            (Some(600), 100, 600, 50, 0, 25),
            (None, 1 << 30, 0, 1 << 30, 0, (1 << 30) - (16 << 20)),
        ] {
            let budget = disk(limit, reserve, 90, used, free);
            assert_eq!(
                (budget.left(), budget.left_in_all()),
                (left, in_all),
                "{budget:?}"
            );
        }
    }

    #[test]
    fn the_alarm_is_raised_before_the_room_ends() {
        let mut budget = disk(Some(1_000), 0, 90, 899, 1 << 40);
        assert!(!budget.alarm());
        budget.wrote(1);
        assert!(budget.alarm() && budget.left() == 100);
        let mut budget = disk(None, 100, 90, 0, 1_100);
        budget.wrote(899);
        assert!(!budget.alarm());
        budget.wrote(1);
        assert!(budget.alarm() && budget.left() == 100);
    }

    #[test]
    fn the_disk_is_checked_before_refusing_and_periodically() {
        let mut budget = disk(None, 0, 90, 0, 1 << 40);
        assert!(!budget.wants_check(1_000));
        budget.wrote(CHECK_EVERY_BYTES);
        assert!(budget.wants_check(0));
        budget.checked(10);
        assert!(!budget.wants_check(10) && budget.wants_check(11));
    }
}
