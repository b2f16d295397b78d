//! openraft's log storage in memory. The disk behind a log survives the log, so that a member can be
//! crashed and started again; it can be slow, and it can fail.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use raft_types::{AppEntry, Entry, EntryPayload, LogId, MAX_MESSAGE_BYTES, TypeConfig, Vote};

/// What survives a member.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryDisk(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
    flush_time: Duration,
    broken: bool,
}

impl MemoryDisk {
    /// A log over this disk.
    pub(crate) fn open(&self) -> MemoryLog {
        MemoryLog(self.clone())
    }

    /// Lets entries take this long to become durable.
    pub(crate) fn set_flush_time(&self, flush_time: Duration) {
        self.content().flush_time = flush_time;
    }

    /// Lets every further append fail.
    #[allow(dead_code, reason = "not every user breaks disks")]
    pub(crate) fn set_broken(&self) {
        self.content().broken = true;
    }

    /// All entries.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.content().entries.values().cloned().collect()
    }

    /// The transactions in the log, in their order.
    pub(crate) fn transactions(&self) -> Vec<bytes::Bytes> {
        let payloads = self.entries().into_iter().map(|entry| entry.payload);
        payloads
            .filter_map(|payload| match payload {
                EntryPayload::Normal(AppEntry::Transaction(payload)) => {
                    Some(payload.bytes().clone())
                }
                _ => None,
            })
            .collect()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap()
    }
}

/// A log over a [`MemoryDisk`], and its reader.
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
        let flush_time = {
            let mut content = self.0.content();
            if content.broken {
                return Err(broken());
            }
            for entry in entries {
                content.entries.insert(entry.log_id.index, entry);
            }
            content.flush_time
        };
        if flush_time.is_zero() {
            callback.io_completed(Ok(()));
        } else {
            tokio::spawn(async move {
                tokio::time::sleep(flush_time).await;
                callback.io_completed(Ok(()));
            });
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let first_gone = last.map_or(0, |last| last.index + 1);
        self.0.content().entries.split_off(&first_gone);
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        let mut content = self.0.content();
        content.entries = content.entries.split_off(&(upto.index + 1));
        content.purged = Some(upto);
        Ok(())
    }
}
