//! The entries of a log directory, in order across all files.

use std::collections::VecDeque;

use binlog_format::gtid::Gtid;
use raft_types::OpId;

use crate::directory::{DirectoryError, LogDirectory};
use crate::format::{FileNumber, MarkerKind};
use crate::scan::{Depth, EntryScanner, ScanError, Scanned, Window};

/// An entry and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    /// The file with the entry.
    pub file: FileNumber,
    /// Offset of its marker in the file.
    pub offset: u64,
    /// Offset of the next entry.
    pub end: u64,
    /// Term and index in the marker.
    pub op_id: OpId,
    /// Transaction, rotate, membership or blank.
    pub kind: MarkerKind,
    /// Length of its canonical payload in bytes.
    pub payload_len: u64,
    /// The number of events between its marker and the next entry.
    pub event_count: u32,
    /// Creation time of its first event in seconds since the epoch; 0 if it has no event.
    pub timestamp: u32,
    /// The GTID of a transaction; `None` for entries of other kinds.
    pub gtid: Option<Gtid>,
}

impl EntryRecord {
    pub(super) fn new(file: FileNumber, scanned: &Scanned) -> Self {
        Self {
            file,
            offset: scanned.offset,
            end: scanned.end,
            op_id: scanned.op_id,
            kind: scanned.marker.kind,
            payload_len: scanned.marker.payload_len,
            event_count: scanned.marker.event_count,
            timestamp: scanned.timestamp,
            gtid: scanned.content.gtid(),
        }
    }
}

/// Iterates over entries in log order, up to the last complete one. An unfinished entry at the end is no error: a running member may be
/// writing it.
pub struct EntryCursor {
    directory: LogDirectory,
    files: std::vec::IntoIter<FileNumber>,
    current: Option<(FileNumber, EntryScanner)>,
    /// The index at which the iteration starts.
    from: u64,
}

impl LogDirectory {
    /// Iterates over all entries.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn entries(&self) -> Result<EntryCursor, DirectoryError> {
        self.entries_from(0)
    }

    /// Iterates over the entries starting at an index.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn entries_from(&self, index: u64) -> Result<EntryCursor, DirectoryError> {
        let mut numbers = self.numbers()?;
        // Start with the last file that begins at or before the index. The header of a later file, possibly damaged or being written, is
        // read when it is reached.
        let begins_before = |number: &FileNumber| {
            self.header(*number)
                .is_ok_and(|header| header.before.is_some_and(|before| before.index < index))
        };
        let first = numbers
            .iter()
            .skip(1)
            .rposition(begins_before)
            .map_or(0, |at| at + 1);
        let files = numbers.split_off(first).into_iter();
        Ok(EntryCursor {
            directory: self.clone(),
            files,
            current: None,
            from: index,
        })
    }
}

impl EntryCursor {
    fn step(&mut self) -> Result<Option<EntryRecord>, DirectoryError> {
        loop {
            let Some((number, scanner)) = &mut self.current else {
                let Some(number) = self.files.next() else {
                    return Ok(None);
                };
                match self.directory.open_file(number) {
                    Ok(open) => self.current = Some((number, open.scanner())),
                    // A running member may be creating this file.
                    Err(DirectoryError::Corrupt(_, corruption))
                        if self.files.len() == 0 && corruption.fault.kind.is_cut_off() =>
                    {
                        return Ok(None);
                    }
                    Err(error) => return Err(error),
                }
                continue;
            };
            let stepped_over = scanner.next_index().is_some_and(|next| next < self.from);
            let depth = if stepped_over {
                Depth::Marker
            } else {
                Depth::FirstEvent
            };
            match scanner.next(depth) {
                Ok(Some(entry)) if entry.op_id.index < self.from => {}
                Ok(Some(entry)) => return Ok(Some(EntryRecord::new(*number, &entry))),
                Ok(None) => self.current = None,
                Err(ScanError::Fault(fault))
                    if self.files.len() == 0 && fault.kind.is_cut_off() =>
                {
                    self.current = None;
                    return Ok(None);
                }
                Err(error) => return Err(self.directory.scan_error(*number, error)),
            }
        }
    }
}

impl Iterator for EntryCursor {
    type Item = Result<EntryRecord, DirectoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.step();
        if next.is_err() {
            // Reading ends at damage.
            self.files = Vec::new().into_iter();
            self.current = None;
        }
        next.transpose()
    }
}

// Follows a log that a member is writing, by polling.

/// Number of entries remembered to locate a truncation.
const REMEMBERED: usize = 4096;

/// A change of the log since the last poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// An entry was appended. It is complete, though it may not be durable or committed yet.
    Entry(EntryRecord),
    /// Reported entries were truncated; those up to `keep` stay.
    Truncated {
        /// The last remaining entry among the remembered ones.
        keep: Option<OpId>,
    },
}

/// Reads the changes of a log by polling; stores the position up to which it has reported them.
pub struct Follower {
    directory: LogDirectory,
    /// The newest entries that were reported.
    reported: VecDeque<EntryRecord>,
    /// The next index to report.
    next: u64,
}

impl LogDirectory {
    /// Follows the log starting at an index.
    pub fn follow(&self, from: u64) -> Follower {
        Follower {
            directory: self.clone(),
            reported: VecDeque::new(),
            next: from,
        }
    }
}

impl Follower {
    /// Returns the changes since the last call, with at most `limit` entries; empty if there are none.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or was purged before it was read.
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

    /// If reported entries were truncated, returns how many of the remembered ones remain.
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
            // Purging removes the oldest files, and truncates no entries.
            Err(DirectoryError::Purged(_)) => {
                let numbers = self.directory.numbers()?;
                return Ok(numbers.first() > Some(&record.file));
            }
            Err(error) => return Err(error),
        };
        let window = Window::new(&file, size, Window::LOOKUP_BYTES);
        let found = EntryScanner::new(window, record.file, record.offset, None).next(Depth::Marker);
        Ok(found.is_ok_and(|entry| entry.is_some_and(|entry| entry.op_id == record.op_id)))
    }
}

// Finds one entry.

/// The entry to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought {
    /// The entry at an index.
    Index(u64),
    /// The entry with this term and index.
    OpId(OpId),
    /// The transaction with this GTID.
    Gtid(Gtid),
}

impl LogDirectory {
    /// Finds an entry, reading as few files as the headers allow.
    ///
    /// # Errors
    /// A file that may contain the entry cannot be read, or is damaged before the entry.
    pub fn find(&self, sought: &Sought) -> Result<Option<EntryRecord>, DirectoryError> {
        match sought {
            Sought::Index(index) => self.find_index(*index),
            Sought::OpId(op_id) => Ok(self
                .find_index(op_id.index)?
                .filter(|record| record.op_id == *op_id)),
            Sought::Gtid(gtid) => self.find_gtid(gtid),
        }
    }

    fn find_index(&self, index: u64) -> Result<Option<EntryRecord>, DirectoryError> {
        let next = self.entries_from(index)?.next().transpose()?;
        Ok(next.filter(|record| record.op_id.index == index))
    }

    fn find_gtid(&self, gtid: &Gtid) -> Result<Option<EntryRecord>, DirectoryError> {
        let numbers = self.numbers()?;
        // The transaction is in the file before the first file whose previous GTIDs contain its GTID.
        let mut begin = 0;
        for number in &numbers {
            let header = match self.header(*number) {
                Ok(header) => header,
                Err(DirectoryError::Corrupt(_, corruption))
                    if corruption.fault.kind.is_cut_off() =>
                {
                    break;
                }
                Err(error) => return Err(error),
            };
            if header.previous_gtids.contains(gtid) {
                break;
            }
            begin = header.before.map_or(0, |before| before.index + 1);
        }
        for record in self.entries_from(begin)? {
            let record = record?;
            if record.gtid.as_ref() == Some(gtid) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}
