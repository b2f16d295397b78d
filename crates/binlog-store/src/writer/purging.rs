//! Purges old entries: the floor is stored first, then files entirely below it are dropped from the index, then removed. A crash in between
//! leaves files that the next start removes.

use std::io;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use raft_types::OpId;

use crate::error::{Doing, StoreError, is_full};
use crate::format::FileNumber;
use crate::hard_state::{FLOOR, HardState, PurgeFloor};
use crate::log::{LogFile, OpenLog};
use crate::writer::new_file::write_index;
use crate::writer::queue::CommandQueue;

/// Returns how many of the oldest files can be removed: those that end at or before the floor, and before every hold. The last file always
/// stays.
fn count_removable<'a>(
    files: impl Iterator<Item = &'a LogFile>,
    floor: Option<OpId>,
    lowest_hold: Option<u64>,
) -> usize {
    let Some(floor) = floor else { return 0 };
    let needed = |file: &LogFile| {
        let last = file.last_or_before();
        !file.closed
            || last.is_none_or(|last| last.index > floor.index)
            || lowest_hold.is_some_and(|hold| last.is_some_and(|last| last.index >= hold))
    };
    files.take_while(|file| !needed(file)).count()
}

/// Work to do for files that the log no longer has.
#[derive(Default)]
struct Leftovers {
    removals: Vec<FileNumber>,
    /// Whether the index lists purged files. A start accepts such an index and rewrites it.
    stale_index: bool,
}

/// Purges entries and frees the room of their files. Its own writes do not wait for room, because the writer may be waiting for the room
/// that a purge frees.
pub(crate) struct Purger {
    log: Arc<OpenLog>,
    left_over: Mutex<Leftovers>,
}

impl Purger {
    pub(crate) fn new(log: Arc<OpenLog>) -> Self {
        let left_over = Mutex::default();
        Self { log, left_over }
    }

    fn left_over(&self) -> MutexGuard<'_, Leftovers> {
        // A list and a flag: a panic leaves each consistent, so the lock is used even if poisoned.
        self.left_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the hard state's disk is full.
    pub(super) fn hard_state_is_full(&self) -> bool {
        self.log
            .hard
            .meta
            .reserve()
            .is_err_and(|error| is_full(&error))
    }

    /// Number of files to remove, and whether to write the index.
    pub(super) fn has_leftovers(&self) -> (usize, bool) {
        let left_over = self.left_over();
        (left_over.removals.len(), left_over.stale_index)
    }

    /// Clears the list after the files were removed elsewhere.
    pub(super) fn forget_leftovers(&self) {
        *self.left_over() = Leftovers::default();
    }

    /// Stores that the entries up to `upto` are purged; returns whether `upto` is after the log's end. `None` if they were already purged.
    pub(super) fn forget(&self, hard: &HardState, upto: OpId) -> Result<Option<bool>, StoreError> {
        let (floor, beyond_end) = {
            let view = self.log.view.lock();
            if view.floor_op_id() >= Some(upto) {
                return Ok(None);
            }
            let membership = view.memberships.at(upto.index).cloned();
            let beyond_end = view.last().is_none_or(|last| last.index < upto.index);
            (
                PurgeFloor {
                    op_id: upto,
                    membership,
                },
                beyond_end,
            )
        };
        let saved = hard.store(FLOOR, Some(&floor));
        saved.doing("storing the purge floor")?;
        self.log.view.lock().purge(floor);
        Ok(Some(beyond_end))
    }

    /// Drops unneeded files from the log; they are removed later. If the disk has no room for the shorter index, the files are removed
    /// first. The index is written once there is room.
    pub(super) fn drop_files(&self) -> Result<(), StoreError> {
        let (gone, stay) = self.removable();
        if gone.is_empty() && !self.left_over().stale_index {
            return Ok(());
        }
        let stale_index = match write_index(&*self.log.fs, &self.log.dir, stay) {
            Ok(()) => false,
            Err(error) if is_full(&error) => true,
            Err(error) => return Err(StoreError::io("writing the index", &error)),
        };
        self.left_over().stale_index = stale_index;
        self.forget_files(gone);
        Ok(())
    }

    /// Returns the files to remove, and the files that stay.
    fn removable(&self) -> (Vec<FileNumber>, Vec<FileNumber>) {
        let view = self.log.view.lock();
        let hold = view.holds.values().min().copied();
        let count = count_removable(view.files.iter(), view.floor_op_id(), hold);
        let mut numbers: Vec<FileNumber> = view.files.iter().map(LogFile::number).collect();
        let stay = numbers.split_off(count);
        (numbers, stay)
    }

    fn forget_files(&self, gone: Vec<FileNumber>) {
        for _ in &gone {
            if let Some(file) = self.log.view.lock().files.pop_front() {
                self.log.space.removed(file.end);
            }
        }
        self.left_over().removals.extend(gone);
    }

    /// Removes one file that the log no longer has; returns whether there was one.
    pub(super) fn remove_one_file(&self) -> Result<bool, StoreError> {
        let Some(number) = self.left_over().removals.first().copied() else {
            return Ok(false);
        };
        match self.log.fs.remove(&self.log.dir.join(number.name())) {
            // A copy-on-write file system may need room to remove a file.
            Err(error) if is_full(&error) => return Ok(false),
            // The file was already removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed
                .and_then(|()| self.log.fs.sync_dir(&self.log.dir))
                .doing(format_args!("removing {number}"))?,
        }
        self.left_over().removals.remove(0);
        Ok(true)
    }

    /// Frees room while the writer waits for it: serves queued purges, and immediately removes unneeded files. The index is written later,
    /// and lists purged files until then.
    pub(super) fn make_room(&self, queue: &CommandQueue) -> Result<(), StoreError> {
        if self.log.hard.meta.reserve().is_ok() {
            let synced = self.log.view.lock().synced;
            for (upto, done) in queue.take_purges(synced) {
                let forgotten = self.forget(&self.log.hard, upto).map(|_| ());
                done.send(forgotten.clone()).ok();
                forgotten?;
            }
        }
        let (gone, _) = self.removable();
        if !gone.is_empty() {
            self.left_over().stale_index = true;
            self.forget_files(gone);
        }
        while self.remove_one_file()? {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::format::{FileHeader, encode_file_header};
    use binlog_format::events::FormatDescription;
    use binlog_format::gtid::GtidSet;
    use raft_types::RingId;

    /// Three files: entries 0 to 9 and 10 to 19 closed, 20 to 24 current.
    fn files() -> Vec<LogFile> {
        let file = |number: u64, first: u64, last: u64| {
            let mut header = FileHeader {
                number: FileNumber::new(number).unwrap(),
                ring: RingId::default(),
                before: first.checked_sub(1).map(|index| OpId::new(1, index)),
                membership: None,
                previous_gtids: GtidSet::new(),
                format_description: FormatDescription::built_in_event().into(),
                timestamp: 0,
                end: 0,
            };
            encode_file_header(&mut header);
            let mut file = LogFile::begin(Arc::new(header));
            for index in first..=last {
                file.note(OpId::new(1, index), 1_000 + index * 10, 1_010 + index * 10);
            }
            file.closed = number < 3;
            file
        };
        vec![file(1, 0, 9), file(2, 10, 19), file(3, 20, 24)]
    }

    #[test]
    fn only_whole_closed_files_below_floor_and_holds_are_removed() {
        let files = files();
        let count =
            |floor: u64, hold| count_removable(files.iter(), Some(OpId::new(1, floor)), hold);
        assert_eq!(count_removable(files.iter(), None, None), 0);
        for (floor, hold, removable) in [
            (8, None, 0),
            (9, None, 1),
            (18, None, 1),
            (19, None, 2),
            (24, None, 2),
            (99, None, 2),
            (24, Some(9), 0),
            (24, Some(10), 1),
            (24, Some(20), 2),
        ] {
            assert_eq!(
                count(floor, hold),
                removable,
                "floor {floor}, hold {hold:?}"
            );
        }
    }
}
