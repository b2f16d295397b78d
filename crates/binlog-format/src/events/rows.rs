//! WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS, PARTIAL_UPDATE_ROWS: the changed rows of one table. The rows stay bytes here. Decoding them
//! requires the table's columns, as in [`crate::row_image`].
//!
//! ```text
//! u48 table; u16 flags; [version 2: u16 length of the extra data with these two bytes, extra data];
//! length-encoded column count; a bit for each column of the image; [updates: the same for the image
//! after]; rows to the end
//! ```

use std::borrow::Cow;
use std::fmt;

use crate::decode::{Cursor, DecodeError, invalid, put_length_encoded};
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::EncodeEvent;

/// Kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowsChange {
    /// Inserted rows, each with one image.
    Write,
    /// Updated rows, each with a before image and an after image.
    Update,
    /// Deleted rows, each with one image.
    Delete,
    /// Updated rows whose after image may contain differences for JSON columns.
    PartialUpdate,
}

impl RowsChange {
    /// True if every row has a before and an after image.
    pub const fn has_two_images(self) -> bool {
        matches!(self, Self::Update | Self::PartialUpdate)
    }
}

/// The changed rows of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows<'a> {
    /// Inserted, updated or deleted.
    pub change: RowsChange,
    /// The table's number in the preceding table map event.
    pub table_id: TableId,
    /// Flag bits; see [`Rows::END_OF_STATEMENT`].
    pub flags: u16,
    /// Data on the rows (partitions, NDB) in version 2 events; `None` in version 1 events, which MySQL 5.5 writes.
    pub extra_data: Option<Cow<'a, [u8]>>,
    /// Number of the table's columns.
    pub column_count: u64,
    /// A bit for each column, lowest first: 1 if the column is in the image. For updates, this is the before image.
    pub columns: Cow<'a, [u8]>,
    /// The same bits for the after image of updates; otherwise empty.
    pub columns_after: Cow<'a, [u8]>,
    /// The row images in order.
    pub images: Cow<'a, [u8]>,
}

impl<'a> Rows<'a> {
    /// Flag bit of the last rows event of a statement.
    pub const END_OF_STATEMENT: u16 = 1;
    /// Flag bit of rows written without foreign key checks (`foreign_key_checks`).
    pub const NO_FOREIGN_KEY_CHECKS: u16 = 2;
    /// Flag bit of a server that executes foreign key cascades above its storage engine (9.6 and later): the log then also contains rows
    /// that cascades delete or change.
    pub const CASCADES_LOGGED: u16 = 16;
    /// Maximum size of the extra data that the length field allows.
    pub const MAX_EXTRA_DATA_LEN: usize = u16::MAX as usize - 2;

    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type or is truncated.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let (change, version_2) = kind(event.event_type()).ok_or(DecodeError::WrongType {
            expected: EventType::WriteRows,
            found: event.event_type(),
        })?;
        let mut cursor = Cursor::new(event.body());
        let table_id = TableId::decode(&mut cursor)?;
        let flags = cursor.u16("rows flags")?;
        let extra_data = match version_2 {
            true => Some(Cow::Borrowed(extra_data(&mut cursor)?)),
            false => None,
        };
        let column_count = cursor.length_encoded("column count")?;
        let columns = column_bits(&mut cursor, column_count)?;
        let columns_after = match change.has_two_images() {
            true => column_bits(&mut cursor, column_count)?,
            false => &[],
        };
        Ok(Self {
            change,
            table_id,
            flags,
            extra_data,
            column_count,
            columns: Cow::Borrowed(columns),
            columns_after: Cow::Borrowed(columns_after),
            images: Cow::Borrowed(cursor.take_rest()),
        })
    }
}

/// True for a rows event of any kind and version.
#[must_use]
pub fn is_rows(event_type: EventType) -> bool {
    kind(event_type).is_some()
}

/// The types of rows events, each with its change, and whether it is version 2.
const KINDS: [(EventType, RowsChange, bool); 7] = [
    (EventType::WriteRowsV1, RowsChange::Write, false),
    (EventType::UpdateRowsV1, RowsChange::Update, false),
    (EventType::DeleteRowsV1, RowsChange::Delete, false),
    (EventType::WriteRows, RowsChange::Write, true),
    (EventType::UpdateRows, RowsChange::Update, true),
    (EventType::DeleteRows, RowsChange::Delete, true),
    (
        EventType::PartialUpdateRows,
        RowsChange::PartialUpdate,
        true,
    ),
];

fn kind(event_type: EventType) -> Option<(RowsChange, bool)> {
    let mut kinds = KINDS.into_iter();
    let (_, change, version_2) = kinds.find(|(known, ..)| *known == event_type)?;
    Some((change, version_2))
}

fn extra_data<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], DecodeError> {
    const FIELD: &str = "extra data's length";
    let reason = "it is less than that of its own field";
    let length = cursor.u16(FIELD)?.checked_sub(2);
    let length = length.ok_or(invalid(FIELD, reason))?;
    cursor.bytes("extra data", usize::from(length))
}

fn column_bits<'a>(cursor: &mut Cursor<'a>, column_count: u64) -> Result<&'a [u8], DecodeError> {
    cursor.counted("image columns", column_count.div_ceil(8))
}

impl EncodeEvent for Rows<'_> {
    const TYPE: EventType = EventType::WriteRows;

    fn event_type(&self) -> EventType {
        let version_2 = self.extra_data.is_some() || self.change == RowsChange::PartialUpdate;
        let mut kinds = KINDS.into_iter();
        let kind = kinds.find(|kind| (kind.1, kind.2) == (self.change, version_2));
        kind.map_or(Self::TYPE, |(event_type, ..)| event_type)
    }

    /// Truncates extra data that is too long for its length field. A partial update is version 2 even without extra data.
    fn encode_body(&self, out: &mut Vec<u8>) {
        self.table_id.encode(out);
        out.extend_from_slice(&self.flags.to_le_bytes());
        if self.extra_data.is_some() || self.change == RowsChange::PartialUpdate {
            let extra = self.extra_data.as_deref().unwrap_or_default();
            let extra = extra.get(..Self::MAX_EXTRA_DATA_LEN).unwrap_or(extra);
            out.extend_from_slice(&(extra.len() as u16 + 2).to_le_bytes());
            out.extend_from_slice(extra);
        }
        put_length_encoded(out, self.column_count);
        out.extend_from_slice(&self.columns);
        out.extend_from_slice(&self.columns_after);
        out.extend_from_slice(&self.images);
    }
}

// TABLE_MAP: assigns a number to a table for the following rows events, and describes the table's columns.
//
// ```text
// u48 table; u16 flags; length-encoded schema, 0; length-encoded table name, 0;
// length-encoded column count, a type byte for each; length-encoded metadata;
// a bit for each column that may be NULL; optional metadata to the end
// ```

/// A table's number, valid within the events of one transaction; 48 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u64);

impl TableId {
    pub(super) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        cursor.uint("table id", 6).map(Self)
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.extend(self.0.to_le_bytes().iter().take(6));
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A table and its columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableMap<'a> {
    /// The table's number in rows events.
    pub table_id: TableId,
    /// Flag bits of the event, unused here.
    pub flags: u16,
    /// Name of the table's schema.
    pub schema: Cow<'a, [u8]>,
    /// Name of the table in that schema.
    pub table: Cow<'a, [u8]>,
    /// A type byte for each column.
    pub column_types: Cow<'a, [u8]>,
    /// Parameters of the types (lengths, precisions), encoded by type.
    pub metadata: Cow<'a, [u8]>,
    /// A bit for each column, lowest first: whether it may be NULL.
    pub nullable: Cow<'a, [u8]>,
    /// The `binlog_row_metadata` part (signs, character sets, names, keys), decoded by [`TableMetadata`](crate::row_image::TableMetadata).
    pub optional_metadata: Cow<'a, [u8]>,
}

impl<'a> TableMap<'a> {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type or is truncated.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::TableMap)?);
        let table_id = TableId::decode(&mut cursor)?;
        let flags = cursor.u16("table flags")?;
        let schema = terminated_name(&mut cursor, "schema name")?;
        let table = terminated_name(&mut cursor, "table name")?;
        let column_types = cursor.length_encoded_bytes("column types")?;
        let metadata = cursor.length_encoded_bytes("column metadata")?;
        let nullable = cursor.bytes("nullable columns", column_types.len().div_ceil(8))?;
        Ok(Self {
            table_id,
            flags,
            schema: Cow::Borrowed(schema),
            table: Cow::Borrowed(table),
            column_types: Cow::Borrowed(column_types),
            metadata: Cow::Borrowed(metadata),
            nullable: Cow::Borrowed(nullable),
            optional_metadata: Cow::Borrowed(cursor.take_rest()),
        })
    }
}

fn terminated_name<'a>(
    cursor: &mut Cursor<'a>,
    field: &'static str,
) -> Result<&'a [u8], DecodeError> {
    let name = cursor.length_encoded_bytes(field)?;
    match cursor.u8(field)? {
        0 => Ok(name),
        _ => Err(invalid(field, "it is not terminated")),
    }
}

impl EncodeEvent for TableMap<'_> {
    const TYPE: EventType = EventType::TableMap;

    fn encode_body(&self, out: &mut Vec<u8>) {
        self.table_id.encode(out);
        out.extend_from_slice(&self.flags.to_le_bytes());
        for name in [&self.schema, &self.table] {
            put_length_encoded(out, name.len() as u64);
            out.extend_from_slice(name);
            out.push(0);
        }
        for list in [&self.column_types, &self.metadata] {
            put_length_encoded(out, list.len() as u64);
            out.extend_from_slice(list);
        }
        out.extend_from_slice(&self.nullable);
        out.extend_from_slice(&self.optional_metadata);
    }
}

// ROWS_QUERY: the text of the statement that changed the following rows (`binlog_rows_query_log_events`).

/// A statement's text, for readers of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsQuery<'a> {
    /// The text of the statement that changed the rows.
    pub statement: Cow<'a, [u8]>,
}

impl<'a> RowsQuery<'a> {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type or is empty.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::RowsQuery)?);
        // Servers before 9.7 write the text's length here, if it fits; 9.7 writes 0. The text ends with the event.
        cursor.u8("statement length")?;
        let statement = Cow::Borrowed(cursor.take_rest());
        Ok(Self { statement })
    }
}
