//! The disk budget with the disk that it is about, for the writer and for those who ask before they propose.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    /// The room beside what waits to be written already. Looks at the disk where it is less than `needed`.
    pub(crate) fn room(&self, needed: u64, queued: u64) -> LogRoom {
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
        counters.left_bytes.store(budget.left(), Relaxed);
        counters.disk_alarm.store(budget.alarm(), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, DiskBudget> {
        // Numbers, each whole at every moment.
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
