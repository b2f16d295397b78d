//! The other components' access to the log: state, counters, readers, purge plans and holds.

use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use openraft::RaftLogReader;
use raft_types::{
    DoubtedTail, ElectionNotes, FilePart, FileStart, FileStartAnswer, FileStarts, LogIntake,
    LogReport, LogRoom, OpId, OwnLog, REPORTED_RUNS, ReadingEntries, Standing, StoredMembership,
    TermRun, WaitingForLog,
};
use tokio::sync::{oneshot, watch};

use crate::error::StoreError;
use crate::file_system::read_bytes;
use crate::format::{FileHeader, FileNumber};
use crate::log::{LogFile, LogPlace, file_of};
use crate::options::Durability;
use crate::purge::{PurgeCandidate, PurgeHold, PurgePlan, PurgePolicy, StillNeeded, plan_purge};
use crate::read_faults::ReadFault;
use crate::reader::LogReader;
use crate::scan::scan_start;
use crate::shared::Shared;
use crate::stats::StoreStats;
use crate::writer::Command;

/// The file being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentFile {
    /// The file's number; its name is [`FileNumber::name`].
    pub number: FileNumber,
    /// The file's durable size in bytes.
    pub size: u64,
    /// Creation time in seconds since 1970, by the clock of the member that led then.
    pub begun: u32,
}

/// A handle on an open log. Cloning is cheap; the log stays open until the store and all handles are dropped.
#[derive(Clone)]
pub struct LogHandle {
    pub(crate) shared: Arc<Shared>,
}

impl LogHandle {
    /// All GTIDs of the log: in purged files, present files, and entries being written.
    pub fn gtid_set(&self) -> GtidSet {
        self.shared.view.lock().gtids.clone()
    }

    /// The sequence number of the last transaction in the file that the next entry belongs to; 0 if that file has no transaction. The
    /// server that wrote the transaction assigned the number. Includes entries being written.
    pub fn sequence_number(&self) -> i64 {
        self.shared.view.lock().sequence_number
    }

    /// The canonical format description of the current file, with a zero timestamp. If the upstream's format description, also with a zero
    /// timestamp, differs from it, a rotation is due.
    pub fn format_description(&self) -> Bytes {
        let view = self.shared.view.lock();
        view.files
            .back()
            .map(|file| file.header.format_description.clone())
            .unwrap_or_default()
    }

    /// The file being written.
    pub fn current_file(&self) -> CurrentFile {
        let view = self.shared.view.lock();
        let current = view.files.back();
        CurrentFile {
            number: current.map_or(FileNumber::FIRST, |file| file.number()),
            size: current.map_or(0, |file| file.end),
            begun: current.map_or(0, |file| file.header.timestamp),
        }
    }

    /// The file that begins directly after a rotate entry. `None` before the entry is durable and the file has a header, and after the file
    /// is purged.
    pub fn file_after(&self, rotate: OpId) -> Option<FileNumber> {
        let view = self.shared.view.lock();
        let mut newest_first = view.files.iter().rev();
        let file = newest_first.find(|file| file.header.before == Some(rotate))?;
        Some(file.number())
    }

    /// The first and the last entry available to readers.
    pub fn bounds(&self) -> Option<(OpId, OpId)> {
        self.shared.view.lock().terms.bounds()
    }

    /// The last durable entry.
    pub fn durable(&self) -> Option<OpId> {
        self.shared.view.lock().durable
    }

    /// The op id of the entry at an index, without reading it.
    pub fn op_id_at(&self, index: u64) -> Option<OpId> {
        self.shared.view.lock().terms.op_id(index)
    }

    /// The terms of all durable, unpurged entries, as runs of entries with one term, oldest first.
    pub fn term_runs(&self) -> Vec<TermRun> {
        let view = self.shared.view.lock();
        let durable = view.durable.map(|durable| durable.index);
        durable.map_or_else(Vec::new, |last| view.terms.newest_upto(last, usize::MAX))
    }

    /// The membership in effect at the highest committed entry.
    pub fn committed_membership(&self) -> StoredMembership {
        self.shared.view.lock().committed_membership()
    }

    /// The applied state when the log was opened: the stored committed op id and the membership in effect at that entry.
    pub fn applied_at_open(&self) -> (Option<OpId>, StoredMembership) {
        self.shared.view.lock().at_open.clone()
    }

    /// The highest entry that this log alone proves to be committed. It is the stored committed op id, or a later membership entry that is
    /// followed by another membership.
    pub fn settled(&self) -> Option<OpId> {
        self.shared.view.lock().settled()
    }

    /// When this log reports an entry as durable.
    pub fn durability(&self) -> Durability {
        self.shared.options.durability
    }

    /// A snapshot of the counters and levels of this log.
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            read_failures: self.shared.read_faults.count(),
            queued_bytes: self.shared.queue.bytes(),
            ..self.shared.counters.snapshot()
        }
    }

    /// Why the store has stopped; `None` while it works.
    pub fn failure(&self) -> Option<StoreError> {
        self.shared.view.lock().failure.clone()
    }

    /// The files that are damaged or could not be read for a receiver. Only a receiver that needs such a file waits until the file is
    /// readable again.
    pub fn read_faults(&self) -> Vec<ReadFault> {
        let view = self.shared.view.lock();
        let mut faults = self.shared.read_faults.now();
        faults.retain(|fault| view.files.iter().any(|file| file.number() == fault.file));
        faults
    }

    /// Records that a reader found a file damaged. A closed file is then read back, and replaced if damaged; a file that is no longer part
    /// of this log is ignored.
    pub fn found_damaged(&self, file: FileNumber, why: &str) {
        if self.has_file(file) {
            let fault = ReadFault::damaged(file, why.to_owned());
            self.shared.read_faults.failed(fault);
        }
    }

    /// Returns a new reader.
    pub fn reader(&self) -> LogReader {
        LogReader::new(self.shared.clone(), false)
    }

    /// Keeps the entries starting at `index` in the files until the hold is dropped.
    pub fn hold(&self, index: u64) -> PurgeHold {
        PurgeHold::new(self.shared.clone(), index)
    }

    /// Plans a purge by this policy, and changes nothing. The plan keeps files that a hold or `needed` requires. To carry out the plan,
    /// make the engine purge up to the plan's floor.
    pub fn plan_purge(&self, policy: &PurgePolicy, needed: &StillNeeded) -> PurgePlan {
        let view = self.shared.view.lock();
        let files: Vec<_> = view.files.iter().collect();
        let executed = |next: Option<&&LogFile>| match (&needed.executed, next) {
            (Some(executed), Some(next)) => executed.contains_set(&next.header.previous_gtids),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let mut bytes_from_here: u64 = files.iter().map(|file| file.end).sum();
        let mut kept_for_archive = |file: &LogFile| {
            let bytes = bytes_from_here;
            bytes_from_here -= file.end;
            let needed = needed.by_archive.as_ref();
            needed.is_some_and(|needed| needed.keeps(file.number(), bytes))
        };
        let candidates: Vec<PurgeCandidate> = files
            .iter()
            .enumerate()
            .map(|(at, file)| PurgeCandidate {
                file: file.number(),
                last: file.last_or_before(),
                size: file.end,
                closed: file.closed,
                // A file was closed when the next one was created.
                closed_at: files.get(at + 1).map(|next| next.header.timestamp),
                executed: executed(files.get(at + 1)),
                kept_for_archive: kept_for_archive(file),
            })
            .collect();
        plan_purge(
            &candidates,
            policy,
            view.committed,
            needed.by_ring,
            view.holds.values().min().copied(),
        )
    }

    /// With [`WriterMode::Stepped`](crate::WriterMode::Stepped): writes and syncs all queued requests together, then answers.
    pub fn write_waiting(&self) {
        self.shared.step();
    }

    /// From now on, writes fail on a full disk instead of waiting for space. Called at shutdown: the engine cannot stop while it waits for
    /// the log.
    pub fn wait_for_no_room(&self) {
        self.shared.queue.hurry();
    }

    /// Stops the writer: pending requests are made durable, and no new ones accepted. Blocks until done.
    ///
    /// # Errors
    /// If the writer had stopped before, the error that stopped it.
    pub fn close(&self) -> Result<(), StoreError> {
        self.shared.stop();
        let thread = self.shared.thread.lock();
        let thread = thread.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            let error = std::io::Error::other("the log's writer panicked");
            return Err(StoreError::io("closing the log", &error));
        }
        self.failure().map_or(Ok(()), Err)
    }
}

impl OwnLog for LogHandle {
    fn report(&self) -> LogReport {
        let view = self.shared.view.lock();
        let durable = view.durable.map(|durable| durable.index);
        LogReport {
            vote: view.vote,
            runs: durable.map_or_else(Vec::new, |last| view.terms.newest_upto(last, REPORTED_RUNS)),
        }
    }

    fn entries(&self, range: Range<u64>) -> ReadingEntries<'_> {
        let mut reader = self.reader();
        Box::pin(async move { reader.limited_get_log_entries(range.start, range.end).await })
    }

    fn appended(&self) -> watch::Receiver<u64> {
        self.shared.appended.subscribe()
    }
}

impl LogIntake for LogHandle {
    fn room(&self, needed: u64) -> LogRoom {
        self.shared.space.room(needed, self.shared.queue.bytes())
    }

    fn queue_room(&self, bytes: u64) -> WaitingForLog<'_> {
        Box::pin(self.shared.queue.wait_for_room(bytes))
    }

    fn has(&self, entry: OpId) -> bool {
        self.op_id_at(entry.index) == Some(entry)
    }
}

// The log as committed files, for a binlog server. It reads only committed parts; the bytes are those of the files.

/// A served log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSize {
    /// Number of the file in the log.
    pub number: FileNumber,
    /// Number of written bytes; in the last file, some of them may be uncommitted.
    pub bytes: u64,
}

/// A file that is preceded only by transactions of a given set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileWithin {
    /// Number of the file in the log.
    pub number: FileNumber,
    /// The entry before the file; `None` at the log's start.
    pub before: Option<OpId>,
}

/// The start of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBegin {
    /// The log's first file.
    pub file: FileNumber,
    /// The entry before the first file; `None` at the start of the ring's log.
    pub before: Option<OpId>,
    /// The GTIDs before the first file.
    pub gtids: GtidSet,
}

impl LogHandle {
    /// The start of the unpurged part of the log; `None` while it has no file.
    pub fn begin(&self) -> Option<LogBegin> {
        let view = self.shared.view.lock();
        let first = view.unpurged_files().next()?;
        Some(LogBegin {
            file: first.number(),
            before: first.header.before,
            gtids: first.header.previous_gtids.clone(),
        })
    }

    /// The unpurged files, oldest first.
    pub fn files(&self) -> Vec<FileSize> {
        let view = self.shared.view.lock();
        let size = |file: &crate::log::LogFile| FileSize {
            number: file.number(),
            bytes: file.end,
        };
        view.unpurged_files().map(size).collect()
    }

    /// The end of the committed part of this member's files. `mark` is the commit index known to the caller; the engine may have reported a
    /// later one to the log.
    pub fn committed_end(&self, mark: Option<OpId>) -> LogPlace {
        self.shared.view.lock().committed_end(mark)
    }

    /// The GTIDs of purged files and of the part up to [`Self::committed_end`].
    pub fn committed_gtids(&self, mark: Option<OpId>) -> GtidSet {
        self.shared.view.lock().committed_gtids(mark)
    }

    /// The GTIDs of all entries that are committed according to `mark` or the engine's reports, including entries not yet on this member's
    /// disk. Readers of the files must see only [`Self::committed_gtids`].
    pub fn gtids_committed_in_ring(&self, mark: Option<OpId>) -> GtidSet {
        self.shared.view.lock().gtids_committed_in_ring(mark)
    }

    /// The GTIDs before the first file.
    pub fn purged_gtids(&self) -> GtidSet {
        self.begin().map(|begin| begin.gtids).unwrap_or_default()
    }

    /// The last file that is preceded only by transactions in `have`. A client that has executed `have` needs no earlier file. `None` if
    /// other transactions were purged.
    pub fn last_file_within(&self, have: &GtidSet) -> Option<FileWithin> {
        let view = self.shared.view.lock();
        let within = view
            .unpurged_files()
            .rev()
            .find(|file| have.contains_set(&file.header.previous_gtids))?;
        Some(FileWithin {
            number: within.number(),
            before: within.header.before,
        })
    }

    /// Keeps a file and all later ones until the hold is dropped. `None` if the log no longer has the file.
    #[must_use]
    pub fn hold_file(&self, number: FileNumber) -> Option<PurgeHold> {
        let view = self.shared.view.lock();
        let file = file_of(&view.files, number)?;
        let first = file.header.before.map_or(0, |before| before.index + 1);
        drop(view);
        let hold = self.hold(first);
        // A purge may have removed the file in between.
        let there = file_of(&self.shared.view.lock().files, number).is_some();
        there.then_some(hold)
    }

    /// True if the log has this file unpurged.
    pub(crate) fn has_file(&self, number: FileNumber) -> bool {
        let view = self.shared.view.lock();
        view.unpurged_files().any(|file| file.number() == number)
    }

    /// Reads at most `at_most` bytes of a file starting at an offset; fewer at the file's end. The async threads do not block.
    ///
    /// # Errors
    /// `NotFound` if the file was purged. Disk errors; each is a [`ReadFault`] until the disk returns these bytes.
    pub async fn read_file(&self, place: LogPlace, at_most: usize) -> io::Result<Bytes> {
        let log = self.clone();
        let read = move || {
            let file = log.shared.open_to_read(place.file)?;
            Ok(read_bytes(&*file, place.offset, at_most)?.into())
        };
        let done: io::Result<Bytes> = self.shared.off_thread(read).await?;
        let wanted = place.offset..place.offset.saturating_add(at_most as u64);
        match done {
            Ok(read) => {
                self.shared.read_faults.read(place.file, &wanted);
                Ok(read)
            }
            Err(error) if self.has_file(place.file) => {
                let fault = ReadFault::of_bytes(place.file, wanted, &error);
                let told = io::Error::other(fault.why.clone());
                self.shared.read_faults.failed(fault);
                Err(told)
            }
            Err(error) => Err(error),
        }
    }
}

// File starts: another member's log can start with any file of this log, and this log can restart with a file of another member.

/// Number of attempts to read a file start; an attempt fails if a purge removes the file during the read.
const ATTEMPTS: usize = 4;

impl LogHandle {
    /// Returns the header of the first unpurged file that begins at or after `from`, and the entry before the file.
    fn wanted(&self, from: Option<OpId>) -> Option<(Arc<FileHeader>, OpId)> {
        let view = self.shared.view.lock();
        let from = from.max(view.floor_op_id())?;
        view.files.iter().find_map(|file| {
            let before = file.header.before?;
            (before.index >= from.index).then(|| (file.header.clone(), before))
        })
    }

    /// Reads a file start from the disk; blocks.
    fn read_start(&self, header: &FileHeader, before: OpId) -> io::Result<FileStart> {
        let file = self.shared.open_to_read(header.number)?;
        let size = usize::try_from(header.end).unwrap_or(usize::MAX);
        let start = FileStart {
            before,
            membership: header.membership(),
            header: read_bytes(&*file, 0, size)?.into(),
        };
        scan_start(&start, self.shared.options.ring)?;
        Ok(start)
    }

    /// Passes a command to the writer and waits until it is done.
    fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command + Send + 'static,
    ) -> FileStartAnswer<'_, T> {
        Box::pin(async move { Ok(self.shared.ask(command).await?) })
    }

    /// Finds and reads the first file start at or after `from`; blocks.
    fn find_start(&self, from: Option<OpId>) -> io::Result<Option<FileStart>> {
        let mut failure = None;
        for _ in 0..ATTEMPTS {
            let Some((header, before)) = self.wanted(from) else {
                return Ok(None);
            };
            let (number, first) = (header.number, before.index + 1);
            match self.read_start(&header, before) {
                Ok(start) => {
                    self.shared.read_faults.succeeded(number, first);
                    return Ok(Some(start));
                }
                Err(error) => failure = Some((number, first, error)),
            }
        }
        let Some((number, first, error)) = failure else {
            return Ok(None);
        };
        let error = StoreError::unreadable(format!("reading the begin of {number}"), &error);
        let fault = ReadFault::new(number, first, &error);
        self.shared.read_faults.failed(fault);
        Err(error.into())
    }
}

impl FileStarts for LogHandle {
    fn doubted_tail(&self) -> Option<DoubtedTail> {
        self.shared.view.lock().doubt
    }

    fn settle_tail(&self, from: OpId) -> FileStartAnswer<'_, bool> {
        self.ask(move |done| Command::SettleTail(from, done))
    }

    fn note_doubt(&self, doubt: DoubtedTail) -> FileStartAnswer<'_, ()> {
        self.ask(move |done| Command::NoteDoubt(doubt, done))
    }

    fn election_notes(&self) -> ElectionNotes {
        self.shared.view.lock().elections
    }

    fn note_elections(&self, notes: ElectionNotes) -> FileStartAnswer<'_, ()> {
        self.ask(move |done| Command::NoteElections(notes, done))
    }

    fn standing(&self) -> Option<Standing> {
        let view = self.shared.view.lock();
        Some(Standing {
            term: view.vote.map_or(0, |vote| vote.leader_id.term),
            end: view.durable.max(view.floor_op_id()),
        })
    }

    fn part_of_file(&self, part: FilePart) -> FileStartAnswer<'_, Bytes> {
        Box::pin(LogHandle::part_of_file(self, part))
    }

    fn first_start(&self, from: Option<OpId>) -> FileStartAnswer<'_, Option<FileStart>> {
        let log = self.clone();
        let find = self.shared.off_thread(move || log.find_start(from));
        Box::pin(async move { find.await? })
    }

    fn check_start(&self, start: &FileStart) -> io::Result<()> {
        scan_start(start, self.shared.options.ring).map(|_| ())
    }

    /// Restarts the log with another member's file. If a power cut interrupts this, the next open of the log completes it. Purge holds do
    /// not keep the old entries.
    fn begin_at(&self, start: FileStart) -> FileStartAnswer<'_, ()> {
        Box::pin(async move {
            let start = Box::new(scan_start(&start, self.shared.options.ring)?);
            let begin = |done| Command::Begin(start, done);
            Ok(self.shared.ask(begin).await?)
        })
    }
}
