//! A transaction of the log, decoded as far as scheduling and applying need it. Row images are not decoded: they remain slices
//! of the source's bytes.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use binlog_format::event::EventRef;
use binlog_format::events::{CommitTimestamp, ServerVersion, TableMap};
use binlog_format::gtid::Gtid;
use bytes::Bytes;

use crate::keys::KeyAccess;
use crate::schema::{TableName, TableShape, distinct, same_name};

/// A transaction's place in the log's order. The first transaction of a run has the number after the count of transactions that
/// the target had when the run began; further numbers are consecutive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The number of the next transaction.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A transaction of the log, decoded so that it can be scheduled and applied.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// The place in the log's order. The decoder sets 0, and the run assigns the number.
    pub seq: Seq,
    /// The GTID, which is in the target's `gtid_executed` after the transaction is applied.
    pub gtid: Gtid,
    /// When the server that wrote this log committed the transaction; the lag is measured from this time.
    pub immediate_commit: Option<CommitTimestamp>,
    /// When the original server committed the transaction.
    pub original_commit: Option<CommitTimestamp>,
    /// The version of the original server.
    pub original_version: Option<ServerVersion>,
    /// Size in memory, in bytes.
    pub bytes: usize,
    /// The row changes, or the statements of a barrier.
    pub body: Body,
}

/// The content of a transaction.
#[derive(Debug, Clone)]
pub enum Body {
    /// Row changes and nothing else: scheduled row by row.
    Rows(RowChanges),
    /// Everything else: DDL, statements, XA, and mixtures. A barrier is applied alone: all earlier transactions are committed
    /// before it, and no later one begins until it is committed.
    Barrier(Barrier),
}

/// Session variables of the source that affect how a row is applied, in addition to its images. When mysqld applies a row, it
/// evaluates generated columns, functional keys, CHECK constraints and partitions again. In an AUTO_INCREMENT column it replaces
/// a 0 by a generated number, unless `sql_mode` has NO_AUTO_VALUE_ON_ZERO.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowContext {
    /// `sql_mode`, as bits.
    pub sql_mode: u64,
    /// `lc_time_names`, by its number; 0 is en_US.
    pub lc_time_names: u16,
    /// `time_zone`; `None` for the target's own. The log contains it only if the transaction's first statement has used it.
    /// Other transactions are applied with the last `time_zone` in the log.
    pub time_zone: Option<Arc<[u8]>>,
}

/// Row changes in their order.
#[derive(Debug, Clone, Default)]
pub struct RowChanges {
    /// The session variables for these rows.
    pub context: RowContext,
    /// The changed tables, each once.
    pub tables: Vec<MappedTable>,
    /// The rows events, in order.
    pub events: Vec<RowsEvent>,
    /// The rows of all events, in order.
    pub rows: Vec<RowWrite>,
    /// The keys of all rows; each row has a range of this list.
    pub keys: Vec<KeyAccess>,
}

impl RowChanges {
    /// Returns the keys of one row; none if there is no such row.
    pub fn keys_of(&self, row: usize) -> &[KeyAccess] {
        let keys = self.rows.get(row).map_or(0..0, |row| row.keys.clone());
        let keys = self.keys.get(keys.start as usize..keys.end as usize);
        keys.unwrap_or_default()
    }

    /// Returns the table of one row; `None` if there is no such row.
    pub(crate) fn table_of(&self, row: usize) -> Option<&TableName> {
        let event = self.events.get(self.rows.get(row)?.event as usize)?;
        Some(&self.tables.get(event.table as usize)?.shape.name)
    }
}

/// A table that a transaction changes.
#[derive(Debug, Clone)]
pub struct MappedTable {
    /// Its TABLE_MAP event in canonical form.
    pub map: Bytes,
    /// The table's shape at the target.
    pub shape: Arc<TableShape>,
}

/// One rows event of a transaction, with its rows.
#[derive(Debug, Clone)]
pub struct RowsEvent {
    /// The whole event in canonical form.
    pub event: Bytes,
    /// Offset of the row images in `event`.
    pub images_at: u32,
    /// The table of the event, as an index in [`RowChanges::tables`].
    pub table: u32,
    /// The rows of the event, as indexes in [`RowChanges::rows`].
    pub rows: Range<u32>,
}

/// The write of one row.
#[derive(Debug, Clone)]
pub struct RowWrite {
    /// The rows event, as an index in [`RowChanges::events`].
    pub event: u32,
    /// The byte range of the row's images (before, after, or both) within the event.
    pub images: Range<u32>,
    /// Offset of the image after, if a later update of the row can be merged into this write (joined). Requires an insert or an
    /// update that leaves all keys unchanged, and a complete image after. `None` for other writes.
    pub joinable_after: Option<NonZeroU32>,
    /// The keys of the row, as indexes in [`RowChanges::keys`].
    pub keys: Range<u32>,
}

/// A transaction that is applied alone, after everything before it is committed.
#[derive(Debug, Clone)]
pub struct Barrier {
    /// Session variables for rows before the first statement: those of the BEGIN event, if there is one.
    pub context: Option<RowContext>,
    /// The operations on the session, in order.
    pub steps: Vec<Step>,
    /// The end of the transaction: a commit, or a phase of XA.
    pub end: BarrierEnd,
    /// Which tables may have another shape afterwards.
    pub changes: SchemaChange,
    /// The barrier's tables of engines without transactions. A row transaction becomes a barrier if it writes to such a table.
    pub without_transactions: Vec<TableName>,
}

impl Barrier {
    /// Returns the tables of the barrier's rows, each once; unreadable events are skipped.
    pub(crate) fn tables(&self) -> Vec<TableName> {
        let rows = self.steps.iter().filter_map(|step| match step {
            Step::Rows(events) => Some(events),
            Step::Statement(_) => None,
        });
        // The events that are not table maps fail to decode, and are skipped.
        let names = rows.flatten().filter_map(|event| {
            let map = TableMap::decode(EventRef::new(event).ok()?).ok()?;
            let text = String::from_utf8_lossy;
            Some(TableName::new(&text(&map.schema), &text(&map.table)))
        });
        distinct(names.collect::<Vec<_>>().iter())
    }
}

/// Which tables may have another shape after a barrier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SchemaChange {
    /// No table.
    #[default]
    Nothing,
    /// These tables, and the tables connected to them by foreign keys. The list may contain unchanged tables, but misses none.
    Tables(Vec<Changed>),
    /// Any table: a statement is not fully understood.
    Anything,
}

impl SchemaChange {
    /// Combines two changes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Anything, _) | (_, Self::Anything) => Self::Anything,
            (Self::Nothing, change) | (change, Self::Nothing) => change,
            (Self::Tables(mut tables), Self::Tables(more)) => {
                tables.extend(more);
                Self::Tables(tables)
            }
        }
    }
}

/// An object named in a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// A table that is created, dropped, or changed.
    Table(TableName),
    /// An unchanged table to which a new foreign key of another table refers.
    Referred(TableName),
    /// Every table of a schema is dropped.
    Schema(Box<str>),
}

impl Changed {
    /// True if the statement may affect this table. The log may spell a name differently in statements and in rows
    /// (`lower_case_table_names`), so names are compared without case. On a server with case-sensitive names this matches too
    /// many tables.
    pub fn names(&self, table: &TableName) -> bool {
        match self {
            Self::Table(name) | Self::Referred(name) => {
                same_name(&name.table, &table.table) && same_name(&name.schema, &table.schema)
            }
            Self::Schema(schema) => same_name(schema, &table.schema),
        }
    }
}

/// One step of a barrier.
#[derive(Debug, Clone)]
pub enum Step {
    /// Row changes: canonical TABLE_MAP and rows events, up to the end of a statement.
    Rows(Vec<Bytes>),
    /// One statement of the log.
    Statement(Statement),
}

/// A statement of the log.
#[derive(Debug, Clone)]
pub struct Statement {
    /// The canonical QUERY event (BEGIN and COMMIT are not among the steps).
    pub query: Bytes,
    /// The canonical INTVAR, RAND and USER_VAR events that precede the statement.
    pub variables: Vec<Bytes>,
}

/// How a barrier ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BarrierEnd {
    /// As a transaction: BEGIN before its steps, COMMIT after them.
    Commit,
    /// As [`Self::Commit`], with ROLLBACK in place of COMMIT: only irreversible changes remain, and the GTID.
    Rollback,
    /// The barrier has one statement, which commits implicitly (DDL, XA COMMIT, XA ROLLBACK).
    ByItself,
    /// Its steps contain XA START and XA END. This statement follows them: `XA PREPARE …`, or `XA COMMIT … ONE PHASE`.
    Xa(String),
}
