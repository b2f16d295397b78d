//! Analyses transactions and reports their parallelism.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use binlog_format::framing::FramedTransaction;
use serde::Serialize;

use crate::decode::{DecodeCause, DecodeFailure, Decoder};
use crate::log_parallelism::clock::ClockedLog;
use crate::log_parallelism::groups::Groups;
use crate::log_parallelism::writesets::{PrimaryKey, Writesets, shape_of};
use crate::schema::{TableName, TableShape};
use crate::transaction::{Body, Transaction};

/// Keys that are remembered: about 100 MB of memory.
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
    /// Barriers among them, which are applied alone: DDL, statements, XA.
    pub barriers: u64,
    /// Row writes, and one for each barrier.
    pub row_writes: u64,
    /// Commit groups by the dependency information in the log.
    pub by_log: Groups,
    /// Levels of the policy `transactions`: those of one level conflict with none of it, and with one or more of the previous
    /// level.
    pub by_writesets: Groups,
    /// The longest chains, one for each way of applying.
    pub chains: Vec<Chain>,
    /// Tables without a primary key: their rows are written sequentially.
    pub tables_without_primary_key: Vec<String>,
    /// Tables whose primary key is missing in the log; counted as having none.
    pub tables_with_unknown_primary_key: Vec<String>,
    /// Keys forgotten because of the memory limit. A write that uses one of them again counts as waiting for all of them, so
    /// that the figures are too low rather than too high.
    pub forgotten_keys: u64,
}

/// The longest chain of row writes that wait for each other, with any number of workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chain {
    /// How the log is applied: `serial`, `log` (by its dependency information), `transactions`, `rows`.
    pub policy: &'static str,
    /// The number of row writes on it.
    pub row_writes: u64,
    /// All row writes divided by those.
    pub parallelism: f64,
}

impl Analysis {
    /// For transactions up to this size.
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
    /// When it cannot be decoded.
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
            let (shape, primary_key) = shape_of(table).map_err(|error| DecodeFailure {
                gtid: parsed.gtid(),
                table: Some(table.name.clone()),
                cause: Box::new(DecodeCause::Unreadable(error)),
            })?;
            let named = match primary_key {
                PrimaryKey::Logged => None,
                PrimaryKey::None => Some(&mut self.without_primary_key),
                PrimaryKey::Unknown => Some(&mut self.unknown_primary_key),
            };
            if let Some(named) = named.filter(|named| !named.contains(&table.name)) {
                named.insert(table.name.clone());
            }
            shapes.insert(table.name.clone(), Arc::new(shape));
        }
        parsed.finish(|name| shapes.get(name).cloned())
    }

    /// The report on all transactions so far.
    pub fn report(&self) -> Report {
        let end = self.writesets.end();
        let chains = [
            ("serial", self.writes),
            ("log", self.clock.longest_chain()),
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
            by_log: self.clock.groups().table(),
            by_writesets: self.writesets.groups().table(),
            chains: chains.map(chain).into(),
            tables_without_primary_key: names(&self.without_primary_key),
            tables_with_unknown_primary_key: names(&self.unknown_primary_key),
            forgotten_keys: self.writesets.forgotten_keys(),
        }
    }
}
