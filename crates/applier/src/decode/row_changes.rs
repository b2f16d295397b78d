//! Transactions that are changes of rows and nothing else.

use binlog_format::event::{EventRef, EventType, HEADER_LEN, RawEvent};
use binlog_format::events::{Query, Rows, StatementKind, TableId, TableMap};

use super::barrier::BarrierParts;
use super::failure::{DecodeCause, misplaced};
use super::parsed::{LoggedTable, Parts, RowsPart};
use crate::schema::TableName;

/// The parts of a row transaction, as far as they are read.
#[derive(Debug)]
pub(super) struct RowParts {
    /// Everything that was read, for the case that it turns out to be none.
    events: Vec<RawEvent>,
    parts: Parts,
    has_ended: bool,
}

impl RowParts {
    /// Begins with BEGIN; nothing else begins a row transaction.
    pub(super) fn begin(event: &RawEvent) -> Result<Option<Self>, DecodeCause> {
        if kind(event)? != Some(StatementKind::Begin) {
            return Ok(None);
        }
        Ok(Some(Self {
            events: vec![event.clone()],
            parts: Parts::default(),
            has_ended: false,
        }))
    }

    /// Takes the next event; false when it makes the transaction a barrier.
    pub(super) fn take(&mut self, event: &RawEvent) -> Result<bool, DecodeCause> {
        if self.has_ended {
            return Err(misplaced(event));
        }
        match event.event_type() {
            EventType::TableMap => self.table_map(event)?,
            EventType::Xid => self.has_ended = true,
            EventType::WriteRowsV1
            | EventType::UpdateRowsV1
            | EventType::DeleteRowsV1
            | EventType::WriteRows
            | EventType::UpdateRows
            | EventType::DeleteRows
            | EventType::PartialUpdateRows => self.rows(event)?,
            EventType::Query if kind(event)? == Some(StatementKind::Commit) => {
                self.has_ended = true;
            }
            _ => return Ok(false),
        }
        self.events.push(event.clone());
        Ok(true)
    }

    /// The same events as the beginning of a barrier.
    pub(super) fn into_barrier(self) -> Result<BarrierParts, DecodeCause> {
        let mut events = self.events.into_iter();
        events.try_fold(BarrierParts::default(), BarrierParts::take)
    }

    /// The parts, when its end has come.
    pub(super) fn finish(self) -> Result<Parts, DecodeCause> {
        if self.has_ended {
            Ok(self.parts)
        } else {
            Err(DecodeCause::Misplaced {
                event_type: EventType::Gtid,
            })
        }
    }

    fn table_map(&mut self, event: &RawEvent) -> Result<(), DecodeCause> {
        let map = TableMap::decode(event.canonical())?;
        // A table comes with a map for each statement.
        let known = self
            .parts
            .tables
            .iter()
            .find(|table| table.id == map.table_id);
        if let Some(known) = known {
            return match is_same_table(&known.map, event.bytes(), &map)? {
                true => Ok(()),
                false => Err(DecodeCause::DoubleTable(map.table_id)),
            };
        }
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(Box::from);
        let (Ok(schema), Ok(table)) = (text(&map.schema), text(&map.table)) else {
            return Err(DecodeCause::TableName);
        };
        self.parts.tables.push(LoggedTable {
            id: map.table_id,
            name: TableName { schema, table },
            map: event.bytes().clone(),
        });
        Ok(())
    }

    fn rows(&mut self, event: &RawEvent) -> Result<(), DecodeCause> {
        let rows = Rows::decode(event.canonical())?;
        let table = self.table(rows.table_id)?;
        // The images are the event's end.
        let images_at = (event.bytes().len() - rows.images.len()) as u32;
        self.parts.events.push(RowsPart {
            event: event.bytes().clone(),
            images_at,
            table,
            ends_statement: rows.flags & Rows::END_OF_STATEMENT != 0,
        });
        Ok(())
    }

    fn table(&self, id: TableId) -> Result<u32, DecodeCause> {
        let place = self.parts.tables.iter().position(|table| table.id == id);
        let place = place.and_then(|place| u32::try_from(place).ok());
        place.ok_or(DecodeCause::UnknownTable(id))
    }
}

fn kind(event: &RawEvent) -> Result<Option<StatementKind>, DecodeCause> {
    if event.event_type() != EventType::Query {
        return Ok(None);
    }
    let statement = Query::decode(event.canonical())?.statement;
    Ok(Some(StatementKind::of(&statement)))
}

/// Whether a table map names the table of an earlier one. Flags and optional metadata depend on variables that may change within
/// a transaction.
fn is_same_table(known: &[u8], event: &[u8], map: &TableMap<'_>) -> Result<bool, DecodeCause> {
    // What follows the header is nearly always the same; headers differ in their time.
    if known.get(HEADER_LEN..) == event.get(HEADER_LEN..) {
        return Ok(true);
    }
    let known = TableMap::decode(EventRef::new(known)?)?;
    Ok(known.schema == map.schema
        && known.table == map.table
        && known.column_types == map.column_types
        && known.metadata == map.metadata)
}
