//! What each file holds.

use binlog_format::gtid::GtidSet;
use raft_types::OpId;

use crate::format::{FileNumber, MarkerKind};
use crate::scan::{Depth, Fault, ScanError, ScannedContent};

use super::{DirectoryError, LogDirectory};

/// A file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileListing {
    /// The file.
    pub file: FileNumber,
    /// Its size in bytes.
    pub size: u64,
    /// Its first entry.
    pub first: Option<OpId>,
    /// Its last entry.
    pub last: Option<OpId>,
    /// How many entries it has.
    pub entries: u64,
    /// Seconds since the epoch of the first and the last entry that has a time.
    pub times: Option<(u32, u32)>,
    /// All GTIDs of the files before it.
    pub previous_gtids: GtidSet,
    /// The GTIDs of its own transactions.
    pub gtids: GtidSet,
    /// Whether it ends with a rotate entry.
    pub closed: bool,
    /// What ends the list of its entries early: an unfinished write at the end of the last file, or damage.
    pub fault: Option<Fault>,
}

impl LogDirectory {
    /// Lists the files with what their markers and GTID events say; payloads are not verified. A file
    /// that is purged meanwhile is left out.
    ///
    /// # Errors
    /// When a file cannot be read or has no header. Damage behind the header is in the listing.
    pub fn files(&self) -> Result<Vec<FileListing>, DirectoryError> {
        let mut listings = Vec::new();
        for number in self.numbers()? {
            match self.list_file(number) {
                Ok(listing) => listings.push(listing),
                Err(DirectoryError::Purged(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listings)
    }

    fn list_file(&self, number: FileNumber) -> Result<FileListing, DirectoryError> {
        let open = self.open_file(number)?;
        let mut listing = FileListing {
            file: number,
            size: open.size,
            first: None,
            last: None,
            entries: 0,
            times: None,
            previous_gtids: open.header.previous_gtids.clone(),
            gtids: GtidSet::new(),
            closed: false,
            fault: None,
        };
        let mut scanner = open.scanner();
        loop {
            let entry = match scanner.next(Depth::FirstEvent) {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(listing),
                Err(ScanError::Fault(fault)) => {
                    listing.fault = Some(fault);
                    return Ok(listing);
                }
                Err(error) => return Err(self.scan_error(number, error)),
            };
            listing.first.get_or_insert(entry.op_id);
            listing.last = Some(entry.op_id);
            listing.entries += 1;
            listing.closed = entry.marker.kind == MarkerKind::Rotate;
            if entry.timestamp != 0 {
                let first = listing.times.map_or(entry.timestamp, |(first, _)| first);
                listing.times = Some((first, entry.timestamp));
            }
            if let ScannedContent::Transaction { gtid: Some(gtid) } = entry.content {
                listing.gtids.add(gtid);
            }
        }
    }
}
