//! The log's own dependency information: `last_committed` and `sequence_number` of each transaction.
//!
//! A group is the longest run of consecutive transactions that could proceed at the same moment: none of them depends on
//! the group's first transaction or a later one. For the longest chain, a transaction begins when all up to its `last_committed` are
//! finished, as in MySQL's parallel replica.

use binlog_format::events::LogicalClock;

use super::groups::GroupCounts;

#[derive(Debug, Default)]
pub(super) struct ClockedLog {
    counts: GroupCounts,
    /// The open group: its first transaction's number, and its size.
    first: i64,
    size: u64,
    /// Numbers since the clock began, each with the time when all up to it are finished.
    finished: Vec<(i64, u64)>,
    /// When everything before the clock began is finished.
    base: u64,
    end: u64,
}

impl ClockedLog {
    /// Adds the next transaction, with this number of row writes.
    pub(super) fn add(&mut self, clock: LogicalClock, writes: u64) {
        let last = self.finished.last().map(|(number, _)| *number);
        // Each file of a server begins again.
        if last.is_none_or(|last| clock.sequence_number <= last) {
            self.close_group();
            self.finished.clear();
            self.base = self.end;
        }
        if self.size > 0 && clock.last_committed >= self.first {
            self.close_group();
        }
        if self.size == 0 {
            self.first = clock.sequence_number;
        }
        self.size += 1;

        let before = self
            .finished
            .partition_point(|(number, _)| *number <= clock.last_committed);
        let start = match before.checked_sub(1).and_then(|at| self.finished.get(at)) {
            Some((_, finished)) => *finished,
            None => self.base,
        };
        self.end = self.end.max(start + writes);
        self.finished.push((clock.sequence_number, self.end));
    }

    fn close_group(&mut self) {
        self.counts.add(self.size);
        self.size = 0;
    }

    /// The groups, the open one included.
    pub(super) fn groups(&self) -> GroupCounts {
        let mut counts = self.counts.clone();
        counts.add(self.size);
        counts
    }

    /// Row writes on the longest chain.
    pub(super) fn longest_chain(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(transactions: &[(i64, i64)]) -> ClockedLog {
        let mut log = ClockedLog::default();
        for (last_committed, sequence_number) in transactions {
            let clock = LogicalClock {
                last_committed: *last_committed,
                sequence_number: *sequence_number,
            };
            log.add(clock, 10);
        }
        log
    }

    fn sizes(log: &ClockedLog) -> Vec<(u64, u64)> {
        let sizes = log.groups().table().sizes;
        sizes.iter().map(|size| (size.size, size.groups)).collect()
    }

    #[test]
    fn a_group_ends_before_what_depends_on_it() {
        // [lag]'s example: 1786 to 1789 are parallel; 1790 depends on one of them; 1791 on none from there on.
        let log = log(&[
            (1784, 1785),
            (1785, 1786),
            (1785, 1787),
            (1785, 1789),
            (1787, 1790),
            (1784, 1791),
        ]);
        assert_eq!(sizes(&log), [(1, 1), (2, 1), (3, 1)]);
        assert_eq!(log.groups().table().average_size, 2.0);
        assert_eq!(log.longest_chain(), 30);
    }

    #[test]
    fn what_depends_on_nothing_is_one_group_and_a_chain_is_many() {
        let free = log(&[(0, 1), (0, 2), (0, 3), (0, 4)]);
        assert_eq!((sizes(&free), free.longest_chain()), (vec![(4, 1)], 10));
        let chain = log(&[(0, 1), (1, 2), (2, 3), (3, 4)]);
        assert_eq!((sizes(&chain), chain.longest_chain()), (vec![(1, 4)], 40));
    }

    #[test]
    fn the_clock_begins_anew_with_each_file() {
        let log = log(&[(0, 1), (0, 2), (0, 1), (0, 2), (0, 3)]);
        assert_eq!(sizes(&log), [(2, 1), (3, 1)]);
        assert_eq!(log.longest_chain(), 20);
    }
}
