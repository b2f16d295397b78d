//! Reads the entries of the files and rebuilds the derived state: positions, terms, memberships, GTIDs, and the state of the log's end.

use std::path::Path;
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use raft_types::{OpId, Rotate};

use crate::error::OpenError;
use crate::file_system::{FileSystem, StorageFile};
use crate::format::{Content, FileHeader, FileNumber};
use crate::hard_state::VerifiedMark;
use crate::log::{LogFile, LogFiles, LogPlace, Memberships, Points, TermRuns, WrittenTail};
use crate::options::{ProgressCallback, VerifyAtStart, VerifyProgress};
use crate::scan::{
    Depth, EntryScanner, Fault, FaultKind, FileState, ScanError, Window, find_entry_after,
};

use super::decision_table::TailState;
use super::survey::{Survey, SurveyedFile, corrupt, open_file, scan_error};

/// Interval of progress reports in bytes.
const PROGRESS_EVERY_BYTES: u64 = 8 << 20;

/// The log as read from its files.
#[derive(Default)]
pub(super) struct ScannedLog {
    pub(super) files: LogFiles,
    pub(super) terms: TermRuns,
    pub(super) memberships: Memberships,
    pub(super) gtids: GtidSet,
    /// The sequence number of the last transaction in the last file; 0 if that file has no transaction, or ends with a rotate entry.
    pub(super) sequence_number: i64,
    pub(super) written: WrittenTail,
    pub(super) tail: TailState,
    /// The rotate entry at the end, if the next file is incomplete.
    pub(super) rotate: Option<Rotate>,
    /// The fault after the last complete entry, and its file.
    pub(super) tail_fault: Option<(FileNumber, Fault)>,
    pub(super) verified_entries: u64,
    pub(super) verified_bytes: u64,
    /// This closed file and all earlier ones were verified, now or at an earlier start.
    pub(super) verified: Option<VerifiedMark>,
}

impl ScannedLog {
    /// The last complete entry of the files, or the one before the first file.
    pub(super) fn end(&self) -> Option<OpId> {
        self.files.back().and_then(LogFile::last_or_before)
    }
}

struct LogScan<'a> {
    fs: &'a dyn FileSystem,
    dir: &'a Path,
    log: ScannedLog,
    floor: Option<OpId>,
    committed: Option<OpId>,
    progress: Option<&'a ProgressCallback>,
    done_bytes: u64,
    total_bytes: u64,
}

/// Reads the surveyed files as far as `verify` requires.
pub(super) fn scan_log(
    fs: &dyn FileSystem,
    dir: &Path,
    survey: &Survey,
    verify: VerifyAtStart,
    progress: Option<&ProgressCallback>,
) -> Result<ScannedLog, OpenError> {
    let unverified = first_unverified(&survey.files, survey.saved.scrub.verified);
    let recent = first_recent(&survey.files, survey.saved.committed);
    let whole_from = match verify {
        VerifyAtStart::All => 0,
        VerifyAtStart::Recent => recent,
        VerifyAtStart::New => first_new(&survey.files, unverified, recent),
    };
    let total_bytes = survey
        .files
        .iter()
        .skip(whole_from)
        .map(|file| file.size)
        .sum();
    let floor = survey.saved.floor.as_ref().map(|floor| floor.op_id);
    let mut scan = LogScan {
        fs,
        dir,
        log: ScannedLog::default(),
        floor,
        committed: survey.saved.committed,
        progress,
        done_bytes: 0,
        total_bytes,
    };
    for (at, file) in survey.files.iter().enumerate() {
        let next = survey.files.get(at + 1);
        match (&file.header, next.map(|next| &next.header)) {
            (Ok(header), Some(Ok(next))) if at < whole_from => {
                scan.step_over(file, header, next)?
            }
            (Ok(header), next) => scan.whole_file(file, header, next)?,
            // Only the last file can lack a header: the survey has checked that.
            (Err(fault), _) => scan.half_made(file.number, fault),
        }
    }
    scan.log.verified = match whole_from <= unverified {
        true => last_closed(&survey.files, survey.saved.committed),
        // The stored mark stays valid if it matches one of the files.
        false => (survey.saved.scrub.verified).filter(|_| unverified > 0),
    };
    Ok(scan.log)
}

/// The most bytes that a start reads in addition to the recent files.
const NEW_BYTES: u64 = 4 << 30;

/// Returns the position of the first unverified file. If the mark does not match the present file, no file counts as verified: the log was
/// truncated or restarted.
fn first_unverified(files: &[SurveyedFile], mark: Option<VerifiedMark>) -> usize {
    let Some(mark) = mark else { return 0 };
    let next = files.iter().position(|file| file.number > mark.file);
    let before = |at: usize| files.get(at)?.header.as_ref().ok()?.before;
    next.filter(|&next| before(next) == Some(mark.last))
        .unwrap_or(0)
}

/// With `VerifyAtStart::New`, the position of the first file that is read in full.
fn first_new(files: &[SurveyedFile], unverified: usize, recent: usize) -> usize {
    let new = files.get(unverified..recent).unwrap_or_default();
    recent - fitting(new.iter().rev().map(|file| file.size), NEW_BYTES)
}

/// Returns how many sizes, starting with the first, have a total of at most `most` bytes.
fn fitting(sizes: impl Iterator<Item = u64>, most: u64) -> usize {
    let together = sizes.scan(0_u64, |bytes, size| {
        *bytes += size;
        Some(*bytes)
    });
    together.take_while(|bytes| *bytes <= most).count()
}

/// The last closed file of which all entries are committed.
fn last_closed(files: &[SurveyedFile], committed: Option<OpId>) -> Option<VerifiedMark> {
    let marks = files.windows(2).rev().filter_map(|pair| {
        let last = pair[1].header.as_ref().ok()?.before?;
        Some(VerifiedMark {
            file: pair[0].number,
            last,
        })
    });
    let mut committed =
        marks.filter(|mark| committed.is_some_and(|id| id.index >= mark.last.index));
    committed.next()
}

/// With `VerifyAtStart::Recent`, the position of the first file that is read in full: the file of the last committed entry, or the second
/// last file.
fn first_recent(files: &[SurveyedFile], committed: Option<OpId>) -> usize {
    let begins_after = |file: &SurveyedFile| {
        let before = file.header.as_ref().ok().and_then(|header| header.before);
        before
            .is_some_and(|before| committed.is_none_or(|committed| before.index >= committed.index))
    };
    let of_committed = files.iter().position(begins_after).unwrap_or(files.len());
    of_committed
        .min(files.len().saturating_sub(1))
        .saturating_sub(1)
}

impl LogScan<'_> {
    /// Skips a closed file: takes its first and last entry from its header and the next file's header.
    fn step_over(
        &mut self,
        file: &SurveyedFile,
        header: &Arc<FileHeader>,
        next: &FileHeader,
    ) -> Result<(), OpenError> {
        self.begin(header);
        let mut log_file = LogFile::begin(header.clone());
        log_file.points = None;
        match header.before.zip(next.before) {
            Some((before, last)) if before.term == last.term => {
                self.log
                    .terms
                    .extend(last.term, before.index + 1, last.index);
                log_file.first = Some(before.index + 1);
                log_file.last = Some(last);
            }
            // The term changes within the file, or the first index is unknown: read the markers.
            _ => {
                let open = open_file(self.fs, self.dir, file.number)?;
                let mut scanner = EntryScanner::of_file(&open, file.size, header);
                let mut points = Points::default();
                let dir = self.dir;
                let failed = |error| scan_error(dir, file.number, error);
                while let Some(entry) = scanner.next(Depth::Marker).map_err(failed)? {
                    self.log.terms.push(entry.op_id);
                    log_file.first.get_or_insert(entry.op_id.index);
                    log_file.last = Some(entry.op_id);
                    points.note(entry.op_id.index, entry.offset);
                }
                log_file.points = Some(points);
            }
        }
        if log_file.last != next.before {
            let fault = Fault::wrong_header("entry before the file");
            return Err(corrupt(self.dir, next.number, fault));
        }
        log_file.end = file.size;
        log_file.closed = true;
        self.log.files.push_back(log_file);
        Ok(())
    }

    /// Starts a file from its header, before its entries are read.
    fn begin(&mut self, header: &FileHeader) {
        self.log.gtids = header.previous_gtids.clone();
        self.log.sequence_number = 0;
        let known = &mut self.log.memberships.0;
        if let Some(membership) = &header.membership
            && known.last().map(|last| last.op_id) != Some(membership.op_id)
        {
            known.push(membership.clone());
        }
    }

    fn whole_file(
        &mut self,
        file: &SurveyedFile,
        header: &Arc<FileHeader>,
        next: Option<&Result<Arc<FileHeader>, Fault>>,
    ) -> Result<(), OpenError> {
        self.begin(header);
        let mut log_file = LogFile::begin(header.clone());
        let open = open_file(self.fs, self.dir, file.number)?;
        let (state, fault) = self.entries(file, &open, &mut log_file)?;
        log_file.closed = state.rotate.is_some();
        self.log.files.push_back(log_file);
        if let Some(Ok(next)) = next {
            // A file with a successor must end with a rotate entry, and the successor's header must follow from it.
            if let Some(fault) = fault.or_else(|| state.missing_rotate()) {
                return Err(corrupt(self.dir, file.number, fault));
            }
            if let Some(fault) = state.fault_of_next(next) {
                return Err(corrupt(self.dir, next.number, fault));
            }
            self.log.gtids = state.gtids;
            return Ok(());
        }
        // Otherwise the next file's classification determines whether this one may end here.
        if next.is_none() {
            self.log.tail = match &fault {
                Some(fault) => self.classify(file, &open, fault)?,
                None if state.rotate.is_some() => TailState::RotateWithoutNext,
                None => TailState::Clean,
            };
        }
        self.log.gtids = state.gtids;
        self.log.rotate = state.rotate;
        self.log.tail_fault = fault.map(|fault| (file.number, fault));
        Ok(())
    }

    /// Reads a file's entries up to its end or its first fault.
    fn entries(
        &mut self,
        file: &SurveyedFile,
        open: &Arc<dyn StorageFile>,
        log_file: &mut LogFile,
    ) -> Result<(FileState, Option<Fault>), OpenError> {
        let header = log_file.header.clone();
        let mut scanner = EntryScanner::of_file(open, file.size, &header);
        let mut state = FileState::begin(&header);
        state.membership = self.log.memberships.0.last().cloned();
        let mut reported = 0;
        let fault = loop {
            let entry = match scanner.next(Depth::Full) {
                Ok(Some(entry)) => entry,
                Ok(None) => break None,
                Err(ScanError::Fault(fault)) => break Some(fault),
                Err(error) => return Err(scan_error(self.dir, file.number, error)),
            };
            log_file.note(entry.op_id, entry.offset, entry.end);
            self.log.terms.push(entry.op_id);
            self.log.verified_entries += 1;
            let (index, written) = (entry.op_id.index, &mut self.log.written);
            let end = LogPlace::new(file.number, entry.end);
            written.append(index, entry.content.gtid());
            written.written(index, end);
            if let Some(committed) = self.committed {
                written.settle(committed.index);
            }
            state.add(&entry);
            if let Content::Membership(logged) = entry.content {
                self.log.memberships.0.push(logged);
            }
            if entry.end >= reported + PROGRESS_EVERY_BYTES {
                reported = entry.end;
                self.report_progress(reported);
            }
        };
        self.log.sequence_number = state.sequence_number;
        self.log.verified_bytes += scanner.offset();
        self.done_bytes += file.size;
        self.report_progress(0);
        Ok((state, fault))
    }

    fn report_progress(&self, in_file: u64) {
        if let Some(progress) = self.progress {
            let done_bytes = self.done_bytes + in_file;
            progress(VerifyProgress {
                done_bytes,
                total_bytes: self.total_bytes.max(done_bytes),
            });
        }
    }

    /// Classifies a last file without a good header and without entries. It was being created after a rotate entry, or after a purge floor
    /// beyond the log's end. In any other case the header is a fault.
    fn half_made(&mut self, number: FileNumber, header_fault: &Fault) {
        let first_of_all = self.log.files.back().is_none();
        let rotated = self.log.rotate.is_some() && self.log.tail_fault.is_none();
        let behind_floor = self
            .floor
            .is_some_and(|floor| self.log.end().is_none_or(|end| end.index < floor.index));
        self.log.tail = if first_of_all || rotated || behind_floor {
            TailState::NextHalfMade
        } else {
            self.log
                .tail_fault
                .get_or_insert((number, header_fault.clone()));
            TailState::Damage
        };
    }

    /// Classifies the tail from a fault in the last file.
    ///
    /// Only [`TailState::Garbage`] can have been acknowledged: acknowledged entries were synced, including the file's length. Two signs
    /// prove that a write was unfinished. First, the file ends before the end of an announced entry. An announcement is an event header
    /// whose size and end position agree, or a marker with a valid checksum. Second, the file ends in zeros, although an entry ends with a
    /// checksum. Then the file's length had reached the disk, but not its bytes.
    fn classify(
        &self,
        file: &SurveyedFile,
        open: &Arc<dyn StorageFile>,
        fault: &Fault,
    ) -> Result<TailState, OpenError> {
        let begin = fault.entry_offset;
        let failed = |error| scan_error(self.dir, file.number, error);
        let damage = matches!(fault.kind, FaultKind::AfterRotate | FaultKind::Gap { .. });
        if damage
            || find_entry_after(open, file.size, file.number, begin)
                .map_err(failed)?
                .is_some()
        {
            return Ok(TailState::Damage);
        }
        if is_zero(open, begin, file.size).map_err(failed)? {
            return Ok(TailState::ZeroFilled);
        }
        let in_marker = fault.offset == begin;
        Ok(match fault.kind {
            FaultKind::HeaderCut { .. } if in_marker => TailState::TornHeader,
            FaultKind::EventCut { .. } if in_marker => TailState::TornMarker,
            FaultKind::PayloadMissing { .. } => TailState::PayloadMissing,
            FaultKind::HeaderCut { .. } | FaultKind::EventCut { .. } => TailState::TornPayload,
            _ if ends_in_zeros(open, file.size).map_err(failed)? => TailState::EndsInZeros,
            _ => TailState::Garbage,
        })
    }
}

/// Returns whether the file's last four bytes, where an entry has its checksum, are zeros.
fn ends_in_zeros(file: &Arc<dyn StorageFile>, end: u64) -> Result<bool, ScanError> {
    let checksum = binlog_format::checksum::CHECKSUM_LEN as u64;
    is_zero(file, end.saturating_sub(checksum), end)
}

/// True if the file has only zeros from `offset` on.
fn is_zero(file: &Arc<dyn StorageFile>, offset: u64, end: u64) -> Result<bool, ScanError> {
    let mut window = Window::new(file, end, Window::SCAN_BYTES);
    let mut at = offset;
    loop {
        let bytes = window.bytes(at, Window::SCAN_BYTES)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        if bytes.is_empty() {
            return Ok(true);
        }
        at += bytes.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_new_files_are_read_as_the_bytes_hold() {
        for (most, files) in [
            (0, 0),
            (2, 0),
            (3, 1),
            (6, 1),
            (7, 2),
            (11, 2),
            (12, 3),
            (99, 3),
        ] {
            assert_eq!(fitting([3, 4, 5].into_iter(), most), files, "{most}");
        }
    }
}
