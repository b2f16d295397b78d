//! A batch: the next transactions of the log, which are written together and then committed.

use std::ops::Range;
use std::sync::Arc;

use binlog_format::gtid::GtidSet;

use crate::schema::{TableName, distinct};
use crate::transaction::{Body, RowChanges, Transaction};

/// A batch's place in the order of commits, from 1 on. Consecutive within a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchSeq(pub u64);

impl BatchSeq {
    /// The number of the next batch.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// How the transactions of a batch are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commits {
    /// Each transaction separately, under its own GTID.
    OneByOne,
    /// All together, as one transaction of the database, which also records their GTIDs.
    AsOne,
}

/// Consecutive transactions of the log, at least one. Row numbers continue across all of them.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The batch's place in the order of commits.
    pub seq: BatchSeq,
    /// How the batch is committed.
    pub commits: Commits,
    transactions: Vec<Arc<Transaction>>,
    /// For each transaction, the number of rows up to its end.
    row_ends: Vec<usize>,
}

impl Batch {
    /// Creates a batch of transactions. A barrier must be the only transaction in its batch.
    pub fn new(seq: BatchSeq, commits: Commits, transactions: Vec<Arc<Transaction>>) -> Self {
        let rows = |transaction: &Arc<Transaction>| match &transaction.body {
            Body::Rows(changes) => changes.rows.len(),
            Body::Barrier(_) => 0,
        };
        let row_ends = transactions.iter().scan(0, |end, transaction| {
            *end += rows(transaction);
            Some(*end)
        });
        Self {
            seq,
            commits,
            row_ends: row_ends.collect(),
            transactions,
        }
    }

    /// Returns the transactions in the log's order.
    pub fn transactions(&self) -> &[Arc<Transaction>] {
        &self.transactions
    }

    /// Returns the barrier, if the batch consists of one.
    pub fn barrier(&self) -> Option<&Arc<Transaction>> {
        let first = self.transactions.first()?;
        matches!(first.body, Body::Barrier(_)).then_some(first)
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.row_ends.last().copied().unwrap_or_default()
    }

    /// Returns the range of row numbers of one transaction, by its index in the batch.
    pub fn rows_of(&self, transaction: usize) -> Range<usize> {
        let end = |at: usize| self.row_ends.get(at).copied().unwrap_or(self.rows());
        transaction.checked_sub(1).map_or(0, end)..end(transaction)
    }

    /// Splits a range of row numbers by transaction: returns each transaction's changes and the row
    /// range within them.
    pub fn pieces(
        &self,
        rows: Range<usize>,
    ) -> impl Iterator<Item = (&RowChanges, Range<usize>)> + Clone {
        let first = self.row_ends.partition_point(|end| *end <= rows.start);
        let before = first.checked_sub(1).and_then(|at| self.row_ends.get(at));
        let mut begin = before.copied().unwrap_or_default();
        let all = self.transactions.iter().zip(&self.row_ends).skip(first);
        all.map_while(move |(transaction, end)| {
            let from = begin.max(rows.start);
            let upto = (*end).min(rows.end);
            let piece = from.saturating_sub(begin)..upto.saturating_sub(begin);
            begin = *end;
            match &transaction.body {
                Body::Rows(changes) if from < rows.end => Some((changes, piece)),
                _ => None,
            }
        })
    }

    /// Returns the table of a range of rows, if all of them are in one table.
    pub(crate) fn table_of(&self, rows: Range<usize>) -> Option<TableName> {
        let mut tables = self.tables_of(rows).into_iter();
        tables.next().filter(|_| tables.len() == 0)
    }

    /// Returns the tables of a range of rows, each once.
    pub(crate) fn tables_of(&self, rows: Range<usize>) -> Vec<TableName> {
        let pieces = self.pieces(rows);
        distinct(
            pieces.flat_map(|(changes, rows)| rows.filter_map(move |row| changes.table_of(row))),
        )
    }

    /// Returns the GTIDs of the transactions.
    pub fn gtids(&self) -> GtidSet {
        self.transactions.iter().map(|one| one.gtid).collect()
    }
}
