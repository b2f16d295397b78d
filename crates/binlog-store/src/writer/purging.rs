//! Forgets old entries: the floor is stored first, then files that lie wholly below it are dropped
//! from the index, then removed. A crash in between leaves files that the next start removes.

use bytes::Bytes;
use raft_types::OpId;

use crate::error::StoreError;
use crate::format::FileNumber;
use crate::hard_state::PurgeFloor;
use crate::log::LogFile;

use super::log_writer::LogWriter;
use super::rotation::write_index;

/// How many of the oldest files nobody needs: wholly at or below the floor, and below every hold.
/// The last file always stays.
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

impl LogWriter {
    /// Forgets the entries up to `upto`. Where that is beyond the log's end, the log begins anew
    /// behind it, as after a snapshot.
    pub(super) fn purge(&mut self, upto: OpId) -> Result<(), StoreError> {
        let (floor, beyond_end) = {
            let view = self.view.lock();
            if view.floor_op_id() >= Some(upto) {
                return Ok(());
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
        let saved = self.hard.put_floor(&floor).and_then(|()| self.hard.flush());
        saved.map_err(|error| StoreError::io("storing the purge floor", &error))?;
        self.view.lock().purge(floor);
        if beyond_end {
            self.begin_behind(upto)?;
        }
        self.drop_purged_files()
    }

    /// Begins a new file behind an entry that the log does not have; the files before it then go.
    fn begin_behind(&mut self, floor: OpId) -> Result<(), StoreError> {
        self.state.last = Some(floor);
        let (description, timestamp): (Bytes, u32) = (
            self.state.header.format_description.clone(),
            self.state.header.timestamp,
        );
        self.begin_next(Some(floor), &description, timestamp)
    }

    /// Drops from the log the files that nobody needs any more, and has them removed later.
    pub(super) fn drop_purged_files(&mut self) -> Result<(), StoreError> {
        let (drop, stay): (Vec<FileNumber>, Vec<FileNumber>) = {
            let view = self.view.lock();
            let hold = view.holds.values().min().copied();
            let count = count_removable(view.files.files(), view.floor_op_id(), hold);
            let mut numbers: Vec<FileNumber> = view.files.files().map(LogFile::number).collect();
            let stay = numbers.split_off(count);
            (numbers, stay)
        };
        if drop.is_empty() {
            return Ok(());
        }
        let written = write_index(&*self.fs, &self.dir, stay);
        written.map_err(|error| StoreError::io("writing the index", &error))?;
        for _ in &drop {
            if let Some(file) = self.view.lock().files.pop_oldest() {
                self.state.space.removed(file.end);
            }
        }
        self.removals.extend(drop);
        Ok(())
    }

    /// Removes one file that the log no longer has; whether there was one.
    pub(super) fn remove_one_file(&mut self) -> Result<bool, StoreError> {
        if self.removals.is_empty() {
            return Ok(false);
        }
        let number = self.removals.remove(0);
        self.handles.forget(number);
        let removed = self
            .fs
            .remove(&self.dir.join(number.name()))
            .and_then(|()| self.fs.sync_dir(&self.dir));
        removed.map_err(|error| StoreError::io(format!("removing {number}"), &error))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::format::{HeaderSource, encode_file_header};
    use binlog_format::events::FormatDescription;
    use binlog_format::gtid::GtidSet;
    use raft_types::RingId;

    /// Three files: entries 0 to 9 and 10 to 19 closed, 20 to 24 current.
    fn files() -> Vec<LogFile> {
        let file = |number: u64, first: u64, last: u64| {
            let (_, header) = encode_file_header(&HeaderSource {
                number: FileNumber::new(number).unwrap(),
                ring: RingId::default(),
                before: first.checked_sub(1).map(|index| OpId::new(1, index)),
                membership: None,
                previous_gtids: &GtidSet::new(),
                format_description: &FormatDescription::built_in_event().into(),
                timestamp: 0,
            });
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
    fn only_whole_closed_files_below_floor_and_holds_go() {
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
