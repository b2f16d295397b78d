//! A transaction that is read, and lacks only what the target's tables decide.

use std::mem::size_of;
use std::sync::Arc;

use binlog_format::event::EventRef;
use binlog_format::events::{CommitTimestamp, Rows, ServerVersion, TableId, TableMap};
use binlog_format::gtid::Gtid;
use binlog_format::row_image::{Columns, RowReader};
use bytes::Bytes;

use super::failure::{DecodeCause, DecodeFailure};
use crate::keys::{KeyAccess, RowKeys, TableKeys};
use crate::schema::{TableName, TableShape};
use crate::transaction::{
    Barrier, BarrierEnd, Body, MappedTable, RowChanges, RowWrite, RowsEvent, SchemaChange, Seq,
    Step, Transaction,
};

/// A transaction that is read. [`Self::finish`] needs the shapes of [`Self::tables`].
#[derive(Debug, Clone)]
pub struct Parsed {
    pub(super) head: Head,
    /// Bytes of its events.
    pub(super) bytes: usize,
    /// Bytes that the notes of its rows and keys may take.
    pub(super) max_key_bytes: u64,
    pub(super) content: Content,
}

/// What its GTID event says.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) gtid: Gtid,
    pub(super) immediate_commit: Option<CommitTimestamp>,
    pub(super) original_commit: Option<CommitTimestamp>,
    pub(super) original_version: Option<ServerVersion>,
}

/// What it does.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Rows(Parts),
    Barrier(Barrier),
}

/// Events of a row transaction.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    pub(super) tables: Vec<LoggedTable>,
    pub(super) events: Vec<RowsPart>,
}

/// A table as a transaction's events describe it.
#[derive(Debug, Clone)]
pub struct LoggedTable {
    /// Its number within the transaction.
    pub id: TableId,
    /// Its names.
    pub name: TableName,
    /// The canonical TABLE_MAP event.
    pub map: Bytes,
}

/// A rows event.
#[derive(Debug, Clone)]
pub(super) struct RowsPart {
    pub(super) event: Bytes,
    /// Where in it the images begin.
    pub(super) images_at: u32,
    /// Its place among the tables.
    pub(super) table: u32,
    pub(super) ends_statement: bool,
}

/// A table with what it takes to read its rows.
struct ReadyTable {
    columns: Columns,
    keys: TableKeys,
}

impl Parsed {
    /// Its identifier.
    pub fn gtid(&self) -> Gtid {
        self.head.gtid
    }

    /// Bytes of its events.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is applied alone.
    pub fn is_barrier(&self) -> bool {
        matches!(self.content, Content::Barrier(_))
    }

    /// The tables whose shapes [`Self::finish`] asks for; none for a barrier.
    pub fn tables(&self) -> impl Iterator<Item = &TableName> {
        self.logged_tables().iter().map(|table| &table.name)
    }

    /// The same tables as the log describes them.
    pub fn logged_tables(&self) -> &[LoggedTable] {
        match &self.content {
            Content::Rows(parts) => &parts.tables,
            Content::Barrier(_) => &[],
        }
    }

    /// The transaction, with its rows and their keys. `lookup` gives the target's tables. One whose rows and keys would take
    /// more memory than a transaction may have becomes a barrier: it is applied alone, without them.
    ///
    /// # Errors
    /// When the target has no such table, or rows do not fit.
    pub fn finish(
        self,
        lookup: impl Fn(&TableName) -> Option<Arc<TableShape>>,
    ) -> Result<Transaction, DecodeFailure> {
        let Head {
            gtid,
            immediate_commit,
            original_commit,
            original_version,
        } = self.head;
        let (body, more) = match self.content {
            Content::Barrier(barrier) => (Body::Barrier(barrier), 0),
            Content::Rows(parts) => {
                parts
                    .finish(lookup, self.max_key_bytes)
                    .map_err(|(table, cause)| DecodeFailure {
                        gtid,
                        table,
                        cause: Box::new(cause),
                    })?
            }
        };
        Ok(Transaction {
            seq: Seq::default(),
            gtid,
            immediate_commit,
            original_commit,
            original_version,
            bytes: self.bytes + more,
            body,
        })
    }
}

/// A cause, and the table that it is about.
type InTable = (Option<TableName>, DecodeCause);

impl Parts {
    /// The body, and the bytes that it takes besides the events.
    fn finish(
        self,
        lookup: impl Fn(&TableName) -> Option<Arc<TableShape>>,
        max_key_bytes: u64,
    ) -> Result<(Body, usize), InTable> {
        let mut changes = RowChanges::default();
        let mut ready = Vec::with_capacity(self.tables.len());
        for table in &self.tables {
            let in_table = |cause| (Some(table.name.clone()), cause);
            let shape = lookup(&table.name).ok_or_else(|| in_table(DecodeCause::NoSuchTable))?;
            ready.push(ReadyTable::of(table, &shape).map_err(in_table)?);
            changes.tables.push(MappedTable {
                map: table.map.clone(),
                shape,
            });
        }
        let mut row_keys = RowKeys::default();
        for part in &self.events {
            let place = part.table as usize;
            let (Some(table), Some(logged)) = (ready.get(place), self.tables.get(place)) else {
                continue;
            };
            let fits = part
                .split(table, &mut changes, &mut row_keys, max_key_bytes)
                .map_err(|cause| (Some(logged.name.clone()), cause))?;
            if !fits {
                return Ok((Body::Barrier(self.into_barrier()), 0));
            }
        }
        let more = bytes_of(&changes);
        Ok((Body::Rows(changes), more))
    }

    fn into_barrier(self) -> Barrier {
        let mut steps = Vec::new();
        let mut statement = Vec::new();
        let mut mapped = Vec::new();
        for part in &self.events {
            let table = self.tables.get(part.table as usize);
            if let Some(table) = table.filter(|_| !mapped.contains(&part.table)) {
                // All maps of a statement come before its rows.
                statement.insert(mapped.len(), table.map.clone());
                mapped.push(part.table);
            }
            statement.push(part.event.clone());
            if part.ends_statement {
                steps.push(Step::Rows(std::mem::take(&mut statement)));
                mapped.clear();
            }
        }
        if !statement.is_empty() {
            steps.push(Step::Rows(statement));
        }
        Barrier {
            steps,
            end: BarrierEnd::Commit,
            changes: SchemaChange::Nothing,
        }
    }
}

/// Bytes of the notes about rows.
fn bytes_of(changes: &RowChanges) -> usize {
    changes.rows.len() * size_of::<RowWrite>() + changes.keys.len() * size_of::<KeyAccess>()
}

impl ReadyTable {
    fn of(table: &LoggedTable, shape: &TableShape) -> Result<Self, DecodeCause> {
        let map = TableMap::decode(EventRef::new(&table.map)?)?;
        let columns = Columns::of(&map)?;
        let keys = TableKeys::of(shape, columns.len())?;
        Ok(Self { columns, keys })
    }
}

impl RowsPart {
    /// Appends the event and its rows; false when that takes more than `max_key_bytes`.
    fn split(
        &self,
        table: &ReadyTable,
        changes: &mut RowChanges,
        row_keys: &mut RowKeys,
        max_key_bytes: u64,
    ) -> Result<bool, DecodeCause> {
        let rows = Rows::decode(EventRef::new(&self.event)?)?;
        let mut reader = RowReader::new(&rows, &table.columns)?;
        let event = changes.events.len() as u32;
        let first = changes.rows.len() as u32;
        let cascades_logged = rows.flags & Rows::CASCADES_LOGGED != 0;
        while let Some(row) = reader.next_row()? {
            if bytes_of(changes) as u64 > max_key_bytes {
                return Ok(false);
            }
            // All of it is within an event, whose size has 32 bits, and the bound above is far from as many keys.
            let images =
                self.images_at + row.range.start as u32..self.images_at + row.range.end as u32;
            let first_key = changes.keys.len() as u32;
            changes
                .keys
                .extend_from_slice(row_keys.of(&table.keys, &row, cascades_logged));
            changes.rows.push(RowWrite {
                event,
                images,
                keys: first_key..changes.keys.len() as u32,
            });
        }
        changes.events.push(RowsEvent {
            event: self.event.clone(),
            images_at: self.images_at,
            table: self.table,
            rows: first..changes.rows.len() as u32,
        });
        Ok(true)
    }
}
