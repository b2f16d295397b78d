//! A member's log. It answers requests as an engine does, and a proxy can read it as its own log.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use raft_types::{
    AppEntry, Entry, EntryPayload, LogId, LogReport, OpId, OwnLog, ReadingEntries, TermRun,
    TransactionPayload, TypeConfig, Vote,
};
use tokio::sync::watch;

/// The longest wait, by the clock of the tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns an entry with its own op id as the payload.
pub(crate) fn entry(term: u64, index: u64) -> Entry {
    sized_entry(term, index, format!("{term}.{index}").into())
}

pub(crate) fn sized_entry(term: u64, index: u64, bytes: bytes::Bytes) -> Entry {
    let transaction = TransactionPayload::seal(bytes);
    Entry {
        log_id: OpId::new(term, index).into(),
        payload: EntryPayload::Normal(AppEntry::Transaction(transaction)),
    }
}

/// A member's log. Clones are the same log.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Inner>);

#[derive(Default)]
struct Inner {
    content: Mutex<Content>,
    appended: watch::Sender<u64>,
}

#[derive(Default)]
struct Content {
    vote: Option<Vote>,
    entries: BTreeMap<u64, Entry>,
    unreadable: bool,
}

impl Log {
    /// Appends entries of a term.
    pub(crate) fn push(&self, term: u64, count: u64) {
        let first = self.next_index();
        self.push_entries((first..first + count).map(|index| entry(term, index)));
    }

    pub(crate) fn push_entries(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut content = self.content();
        for entry in entries {
            content.entries.insert(entry.log_id.index, entry);
        }
        drop(content);
        self.0.appended.send_replace(self.next_index());
    }

    pub(crate) fn purge_below(&self, index: u64) {
        let mut content = self.content();
        content.entries = content.entries.split_off(&index);
    }

    /// Makes every read fail from now on.
    pub(crate) fn becomes_unreadable(&self) {
        self.content().unreadable = true;
    }

    pub(crate) fn set_vote(&self, vote: Vote) {
        self.content().vote = Some(vote);
    }

    pub(crate) fn next_index(&self) -> u64 {
        let content = self.content();
        let last = content.entries.last_key_value();
        last.map_or(0, |(index, _)| index + 1)
    }

    pub(crate) fn all(&self) -> Vec<Entry> {
        self.content().entries.values().cloned().collect()
    }

    pub(crate) fn range(&self, range: Range<u64>) -> Vec<Entry> {
        let content = self.content();
        let there = content.entries.range(range);
        there.map(|(_, entry)| entry.clone()).collect()
    }

    /// Waits until the log has this number of entries, at most for [`PATIENCE`].
    pub(crate) async fn reaches(&self, count: u64) {
        let reached = tokio::time::timeout(PATIENCE, self.grows_to(count)).await;
        reached.unwrap_or_else(|_| panic!("{} of {count} entries are there", self.next_index()));
    }

    /// Waits until the log has this number of entries.
    pub(crate) async fn grows_to(&self, count: u64) {
        let mut appended = self.appended();
        appended.wait_for(|next| *next >= count).await.unwrap();
    }

    pub(crate) fn id_at(&self, index: u64) -> Option<LogId> {
        self.content().entries.get(&index).map(|entry| entry.log_id)
    }

    /// Returns the answer of an engine with this log.
    pub(crate) fn append(
        &self,
        request: &AppendEntriesRequest<TypeConfig>,
    ) -> StreamAppendResult<TypeConfig> {
        let mut content = self.content();
        if let Some(higher) = content.vote.filter(|vote| *vote > request.vote) {
            return Err(StreamAppendError::HigherVote(higher));
        }
        content.vote = Some(request.vote);
        if let Some(previous) = request.prev_log_id {
            let there = content.entries.get(&previous.index);
            if there.map(|entry| entry.log_id) != Some(previous) {
                return Err(StreamAppendError::Conflict(previous));
            }
        }
        for entry in &request.entries {
            let index = entry.log_id.index;
            let there = content.entries.get(&index);
            if there.map(|entry| entry.log_id) != Some(entry.log_id) {
                content.entries.split_off(&index);
                content.entries.insert(index, entry.clone());
            }
        }
        drop(content);
        let last = request.entries.last().map(|entry| entry.log_id);
        if let Some(last) = last {
            self.0.appended.send_replace(last.index + 1);
        }
        Ok(last.or(request.prev_log_id))
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.content.lock().unwrap()
    }
}

impl OwnLog for Log {
    fn report(&self) -> LogReport {
        let content = self.content();
        let mut runs: Vec<TermRun> = Vec::new();
        for entry in content.entries.values() {
            let OpId { term, index } = entry.log_id.into();
            match runs.last_mut() {
                Some(run) if run.term == term => run.last = index,
                _ => runs.push(TermRun {
                    term,
                    first: index,
                    last: index,
                }),
            }
        }
        LogReport {
            vote: content.vote,
            runs,
        }
    }

    fn entries(&self, range: Range<u64>) -> ReadingEntries<'_> {
        let content = self.content();
        if content.unreadable {
            let error = std::io::Error::other("the disk fails");
            return Box::pin(std::future::ready(Err(error)));
        }
        // Entries from the start of the range on, or none.
        let there = (range.start..range.end).map_while(|index| content.entries.get(&index));
        let found = there.cloned().collect();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn appended(&self) -> watch::Receiver<u64> {
        self.0.appended.subscribe()
    }
}
