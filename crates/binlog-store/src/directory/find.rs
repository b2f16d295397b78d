//! Finds one entry.

use binlog_format::gtid::Gtid;
use raft_types::OpId;

use super::{DirectoryError, EntryRecord, LogDirectory};

/// What is looked for.
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
    /// Looks for an entry, in as few files as the headers allow.
    ///
    /// # Errors
    /// When a file that may have it cannot be read or is damaged before it.
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
        // It is in the file before the first one whose previous GTIDs have it.
        let mut begin = 0;
        for number in &numbers {
            let header = match self.header(*number) {
                Ok(header) => header,
                Err(DirectoryError::Corrupt { corruption, .. })
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
