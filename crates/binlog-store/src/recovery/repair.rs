//! Carries out a verdict. Every step leaves a state in the table.

use std::io;
use std::path::Path;
use std::sync::Arc;

use binlog_format::events::FormatDescription;
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use raft_types::{DoubtedTail, RingId};

use crate::error::OpenError;
use crate::file_system::{FileSystem, StorageFile};
use crate::format::{FileNumber, HeaderSource, INDEX_TEMPORARY_NAME, encode_file_header};
use crate::hard_state::{DOUBT, HardState, LOG, LogRecord, LogStage, PurgeFloor, UNSYNCED};
use crate::log::LogFile;
use crate::recovery::log_scan::ScannedLog;
use crate::scan::scan_noted_start;
use crate::writer::{NewFile, begin_file, start_over, write_index};

/// Bytes per read and write when a tail is made durable.
const COPY_BYTES: usize = 1 << 20;

pub(super) struct Repair<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) dir: &'a Path,
    pub(super) data_dir: &'a Path,
    pub(super) hard: &'a HardState,
    pub(super) ring: RingId,
    pub(super) origin: &'a GtidSet,
}

impl Repair<'_> {
    /// Creates the first file. Its creation is recorded first, so a hard state without a record is known to be lost, not new.
    pub(super) fn create_log(&self) -> Result<(), OpenError> {
        let create = || -> io::Result<()> {
            let record = self.record(LogStage::Creating);
            self.hard.store(LOG, Some(&record))?;
            self.fs.create_dir(self.dir)?;
            self.fs.sync_dir(self.data_dir)?;
            let description = Bytes::from(FormatDescription::built_in_event());
            begin_file(
                self.fs,
                self.dir,
                &HeaderSource {
                    number: FileNumber::FIRST,
                    ring: self.ring,
                    before: None,
                    membership: None,
                    previous_gtids: self.origin,
                    format_description: &description,
                    timestamp: 0,
                },
            )?;
            write_index(self.fs, self.dir, [FileNumber::FIRST])
        };
        create().map_err(OpenError::io("making the first log file"))
    }

    /// Durably records that acknowledged entries may be missing, or will be after a truncation. Written before the truncation: after a
    /// crash in between, the bytes are found again; after a later crash, the record is found.
    pub(super) fn note_doubt(&self, doubt: &DoubtedTail) -> Result<(), OpenError> {
        let noted = self.hard.store(DOUBT, Some(doubt));
        noted.map_err(OpenError::io(
            "noting that acknowledged entries may be lost",
        ))
    }

    /// Creates the file that follows the rotate entry at the log's end, over its `half_made` bytes, if any. Records `doubt` if they exceed
    /// a header: entries may have followed it.
    pub(super) fn make_next_file(
        &self,
        log: &mut ScannedLog,
        half_made: u64,
        doubt: &DoubtedTail,
    ) -> Result<(FileNumber, bool), OpenError> {
        let (Some(rotate), Some(last_file)) = (log.rotate.take(), log.files.current()) else {
            let error = io::Error::other("the log does not end with a rotate entry");
            return Err(OpenError::io("making the next log file")(error));
        };
        let number = last_file.number().next();
        let source = HeaderSource {
            number,
            ring: self.ring,
            before: log.end(),
            membership: log.memberships.last(),
            previous_gtids: &log.gtids,
            format_description: &rotate.format_description,
            timestamp: rotate.timestamp,
        };
        let doubted = half_made > encode_file_header(&source).0.len() as u64;
        if doubted {
            self.note_doubt(doubt)?;
        }
        let NewFile { header, .. } = begin_file(self.fs, self.dir, &source)
            .map_err(OpenError::io(format!("making {number}")))?;
        log.files.push(LogFile::begin(header));
        Ok((number, doubted))
    }

    /// Begins a file after the purge floor, which is beyond the log's end. The survey then treats the other files as leftovers.
    pub(super) fn begin_behind_floor(
        &self,
        log: &ScannedLog,
        floor: &PurgeFloor,
    ) -> Result<(), OpenError> {
        let Some(last_file) = log.files.current() else {
            return Ok(());
        };
        let number = last_file.number().next();
        let source = HeaderSource {
            number,
            ring: self.ring,
            before: Some(floor.op_id),
            membership: floor.membership.as_ref(),
            previous_gtids: &log.gtids,
            format_description: &last_file.header.format_description,
            timestamp: last_file.header.timestamp,
        };
        let begun = begin_file(self.fs, self.dir, &source);
        begun.map_err(OpenError::io(format!("making {number}")))?;
        Ok(())
    }

    /// Completes a recorded restart: the log begins with the file of this header, and has no other.
    pub(super) fn start_over(&self, header: Option<Bytes>) -> Result<(), OpenError> {
        let noted = header.unwrap_or_default();
        let complete = || -> io::Result<()> {
            let start = scan_noted_start(noted)?;
            // Earlier writes no longer count, whatever part of them is missing.
            self.hard.put(UNSYNCED, None)?;
            start_over(self.fs, self.dir, self.hard, &start)?;
            Ok(())
        };
        complete().map_err(OpenError::io("letting the log begin with a later file"))
    }

    /// Makes the last file durable up to `end`, whatever its history. Data written before a failed sync may be readable but not on the
    /// disk; only rewriting guarantees it. Data before `durable_to` is known to be durable.
    pub(super) fn settle_tail(
        &self,
        number: FileNumber,
        durable_to: u64,
        end: u64,
    ) -> Result<(), OpenError> {
        let settle = || -> io::Result<()> {
            let file: Arc<dyn StorageFile> = self.fs.open(&self.dir.join(number.name()))?;
            let mut buffer = vec![0; COPY_BYTES];
            let mut at = durable_to.min(end);
            while at < end {
                let wanted = COPY_BYTES.min(usize::try_from(end - at).unwrap_or(COPY_BYTES));
                let read = file.read_at(&mut buffer[..wanted], at)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                file.write_at(&buffer[..read], at)?;
                at += read as u64;
            }
            file.truncate(end)?;
            file.sync_data()
        };
        settle().map_err(OpenError::io(format!("making {number} durable")))
    }

    /// Rewrites the index if it differs, and removes files that are not part of the log.
    pub(super) fn tidy_directory(
        &self,
        log: &ScannedLog,
        rewrite_index: bool,
        leftovers: &[FileNumber],
        has_temporary_index: bool,
        unfinished: &[String],
    ) -> Result<(), OpenError> {
        let tidy = || -> io::Result<()> {
            if rewrite_index {
                write_index(self.fs, self.dir, log.files.files().map(LogFile::number))?;
            } else if has_temporary_index {
                self.fs.remove(&self.dir.join(INDEX_TEMPORARY_NAME))?;
            }
            for number in leftovers {
                self.fs.remove(&self.dir.join(number.name()))?;
            }
            for name in unfinished {
                self.fs.remove(&self.dir.join(name))?;
            }
            // Existing names may not have been durable.
            self.fs.sync_dir(self.dir)
        };
        tidy().map_err(OpenError::io("tidying the log directory"))
    }

    /// Records that the log is in use: its loss is detected from now on.
    pub(super) fn note_in_use(&self, already: bool) -> Result<(), OpenError> {
        let note = || -> io::Result<()> {
            if !already {
                self.hard.put(LOG, Some(&self.record(LogStage::InUse)))?;
            }
            // Values read from the hard state count from now on, so they must be durable.
            self.hard.flush()
        };
        note().map_err(OpenError::io("storing that the log is in use"))
    }

    fn record(&self, stage: LogStage) -> LogRecord {
        let ring = self.ring;
        LogRecord { ring, stage }
    }
}
