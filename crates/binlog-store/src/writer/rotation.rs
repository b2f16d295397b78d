//! Ends one file and starts the next. Every step is durable before the next one. So a start after a crash finds the old state, or one that
//! it can complete: the file after the rotate entry is missing, incomplete, or missing in the index.

use std::sync::Arc;

use raft_types::{OpId, Rotate};

use crate::error::{Doing, StoreError};
use crate::format::{FileHeader, FileNumber};
use crate::hard_state::START;
use crate::log::LogFile;
use crate::options::Durability;
use crate::scan::ReceivedStart;
use crate::writer::log_writer::LogWriter;
use crate::writer::new_file::{begin_file, start_over, write_index};

impl LogWriter {
    /// Ends the current file with the staged rotate entry, and begins the next one.
    pub(super) fn rotate(&mut self, rotate: &Rotate) -> Result<(), StoreError> {
        // Before a file gets a successor, it is made durable, whatever the configuration. A start must never find a later file without the
        // end of the previous one.
        self.flush(Durability::Fsync)?;
        self.notify_waiting();
        self.begin_next(&rotate.format_description, rotate.timestamp)
    }

    /// Creates the file after the current one and makes it the current one. The next entry begins it.
    pub(super) fn begin_next(
        &mut self,
        format_description: &bytes::Bytes,
        timestamp: u32,
    ) -> Result<(), StoreError> {
        let number = self.state.header.number.next();
        let doing = format!("beginning {number}");
        let before = self.state.last;
        let index = before.map_or(0, |before| before.index);
        let header = FileHeader {
            number,
            ring: self.log.options.ring,
            before,
            membership: self.log.view.lock().memberships.at(index).cloned(),
            previous_gtids: self.state.gtids.clone(),
            format_description: format_description.clone(),
            timestamp,
            end: 0,
        };
        let (file, header) = begin_file(&*self.fs, &self.log.dir, header).doing(&doing)?;

        let files: Vec<FileNumber> = {
            let view = self.log.view.lock();
            view.files
                .iter()
                .map(LogFile::number)
                .chain([number])
                .collect()
        };
        write_index(&*self.fs, &self.log.dir, files).doing(&doing)?;

        let mut view = self.log.view.lock();
        if let Some(file) = view.files.back_mut() {
            file.closed = true;
        }
        view.files.push_back(LogFile::begin(header.clone()));
        drop(view);
        self.log.space.wrote(header.end);
        self.state.end = header.end;
        self.state.file = file;
        self.state.header = header;
        Ok(())
    }
}

// Restarts a log with another member's file, in place of all its content.

/// The log's action for a file start from another member.
#[derive(Debug, PartialEq, Eq)]
enum Beginning {
    /// The log already begins at the file start or later.
    Nothing,
    /// The log has the entry before the file start, so the later files are the same. It purges the entries up to that entry.
    Forget,
    /// The log's content is older than the file start, or differs from what the ring committed. The log restarts with the file.
    StartOver,
}

/// Decides what to do with a file start, from the floor, the committed entry, and the log's entry at the index before the file start.
fn decide(
    before: OpId,
    floor: Option<OpId>,
    committed: Option<OpId>,
    there: Option<OpId>,
) -> Result<Beginning, StoreError> {
    if floor.is_some_and(|floor| floor.index >= before.index) {
        Ok(Beginning::Nothing)
    } else if there == Some(before) {
        Ok(Beginning::Forget)
    } else if let Some(committed) = committed.filter(|committed| committed.index >= before.index) {
        // A ring has one log, so a member that has committed up to here must have this entry.
        Err(StoreError::StartContradicts { before, committed })
    } else {
        Ok(Beginning::StartOver)
    }
}

impl LogWriter {
    /// Makes the log begin with this start.
    pub(super) fn begin_at(&mut self, start: &ReceivedStart) -> Result<(), StoreError> {
        let (floor, committed, there) = {
            let view = self.log.view.lock();
            let committed = view.committed.max(self.state.saved_committed);
            let there = view.terms.op_id(start.before.index);
            (view.floor_op_id(), committed, there)
        };
        match decide(start.before, floor, committed, there)? {
            Beginning::Nothing => Ok(()),
            Beginning::Forget => self.purge(start.before),
            Beginning::StartOver => self.start_over(start),
        }
    }

    fn start_over(&mut self, start: &ReceivedStart) -> Result<(), StoreError> {
        let doing = format!("letting the log begin with {}", start.header.number);
        self.hard.store(START, Some(&start.bytes)).doing(&doing)?;

        // Active readers detect from the changed generation that their data is gone.
        let header = Arc::new(start.header.clone());
        self.log.view.lock().begin_at(header, start.floor());
        let (file, header) =
            start_over(&*self.fs, &self.log.dir, &self.hard, start).doing(&doing)?;
        self.purger.forget_leftovers();

        let state = &mut self.state;
        self.log.space.removed(self.log.space.log_bytes());
        self.log.space.wrote(header.end);
        state.file = file;
        state.end = header.end;
        state.last = Some(start.before);
        state.gtids = header.previous_gtids.clone();
        state.header = header;
        state.saved_committed = Some(start.before);
        state.saved_mark = None;
        tracing::warn!(
            before = %start.before,
            file = %self.state.header.number,
            gtids = %self.state.gtids,
            "the log begins with a later file; a mysqld of this member that lacks some of these GTIDs has to be \
             reprovisioned"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_log_that_lacks_the_entry_before_the_start_starts_over() {
        let id = OpId::new;
        let before = id(3, 70);
        type Row = (Option<OpId>, Option<OpId>, Option<OpId>, Option<Beginning>);
        let rows: [Row; 8] = [
            // An empty log, a log that ends earlier, and one with another entry there.
            (None, None, None, Some(Beginning::StartOver)),
            (None, Some(id(2, 50)), None, Some(Beginning::StartOver)),
            (
                Some(id(1, 20)),
                Some(id(2, 50)),
                Some(id(2, 70)),
                Some(Beginning::StartOver),
            ),
            // The same entry, committed or not.
            (None, Some(id(2, 50)), Some(before), Some(Beginning::Forget)),
            (None, Some(id(3, 90)), Some(before), Some(Beginning::Forget)),
            // The log is purged up to the file start.
            (Some(before), Some(before), None, Some(Beginning::Nothing)),
            (
                Some(id(3, 75)),
                Some(id(3, 90)),
                None,
                Some(Beginning::Nothing),
            ),
            // The log and the file start contradict each other.
            (None, Some(id(2, 80)), Some(id(2, 70)), None),
        ];
        for (floor, committed, there, expected) in rows {
            let decided = decide(before, floor, committed, there).ok();
            assert_eq!(
                decided, expected,
                "floor {floor:?}, committed {committed:?}, there {there:?}"
            );
        }
    }
}
