//! Verifies every byte of a log.

use std::collections::BTreeSet;
use std::path::Path;

use raft_types::OpId;

use crate::directory::{DirectoryError, LogDirectory, OpenFile};
use crate::format::{FileEnd, FileHeader, FileNumber, LoggedMembership};
use crate::options::VerifyProgress;
use crate::scan::{
    Corruption, Depth, EntryScanner, Fault, FaultKind, ScanError, ScannedContent, Window,
    find_entry_after,
};

/// The extent and the findings of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of verified files, starting with the oldest.
    pub files: usize,
    /// Entries with correct checksums and order.
    pub entries: u64,
    /// Bytes up to the end of the last intact entry.
    pub bytes: u64,
    /// The first entry of the oldest file.
    pub first: Option<OpId>,
    /// The last intact entry.
    pub last: Option<OpId>,
    /// An unfinished write at the end: normal while the member runs, and after it crashed.
    pub unfinished: Option<Corruption>,
    /// Damage, starting with the oldest file. In a damaged file, nothing after the first damaged entry was verified, and the next file's
    /// header was not checked against it.
    pub damaged: Vec<Corruption>,
}

impl VerifyReport {
    fn note(&mut self, corruption: Corruption, unfinished: bool) {
        match unfinished {
            true => self.unfinished = Some(corruption),
            false => self.damaged.push(corruption),
        }
    }
}

impl LogDirectory {
    /// Verifies every event's CRC32 and position, every payload's CRC32C, consecutive op ids, and each header against the log before it.
    ///
    /// # Errors
    /// A file cannot be read. Damage is in the report.
    pub fn verify(
        &self,
        progress: &dyn Fn(VerifyProgress),
    ) -> Result<VerifyReport, DirectoryError> {
        let numbers = self.numbers()?;
        let mut report = VerifyReport::default();
        let mut total_bytes = 0;
        for number in &numbers {
            total_bytes += self.open_raw(*number)?.1;
        }
        let mut before: Option<VerifiedFile> = None;
        for (at, number) in numbers.iter().enumerate() {
            let is_last = at + 1 == numbers.len();
            let open = match self.open_file(*number) {
                Ok(open) => open,
                Err(DirectoryError::Corrupt { corruption, .. }) => {
                    let unfinished = is_last && at > 0 && corruption.fault.kind.is_cut_off();
                    report.note(corruption, unfinished);
                    before = None;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let here = |fault| Corruption {
                file: *number,
                fault,
            };
            let previous = before.take();
            let junction_fault = previous
                .as_ref()
                .and_then(|previous| previous.junction_fault(&open.header));
            let follows = junction_fault.is_none();
            if let Some(fault) = junction_fault {
                report.note(here(fault), false);
            }
            let read = self.verify_file(&open, previous, &mut report, &mut |_| true)?;
            let Some((file, fault)) = read else {
                return Ok(report);
            };
            report.files += 1;
            if let Some(fault) = fault {
                let unfinished = is_last && self.is_unfinished(&open, &fault)?;
                report.note(here(fault), unfinished);
                continue;
            }
            if !is_last && file.rotate.is_none() {
                let fault = Fault {
                    offset: file.end,
                    kind: FaultKind::NoRotate,
                    entry_offset: file.end,
                };
                report.note(here(fault), false);
                continue;
            }
            progress(VerifyProgress {
                done_bytes: report.bytes,
                total_bytes,
            });
            before = follows.then_some(file);
        }
        Ok(report)
    }

    /// Verifies every byte of a closed file, and the next file's header against it. `goes_on` receives the number of bytes read; if it
    /// returns false, reading ends without a result.
    pub(crate) fn verify_closed(
        &self,
        number: FileNumber,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<VerifiedClosed>, DirectoryError> {
        self.verify_closed_at(number, &self.path_of(number), goes_on)
    }

    /// The same for a file at a temporary path.
    pub(crate) fn verify_closed_at(
        &self,
        number: FileNumber,
        path: &Path,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<VerifiedClosed>, DirectoryError> {
        let open = self.open_file_at(number, path)?;
        let corrupt = |file: FileNumber, fault: Fault| DirectoryError::Corrupt {
            path: self.path_of(file),
            corruption: Corruption { file, fault },
        };
        let read = self.verify_file(&open, None, &mut VerifyReport::default(), goes_on)?;
        let Some((file, fault)) = read else {
            return Ok(None);
        };
        if let Some(fault) = fault {
            return Err(corrupt(number, fault));
        }
        let end = file.end;
        let Some(last) = file.last.filter(|_| file.rotate.is_some()) else {
            let kind = FaultKind::NoRotate;
            let (offset, entry_offset) = (end, end);
            return Err(corrupt(
                number,
                Fault {
                    offset,
                    kind,
                    entry_offset,
                },
            ));
        };
        Ok(Some(VerifiedClosed { last, end, file }))
    }

    /// The fault of the file after a verified one that cannot be checked against it, or does not follow from it.
    pub(crate) fn fault_behind(
        &self,
        verified: &VerifiedClosed,
        number: FileNumber,
    ) -> Option<DirectoryError> {
        let next = match self.open_file(number.next()) {
            Ok(next) => next,
            Err(error) => return Some(error),
        };
        let fault = verified.fault_of_next(&next.header)?;
        Some(DirectoryError::Corrupt {
            path: self.path_of(number.next()),
            corruption: Corruption {
                file: number.next(),
                fault,
            },
        })
    }

    fn verify_file(
        &self,
        open: &OpenFile,
        before: Option<VerifiedFile>,
        report: &mut VerifyReport,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<(VerifiedFile, Option<Fault>)>, DirectoryError> {
        let membership = before
            .and_then(|before| before.membership)
            .or_else(|| open.header.membership.clone());
        let mut file = VerifiedFile {
            end: open.header.end,
            last: open.header.before,
            gtids: open.header.previous_gtids.clone(),
            membership,
            rotate: None,
        };
        let mut scanner = open.scanner();
        let fault = loop {
            match scanner.next(Depth::Full) {
                Ok(Some(entry)) => {
                    report.entries += 1;
                    report.first.get_or_insert(entry.op_id);
                    report.last = Some(entry.op_id);
                    file.end = entry.end;
                    file.last = Some(entry.op_id);
                    if !goes_on(entry.end) {
                        return Ok(None);
                    }
                    match entry.content {
                        ScannedContent::Membership(payload) => {
                            file.membership = Some(LoggedMembership::new(entry.op_id, &payload));
                        }
                        ScannedContent::Transaction(first) => file.gtids.extend(first.gtid),
                        ScannedContent::Rotate(rotate) => file.rotate = Some(rotate),
                        ScannedContent::Blank => {}
                    }
                }
                Ok(None) => break None,
                Err(ScanError::Fault(fault)) => break Some(fault),
                Err(error) => return Err(self.scan_error(open.header.number, error)),
            }
        };
        report.bytes += file.end;
        Ok(Some((file, fault)))
    }

    fn is_unfinished(&self, open: &OpenFile, fault: &Fault) -> Result<bool, DirectoryError> {
        let number = open.header.number;
        let follows = find_entry_after(&open.file, open.size, number, fault.entry_offset);
        let follows = follows.map_err(|error| self.scan_error(number, error))?;
        Ok(fault.kind.is_cut_off() && follows.is_none())
    }
}

/// A closed file with every byte intact.
#[derive(Debug)]
pub(crate) struct VerifiedClosed {
    /// Its last entry.
    pub(crate) last: OpId,
    /// Its end offset.
    pub(crate) end: u64,
    file: VerifiedFile,
}

impl VerifiedClosed {
    /// The fault in the next file's header, if any.
    pub(crate) fn fault_of_next(&self, header: &FileHeader) -> Option<Fault> {
        self.file.junction_fault(header)
    }
}

/// The log up to the end of an intact file.
#[derive(Debug)]
struct VerifiedFile {
    end: u64,
    last: Option<OpId>,
    gtids: binlog_format::gtid::GtidSet,
    membership: Option<LoggedMembership>,
    rotate: Option<raft_types::Rotate>,
}

impl VerifiedFile {
    /// The fault in the next file's header, if any.
    fn junction_fault(&self, next: &FileHeader) -> Option<Fault> {
        let rotate = self.rotate.as_ref()?;
        let end = FileEnd {
            last: self.last,
            gtids: &self.gtids,
            membership: self.membership.as_ref(),
            rotate,
        };
        let what = crate::format::wrong_part(&end, next)?;
        Some(Fault {
            offset: 0,
            kind: FaultKind::WrongHeader { what },
            entry_offset: 0,
        })
    }
}

// Compares two members' logs byte by byte. Equal logs are equal files.

/// Bytes per comparison.
const PIECE: usize = 256 << 10;

/// One of the two compared logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one on which [`LogDirectory::diff`] was called.
    Left,
    /// The log given for comparison.
    Right,
}

/// One difference between the files of two logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileDifference {
    /// Only one of them has it: not yet written or already purged in the other.
    OnlyIn {
        /// The file that only one log has.
        file: FileNumber,
        /// The log that has it.
        side: Side,
    },
    /// One of them has fewer bytes, equal up to its end.
    Shorter {
        /// The file that both have.
        file: FileNumber,
        /// The log with fewer bytes of it.
        side: Side,
        /// Number of bytes in both.
        common_bytes: u64,
    },
    /// Bytes in both differ.
    Differs {
        /// The file that both have.
        file: FileNumber,
        /// The first byte that differs.
        offset: u64,
        /// The left log's entry there; `None` in the header or without an entry.
        left: Option<OpId>,
        /// The right log's entry there.
        right: Option<OpId>,
    },
}

impl LogDirectory {
    /// The differences between the files, in order; empty if they are equal.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn diff(&self, other: &Self) -> Result<Vec<FileDifference>, DirectoryError> {
        let (left, right): (BTreeSet<_>, BTreeSet<_>) = (
            self.numbers()?.into_iter().collect(),
            other.numbers()?.into_iter().collect(),
        );
        let mut differences = Vec::new();
        for file in left.union(&right).copied() {
            let difference = match (left.contains(&file), right.contains(&file)) {
                (true, false) => Some(FileDifference::OnlyIn {
                    file,
                    side: Side::Left,
                }),
                (false, _) => Some(FileDifference::OnlyIn {
                    file,
                    side: Side::Right,
                }),
                (true, true) => self.diff_file(other, file)?,
            };
            differences.extend(difference);
        }
        Ok(differences)
    }

    fn diff_file(
        &self,
        other: &Self,
        file: FileNumber,
    ) -> Result<Option<FileDifference>, DirectoryError> {
        let (left, left_size) = self.open_raw(file)?;
        let (right, right_size) = other.open_raw(file)?;
        let common_bytes = left_size.min(right_size);
        let (mut ours, mut theirs) = (
            Window::new(&left, common_bytes, PIECE),
            Window::new(&right, common_bytes, PIECE),
        );
        let mut offset = 0;
        while offset < common_bytes {
            let ours = ours
                .bytes(offset, PIECE)
                .map_err(|error| self.scan_error(file, error))?;
            let theirs = theirs
                .bytes(offset, PIECE)
                .map_err(|error| other.scan_error(file, error))?;
            if let Some(at) = ours
                .iter()
                .zip(theirs)
                .position(|(our, their)| our != their)
            {
                let offset = offset + at as u64;
                let (left, right) = (self.entry_at(file, offset)?, other.entry_at(file, offset)?);
                return Ok(Some(FileDifference::Differs {
                    file,
                    offset,
                    left,
                    right,
                }));
            }
            match ours.len().min(theirs.len()) {
                // One of them was truncated in the meantime.
                0 => break,
                equal => offset += equal as u64,
            }
        }
        Ok(match left_size.cmp(&right_size) {
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Less => Some(FileDifference::Shorter {
                file,
                side: Side::Left,
                common_bytes,
            }),
            std::cmp::Ordering::Greater => Some(FileDifference::Shorter {
                file,
                side: Side::Right,
                common_bytes,
            }),
        })
    }

    /// The entry that contains a byte, as far as the markers before it are readable.
    fn entry_at(&self, file: FileNumber, offset: u64) -> Result<Option<OpId>, DirectoryError> {
        let open = match self.open_file(file) {
            Ok(open) => open,
            Err(DirectoryError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let window = Window::new(&open.file, open.size, Window::LOOKUP_BYTES);
        let mut scanner = EntryScanner::new(window, file, open.header.end, open.header.before);
        loop {
            match scanner.next(Depth::Marker) {
                Ok(Some(entry)) if entry.end <= offset => {}
                Ok(Some(entry)) if entry.offset <= offset => return Ok(Some(entry.op_id)),
                Ok(_) | Err(ScanError::Fault(_)) => return Ok(None),
                Err(error) => return Err(self.scan_error(file, error)),
            }
        }
    }
}
