//! Carries out a verdict. A crash after any step leaves a state that the recovery table covers.

use std::io;
use std::path::Path;

use binlog_format::events::FormatDescription;
use bytes::Bytes;
use raft_types::DoubtedTail;

use crate::error::OpenError;
use crate::file_system::{FileSystem, copy_bytes};
use crate::format::{FileHeader, FileNumber, INDEX_TEMPORARY_NAME, encode_file_header};
use crate::hard_state::{
    DOUBT, HardState, LOG, LogRecord, LogStage, PurgeFloor, SavedState, UNSYNCED,
};
use crate::log::LogFile;
use crate::options::StoreOptions;
use crate::recovery::log_scan::ScannedLog;
use crate::recovery::survey::Survey;
use crate::scan::scan_noted_start;
use crate::writer::{begin_file, start_over, write_index};

pub(super) struct Repair<'a> {
    pub(super) fs: &'a dyn FileSystem,
    /// The directory of the log's files.
    pub(super) dir: &'a Path,
    pub(super) hard: &'a HardState,
    pub(super) options: &'a StoreOptions,
}

impl Repair<'_> {
    /// Creates the first file. First records its creation in the hard state. So if files exist without such a record, the hard state was
    /// lost.
    pub(super) fn create_log(&self) -> Result<(), OpenError> {
        let create = || -> io::Result<()> {
            let record = self.record(LogStage::Creating);
            self.hard.store(LOG, Some(&record))?;
            self.fs.create_dir(self.dir)?;
            self.fs.sync_dir(&self.options.data_dir)?;
            let header = FileHeader {
                number: FileNumber::FIRST,
                ring: self.options.ring,
                before: None,
                membership: None,
                previous_gtids: self.options.origin.clone(),
                format_description: FormatDescription::built_in_event().into(),
                timestamp: 0,
                end: 0,
            };
            begin_file(self.fs, self.dir, header)?;
            write_index(self.fs, self.dir, [FileNumber::FIRST])
        };
        create().map_err(OpenError::io("making the first log file"))
    }

    /// Durably records that acknowledged entries may be missing, or will be after a truncation. The record is written before the
    /// truncation. After a crash in between, the next start finds the bytes again; after a later crash, it finds the record.
    pub(super) fn note_doubt(&self, doubt: &DoubtedTail) -> Result<(), OpenError> {
        let noted = self.hard.store(DOUBT, Some(doubt));
        noted.map_err(OpenError::io(
            "noting that acknowledged entries may be lost",
        ))
    }

    /// Creates the file that follows the rotate entry at the log's end, replacing its `half_made` bytes, if any. If these are more than a
    /// header, records `doubt`: entries may have followed the header.
    pub(super) fn make_next_file(
        &self,
        log: &mut ScannedLog,
        half_made: u64,
        doubt: &DoubtedTail,
    ) -> Result<(FileNumber, bool), OpenError> {
        let (Some(rotate), Some(last_file)) = (log.rotate.take(), log.files.back()) else {
            let error = io::Error::other("the log does not end with a rotate entry");
            return Err(OpenError::io("making the next log file")(error));
        };
        let number = last_file.number().next();
        let mut header = FileHeader {
            number,
            ring: self.options.ring,
            before: log.end(),
            membership: log.memberships.0.last().cloned(),
            previous_gtids: log.gtids.clone(),
            format_description: rotate.format_description,
            timestamp: rotate.timestamp,
            end: 0,
        };
        let doubted = half_made > encode_file_header(&mut header).len() as u64;
        if doubted {
            self.note_doubt(doubt)?;
        }
        let (_, header) = begin_file(self.fs, self.dir, header)
            .map_err(OpenError::io(format!("making {number}")))?;
        log.files.push_back(LogFile::begin(header));
        Ok((number, doubted))
    }

    /// Begins a file after the purge floor, which is beyond the log's end. The survey then treats the other files as leftovers.
    pub(super) fn begin_after_floor(
        &self,
        log: &ScannedLog,
        floor: &PurgeFloor,
    ) -> Result<(), OpenError> {
        let Some(last_file) = log.files.back() else {
            return Ok(());
        };
        let number = last_file.number().next();
        let header = FileHeader {
            number,
            before: Some(floor.op_id),
            membership: floor.membership.clone(),
            previous_gtids: log.gtids.clone(),
            ..(*last_file.header).clone()
        };
        let begun = begin_file(self.fs, self.dir, header);
        begun.map_err(OpenError::io(format!("making {number}")))?;
        Ok(())
    }

    /// Completes a recorded restart: afterwards the log begins with the file of this header, and has no other file.
    pub(super) fn start_over(&self, header: Option<Bytes>) -> Result<(), OpenError> {
        let noted = header.unwrap_or_default();
        let complete = || -> io::Result<()> {
            let start = scan_noted_start(noted)?;
            // The restart replaces everything that was written before, so missing parts of it do not matter.
            self.hard.put(UNSYNCED, None)?;
            start_over(self.fs, self.dir, self.hard, &start)?;
            Ok(())
        };
        complete().map_err(OpenError::io("letting the log begin with a later file"))
    }

    /// Makes the last file durable up to `end`. Data after `durable_to` is rewritten: if it was written before a failed sync, it may be
    /// readable but not on the disk.
    pub(super) fn settle_tail(
        &self,
        number: FileNumber,
        durable_to: u64,
        end: u64,
    ) -> Result<(), OpenError> {
        let settle = || -> io::Result<()> {
            let file = self.fs.open(&self.dir.join(number.name()))?;
            let from = durable_to.min(end);
            copy_bytes(&*file, from..end, &*file, from)?;
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
        survey: &Survey,
    ) -> Result<(), OpenError> {
        let tidy = || -> io::Result<()> {
            if rewrite_index {
                write_index(self.fs, self.dir, log.files.iter().map(LogFile::number))?;
            } else if survey.has_temporary_index {
                self.fs.remove(&self.dir.join(INDEX_TEMPORARY_NAME))?;
            }
            let leftovers = survey.leftovers.iter().map(|number| number.name());
            for name in leftovers.chain(survey.unfinished.iter().cloned()) {
                self.fs.remove(&self.dir.join(name))?;
            }
            // The present names may not be durable yet.
            self.fs.sync_dir(self.dir)
        };
        tidy().map_err(OpenError::io("tidying the log directory"))
    }

    /// Records that the log is in use: its loss is detected from now on.
    pub(super) fn note_in_use(&self, saved: &SavedState) -> Result<(), OpenError> {
        let record = self.record(LogStage::InUse);
        let note = || -> io::Result<()> {
            if saved.log.is_none_or(|log| log.stage != LogStage::InUse) {
                self.hard.put(LOG, Some(&record))?;
            }
            // From now on the member relies on the values read from the hard state, so they must be durable.
            self.hard.meta.flush()
        };
        note().map_err(OpenError::io("storing that the log is in use"))
    }

    fn record(&self, stage: LogStage) -> LogRecord {
        let ring = self.options.ring;
        LogRecord { ring, stage }
    }
}
