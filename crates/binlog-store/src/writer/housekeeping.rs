//! The writer's thread and its idle work: it drops purged entries, removes purged files and stores hints.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{io, panic};

use raft_types::OpId;

use crate::error::{Doing, StoreError};
use crate::hard_state::{COMMITTED, DURABLE, DurableMark, UNSYNCED};
use crate::log::LogFile;
use crate::options::Durability;
use crate::writer::log_writer::{LogWriter, lock};
use crate::writer::queue::{CommandQueue, Taken};

impl LogWriter {
    /// Drops the entries up to `upto`. If that is beyond the log's end, the log restarts after it, as after a snapshot.
    pub(super) fn purge(&mut self, upto: OpId) -> Result<(), StoreError> {
        // The floor is stored durably, so the entries up to it must be durable first. Otherwise, after a power cut, the log might have to
        // restart after the floor without their GTIDs.
        if self.log.view.lock().synced.map(|synced| synced.index) < Some(upto.index) {
            self.sync_written()?;
        }
        let Some(beyond_end) = self.purger.forget(&self.hard, upto)? else {
            return Ok(());
        };
        if beyond_end {
            // The new file begins after an entry that the log does not have. The files before it are removed.
            self.state.last = Some(upto);
            let header = self.state.header.clone();
            self.begin_next(&header.format_description, header.timestamp)?;
        }
        self.purger.drop_files()
    }
}

/// Minimum interval between hints while the writer has idle periods.
const HINTS_EVERY: Duration = Duration::from_secs(1);
/// Maximum interval between hints under uninterrupted load.
const HINTS_AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// The writer is idle after this long without a command.
const IDLE_AFTER: Duration = Duration::from_millis(20);

/// Longest interval between removals of purged files under load; the interval is shorter if more files wait. Without such removals, purged
/// files would fill the disk under uninterrupted load.
const REMOVE_AT_LEAST_EVERY: Duration = Duration::from_secs(1);
/// Shortest interval between removals: removing a large file takes time, and writes wait for it.
const REMOVE_AT_MOST_EVERY: Duration = Duration::from_millis(100);

/// Returns how long to continue writing before the next purged file is removed; `left` files remain.
fn pause_between_removals(left: usize) -> Duration {
    let share = u32::try_from(left).unwrap_or(u32::MAX).max(1);
    (REMOVE_AT_LEAST_EVERY / share).max(REMOVE_AT_MOST_EVERY)
}

/// A writer without a thread has no clock and no idle time, so it counts: hints are stored after this many nudges.
const INLINE_HINTS_EVERY: u64 = 8;

/// Serves a queue until it is closed and empty: the writer's thread. It locks the writer only while working, so that others may use it
/// while it is idle.
///
/// After a panic, an operation is half done in an unknown state. So the writer stops writing and notifies waiting callers, as after a disk
/// failure. If the thread just ended, all callers would wait indefinitely.
pub(crate) fn serve(writer: &Mutex<LogWriter>, queue: &CommandQueue) {
    loop {
        let patience = lock(writer).patience();
        match queue.take(patience) {
            Taken::Commands(commands) => {
                let bytes = commands.iter().map(crate::writer::Command::memory).sum();
                at_work(writer, |writer| writer.run(commands));
                queue.release(bytes);
                at_work(writer, |writer| {
                    writer.clear_a_leftover_that_is_due();
                    if writer.last_hints.elapsed() >= HINTS_AT_LEAST_EVERY {
                        writer.tidy(LogWriter::save_hints);
                    }
                });
            }
            Taken::Nudged => at_work(writer, |writer| {
                writer.tidy(|writer| writer.purger.drop_files());
                writer.clear_a_leftover_that_is_due();
            }),
            Taken::Idle => at_work(writer, |writer| {
                writer.tidy(LogWriter::clear_one_leftover);
                if writer.last_hints.elapsed() >= HINTS_EVERY {
                    writer.tidy(LogWriter::save_hints);
                }
            }),
            Taken::Closed => {
                lock(writer).close();
                return;
            }
        }
    }
}

fn at_work(writer: &Mutex<LogWriter>, work: impl FnOnce(&mut LogWriter)) {
    let mut writer = lock(writer);
    let done = panic::catch_unwind(AssertUnwindSafe(|| work(&mut writer)));
    if done.is_err() {
        let error = io::Error::other("its writer has panicked");
        writer.fail(StoreError::io("writing the log", &error));
    }
}

impl LogWriter {
    /// How long to wait for commands before housekeeping; indefinitely if none is due.
    fn patience(&self) -> Option<Duration> {
        let (files, index) = self.purger.has_leftovers();
        if files > 0 {
            return Some(IDLE_AFTER);
        }
        if index {
            return Some(HINTS_EVERY);
        }
        let remaining = HINTS_EVERY.saturating_sub(self.last_hints.elapsed());
        let saved = (self.state.saved_committed, self.state.saved_mark);
        (self.check().is_ok() && self.hints() != saved).then_some(remaining.max(IDLE_AFTER))
    }

    /// Immediately does all deferrable work.
    pub(crate) fn catch_up(&mut self) {
        self.tidy(|writer| {
            writer.purger.drop_files()?;
            while writer.purger.remove_one_file()? {}
            Ok(())
        });
    }

    /// Removes one purged file, or retries a failed write of the index.
    fn clear_one_leftover(&mut self) -> Result<(), StoreError> {
        let removed = self.purger.remove_one_file()?;
        self.last_removal = Instant::now();
        match removed {
            true => Ok(()),
            false => self.purger.drop_files(),
        }
    }

    /// Removes one purged file if the interval since the last removal has passed. Called under uninterrupted load.
    fn clear_a_leftover_that_is_due(&mut self) {
        let (files, index) = self.purger.has_leftovers();
        if (files > 0 || index) && self.last_removal.elapsed() >= pause_between_removals(files) {
            self.tidy(Self::clear_one_leftover);
        }
    }

    /// Handles a committed entry or a released hold if the writer has no thread. Stores the hints after every eighth call, and does all
    /// deferrable work.
    pub(crate) fn nudged_inline(&mut self) {
        self.inline_hints += 1;
        if self.inline_hints.is_multiple_of(INLINE_HINTS_EVERY) {
            self.tidy(Self::save_hints);
        }
        self.catch_up();
    }

    /// Performs the writer's last action: settles everything and stores the hints.
    pub(crate) fn close(&mut self) {
        self.settle().ok();
        self.catch_up();
        self.tidy(Self::sync_written);
        self.tidy(Self::save_hints);
        self.tidy(Self::end_unsynced_run);
    }

    /// Records that everything is synced, and no more will be written.
    fn end_unsynced_run(&mut self) -> Result<(), StoreError> {
        // If the record stays, the next start treats the present entries as unsynced. That is safe, so the removal does not wait for room.
        if !self.state.unsynced_run || self.purger.hard_state_is_full() {
            return Ok(());
        }
        let ended = self.hard.store(UNSYNCED, None);
        ended.doing("storing that everything is synced")?;
        self.state.unsynced_run = false;
        Ok(())
    }

    fn tidy(&mut self, work: impl FnOnce(&mut Self) -> Result<(), StoreError>) {
        if self.check().is_ok()
            && let Err(error) = work(self)
        {
            let error = self.fail(error);
            tracing::error!(%error, "the log's writer stops");
        }
    }

    /// The committed and durable op ids to store now. A committed entry that is not yet synced here is left out: after a power cut, the log
    /// must have the entry that the hard state names.
    fn hints(&self) -> (Option<OpId>, Option<DurableMark>) {
        let view = self.log.view.lock();
        let committed = view
            .committed
            .min(view.synced)
            .max(self.state.saved_committed);
        let durable = view.files.back().and_then(LogFile::durable_mark);
        (
            committed,
            durable
                .filter(|_| self.log.options.durability == Durability::Fsync)
                .or(self.state.saved_mark),
        )
    }

    /// Stores the committed op id and the durable mark.
    pub(super) fn save_hints(&mut self) -> Result<(), StoreError> {
        self.last_hints = Instant::now();
        // Large entries that were not committed when they became durable may be committed by now. They need not stay in memory.
        self.log.view.lock().evict();
        // The hints may be outdated, so they do not wait for room.
        if self.purger.hard_state_is_full() {
            return Ok(());
        }
        let (committed, mark) = self.hints();
        let doing = "storing the committed op id";
        let mut changed = false;
        if committed.is_some() && committed != self.state.saved_committed {
            self.hard.put(COMMITTED, committed.as_ref()).doing(doing)?;
            self.state.saved_committed = committed;
            changed = true;
        }
        if mark != self.state.saved_mark {
            self.hard.put(DURABLE, mark.as_ref()).doing(doing)?;
            self.state.saved_mark = mark;
            changed = true;
        }
        if changed {
            self.hard.meta.flush().doing(doing)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_are_more_frequent_with_more_purged_files() {
        let pauses = [0, 1, 4, 10, 1_000, usize::MAX].map(pause_between_removals);
        let millis = pauses.map(|pause| pause.as_millis());
        assert_eq!(millis, [1_000, 1_000, 250, 100, 100, 100]);
    }
}
