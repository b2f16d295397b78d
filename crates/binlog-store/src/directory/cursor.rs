//! The entries of a log directory, one after the other, over all files.

use binlog_format::gtid::Gtid;
use raft_types::OpId;

use crate::format::{FileNumber, MarkerKind};
use crate::scan::{Depth, EntryScanner, ScanError, Scanned, ScannedContent};

use super::{DirectoryError, LogDirectory};

/// An entry and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    /// The file.
    pub file: FileNumber,
    /// Where its marker begins.
    pub offset: u64,
    /// Where the next entry begins.
    pub end: u64,
    /// Its op id.
    pub op_id: OpId,
    /// What it is.
    pub kind: MarkerKind,
    /// Bytes of its payload.
    pub payload_len: u64,
    /// CRC32C of its payload.
    pub payload_crc32c: u32,
    /// Events behind its marker.
    pub event_count: u32,
    /// Seconds since the epoch at which its first event was made; 0 where it has none.
    pub timestamp: u32,
    /// The transaction's GTID.
    pub gtid: Option<Gtid>,
}

impl EntryRecord {
    pub(super) fn new(file: FileNumber, scanned: &Scanned) -> Self {
        let gtid = match &scanned.content {
            ScannedContent::Transaction { gtid } => *gtid,
            _ => None,
        };
        Self {
            file,
            offset: scanned.offset,
            end: scanned.end,
            op_id: scanned.op_id,
            kind: scanned.marker.kind,
            payload_len: scanned.marker.payload_len,
            payload_crc32c: scanned.marker.payload_crc32c,
            event_count: scanned.marker.event_count,
            timestamp: scanned.timestamp,
            gtid,
        }
    }
}

/// Goes through entries in log order. Ends at the last complete entry; an unfinished one behind it,
/// as a running member may just be writing it, is no error.
pub struct EntryCursor {
    directory: LogDirectory,
    files: std::vec::IntoIter<FileNumber>,
    current: Option<(FileNumber, EntryScanner)>,
    /// Entries before this one are stepped over.
    from: u64,
}

impl LogDirectory {
    /// All entries.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn entries(&self) -> Result<EntryCursor, DirectoryError> {
        self.entries_from(0)
    }

    /// The entries from an index on.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn entries_from(&self, index: u64) -> Result<EntryCursor, DirectoryError> {
        let mut numbers = self.numbers()?;
        // From the last file that begins at or before the index; the header of a later one, which
        // may be damaged or just being written, is looked at in its turn.
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
                if !self.begin_file()? {
                    return Ok(None);
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

    /// Begins the next file; false when there is none.
    fn begin_file(&mut self) -> Result<bool, DirectoryError> {
        let Some(number) = self.files.next() else {
            return Ok(false);
        };
        match self.directory.open_file(number) {
            Ok(open) => {
                self.current = Some((number, open.scanner()));
                Ok(true)
            }
            // The file that a running member is just beginning.
            Err(DirectoryError::Corrupt { corruption, .. })
                if self.files.len() == 0 && corruption.fault.kind.is_cut_off() =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl Iterator for EntryCursor {
    type Item = Result<EntryRecord, DirectoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.step();
        if next.is_err() {
            // Nothing follows damage.
            self.files = Vec::new().into_iter();
            self.current = None;
        }
        next.transpose()
    }
}
