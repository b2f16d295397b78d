//! A parsed transaction, for which only the shapes of the target's tables are missing.

use std::collections::HashMap;
use std::mem::size_of;
use std::num::NonZeroU32;
use std::sync::Arc;

use binlog_format::event::{EventRef, EventType, HEADER_LEN, RawEvent};
use binlog_format::events::{
    Query, Rows, RowsChange, SessionContext, StatementKind, TableId, TableMap, XaPrepare, is_rows,
};
use binlog_format::row_image::{Columns, RowReader};
use bytes::Bytes;

use crate::decode::failure::{DecodeCause, DecodeFailure, INCOMPLETE, misplaced};
use crate::decode::own_schema::ends_statement;
use crate::decode::schema_change::schema_change;
use crate::keys::{KeyAccess, RowKeys, TableKeys};
use crate::schema::{TableName, TableShape};
use crate::transaction::{
    Barrier, BarrierEnd, Body, MappedTable, RowChanges, RowContext, RowWrite, RowsEvent,
    SchemaChange, Statement, Step, Transaction,
};

/// A parsed transaction. [`Self::finish`] completes it with the shapes of [`Self::tables`].
#[derive(Debug, Clone)]
pub struct Parsed {
    /// Complete if it is a barrier; otherwise without its rows.
    pub(crate) transaction: Transaction,
    /// The tables and rows events of a row transaction.
    pub(super) parts: Parts,
    /// All events of a row transaction, in case it must become a barrier.
    pub(super) events: Vec<RawEvent>,
    /// Limit for the metadata of its rows and keys, in bytes.
    pub(super) max_key_bytes: u64,
}

/// The tables and rows events of a row transaction.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    /// The session context of its BEGIN.
    pub(super) context: RowContext,
    pub(super) tables: Vec<LoggedTable>,
    /// The rows events; their rows are not decoded yet.
    pub(super) events: Vec<RowsEvent>,
}

/// A table as the events of a transaction describe it.
#[derive(Debug, Clone)]
pub struct LoggedTable {
    /// The table's number within the transaction.
    pub id: TableId,
    /// Schema and table, as the log spells them.
    pub name: TableName,
    /// Its TABLE_MAP event in canonical form.
    pub map: Bytes,
}

/// A table with everything needed to read its rows.
#[derive(Debug)]
struct ReadyTable {
    shape: Arc<TableShape>,
    columns: Columns,
    keys: TableKeys,
}

/// The most tables in the cache, more than a busy server writes to at the same time. When it is exceeded, the cache is emptied.
const MOST_READY_TABLES: usize = 1024;

/// A cache across transactions. A log repeats the map of a table for each statement, and a prepared table is reused until its
/// map changes.
#[derive(Debug, Default)]
pub struct ReadyTables {
    /// Tables by their table map without the event header, because the header contains a time.
    by_map: HashMap<Bytes, Arc<ReadyTable>>,
    row_keys: RowKeys,
    /// The last `time_zone` that a transaction contained.
    time_zone: Option<Arc<[u8]>>,
}

impl ReadyTables {
    /// Completes a context without a time zone with the last one in the log, as mysqld's applier threads do.
    fn keep_time_zone(&mut self, context: &mut RowContext) {
        // Equal texts share one allocation, so that contexts are compared by address.
        if context.time_zone.is_some() && context.time_zone != self.time_zone {
            self.time_zone = context.time_zone.take();
        }
        context.time_zone.clone_from(&self.time_zone);
    }

    fn of(
        &mut self,
        table: &LoggedTable,
        shape: Arc<TableShape>,
    ) -> Result<Arc<ReadyTable>, DecodeCause> {
        let map = table.map.get(HEADER_LEN..).unwrap_or_default();
        let known = self.by_map.get(map);
        if let Some(ready) = known.filter(|ready| Arc::ptr_eq(&ready.shape, &shape)) {
            return Ok(Arc::clone(ready));
        }
        let logged = TableMap::decode(EventRef::new(&table.map)?)?;
        let columns = Columns::of(&logged)?;
        let keys = TableKeys::of(&shape, columns.len())?;
        let ready = Arc::new(ReadyTable {
            shape,
            columns,
            keys,
        });
        if self.by_map.len() >= MOST_READY_TABLES {
            self.by_map.clear();
        }
        // A copy: a slice of the transaction's bytes would keep all of them in memory.
        let map = Bytes::copy_from_slice(map);
        self.by_map.insert(map, Arc::clone(&ready));
        Ok(ready)
    }
}

impl Parsed {
    /// Returns the tables whose shapes [`Self::finish`] needs; none for a barrier.
    pub fn tables(&self) -> impl Iterator<Item = &TableName> {
        self.parts.tables.iter().map(|table| &table.name)
    }

    /// Returns these tables as the log describes them.
    pub fn logged_tables(&self) -> &[LoggedTable] {
        &self.parts.tables
    }

    /// Returns the transaction with its rows and their keys. `lookup` returns the shape of a table of the target. The
    /// transaction becomes a barrier, without rows and keys, if their metadata would exceed the memory limit, or if it writes to
    /// a table of an engine without transactions.
    ///
    /// # Errors
    /// If the target lacks a table, or the rows do not fit the target's table.
    pub fn finish(
        self,
        lookup: impl Fn(&TableName) -> Option<Arc<TableShape>>,
    ) -> Result<Transaction, DecodeFailure> {
        self.finish_with(&mut ReadyTables::default(), lookup)
    }

    /// As [`Self::finish`], with a cache across transactions.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_with(
        self,
        ready: &mut ReadyTables,
        lookup: impl Fn(&TableName) -> Option<Arc<TableShape>>,
    ) -> Result<Transaction, DecodeFailure> {
        let (mut transaction, mut parts) = (self.transaction, self.parts);
        if let Body::Barrier(barrier) = &mut transaction.body {
            if let Some(context) = &mut barrier.context {
                ready.keep_time_zone(context);
            }
            return Ok(transaction);
        }
        ready.keep_time_zone(&mut parts.context);
        let gtid = transaction.gtid;
        let in_table =
            |table: &LoggedTable, cause| DecodeFailure::new(gtid, Some(table.name.clone()), cause);
        let mut changes = RowChanges {
            context: parts.context.clone(),
            tables: Vec::with_capacity(parts.tables.len()),
            events: Vec::with_capacity(parts.events.len()),
            ..RowChanges::default()
        };
        let mut tables = Vec::with_capacity(parts.tables.len());
        for table in &parts.tables {
            let shape = lookup(&table.name);
            let shape = shape.ok_or_else(|| in_table(table, DecodeCause::NoSuchTable))?;
            let known = ready.of(table, Arc::clone(&shape));
            tables.push(known.map_err(|cause| in_table(table, cause))?);
            changes.tables.push(MappedTable {
                map: table.map.clone(),
                shape,
            });
        }
        let shapes = changes.tables.iter().map(|table| &table.shape);
        let lacking = shapes.filter(|shape| shape.without_transactions.is_some());
        let without_transactions: Vec<TableName> =
            lacking.map(|shape| shape.name.clone()).collect();
        let mut fits = without_transactions.is_empty();
        let mut all = parts.events.iter();
        while fits && let Some(part) = all.next() {
            let place = part.table as usize;
            let (Some(table), Some(logged)) = (tables.get(place), parts.tables.get(place)) else {
                continue;
            };
            let row_keys = &mut ready.row_keys;
            let split = split(part, table, &mut changes, row_keys, self.max_key_bytes);
            fits = split.map_err(|cause| in_table(logged, cause))?;
        }
        if fits {
            transaction.bytes += bytes_of(&changes);
            transaction.body = Body::Rows(changes);
            return Ok(transaction);
        }
        let barrier = read_barrier(self.events);
        let barrier = barrier.map_err(|cause| DecodeFailure::new(gtid, None, cause))?;
        transaction.body = Body::Barrier(Barrier {
            context: Some(parts.context),
            without_transactions,
            ..barrier
        });
        Ok(transaction)
    }
}

/// Size of the metadata about rows, in bytes.
fn bytes_of(changes: &RowChanges) -> usize {
    changes.rows.len() * size_of::<RowWrite>() + changes.keys.len() * size_of::<KeyAccess>()
}

/// Appends an event and its rows to `changes`. Returns false if the metadata would exceed `max_key_bytes`.
fn split(
    part: &RowsEvent,
    table: &ReadyTable,
    changes: &mut RowChanges,
    row_keys: &mut RowKeys,
    max_key_bytes: u64,
) -> Result<bool, DecodeCause> {
    let rows = Rows::decode(EventRef::new(&part.event)?)?;
    let mut reader = RowReader::new(&rows, &table.columns)?;
    let event = changes.events.len() as u32;
    let first = changes.rows.len() as u32;
    let cascades_logged = rows.flags & Rows::CASCADES_LOGGED != 0;
    // In a partial update, the image after begins with value options, unlike in any other event, so it cannot replace another
    // image.
    let is_partial = rows.change == RowsChange::PartialUpdate;
    while let Some(row) = reader.next_row()? {
        if bytes_of(changes) as u64 > max_key_bytes {
            return Ok(false);
        }
        // The casts are lossless: an event has a size of 32 bits, and the limit above allows far fewer than 2^32 keys.
        let images = part.images_at + row.range.start as u32..part.images_at + row.range.end as u32;
        let first_key = changes.keys.len() as u32;
        let keys = row_keys.of(&table.keys, &row, cascades_logged);
        changes.keys.extend_from_slice(keys);
        let is_joinable = !is_partial && table.keys.can_be_joined(&row);
        let joinable_after = is_joinable.then(|| part.images_at + row.after_at as u32);
        changes.rows.push(RowWrite {
            event,
            images,
            joinable_after: joinable_after.and_then(NonZeroU32::new),
            keys: first_key..changes.keys.len() as u32,
        });
    }
    changes.events.push(RowsEvent {
        rows: first..changes.rows.len() as u32,
        ..part.clone()
    });
    Ok(true)
}

// Transactions that only change rows.

impl Parts {
    /// Reads the parts of a row transaction; `None` for any other transaction, which is a barrier.
    pub(super) fn read(events: &[RawEvent]) -> Result<Option<Self>, DecodeCause> {
        let Some((begin, events)) = events.split_first() else {
            return Ok(None);
        };
        // Every row transaction begins with BEGIN.
        if kind(begin)? != Some(StatementKind::Begin) {
            return Ok(None);
        }
        let mut parts = Self {
            context: context(&Query::decode(begin.canonical())?)?,
            ..Self::default()
        };
        let mut has_ended = false;
        for event in events {
            if has_ended {
                return Err(misplaced(event));
            }
            match event.event_type() {
                EventType::TableMap => parts.table_map(event)?,
                EventType::Xid => has_ended = true,
                rows if is_rows(rows) => parts.rows(event)?,
                _ => match kind(event)? {
                    Some(StatementKind::Commit) => has_ended = true,
                    // A savepoint matters only in a barrier: changes that were rolled back to it are not in the log of a row
                    // transaction.
                    Some(StatementKind::Savepoint) => {}
                    _ => return Ok(None),
                },
            }
        }
        match has_ended {
            true => Ok(Some(parts)),
            false => Err(INCOMPLETE),
        }
    }

    fn table_map(&mut self, event: &RawEvent) -> Result<(), DecodeCause> {
        let map = TableMap::decode(event.canonical())?;
        // The log has a map of the table for each statement.
        let mut tables = self.tables.iter();
        if let Some(known) = tables.find(|table| table.id == map.table_id) {
            return match is_same_table(&known.map, event.bytes(), &map)? {
                true => Ok(()),
                false => Err(DecodeCause::DoubleTable(map.table_id)),
            };
        }
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(Box::from);
        let (Ok(schema), Ok(table)) = (text(&map.schema), text(&map.table)) else {
            return Err(DecodeCause::TableName);
        };
        self.tables.push(LoggedTable {
            id: map.table_id,
            name: TableName { schema, table },
            map: event.bytes().clone(),
        });
        Ok(())
    }

    fn rows(&mut self, event: &RawEvent) -> Result<(), DecodeCause> {
        let rows = Rows::decode(event.canonical())?;
        let mut tables = self.tables.iter();
        let table = tables.position(|table| table.id == rows.table_id);
        self.events.push(RowsEvent {
            event: event.bytes().clone(),
            // The images are at the end of the event.
            images_at: (event.bytes().len() - rows.images.len()) as u32,
            table: table.ok_or(DecodeCause::UnknownTable(rows.table_id))? as u32,
            rows: 0..0,
        });
        Ok(())
    }
}

fn kind(event: &RawEvent) -> Result<Option<StatementKind>, DecodeCause> {
    if event.event_type() != EventType::Query {
        return Ok(None);
    }
    let statement = Query::decode(event.canonical())?.statement;
    Ok(Some(StatementKind::of(&statement)))
}

/// Reads the session context of a BEGIN. Variables of a later MySQL version are skipped, as mysqld's applier threads do.
fn context(begin: &Query<'_>) -> Result<RowContext, DecodeCause> {
    let session = SessionContext::decode(&begin.status_variables)?;
    Ok(RowContext {
        sql_mode: session.sql_mode.unwrap_or_default(),
        lc_time_names: session.lc_time_names.unwrap_or_default(),
        time_zone: session.time_zone.map(Arc::from),
    })
}

/// True if a table map names the same table as an earlier map of this number. Flags and optional metadata are not compared: they
/// depend on variables that may change within a transaction.
fn is_same_table(known: &[u8], event: &[u8], map: &TableMap<'_>) -> Result<bool, DecodeCause> {
    // The bytes after the header are nearly always equal. The headers contain different times.
    if known.get(HEADER_LEN..) == event.get(HEADER_LEN..) {
        return Ok(true);
    }
    let known = TableMap::decode(EventRef::new(known)?)?;
    Ok(known.schema == map.schema
        && known.table == map.table
        && known.column_types == map.column_types
        && known.metadata == map.metadata)
}

// Transactions with more than row changes.

/// Reads a barrier from its events.
pub(super) fn read_barrier(events: Vec<RawEvent>) -> Result<Barrier, DecodeCause> {
    let mut parts = BarrierParts::default();
    for event in events {
        parts.take(event)?;
    }
    parts.end_rows();
    Ok(Barrier {
        context: parts.context,
        steps: parts.steps,
        end: parts.end.ok_or(INCOMPLETE)?,
        changes: parts.changes,
        without_transactions: Vec::new(),
    })
}

/// The parts of a barrier that were read so far.
#[derive(Debug, Default)]
struct BarrierParts {
    /// True if BEGIN or XA START was read.
    has_begun: bool,
    /// The session context of the BEGIN event.
    context: Option<RowContext>,
    steps: Vec<Step>,
    /// Table maps and rows events of an unfinished statement.
    rows: Vec<Bytes>,
    /// Events of variables for the next statement.
    variables: Vec<Bytes>,
    changes: SchemaChange,
    end: Option<BarrierEnd>,
}

impl BarrierParts {
    fn take(&mut self, event: RawEvent) -> Result<(), DecodeCause> {
        if self.end.is_some() {
            return Err(misplaced(&event));
        }
        match event.event_type() {
            EventType::Query => self.statement(event)?,
            EventType::IntVar | EventType::Rand | EventType::UserVar => {
                self.variables.push(event.into_bytes());
            }
            EventType::TableMap if self.has_begun => self.rows.push(event.into_bytes()),
            EventType::Xid if self.has_begun => self.end = Some(BarrierEnd::Commit),
            EventType::XaPrepare if self.has_begun => {
                let prepare = XaPrepare::decode(event.canonical())?;
                self.end = Some(BarrierEnd::Xa(second_phase(&prepare)));
            }
            _ if self.has_begun => {
                Rows::decode(event.canonical()).map_err(|_| misplaced(&event))?;
                let ends = ends_statement(event.bytes());
                self.rows.push(event.into_bytes());
                if ends {
                    self.end_rows();
                }
            }
            _ => return Err(misplaced(&event)),
        }
        Ok(())
    }

    fn statement(&mut self, event: RawEvent) -> Result<(), DecodeCause> {
        let query = Query::decode(event.canonical())?;
        let (statement, schema) = (&query.statement, &query.schema);
        match StatementKind::of(statement) {
            StatementKind::Begin if !self.has_begun => {
                self.has_begun = true;
                self.context = Some(context(&query)?);
            }
            StatementKind::XaStart if !self.has_begun => {
                self.has_begun = true;
                self.push_statement(event);
            }
            StatementKind::Begin | StatementKind::XaStart => return Err(misplaced(&event)),
            StatementKind::Commit if self.has_begun => self.end = Some(BarrierEnd::Commit),
            StatementKind::Rollback if self.has_begun => self.end = Some(BarrierEnd::Rollback),
            StatementKind::XaRollback if self.has_begun => {
                let text = String::from_utf8_lossy(statement).into_owned();
                self.end = Some(BarrierEnd::Xa(text));
            }
            _ => {
                let change = schema_change(statement, schema);
                self.changes = std::mem::take(&mut self.changes).and(change);
                if !self.has_begun {
                    self.end = Some(BarrierEnd::ByItself);
                }
                self.push_statement(event);
            }
        }
        Ok(())
    }

    fn push_statement(&mut self, event: RawEvent) {
        self.end_rows();
        self.steps.push(Step::Statement(Statement {
            query: event.into_bytes(),
            variables: std::mem::take(&mut self.variables),
        }));
    }

    fn end_rows(&mut self) {
        if !self.rows.is_empty() {
            self.steps.push(Step::Rows(std::mem::take(&mut self.rows)));
        }
    }
}

/// Returns the statement for an XA_PREPARE event.
fn second_phase(prepare: &XaPrepare<'_>) -> String {
    let (global, branch) = (
        hex::encode(&prepare.global_id),
        hex::encode(&prepare.branch),
    );
    let id = format!("X'{global}',X'{branch}',{}", prepare.format_id);
    match prepare.one_phase {
        true => format!("XA COMMIT {id} ONE PHASE"),
        false => format!("XA PREPARE {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_xa_phases_name_the_same_transaction() {
        let prepare = XaPrepare {
            one_phase: false,
            format_id: 1,
            global_id: b"1a"[..].into(),
            branch: Default::default(),
        };
        assert_eq!(second_phase(&prepare), "XA PREPARE X'3161',X'',1");
        let one_phase = XaPrepare {
            one_phase: true,
            ..prepare
        };
        assert_eq!(
            second_phase(&one_phase),
            "XA COMMIT X'3161',X'',1 ONE PHASE"
        );
    }
}
