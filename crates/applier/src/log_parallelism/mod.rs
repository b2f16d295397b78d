//! Analyses how much parallelism a log allows: by the dependency information that its server wrote into it, and by the row
//! conflicts that the policies `transactions` and `rows` would find. Pure, without a target: shapes of tables come from the log's
//! own table maps.
//!
//! There are two measures. *Groups*: how many transactions could run at the same time. *The longest chain*: how many row writes
//! must run sequentially, with any number of workers, if each write takes the same time. All row writes divided by the
//! longest chain are the greatest possible speedup.

mod writesets;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use binlog_format::events::LogicalClock;
use binlog_format::framing::FramedTransaction;
use serde::Serialize;

use crate::decode::{DecodeCause, DecodeFailure, Decoder};
use crate::log_parallelism::writesets::{GroupCounts, Writesets, shape_of};
pub use crate::log_parallelism::writesets::{GroupSize, Groups};
use crate::schema::{TableName, TableShape};
use crate::transaction::{Body, Transaction};

/// The most keys that are remembered, which take about 100 MB of memory.
const REMEMBERED_KEYS: usize = 1 << 20;

/// Analyses a log, transaction by transaction.
#[derive(Debug)]
pub struct Analysis {
    decoder: Decoder,
    clock: ClockedLog,
    writesets: Writesets,
    transactions: u64,
    barriers: u64,
    writes: u64,
    without_primary_key: BTreeSet<TableName>,
    unknown_primary_key: BTreeSet<TableName>,
}

/// How parallel a log can be applied.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The number of transactions in the log.
    pub transactions: u64,
    /// Barriers among the transactions; each is applied alone (DDL, statements, XA).
    pub barriers: u64,
    /// Row writes. A barrier counts as one.
    pub row_writes: u64,
    /// Commit groups by the dependency information in the log.
    pub by_log: Groups,
    /// Groups by the policy `transactions`. A transaction conflicts with no transaction of its group, and with at least one of the
    /// previous group.
    pub by_writesets: Groups,
    /// The longest chain for each way of applying the log.
    pub chains: Vec<Chain>,
    /// Tables without a primary key. Their rows are written sequentially.
    pub tables_without_primary_key: Vec<String>,
    /// Tables for which the log does not contain the primary key. They are counted as tables without one.
    pub tables_with_unknown_primary_key: Vec<String>,
    /// Keys forgotten because of the memory limit. If a write uses a forgotten key again, it counts as waiting for all forgotten
    /// keys. The reported parallelism is therefore too low rather than too high.
    pub forgotten_keys: u64,
}

/// The longest chain of row writes that wait for each other, with any number of workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chain {
    /// How the log is applied: `serial`, `log` (by its dependency information), `transactions`, `rows`.
    pub policy: &'static str,
    /// The number of row writes in the chain.
    pub row_writes: u64,
    /// All row writes of the log, divided by `row_writes`.
    pub parallelism: f64,
}

impl Analysis {
    /// Creates an analysis that accepts transactions up to this size.
    pub fn new(max_transaction_bytes: u64) -> Self {
        Self {
            decoder: Decoder::new(max_transaction_bytes),
            clock: ClockedLog::default(),
            writesets: Writesets::new(REMEMBERED_KEYS),
            transactions: 0,
            barriers: 0,
            writes: 0,
            without_primary_key: BTreeSet::new(),
            unknown_primary_key: BTreeSet::new(),
        }
    }

    /// Adds the next transaction of the log.
    ///
    /// # Errors
    /// If the transaction cannot be decoded.
    pub fn add(&mut self, framed: &FramedTransaction) -> Result<(), DecodeFailure> {
        let transaction = self.decode(framed)?;
        let writes = match &transaction.body {
            Body::Rows(changes) => changes.rows.len() as u64,
            Body::Barrier(_) => {
                self.barriers += 1;
                1
            }
        };
        self.transactions += 1;
        self.writes += writes;
        self.clock.add(framed.clock, writes);
        self.writesets.add(&transaction);
        Ok(())
    }

    fn decode(&mut self, framed: &FramedTransaction) -> Result<Transaction, DecodeFailure> {
        let parsed = self.decoder.parse(framed)?;
        let mut shapes: HashMap<TableName, Arc<TableShape>> = HashMap::new();
        for table in parsed.logged_tables() {
            let (shape, is_full) = shape_of(table).map_err(|error| {
                let (gtid, table) = (parsed.transaction.gtid, table.name.clone());
                DecodeFailure::new(gtid, Some(table), DecodeCause::Unreadable(error))
            })?;
            if shape.primary_key.is_none() {
                let named = match is_full {
                    true => &mut self.without_primary_key,
                    false => &mut self.unknown_primary_key,
                };
                named.insert(table.name.clone());
            }
            shapes.insert(table.name.clone(), Arc::new(shape));
        }
        parsed.finish(|name| shapes.get(name).cloned())
    }

    /// Returns the report on all transactions added so far.
    pub fn report(mut self) -> Report {
        self.clock.close_group();
        let end = self.writesets.end;
        let chains = [
            ("serial", self.writes),
            ("log", self.clock.end),
            ("transactions", end.transaction_end),
            ("rows", end.row_end),
        ];
        let chain = |(policy, row_writes): (&'static str, u64)| Chain {
            policy,
            row_writes,
            parallelism: self.writes as f64 / row_writes.max(1) as f64,
        };
        let names = |tables: &BTreeSet<TableName>| tables.iter().map(ToString::to_string).collect();
        Report {
            transactions: self.transactions,
            barriers: self.barriers,
            row_writes: self.writes,
            by_log: self.clock.counts.table(),
            by_writesets: self.writesets.groups().table(),
            chains: chains.map(chain).into(),
            tables_without_primary_key: names(&self.without_primary_key),
            tables_with_unknown_primary_key: names(&self.unknown_primary_key),
            forgotten_keys: self.writesets.uses.forgotten,
        }
    }
}

// The log's own dependency information: `last_committed` and `sequence_number` of each transaction.
//
// A group is the longest run of consecutive transactions of which none depends on the first one or a later one; they could run at
// the same time. For the longest chain, a transaction begins when all transactions up to its `last_committed` are finished, as in
// MySQL's parallel replica.

#[derive(Debug, Default)]
struct ClockedLog {
    counts: GroupCounts,
    /// The open group: the sequence number of its first transaction, and its size.
    first: i64,
    size: u64,
    /// The sequence numbers since they last restarted, each with the time when all transactions up to it are finished.
    finished: Vec<(i64, u64)>,
    /// When everything before that restart is finished.
    base: u64,
    /// The length of the longest chain so far, in row writes.
    end: u64,
}

impl ClockedLog {
    /// Adds the next transaction, which has `writes` row writes.
    fn add(&mut self, clock: LogicalClock, writes: u64) {
        let last = self.finished.last().map(|(number, _)| *number);
        // Sequence numbers restart in each binlog file.
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

        let is_before = |(number, _): &(i64, u64)| *number <= clock.last_committed;
        let before = self.finished.partition_point(is_before);
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
        log.close_group();
        log
    }

    fn sizes(log: &ClockedLog) -> Vec<(u64, u64)> {
        let sizes = log.counts.table().sizes;
        sizes.iter().map(|size| (size.size, size.groups)).collect()
    }

    #[test]
    fn a_group_ends_before_its_dependents() {
        // The example of [lag]: 1786 to 1789 are parallel. 1790 depends on one of them. 1791 depends on no transaction from 1790
        // on.
        let log = log(&[
            (1784, 1785),
            (1785, 1786),
            (1785, 1787),
            (1785, 1789),
            (1787, 1790),
            (1784, 1791),
        ]);
        assert_eq!(sizes(&log), [(1, 1), (2, 1), (3, 1)]);
        assert_eq!(log.counts.table().average_size, 2.0);
        assert_eq!(log.end, 30);
    }

    #[test]
    fn independent_transactions_form_one_group_and_a_chain_many() {
        let free = log(&[(0, 1), (0, 2), (0, 3), (0, 4)]);
        assert_eq!((sizes(&free), free.end), (vec![(4, 1)], 10));
        let chain = log(&[(0, 1), (1, 2), (2, 3), (3, 4)]);
        assert_eq!((sizes(&chain), chain.end), (vec![(1, 4)], 40));
    }

    #[test]
    fn the_clock_restarts_with_each_file() {
        let log = log(&[(0, 1), (0, 2), (0, 1), (0, 2), (0, 3)]);
        assert_eq!(sizes(&log), [(2, 1), (3, 1)]);
        assert_eq!(log.end, 20);
    }
}
