//! TABLE_MAP: gives a table a number for the rows events that follow, and describes its columns.
//!
//! ```text
//! u48 table; u16 flags; length-encoded schema, 0; length-encoded table name, 0;
//! length-encoded column count, a type byte for each; length-encoded metadata;
//! a bit for each column that may be NULL; optional metadata to the end
//! ```

use std::borrow::Cow;
use std::fmt;

use crate::cursor::{Cursor, put_length_encoded};
use crate::decode_error::DecodeError;
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::body::EncodeEvent;

/// A table's number within one transaction's events; 48 bits.
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
    /// The number by which rows events name the table.
    pub table_id: TableId,
    /// Flag bits.
    pub flags: u16,
    /// The schema's name.
    pub schema: Cow<'a, [u8]>,
    /// The table's name.
    pub table: Cow<'a, [u8]>,
    /// A type byte for each column.
    pub column_types: Cow<'a, [u8]>,
    /// What the types need to be read (lengths, precisions), in an order that they decide.
    pub metadata: Cow<'a, [u8]>,
    /// A bit for each column, lowest first: whether it may be NULL.
    pub nullable: Cow<'a, [u8]>,
    /// What `binlog_row_metadata` adds (signs, character sets, names, keys).
    /// [`TableMetadata`](crate::row_image::TableMetadata) reads it.
    pub optional_metadata: Cow<'a, [u8]>,
}

impl<'a> TableMap<'a> {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type or cut off.
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
        _ => Err(DecodeError::invalid(field, "it is not terminated")),
    }
}

impl EncodeEvent for TableMap<'_> {
    fn event_type(&self) -> EventType {
        EventType::TableMap
    }

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
