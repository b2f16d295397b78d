//! Follows a log that a member is writing, by looking again and again.

use std::collections::VecDeque;

use raft_types::OpId;

use crate::format::FileNumber;
use crate::scan::{Depth, EntryScanner, Window};

use super::{DirectoryError, EntryRecord, LogDirectory};

/// How many entries are remembered to tell where a truncation went back to.
const REMEMBERED: usize = 4096;

/// What happened to the log since the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// An entry was appended. It is complete, though it may not be durable or committed yet.
    Entry(EntryRecord),
    /// Entries that had been reported were taken back; those up to `keep` stay.
    Truncated {
        /// The last entry that stays, of those that are remembered.
        keep: Option<OpId>,
    },
}

/// Where following has come to.
pub struct Follower {
    directory: LogDirectory,
    /// The newest entries that were reported.
    reported: VecDeque<EntryRecord>,
    /// The index from which on entries are wanted.
    next: u64,
}

impl LogDirectory {
    /// Follows the log from an index on.
    #[must_use]
    pub fn follow(&self, from: u64) -> Follower {
        Follower {
            directory: self.clone(),
            reported: VecDeque::new(),
            next: from,
        }
    }
}

impl Follower {
    /// What happened since the last call, at most `limit` entries of it. Empty when nothing did.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged, or was purged before it was read.
    pub fn poll(&mut self, limit: usize) -> Result<Vec<Followed>, DirectoryError> {
        let mut news = Vec::new();
        if let Some(keep) = self.truncated_to()? {
            self.reported.truncate(keep);
            let keep = self.reported.back().map(|record| record.op_id);
            self.next = keep.map_or(0, |keep| keep.index + 1);
            news.push(Followed::Truncated { keep });
        }
        let last = self.reported.back().map(|record| record.op_id);
        for record in self.directory.entries_from(self.next)?.take(limit) {
            let record = record?;
            if last.is_some() && record.op_id.index > self.next {
                let before = record.file.get().saturating_sub(1);
                let file = FileNumber::new(before).unwrap_or(record.file);
                return Err(DirectoryError::Purged(self.directory.path_of(file)));
            }
            self.next = record.op_id.index + 1;
            if self.reported.len() == REMEMBERED {
                self.reported.pop_front();
            }
            self.reported.push_back(record.clone());
            news.push(Followed::Entry(record));
        }
        Ok(news)
    }

    /// How many of the reported entries are still there, if not all.
    fn truncated_to(&self) -> Result<Option<usize>, DirectoryError> {
        for (at, record) in self.reported.iter().enumerate().rev() {
            if self.is_there(record)? {
                let all = at + 1 == self.reported.len();
                return Ok((!all).then_some(at + 1));
            }
        }
        Ok((!self.reported.is_empty()).then_some(0))
    }

    fn is_there(&self, record: &EntryRecord) -> Result<bool, DirectoryError> {
        let (file, size) = match self.directory.open_raw(record.file) {
            Ok(open) => open,
            // The oldest files go by purging, and take nothing back.
            Err(DirectoryError::Purged(_)) => {
                return Ok(self
                    .directory
                    .numbers()?
                    .first()
                    .is_some_and(|first| *first > record.file));
            }
            Err(error) => return Err(error),
        };
        let window = Window::new(&file, size, Window::LOOKUP_BYTES);
        let found = EntryScanner::new(window, record.file, record.offset, None).next(Depth::Marker);
        Ok(found.is_ok_and(|entry| entry.is_some_and(|entry| entry.op_id == record.op_id)))
    }
}
