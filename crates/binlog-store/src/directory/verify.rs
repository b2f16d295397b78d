//! Verifies every byte of a log.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::Path;

use raft_types::OpId;

use crate::directory::{DirectoryError, LogDirectory, OpenFile};
use crate::format::{FileHeader, FileNumber};
use crate::options::VerifyProgress;
use crate::scan::{Corruption, Depth, Fault, FileState, ScanError, Window, find_entry_after};

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
    /// Damage, starting with the oldest file. In a damaged file, nothing after the first damaged entry was verified. The next file's header
    /// was not checked against the damaged file.
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
        let mut before: Option<FileState> = None;
        for (at, number) in numbers.iter().enumerate() {
            let is_last = at + 1 == numbers.len();
            let open = match self.open_file(*number) {
                Ok(open) => open,
                Err(DirectoryError::Corrupt(_, corruption)) => {
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
            let junction = previous.as_ref();
            let junction = junction.and_then(|previous| previous.fault_of_next(&open.header));
            let follows = junction.is_none();
            if let Some(fault) = junction {
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
            if let Some(fault) = file.missing_rotate().filter(|_| !is_last) {
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

    /// Verifies every byte of a closed file, which may have a temporary path. `proceeds` is called with the number of bytes read. If it
    /// returns false, reading ends without a result.
    pub(crate) fn verify_closed(
        &self,
        number: FileNumber,
        path: &Path,
        proceeds: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<(FileHeader, FileState)>, DirectoryError> {
        let open = self.open_file_at(number, path)?;
        let read = self.verify_file(&open, None, &mut VerifyReport::default(), proceeds)?;
        let Some((state, fault)) = read else {
            return Ok(None);
        };
        match fault.or_else(|| state.missing_rotate()) {
            Some(fault) => Err(self.scan_error(number, fault.into())),
            None => Ok(Some((open.header, state))),
        }
    }

    /// Checks that the file after a verified one follows from it.
    pub(crate) fn check_successor(
        &self,
        verified: &FileState,
        next: FileNumber,
    ) -> Result<(), DirectoryError> {
        let fault = verified.fault_of_next(&self.header(next)?);
        fault.map_or(Ok(()), |fault| Err(self.scan_error(next, fault.into())))
    }

    fn verify_file(
        &self,
        open: &OpenFile,
        before: Option<FileState>,
        report: &mut VerifyReport,
        proceeds: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<(FileState, Option<Fault>)>, DirectoryError> {
        let mut file = FileState::begin(&open.header);
        if let Some(membership) = before.and_then(|before| before.membership) {
            file.membership = Some(membership);
        }
        let mut scanner = open.scanner();
        let fault = loop {
            match scanner.next(Depth::Full) {
                Ok(Some(entry)) => {
                    report.entries += 1;
                    report.first.get_or_insert(entry.op_id);
                    report.last = Some(entry.op_id);
                    file.add(&entry);
                    if !proceeds(entry.end) {
                        return Ok(None);
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

// Compares two members' logs byte by byte. Equal logs are equal files.

/// Bytes per comparison.
const PIECE: usize = 256 << 10;

/// One of the two compared logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The log on which [`LogDirectory::diff`] was called.
    Left,
    /// The log given for comparison.
    Right,
}

/// One difference between the files of two logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileDifference {
    /// Only one log has the file: the other log has not written it yet, or has purged it.
    OnlyIn {
        /// The file that only one log has.
        file: FileNumber,
        /// The log that has it.
        side: Side,
    },
    /// One log's file is shorter than the other's, and equal to it up to its end.
    Shorter {
        /// The file that both have.
        file: FileNumber,
        /// The log with fewer bytes of it.
        side: Side,
        /// Number of bytes that both files have.
        common_bytes: u64,
    },
    /// Both logs have the file, with different bytes.
    Differs {
        /// The file that both have.
        file: FileNumber,
        /// The first byte that differs.
        offset: u64,
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
            let side = match (left.contains(&file), right.contains(&file)) {
                (true, true) => {
                    differences.extend(self.diff_file(other, file)?);
                    continue;
                }
                (true, false) => Side::Left,
                (false, _) => Side::Right,
            };
            differences.push(FileDifference::OnlyIn { file, side });
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
                return Ok(Some(FileDifference::Differs { file, offset }));
            }
            match ours.len().min(theirs.len()) {
                // One of the files was truncated during the comparison.
                0 => break,
                equal => offset += equal as u64,
            }
        }
        let side = match left_size.cmp(&right_size) {
            Ordering::Equal => return Ok(None),
            Ordering::Less => Side::Left,
            Ordering::Greater => Side::Right,
        };
        Ok(Some(FileDifference::Shorter {
            file,
            side,
            common_bytes,
        }))
    }
}
