//! The disk budget with the disk that it is about, for the writer and for those who ask before they propose.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use raft_types::LogRoom;

use crate::disk_budget::DiskBudget;
use crate::file_system::FileSystem;
use crate::stats::Counters;

/// See the module.
pub(crate) struct DiskSpace {
    fs: Arc<dyn FileSystem>,
    /// The log's directory.
    dir: PathBuf,
    budget: Mutex<DiskBudget>,
    /// Since when the disk refuses what the writer wants to write.
    refused: Mutex<Option<Instant>>,
    counters: Arc<Counters>,
}

impl DiskSpace {
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        dir: PathBuf,
        budget: DiskBudget,
        counters: Arc<Counters>,
    ) -> Self {
        let space = Self {
            fs,
            dir,
            budget: Mutex::new(budget),
            refused: Mutex::new(None),
            counters,
        };
        space.publish(&space.lock());
        space
    }

    /// The writer is about to write so many bytes.
    pub(crate) fn wrote(&self, bytes: u64) {
        let mut budget = self.lock();
        if budget.wants_look(bytes) {
            self.look(&mut budget);
        }
        budget.wrote(bytes);
        self.publish(&budget);
    }

    /// The log has given so many bytes back.
    pub(crate) fn removed(&self, bytes: u64) {
        let mut budget = self.lock();
        budget.removed(bytes);
        self.publish(&budget);
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        self.lock().log_bytes()
    }

    /// The disk refuses what the writer wants to write, which waits. Whatever the budget says (it does not know of quotas, or of
    /// what only root gets), there is no room for anybody from now on.
    pub(crate) fn refused(&self, doing: &str, error: &io::Error) {
        *self.since() = Some(Instant::now());
        tracing::error!(
            doing,
            %error,
            dir = %self.dir.display(),
            "the log's disk is full: nothing is written and nothing acknowledged until there is space. Purge old files of the log, \
             or free space; no restart is needed"
        );
        let mut budget = self.lock();
        self.look(&mut budget);
        self.publish(&budget);
    }

    /// The disk took what it had refused, or the writer has given up.
    pub(crate) fn accepted(&self, taken: bool) {
        let since = self.since().take();
        let seconds = since.map_or(0.0, |since| since.elapsed().as_secs_f32());
        if taken {
            tracing::info!(
                seconds,
                "the log's disk has room again, and writing goes on"
            );
        }
        let mut budget = self.lock();
        self.look(&mut budget);
        self.publish(&budget);
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_refused(&self) -> bool {
        self.since().is_some()
    }

    /// The room beside what waits to be written already; none while the disk refuses what is written. Looks at the disk where it is less than `needed`.
    pub(crate) fn room(&self, needed: u64, queued: u64) -> LogRoom {
        if self.is_refused() {
            return LogRoom {
                transactions: 0,
                in_all: 0,
            };
        }
        let mut budget = self.lock();
        if needed.saturating_add(queued) > budget.left() {
            self.look(&mut budget);
            self.publish(&budget);
        }
        LogRoom {
            transactions: budget.left().saturating_sub(queued),
            in_all: budget.left_in_all().saturating_sub(queued),
        }
    }

    /// Whether the disk has so much free, looked at now.
    pub(crate) fn has_free(&self, bytes: u64) -> bool {
        let free = self.fs.free_space(&self.dir);
        free.is_ok_and(|free| free >= bytes)
    }

    fn look(&self, budget: &mut DiskBudget) {
        match self.fs.free_space(&self.dir) {
            Ok(free) => budget.looked(free),
            Err(error) => tracing::warn!(%error, "the free space of the log's disk is not known"),
        }
    }

    fn publish(&self, budget: &DiskBudget) {
        let counters = &self.counters;
        counters.log_bytes.store(budget.log_bytes(), Relaxed);
        counters.free_bytes.store(budget.free_now(), Relaxed);
        let refused = self.is_refused();
        let left = if refused { 0 } else { budget.left() };
        counters.left_bytes.store(left, Relaxed);
        counters.disk_refuses.store(refused, Relaxed);
        counters
            .disk_alarm
            .store(refused || budget.alarm(), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, DiskBudget> {
        // Numbers, each whole at every moment.
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
