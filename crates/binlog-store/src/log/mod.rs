//! The log's in-memory state: files and positions, recent entries, terms, memberships, GTIDs. The writer and the readers share one
//! [`LogView`] under one short lock.

mod file_index;
mod recent;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use binlog_format::gtid::GtidSet;
use raft_types::{DoubtedTail, ElectionNotes, Entry, OpId, StoredMembership, Vote};

use crate::disk_space::DiskSpace;
use crate::error::StoreError;
use crate::file_system::{FileSystem, StorageFile};
use crate::format::{
    Content, FileHeader, FileNumber, InvalidEntry, LoggedMembership, PreparedEntry,
};
use crate::hard_state::{HardState, PurgeFloor};
pub use crate::log::file_index::LogPlace;
pub(crate) use crate::log::file_index::{
    LogFile, LogFiles, Point, Points, ReadStart, WrittenTail, file_of, locate,
};
pub(crate) use crate::log::recent::{Memberships, RecentEntries, TermRuns};
use crate::options::{StoreOptions, WriterMode};
use crate::read_faults::ReadFaults;
use crate::stats::Counters;

// The state that writer and readers share. Every method is short and does no I/O.

/// The log's in-memory state.
pub(crate) struct LogView {
    pub(crate) floor: Option<PurgeFloor>,
    /// The stored vote.
    pub(crate) vote: Option<Vote>,
    /// The highest committed entry that the engine has reported.
    pub(crate) committed: Option<OpId>,
    /// The last durable entry.
    pub(crate) durable: Option<OpId>,
    /// The last entry that survives a power cut. Later entries were written without a sync; with `Durability::Os` they count as durable.
    pub(crate) synced: Option<OpId>,
    pub(crate) recent: RecentEntries,
    pub(crate) files: LogFiles,
    pub(crate) memberships: Memberships,
    pub(crate) terms: TermRuns,
    /// All GTIDs of the log, including the newest entries and purged ones.
    pub(crate) gtids: GtidSet,
    /// The sequence number of the last transaction in the file that the next entry belongs to; 0 if that file has none.
    pub(crate) sequence_number: i64,
    /// The end of the committed part of the files.
    pub(crate) tail: WrittenTail,
    /// Counts truncations. Entries that were read before a truncation may no longer be in the log.
    pub(crate) generation: u64,
    /// Why the store has stopped.
    pub(crate) failure: Option<StoreError>,
    /// The lowest index that each purge hold needs.
    pub(crate) holds: BTreeMap<u64, u64>,
    /// Set after bytes that may have been acknowledged were truncated, until the doubt is resolved.
    pub(crate) doubt: Option<DoubtedTail>,
    /// The record for the next election.
    pub(crate) elections: ElectionNotes,
    /// The committed op id and its membership when the log was opened.
    pub(crate) at_open: (Option<OpId>, StoredMembership),
}

/// How to read entries.
pub(crate) enum ReadPlan {
    /// The entries are in memory. Empty if the log has no entry of the range.
    Entries(Vec<Entry>),
    Disk(DiskRead),
}

/// Entries to read from one file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskRead {
    pub(crate) place: ReadStart,
    pub(crate) start: u64,
    /// The end index, exclusive.
    pub(crate) end: u64,
    pub(crate) budget: u64,
    /// The generation for which the plan is valid.
    pub(crate) generation: u64,
}

/// The end of a reader's last disk read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadHint {
    pub(crate) file: FileNumber,
    pub(crate) next: Point,
    pub(crate) generation: u64,
}

impl LogView {
    /// The purge floor's op id.
    pub(crate) fn floor_op_id(&self) -> Option<OpId> {
        self.floor.as_ref().map(|floor| floor.op_id)
    }

    /// The last entry; if the log has none, the purge floor.
    pub(crate) fn last(&self) -> Option<OpId> {
        self.terms
            .bounds()
            .map(|(_, last)| last)
            .or(self.floor_op_id())
    }

    /// Checks that an entry may follow the last one. A log that never had an entry accepts any index.
    pub(crate) fn check_next(&self, last: Option<OpId>, op_id: OpId) -> Result<(), InvalidEntry> {
        match last.or(self.last()) {
            Some(last) if op_id.index != last.index + 1 || op_id.term < last.term => {
                Err(InvalidEntry::NotNext { op_id, last })
            }
            _ => Ok(()),
        }
    }

    /// Appends an entry; from now on all readers can read it.
    pub(crate) fn append(&mut self, entry: Entry, prepared: &PreparedEntry) {
        self.terms.push(prepared.op_id);
        match &prepared.content {
            Content::Blank => {}
            Content::Membership(logged) => self.memberships.0.push(logged.clone()),
            Content::Transaction(first) => {
                self.gtids.extend(first.gtid);
                self.sequence_number = first.sequence_number;
            }
            Content::Rotate(_) => self.sequence_number = 0,
        }
        self.tail
            .append(prepared.op_id.index, prepared.content.gtid());
        self.recent.push(entry, prepared.memory);
    }

    /// The unpurged files, oldest first. Purged files that a hold keeps on disk are not included.
    pub(crate) fn unpurged_files(&self) -> impl DoubleEndedIterator<Item = &LogFile> {
        let floor = self.floor_op_id().map(|floor| floor.index);
        let purged = move |file: &&LogFile| {
            let before = file.header.before.map(|before| before.index);
            floor.is_some() && before < floor
        };
        self.files.iter().filter(move |file| !purged(file))
    }

    /// The end of the part that is written to this member's files and committed according to the engine or `mark`.
    pub(crate) fn committed_end(&mut self, mark: Option<OpId>) -> LogPlace {
        if let Some(committed) = mark.max(self.committed) {
            self.tail.settle(committed.index);
        }
        let settled = self.tail.settled.map(|(_, place)| place);
        // After a rotate entry, the log continues with the next file's header.
        let continues_in = |file: &&LogFile, place: LogPlace| {
            let unfinished = file.end > place.offset || !file.closed;
            file.number() > place.file || file.number() == place.file && unfinished
        };
        let mut files = self.files.iter();
        let next = files.find(|file| settled.is_none_or(|place| continues_in(file, place)));
        match (settled, next) {
            (Some(place), Some(next)) if next.number() == place.file => place,
            (_, Some(next)) => LogPlace::new(next.number(), next.header.end),
            (settled, None) => settled.unwrap_or(LogPlace::new(FileNumber::FIRST, 0)),
        }
    }

    /// The GTIDs of the part up to [`Self::committed_end`].
    pub(crate) fn committed_gtids(&mut self, mark: Option<OpId>) -> GtidSet {
        self.committed_end(mark);
        self.gtids_upto(None)
    }

    /// The GTIDs of committed entries, whether or not this member has written them.
    pub(crate) fn gtids_committed_in_ring(&self, mark: Option<OpId>) -> GtidSet {
        self.gtids_upto(mark.max(self.committed).map(|committed| committed.index))
    }

    /// The GTIDs of settled entries, and of other entries up to this index.
    fn gtids_upto(&self, committed: Option<u64>) -> GtidSet {
        let mut gtids = self.gtids.clone();
        for gtid in self.tail.uncommitted(committed) {
            gtids.remove(gtid);
        }
        gtids
    }

    /// Removes entries from memory that need not stay there.
    pub(crate) fn evict(&mut self) {
        let index = |op_id: OpId| op_id.index;
        let (durable, committed) = (self.durable.map(index), self.committed.map(index));
        self.recent.evict(durable, committed);
    }

    /// Drops the entries with an index of `from` or more from memory. Does not change the files.
    pub(crate) fn truncate(&mut self, from: u64) {
        self.generation += 1;
        self.terms.truncate(from);
        self.memberships.truncate(from);
        self.recent.truncate(from);
        self.tail.truncate(from);
        let last = self.last();
        for end in [&mut self.durable, &mut self.synced] {
            if end.is_some_and(|end| end.index >= from) {
                *end = last;
            }
        }
    }

    /// Drops the entries up to the floor from memory. Does not change the files.
    pub(crate) fn purge(&mut self, floor: PurgeFloor) {
        let index = floor.op_id.index;
        self.terms.purge(index);
        self.memberships.purge(index);
        self.recent.purge(index);
        self.tail.settle(index);
        self.tail.purge(index);
        for end in [&mut self.durable, &mut self.synced] {
            if end.is_none_or(|end| end.index < index) {
                *end = Some(floor.op_id);
            }
        }
        self.floor = Some(floor);
    }

    /// Resets the state to a log that begins after the floor with a file of this header.
    pub(crate) fn begin_at(&mut self, header: Arc<FileHeader>, floor: PurgeFloor) {
        self.generation += 1;
        self.terms.truncate(0);
        self.recent.truncate(0);
        self.memberships = Memberships(header.membership.clone().into_iter().collect());
        self.gtids = header.previous_gtids.clone();
        self.sequence_number = 0;
        self.tail = WrittenTail::default();
        self.durable = Some(floor.op_id);
        self.synced = self.durable;
        self.committed = self.committed.max(Some(floor.op_id));
        self.floor = Some(floor);
        self.files = [LogFile::begin(header)].into();
    }

    /// Plans a read of the entries from `start` to before `end`. If they do not all fit into `budget`, plans only the first ones.
    pub(crate) fn plan_read(
        &self,
        start: u64,
        end: u64,
        budget: u64,
        hint: Option<ReadHint>,
    ) -> Result<ReadPlan, StoreError> {
        let nothing = Ok(ReadPlan::Entries(Vec::new()));
        let Some((first, last)) = self.terms.bounds() else {
            return nothing;
        };
        let (start, end) = (start.max(first.index), end.min(last.index + 1));
        if start >= end {
            return nothing;
        }
        let in_memory = self.recent.first_index();
        if in_memory.is_some_and(|oldest| oldest <= start) {
            return Ok(ReadPlan::Entries(self.recent.range(start, end, budget)));
        }
        let Some(mut place) = locate(&self.files, start) else {
            let error = std::io::Error::other(format!("no file has entry {start}"));
            return Err(StoreError::unreadable("reading the log", &error));
        };
        if let Some(hint) = hint
            && hint.generation == self.generation
            && hint.file == place.file
            && hint.next.index == start
        {
            place.point = hint.next;
        }
        let end = in_memory.map_or(end, |oldest| end.min(oldest));
        Ok(ReadPlan::Disk(DiskRead {
            place,
            start,
            end,
            budget,
            generation: self.generation,
        }))
    }

    /// The highest entry that is certainly committed: the highest one known as committed, or a later membership entry that is followed by
    /// another membership. A leader writes a membership only after the previous one is committed.
    pub(crate) fn settled(&self) -> Option<OpId> {
        self.committed.max(self.memberships.before_last())
    }

    /// The membership in effect at the highest committed entry.
    pub(crate) fn committed_membership(&self) -> StoredMembership {
        let committed = self.committed.and_then(|id| self.memberships.at(id.index));
        committed.map(LoggedMembership::stored).unwrap_or_default()
    }
}

/// A [`LogView`] shared by several threads.
pub(crate) struct SharedView(pub(crate) Mutex<LogView>);

impl SharedView {
    pub(crate) fn lock(&self) -> MutexGuard<'_, LogView> {
        self.0
            .lock()
            .expect("no thread panics while it holds the log's lock")
    }
}

/// The parts of an open log that its writer, handles and readers share.
pub(crate) struct OpenLog {
    pub(crate) options: StoreOptions,
    pub(crate) fs: Arc<dyn FileSystem>,
    /// The directory of the log's files.
    pub(crate) dir: PathBuf,
    pub(crate) hard: HardState,
    pub(crate) view: SharedView,
    pub(crate) counters: Arc<Counters>,
    pub(crate) space: DiskSpace,
    pub(crate) read_faults: ReadFaults,
}

impl OpenLog {
    /// Opens a log file for reading.
    pub(crate) fn open_to_read(&self, number: FileNumber) -> io::Result<Arc<dyn StorageFile>> {
        self.fs.open_read_only(&self.dir.join(number.name()))
    }

    /// Runs blocking work off the async threads, if there are any.
    pub(crate) async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let runtime = match self.options.writer {
            WriterMode::Inline | WriterMode::Stepped => None,
            WriterMode::Thread => tokio::runtime::Handle::try_current().ok(),
        };
        match runtime {
            Some(runtime) => runtime.spawn_blocking(work).await.map_err(io::Error::other),
            None => Ok(work()),
        }
    }
}
