//! openraft's log storage in memory. The disk of a log outlives the log, so that a member can crash and restart. A disk can be slow and
//! can fail.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::{Range, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use raft_types::{
    AppEntry, DoubtedTail, ElectionNotes, Entry, EntryPayload, FilePart, FileStart,
    FileStartAnswer, FileStarts, LogId, LogReport, MAX_MESSAGE_BYTES, OpId, OwnLog, REPORTED_RUNS,
    ReadingEntries, Standing, StoredMembership, TermRun, TypeConfig, Vote,
};
use tokio::sync::watch;

/// A log's disk: the state that remains after a crash of its member.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryDisk(Arc<Mutex<Content>>);

/// A copy of the content of a disk without purged entries.
pub(crate) struct Snapshot {
    vote: Option<Vote>,
    entries: Vec<Entry>,
}

#[derive(Debug, Default)]
struct Content {
    vote: Option<Vote>,
    purged: Option<LogId>,
    /// The membership in force at the last purged entry.
    membership: StoredMembership,
    entries: BTreeMap<u64, Entry>,
    runs: Vec<TermRun>,
    /// The last flushed index.
    durable: Option<u64>,
    flush_time: Duration,
    broken: bool,
    doubt: Option<DoubtedTail>,
    elections: ElectionNotes,
    appended: watch::Sender<u64>,
}

impl Content {
    fn push(&mut self, entry: Entry) {
        let OpId { term, index } = entry.log_id.into();
        match self.runs.last_mut() {
            Some(run) if run.term == term => run.last = index,
            _ => self.runs.push(TermRun {
                term,
                first: index,
                last: index,
            }),
        }
        self.entries.insert(index, entry);
        self.appended.send_replace(index + 1);
    }

    fn truncate(&mut self, from: u64) {
        self.entries.split_off(&from);
        self.runs.retain(|run| run.first < from);
        if let Some(run) = self.runs.last_mut() {
            run.last = run.last.min(from.saturating_sub(1));
        }
        self.durable = self.durable.min(from.checked_sub(1));
    }

    /// Returns the membership in force at an entry.
    fn membership_at(&self, index: u64) -> StoredMembership {
        let in_log = self.entries.range(..=index).rev();
        let in_log = in_log.filter_map(|(_, entry)| match &entry.payload {
            EntryPayload::Membership(payload) => Some(StoredMembership::new(
                Some(entry.log_id),
                payload.membership().clone(),
            )),
            _ => None,
        });
        let last = in_log.into_iter().next();
        last.unwrap_or_else(|| self.membership.clone())
    }

    fn purge(&mut self, upto: LogId, membership: StoredMembership) {
        self.membership = membership;
        self.durable = self.durable.max(Some(upto.index));
        self.entries = self.entries.split_off(&(upto.index + 1));
        self.runs.retain(|run| run.last > upto.index);
        if let Some(run) = self.runs.first_mut() {
            run.first = run.first.max(upto.index + 1);
        }
        self.purged = Some(upto);
    }

    fn report(&self) -> LogReport {
        let durable = self.durable;
        let flushed = self.runs.iter().filter(|run| Some(run.first) <= durable);
        let mut runs: Vec<_> = flushed.copied().collect();
        if let (Some(run), Some(durable)) = (runs.last_mut(), durable) {
            run.last = run.last.min(durable);
        }
        LogReport {
            vote: self.vote,
            runs: runs.split_off(runs.len().saturating_sub(REPORTED_RUNS)),
        }
    }
}

impl MemoryDisk {
    /// Opens a log on this disk.
    pub(crate) fn open(&self) -> MemoryLog {
        MemoryLog(self.clone())
    }

    /// Returns a copy of the current content.
    #[allow(dead_code, reason = "not every user puts disks back")]
    pub(crate) fn snapshot(&self) -> Snapshot {
        let content = self.content();
        Snapshot {
            vote: content.vote,
            entries: content.entries.values().cloned().collect(),
        }
    }

    /// Restores the disk of a stopped member to a snapshot.
    #[allow(dead_code, reason = "not every user puts disks back")]
    pub(crate) fn restore(&self, snapshot: Snapshot) {
        let Snapshot { vote, entries } = snapshot;
        self.content().truncate(0);
        self.content().vote = vote;
        for entry in entries {
            let mut content = self.content();
            content.durable = Some(entry.log_id.index);
            content.push(entry);
        }
    }

    /// Records a doubt about the log's end, which the member finds at its next start.
    #[allow(dead_code, reason = "not every user has damaged logs")]
    pub(crate) fn set_doubt(&self, doubt: DoubtedTail) {
        self.content().doubt = Some(doubt);
    }

    /// Returns true while a doubt about the log's end is recorded.
    #[allow(dead_code, reason = "not every user has damaged logs")]
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.content().doubt.is_some()
    }

    /// Stores a vote and entries on a stopped member's disk.
    #[allow(dead_code, reason = "not every user begins with a log")]
    pub(crate) fn preload(&self, vote: Vote, entries: impl IntoIterator<Item = Entry>) {
        let mut content = self.content();
        content.vote = Some(vote);
        for entry in entries {
            content.durable = Some(entry.log_id.index);
            content.push(entry);
        }
    }

    /// Sets the time until an appended entry becomes durable.
    pub(crate) fn set_flush_time(&self, flush_time: Duration) {
        self.content().flush_time = flush_time;
    }

    /// Removes the beginning of a stopped member's log.
    #[allow(dead_code, reason = "not every user begins with a log")]
    pub(crate) fn purge_upto(&self, upto: LogId, membership: StoredMembership) {
        self.content().purge(upto, membership);
    }

    /// Removes the end of a stopped member's log, to simulate the loss of acknowledged entries.
    #[allow(dead_code, reason = "not every user has damaged logs")]
    pub(crate) fn lose_from(&self, index: u64) {
        self.content().truncate(index);
    }

    /// Makes every further append fail.
    #[allow(dead_code, reason = "not every user breaks disks")]
    pub(crate) fn set_broken(&self) {
        self.content().broken = true;
    }

    /// Returns all entries.
    pub(crate) fn all(&self) -> Vec<Entry> {
        self.content().entries.values().cloned().collect()
    }

    /// Returns the transactions in the log, in their order.
    pub(crate) fn transactions(&self) -> Vec<bytes::Bytes> {
        let payloads = self.all().into_iter().map(|entry| entry.payload);
        payloads
            .filter_map(|payload| match payload {
                EntryPayload::Normal(AppEntry::Transaction(payload)) => {
                    Some(payload.bytes().clone())
                }
                _ => None,
            })
            .collect()
    }

    /// Returns the last purged entry, after which a starting member's log begins, and the membership in force there.
    #[allow(dead_code, reason = "not every user starts members again")]
    pub(crate) fn purged(&self) -> (Option<LogId>, StoredMembership) {
        let content = self.content();
        (content.purged, content.membership.clone())
    }

    /// Records that the log is flushed up to an entry, if the entry is still in it.
    fn flushed(&self, last: Option<LogId>) {
        let mut content = self.content();
        let Some(last) = last else { return };
        let still_there = content
            .entries
            .get(&last.index)
            .is_some_and(|entry| entry.log_id == last);
        if still_there {
            content.durable = content.durable.max(Some(last.index));
        }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap()
    }
}

impl OwnLog for MemoryDisk {
    fn report(&self) -> LogReport {
        self.content().report()
    }

    fn entries(&self, range: Range<u64>) -> ReadingEntries<'_> {
        let mut log = self.open();
        Box::pin(async move { log.limited_get_log_entries(range.start, range.end).await })
    }

    fn appended(&self) -> watch::Receiver<u64> {
        self.content().appended.subscribe()
    }
}

/// The log as a sequence of files. A file begins after every entry.
impl FileStarts for MemoryDisk {
    fn first_start(&self, from: Option<OpId>) -> FileStartAnswer<'_, Option<FileStart>> {
        let content = self.content();
        let purged = content.purged.map(OpId::from);
        let start = from.max(purged).map(|before| FileStart {
            before,
            membership: content.membership_at(before.index),
            header: bytes::Bytes::new(),
        });
        Box::pin(std::future::ready(Ok(start)))
    }

    fn check_start(&self, _: &FileStart) -> io::Result<()> {
        Ok(())
    }

    fn begin_at(&self, start: FileStart) -> FileStartAnswer<'_, ()> {
        let before = LogId::from(start.before);
        let mut content = self.content();
        let has_it = content.entries.get(&before.index).map(|entry| entry.log_id) == Some(before);
        if !has_it {
            content.truncate(0);
        }
        if content.purged < Some(before) {
            content.purge(before, start.membership);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn doubted_tail(&self) -> Option<DoubtedTail> {
        self.content().doubt
    }

    fn note_doubt(&self, doubt: DoubtedTail) -> FileStartAnswer<'_, ()> {
        let mut content = self.content();
        content.doubt = Some(content.doubt.map_or(doubt, |known| known.and(doubt)));
        Box::pin(std::future::ready(Ok(())))
    }

    fn election_notes(&self) -> ElectionNotes {
        self.content().elections
    }

    fn note_elections(&self, notes: ElectionNotes) -> FileStartAnswer<'_, ()> {
        self.content().elections = notes;
        Box::pin(std::future::ready(Ok(())))
    }

    fn standing(&self) -> Option<Standing> {
        let content = self.content();
        let durable = content.durable.and_then(|last| content.entries.get(&last));
        let end = durable.map(|last| last.log_id).max(content.purged);
        Some(Standing {
            term: content.vote.map_or(0, |vote| vote.leader_id.term),
            end: end.map(OpId::from),
        })
    }

    fn settle_tail(&self, from: OpId) -> FileStartAnswer<'_, bool> {
        let mut content = self.content();
        let durable = content.durable.and_then(|last| content.entries.get(&last));
        let is_settled = durable.is_some_and(|last| OpId::from(last.log_id) >= from);
        if is_settled {
            content.doubt = None;
        }
        Box::pin(std::future::ready(Ok(is_settled)))
    }

    fn part_of_file(&self, _: FilePart) -> FileStartAnswer<'_, Bytes> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

/// A log on a [`MemoryDisk`], and its reader.
#[derive(Debug, Clone)]
pub(crate) struct MemoryLog(MemoryDisk);

fn broken() -> io::Error {
    io::Error::other("the disk is broken, as the test wants it")
}

impl RaftLogReader<TypeConfig> for MemoryLog {
    async fn try_get_log_entries<R>(&mut self, range: R) -> Result<Vec<Entry>, io::Error>
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let content = self.0.content();
        Ok(content
            .entries
            .range(range)
            .map(|(_, entry)| entry.clone())
            .collect())
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        let content = self.0.content();
        let mut bytes = 0;
        let mut taken = Vec::new();
        for (_, entry) in content.entries.range(start..end) {
            if bytes >= MAX_MESSAGE_BYTES {
                break;
            }
            if let EntryPayload::Normal(AppEntry::Transaction(payload)) = &entry.payload {
                bytes += payload.bytes().len();
            }
            taken.push(entry.clone());
        }
        Ok(taken)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.0.content().vote)
    }
}

impl RaftLogStorage<TypeConfig> for MemoryLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let content = self.0.content();
        let last = content
            .entries
            .values()
            .next_back()
            .map(|entry| entry.log_id);
        Ok(LogState {
            last_purged_log_id: content.purged,
            last_log_id: last.or(content.purged),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let mut content = self.0.content();
        if content.broken {
            return Err(broken());
        }
        content.vote = Some(*vote);
        Ok(())
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: IOFlushed<TypeConfig>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (flush_time, last) = {
            let mut content = self.0.content();
            if content.broken {
                return Err(broken());
            }
            let mut last = None;
            for entry in entries {
                last = Some(entry.log_id);
                content.push(entry);
            }
            (content.flush_time, last)
        };
        if flush_time.is_zero() {
            self.0.flushed(last);
            callback.io_completed(Ok(()));
        } else {
            let disk = self.0.clone();
            tokio::spawn(async move {
                tokio::time::sleep(flush_time).await;
                disk.flushed(last);
                callback.io_completed(Ok(()));
            });
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let first_gone = last.map_or(0, |last| last.index + 1);
        self.0.content().truncate(first_gone);
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        let mut content = self.0.content();
        if content.purged < Some(upto) {
            let membership = content.membership_at(upto.index);
            content.purge(upto, membership);
        }
        Ok(())
    }
}
