//! A transaction of the log, decoded as far as scheduling and applying need it. The rows themselves stay the source's
//! bytes.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use binlog_format::event::EventRef;
use binlog_format::events::{CommitTimestamp, ServerVersion, TableMap};
use binlog_format::gtid::Gtid;
use bytes::Bytes;

use crate::keys::KeyAccess;
use crate::schema::{TableName, TableShape, distinct, same_name};

/// A transaction's place in the log's order, from 1 on; the target's transactions at the beginning of the run
/// come before the first one that it applies. Consecutive within a run.
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
    /// Its place in the order; the decoder leaves 0, and the run assigns numbers.
    pub seq: Seq,
    /// Its identifier; the target's `gtid_executed` has it once it is applied.
    pub gtid: Gtid,
    /// When the server that wrote this log committed it; the lag is measured from here.
    pub immediate_commit: Option<CommitTimestamp>,
    /// When its original server committed it.
    pub original_commit: Option<CommitTimestamp>,
    /// The version of its original server.
    pub original_version: Option<ServerVersion>,
    /// Its size in memory, in bytes.
    pub bytes: usize,
    /// Its row changes, or the statements of a barrier.
    pub body: Body,
}

/// The content of a transaction.
#[derive(Debug, Clone)]
pub enum Body {
    /// Row changes and nothing else: scheduled row by row.
    Rows(RowChanges),
    /// Everything else (DDL, statements, XA, mixtures): a barrier, applied alone, when all before it is committed and
    /// before any later one begins.
    Barrier(Barrier),
}

/// Session variables of the source that, in addition to the images, determine a row. Wherever mysqld applies a row, it evaluates
/// generated columns, functional keys, CHECK constraints and partitions again. It treats a 0 in an AUTO_INCREMENT column
/// as no value unless the `sql_mode` differs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowContext {
    /// `sql_mode`, as bits.
    pub sql_mode: u64,
    /// `lc_time_names`, by its number; 0 is en_US.
    pub lc_time_names: u16,
    /// `time_zone`; `None` for the target's own. The log has it where the first statement of a transaction has used it;
    /// elsewhere the last one in the log applies.
    pub time_zone: Option<Arc<[u8]>>,
}

/// Row changes in their order.
#[derive(Debug, Clone, Default)]
pub struct RowChanges {
    /// The session that they need.
    pub context: RowContext,
    /// The changed tables, each once.
    pub tables: Vec<MappedTable>,
    /// The rows events, in order.
    pub events: Vec<RowsEvent>,
    /// The rows of all events, in order.
    pub rows: Vec<RowWrite>,
    /// The keys of all rows; each row has a range of them.
    pub keys: Vec<KeyAccess>,
}

impl RowChanges {
    /// The keys of one row; empty for a missing row.
    pub fn keys_of(&self, row: usize) -> &[KeyAccess] {
        let keys = self.rows.get(row).map_or(0..0, |row| row.keys.clone());
        let keys = self.keys.get(keys.start as usize..keys.end as usize);
        keys.unwrap_or_default()
    }

    /// The table of one row; `None` for a missing row.
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
    /// Its table, as an index in [`RowChanges::tables`].
    pub table: u32,
    /// Its rows, as indexes in [`RowChanges::rows`].
    pub rows: Range<u32>,
}

/// The write of one row.
#[derive(Debug, Clone)]
pub struct RowWrite {
    /// Its event, as an index in [`RowChanges::events`].
    pub event: u32,
    /// Its images (before, after, or both) within the event's bytes.
    pub images: Range<u32>,
    /// Offset of its image after, if that contains the complete row and an update of the row that leaves its keys
    /// unchanged can replace this write: an insert, or itself such an update. `None` for others.
    pub joinable_after: Option<NonZeroU32>,
    /// Its keys, as indexes in [`RowChanges::keys`].
    pub keys: Range<u32>,
}

/// A transaction that is applied alone: everything before it is committed first.
#[derive(Debug, Clone)]
pub struct Barrier {
    /// The session for rows before any statement: that of its BEGIN, if it has one.
    pub context: Option<RowContext>,
    /// The operations on the session, in order.
    pub steps: Vec<Step>,
    /// How it ends: by a commit, or as a phase of XA.
    pub end: BarrierEnd,
    /// Which tables may have another shape afterwards.
    pub changes: SchemaChange,
    /// The tables of engines without transactions among those of its rows, for which it is applied alone.
    pub without_transactions: Vec<TableName>,
}

impl Barrier {
    /// The tables of its rows, each once, as far as they can be read.
    pub(crate) fn tables(&self) -> Vec<TableName> {
        let rows = self.steps.iter().filter_map(|step| match step {
            Step::Rows(events) => Some(events),
            Step::Statement(_) => None,
        });
        // Other events are no table maps.
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
    /// None.
    #[default]
    Nothing,
    /// These, and those connected to them by foreign keys. There may be more here than change, never fewer.
    Tables(Vec<Changed>),
    /// Any: a statement is not fully understood.
    Anything,
}

impl SchemaChange {
    /// Both.
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
    /// A table that a new foreign key of another one refers to, and that is itself unchanged.
    Referred(TableName),
    /// Every table of a schema is dropped.
    Schema(Box<str>),
}

impl Changed {
    /// Whether it may affect this table. Servers may spell names differently in statements and in rows
    /// (`lower_case_table_names`); where case counts, more names are treated as equal than are.
    pub fn names(&self, table: &TableName) -> bool {
        match self {
            Self::Table(name) | Self::Referred(name) => {
                same_name(&name.table, &table.table) && same_name(&name.schema, &table.schema)
            }
            Self::Schema(schema) => same_name(schema, &table.schema),
        }
    }
}

/// One part of a barrier.
#[derive(Debug, Clone)]
pub enum Step {
    /// Row changes: canonical TABLE_MAP and rows events, up to the end of a statement.
    Rows(Vec<Bytes>),
    /// A statement with its session.
    Statement(Statement),
}

/// A statement of the log.
#[derive(Debug, Clone)]
pub struct Statement {
    /// The canonical QUERY event (BEGIN and COMMIT are not among the steps).
    pub query: Bytes,
    /// Canonical INTVAR, RAND and USER_VAR events that come before it.
    pub variables: Vec<Bytes>,
}

/// How a barrier ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BarrierEnd {
    /// As a transaction: BEGIN before its steps, COMMIT after them.
    Commit,
    /// The same, rolled back: only irreversible changes remain, and the GTID.
    Rollback,
    /// Its one statement commits by itself (DDL, XA COMMIT, XA ROLLBACK).
    ByItself,
    /// XA START and XA END are among its steps; this statement follows: `XA PREPARE …`, or `XA COMMIT … ONE PHASE`.
    Xa(String),
}
