//! The newest entries, in memory. What is not yet durable stays whatever the bound says, because no
//! file has it for a reader.

use std::collections::VecDeque;

use raft_types::Entry;

struct Cached {
    entry: Entry,
    memory: u64,
}

/// Consecutive entries up to the log's end.
pub(crate) struct RecentEntries {
    entries: VecDeque<Cached>,
    bytes: u64,
    limit: u64,
}

impl RecentEntries {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            limit,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The index of the oldest entry here.
    pub(crate) fn first_index(&self) -> Option<u64> {
        self.entries.front().map(|cached| cached.entry.log_id.index)
    }

    /// Adds the entry behind the last one.
    pub(crate) fn push(&mut self, entry: Entry, memory: u64) {
        self.bytes += memory;
        self.entries.push_back(Cached { entry, memory });
    }

    /// The entries from `start` to before `end` that are here, as many as fit into `budget` bytes but
    /// at least one.
    pub(crate) fn range(&self, start: u64, end: u64, budget: u64) -> Vec<Entry> {
        let Some(first) = self.first_index() else {
            return Vec::new();
        };
        let skip = usize::try_from(start.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut used = 0;
        let mut found = Vec::new();
        for cached in self.entries.iter().skip(skip) {
            let fits = found.is_empty() || used + cached.memory <= budget;
            if cached.entry.log_id.index >= end || !fits {
                break;
            }
            used += cached.memory;
            found.push(cached.entry.clone());
        }
        found
    }

    /// Drops the entries with an index of `from` or more.
    pub(crate) fn truncate(&mut self, from: u64) {
        while self
            .entries
            .back()
            .is_some_and(|cached| cached.entry.log_id.index >= from)
        {
            self.drop_one(true);
        }
    }

    /// Drops the entries up to `index`.
    pub(crate) fn purge(&mut self, index: u64) {
        while self
            .entries
            .front()
            .is_some_and(|cached| cached.entry.log_id.index <= index)
        {
            self.drop_one(false);
        }
    }

    /// Drops the oldest entries until the bound holds; entries behind `durable` stay.
    pub(crate) fn evict(&mut self, durable: Option<u64>) {
        while self.bytes > self.limit {
            let oldest = self.first_index();
            if oldest.is_none() || oldest > durable {
                return;
            }
            self.drop_one(false);
        }
    }

    fn drop_one(&mut self, newest: bool) {
        let dropped = if newest {
            self.entries.pop_back()
        } else {
            self.entries.pop_front()
        };
        self.bytes -= dropped.map_or(0, |cached| cached.memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raft_types::{EntryPayload, LogId, OpId};

    fn filled(limit: u64) -> RecentEntries {
        let mut recent = RecentEntries::new(limit);
        for index in 10..20 {
            let entry = Entry {
                log_id: LogId::from(OpId::new(1, index)),
                payload: EntryPayload::Blank,
            };
            recent.push(entry, 100);
        }
        recent
    }

    fn indexes(entries: &[Entry]) -> Vec<u64> {
        entries.iter().map(|entry| entry.log_id.index).collect()
    }

    #[test]
    fn range_is_bounded_by_bytes_and_never_empty() {
        let recent = filled(10_000);
        assert_eq!(indexes(&recent.range(12, 15, u64::MAX)), [12, 13, 14]);
        assert_eq!(indexes(&recent.range(12, 15, 200)), [12, 13]);
        assert_eq!(indexes(&recent.range(12, 15, 1)), [12]);
        assert_eq!(indexes(&recent.range(18, 99, u64::MAX)), [18, 19]);
        assert!(recent.range(20, 99, u64::MAX).is_empty());
    }

    #[test]
    fn what_is_not_durable_is_never_evicted() {
        let mut recent = filled(250);
        recent.evict(None);
        assert_eq!(recent.first_index(), Some(10));
        recent.evict(Some(13));
        assert_eq!((recent.first_index(), recent.bytes()), (Some(14), 600));
        recent.evict(Some(19));
        assert_eq!((recent.first_index(), recent.bytes()), (Some(18), 200));
    }

    #[test]
    fn both_ends_can_be_cut() {
        let mut recent = filled(10_000);
        recent.truncate(15);
        recent.purge(11);
        assert_eq!(indexes(&recent.range(0, 99, u64::MAX)), [12, 13, 14]);
        recent.truncate(0);
        assert_eq!((recent.first_index(), recent.bytes()), (None, 0));
    }
}
