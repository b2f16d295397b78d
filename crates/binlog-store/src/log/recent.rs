//! The newest entries, in memory. Entries that are not yet durable stay even above the size limit, because readers cannot read them from a
//! file.

use std::collections::VecDeque;

use raft_types::{Entry, OpId, TermRun};
use spilling_bytes::SPILLED_FROM;

use crate::format::LoggedMembership;

struct Cached {
    entry: Entry,
    memory: u64,
}

impl Cached {
    fn index(&self) -> u64 {
        self.entry.log_id.index
    }
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

    /// The index of the oldest entry in memory.
    pub(crate) fn first_index(&self) -> Option<u64> {
        self.entries.front().map(Cached::index)
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, entry: Entry, memory: u64) {
        self.bytes += memory;
        self.entries.push_back(Cached { entry, memory });
    }

    /// Returns the entries from `start` to before `end` that are in memory: as many as fit into `budget` bytes, but at least one.
    pub(crate) fn range(&self, start: u64, end: u64, budget: u64) -> Vec<Entry> {
        let Some(first) = self.first_index() else {
            return Vec::new();
        };
        let skip = usize::try_from(start.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut used = 0;
        let mut found = Vec::new();
        for cached in self.entries.iter().skip(skip) {
            let fits = found.is_empty() || used + cached.memory <= budget;
            if cached.index() >= end || !fits {
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
            .is_some_and(|newest| newest.index() >= from)
        {
            self.drop_one(true);
        }
    }

    /// Drops the entries up to `index`.
    pub(crate) fn purge(&mut self, index: u64) {
        while self.first_index().is_some_and(|oldest| oldest <= index) {
            self.drop_one(false);
        }
    }

    /// Drops the oldest entries until the size limit holds. Entries after `durable` stay. Large entries after `committed` stay too, because
    /// the engine reads an entry again when it is committed. Otherwise a large entry would be read from its file into a spill file.
    pub(crate) fn evict(&mut self, durable: Option<u64>, committed: Option<u64>) {
        while self.bytes > self.limit {
            let Some(oldest) = self.entries.front() else {
                return;
            };
            let index = Some(oldest.index());
            let is_large = oldest.memory >= SPILLED_FROM as u64;
            if index > durable || is_large && index > committed {
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

// The terms of the log's entries: one run for each term, a few numbers for the whole log. They return an entry's log id without reading the
// entry.

/// The runs in order, without gaps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TermRuns {
    runs: Vec<TermRun>,
}

impl TermRuns {
    /// Appends an entry.
    pub(crate) fn push(&mut self, op_id: OpId) {
        self.extend(op_id.term, op_id.index, op_id.index);
    }

    /// Appends entries of one term.
    pub(crate) fn extend(&mut self, term: u64, first: u64, last: u64) {
        match self.runs.last_mut() {
            Some(run) if run.term == term => run.last = last,
            _ => self.runs.push(TermRun { term, first, last }),
        }
    }

    /// Drops the entries with an index of `from` or more.
    pub(crate) fn truncate(&mut self, from: u64) {
        self.runs.retain(|run| run.first < from);
        if let Some(run) = self.runs.last_mut() {
            run.last = run.last.min(from.saturating_sub(1));
        }
    }

    /// Drops the entries up to `index`.
    pub(crate) fn purge(&mut self, index: u64) {
        self.runs.retain(|run| run.last > index);
        if let Some(run) = self.runs.first_mut() {
            run.first = run.first.max(index + 1);
        }
    }

    /// The first and the last entry.
    pub(crate) fn bounds(&self) -> Option<(OpId, OpId)> {
        let (first, last) = (self.runs.first()?, self.runs.last()?);
        Some((
            OpId::new(first.term, first.first),
            OpId::new(last.term, last.last),
        ))
    }

    /// The op id of the entry at an index.
    pub(crate) fn op_id(&self, index: u64) -> Option<OpId> {
        let at = self.runs.partition_point(|run| run.last < index);
        let run = self.runs.get(at).filter(|run| run.first <= index)?;
        Some(OpId::new(run.term, index))
    }

    /// The newest runs up to the entry at `last`, `count` of them at most, oldest first.
    pub(crate) fn newest_upto(&self, last: u64, count: usize) -> Vec<TermRun> {
        let upto = self.runs.partition_point(|run| run.first <= last);
        let mut newest = self.runs[upto.saturating_sub(count)..upto].to_vec();
        if let Some(run) = newest.last_mut() {
            run.last = run.last.min(last);
        }
        newest
    }

    /// The last op id of each term among the entries from `first` to `last`.
    pub(crate) fn last_of_each_term(&self, first: u64, last: u64) -> Vec<OpId> {
        let inside = self
            .runs
            .iter()
            .filter(|run| run.last >= first && run.first <= last);
        inside
            .map(|run| OpId::new(run.term, run.last.min(last)))
            .collect()
    }
}

// The memberships of the log: few, so all since the purge floor are kept.

/// Memberships in log order; the first one may precede the first present entry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memberships(pub(crate) Vec<LoggedMembership>);

impl Memberships {
    /// The op id of the second last membership.
    pub(crate) fn before_last(&self) -> Option<OpId> {
        let before = self.0.iter().rev().nth(1);
        before.map(|logged| logged.op_id)
    }

    /// The last membership at or before an index.
    pub(crate) fn at(&self, index: u64) -> Option<&LoggedMembership> {
        self.0
            .iter()
            .rev()
            .find(|logged| logged.op_id.index <= index)
    }

    /// Drops the memberships with an index of `from` or more.
    pub(crate) fn truncate(&mut self, from: u64) {
        self.0.retain(|logged| logged.op_id.index < from);
    }

    /// Drops the memberships up to `index`, except the last of them: it is in effect at `index`.
    pub(crate) fn purge(&mut self, index: u64) {
        let up_to = self
            .0
            .iter()
            .filter(|logged| logged.op_id.index <= index)
            .count();
        self.0.drain(..up_to.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raft_types::EntryPayload;
    use raft_types::LogId;
    use raft_types::OpId;

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
    fn entries_that_are_not_durable_are_never_evicted() {
        let mut recent = filled(250);
        recent.evict(None, None);
        assert_eq!(recent.first_index(), Some(10));
        recent.evict(Some(13), None);
        assert_eq!((recent.first_index(), recent.bytes), (Some(14), 600));
        recent.evict(Some(19), None);
        assert_eq!((recent.first_index(), recent.bytes), (Some(18), 200));
    }

    #[test]
    fn a_large_one_stays_until_it_is_committed() {
        let mut recent = RecentEntries::new(250);
        for (index, memory) in [(10, 100), (11, 1 << 30), (12, 100)] {
            let entry = Entry {
                log_id: LogId::from(OpId::new(1, index)),
                payload: EntryPayload::Blank,
            };
            recent.push(entry, memory);
        }
        recent.evict(Some(12), Some(10));
        assert_eq!(recent.first_index(), Some(11));
        recent.evict(Some(12), Some(11));
        assert_eq!((recent.first_index(), recent.bytes), (Some(12), 100));
    }

    #[test]
    fn both_ends_can_be_cut() {
        let mut recent = filled(10_000);
        recent.truncate(15);
        recent.purge(11);
        assert_eq!(indexes(&recent.range(0, 99, u64::MAX)), [12, 13, 14]);
        recent.truncate(0);
        assert_eq!((recent.first_index(), recent.bytes), (None, 0));
    }
}

#[cfg(test)]
mod term_runs_tests {
    use super::*;

    fn runs() -> TermRuns {
        let mut runs = TermRuns::default();
        for (term, index) in [(1, 5), (1, 6), (2, 7), (4, 8), (4, 9), (4, 10)] {
            runs.push(OpId::new(term, index));
        }
        runs
    }

    #[test]
    fn op_ids_are_found() {
        let runs = runs();
        assert_eq!(runs.runs.len(), 3);
        assert_eq!(runs.bounds(), Some((OpId::new(1, 5), OpId::new(4, 10))));
        assert_eq!(runs.op_id(6), Some(OpId::new(1, 6)));
        assert_eq!(runs.op_id(9), Some(OpId::new(4, 9)));
        assert_eq!((runs.op_id(4), runs.op_id(11)), (None, None));
        assert_eq!(
            runs.last_of_each_term(6, 9),
            [OpId::new(1, 6), OpId::new(2, 7), OpId::new(4, 9)]
        );
    }

    #[test]
    fn the_newest_runs_end_where_they_should() {
        let ends = |last, count| -> Vec<_> {
            let newest = runs().newest_upto(last, count);
            newest.iter().map(|run| (run.first, run.last)).collect()
        };
        assert_eq!(ends(10, 16), [(5, 6), (7, 7), (8, 10)]);
        assert_eq!(ends(9, 2), [(7, 7), (8, 9)]);
        assert_eq!(ends(7, 1), [(7, 7)]);
        assert_eq!(ends(5, 1), [(5, 5)]);
        assert_eq!(ends(4, 16), []);
        assert_eq!(ends(10, 0), []);
    }

    #[test]
    fn both_ends_can_be_cut() {
        let mut cut = runs();
        cut.truncate(9);
        cut.purge(5);
        assert_eq!(cut.bounds(), Some((OpId::new(1, 6), OpId::new(4, 8))));
        cut.purge(6);
        assert_eq!(cut.bounds(), Some((OpId::new(2, 7), OpId::new(4, 8))));
        cut.truncate(7);
        assert_eq!(cut.bounds(), None);
    }
}

#[cfg(test)]
mod memberships_tests {
    use super::*;
    use raft_types::Membership;
    use raft_types::MembershipPayload;

    #[test]
    fn the_one_in_effect_is_found() {
        let mut memberships = Memberships::default();
        for index in [3, 7, 9] {
            let payload = MembershipPayload::seal(Membership::default());
            memberships
                .0
                .push(LoggedMembership::new(OpId::new(1, index), &payload));
        }
        let index_at = |memberships: &Memberships, index| {
            memberships.at(index).map(|logged| logged.op_id.index)
        };
        assert_eq!(
            (index_at(&memberships, 2), index_at(&memberships, 8)),
            (None, Some(7))
        );
        assert_eq!(memberships.before_last().map(|op_id| op_id.index), Some(7));
        memberships.purge(8);
        assert_eq!(
            (index_at(&memberships, 6), index_at(&memberships, 8)),
            (None, Some(7))
        );
        memberships.truncate(9);
        assert_eq!(
            memberships.0.last().map(|logged| logged.op_id.index),
            Some(7)
        );
    }
}
