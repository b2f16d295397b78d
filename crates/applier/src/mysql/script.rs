//! The statements of a packet, and what each of them is for.

use std::io::Write;
use std::ops::Range;

use mysql_link::Statements;

use super::binlog_statement::append_binlog;
use super::row_run::{append_run, first_run};
use crate::transaction::{RowChanges, Transaction};

/// What a statement does. Transactions are counted from 0 within the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// Names the transaction that follows.
    Begin { transaction: usize },
    /// Writes rows of it.
    Rows {
        transaction: usize,
        rows: Range<usize>,
    },
    /// Takes its turn.
    Turn { transaction: usize },
    /// Commits it.
    Commit { transaction: usize },
}

/// Statements with their marks. Kept from one packet to the next with its memory.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) statements: Statements,
    pub(super) marks: Vec<Mark>,
    events: Vec<u8>,
}

impl Script {
    pub(super) fn clear(&mut self) {
        self.statements.clear();
        self.marks.clear();
        if self.events.capacity() > (4 << 20) {
            self.events = Vec::new();
        }
    }

    /// Names the next transaction; for a target with a binlog also when and where it came into being, so that chains of
    /// replicas know.
    pub(super) fn begin(&mut self, at: usize, transaction: &Transaction, target_binlog: bool) {
        self.marks.push(Mark::Begin { transaction: at });
        append_begin(transaction, target_binlog, self.statements.begin());
    }

    /// Writes one run of rows and returns it: the first of `rows` that fit into one statement.
    pub(super) fn rows(
        &mut self,
        at: usize,
        changes: &RowChanges,
        rows: Range<usize>,
        bound: usize,
    ) -> Range<usize> {
        let run = first_run(changes, rows, bound);
        self.events.clear();
        append_run(changes, run.clone(), &mut self.events);
        append_binlog(&self.events, self.statements.begin());
        self.marks.push(Mark::Rows {
            transaction: at,
            rows: run.clone(),
        });
        run
    }

    pub(super) fn turn(&mut self, at: usize, statement: &str) {
        self.marks.push(Mark::Turn { transaction: at });
        self.statements.push(statement);
    }

    pub(super) fn commit(&mut self, at: usize) {
        self.marks.push(Mark::Commit { transaction: at });
        self.statements.push("COMMIT");
    }
}

/// Appends the statement that names a transaction.
pub(super) fn append_begin(transaction: &Transaction, target_binlog: bool, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(out, "SET gtid_next='{}'", transaction.gtid);
    if !target_binlog {
        return;
    }
    if let Some(committed) = transaction.original_commit.or(transaction.immediate_commit) {
        let _ = write!(out, ",original_commit_timestamp={}", committed.0);
    }
    if let Some(version) = transaction.original_version {
        let _ = write!(out, ",original_server_version={}", version.0);
    }
}
