//! The optional metadata of a table map: fields of (number, length-encoded length, value), in any order.

use crate::decode::{Cursor, DecodeError, invalid};
use crate::events::TableMap;
use crate::row_image::columns::{ColumnType, Columns};

/// A collation id (`information_schema.collations.id`); 63 is binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollationId(pub u32);

/// A primary key column in a table map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MetadataKeyPart {
    /// The column, counted from 0.
    pub column: usize,
    /// Length of the key's prefix in characters (bytes for binary columns), if it is not the whole column.
    pub prefix: Option<u32>,
}

/// Optional metadata of a table map that is used: character sets (since 8.0), names and keys (only under
/// `binlog_row_metadata=FULL`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableMetadata<'a> {
    collations: Vec<Option<CollationId>>,
    names: Vec<&'a [u8]>,
    primary_key: Vec<MetadataKeyPart>,
}

impl<'a> TableMetadata<'a> {
    /// Reads the optional metadata of a table map with these columns. Unknown and unused fields are skipped.
    ///
    /// # Errors
    /// When a field is truncated or does not match the columns.
    pub fn decode(map: &'a TableMap<'_>, columns: &Columns) -> Result<Self, DecodeError> {
        let mut metadata = Self::default();
        let mut cursor = Cursor::new(&map.optional_metadata);
        while !cursor.is_empty() {
            let number = cursor.u8("optional metadata")?;
            let value = Cursor::new(cursor.length_encoded_bytes("optional metadata")?);
            metadata.take_field(number, value, columns)?;
        }
        Ok(metadata)
    }

    fn take_field(
        &mut self,
        number: u8,
        value: Cursor<'a>,
        columns: &Columns,
    ) -> Result<(), DecodeError> {
        match number {
            // DEFAULT_CHARSET.
            2 => {
                self.take_default_collation(value, columns, ColumnType::is_text)?;
            }
            // COLUMN_CHARSET.
            3 => self.take_collations(value, columns, ColumnType::is_text)?,
            // ENUM_AND_SET_DEFAULT_CHARSET.
            10 => {
                self.take_default_collation(value, columns, ColumnType::is_enum_or_set)?;
            }
            // ENUM_AND_SET_COLUMN_CHARSET.
            11 => {
                self.take_collations(value, columns, ColumnType::is_enum_or_set)?;
            }
            // COLUMN_NAME.
            4 => self.names = names(value, columns)?,
            // SIMPLE_PRIMARY_KEY and PRIMARY_KEY_WITH_PREFIX.
            8 | 9 => self.primary_key = primary_key(value, columns, number == 9)?,
            _ => {}
        }
        Ok(())
    }

    /// The collation of a text, ENUM or SET column; `None` if the log does not record it, or the column has none.
    pub fn collation(&self, column: usize) -> Option<CollationId> {
        self.collations.get(column).copied().flatten()
    }

    /// A column's name, in UTF-8; `None` without `binlog_row_metadata=FULL`.
    pub fn name(&self, column: usize) -> Option<&'a [u8]> {
        self.names.get(column).copied()
    }

    /// Whether the table map was written under `binlog_row_metadata=FULL`: then a missing primary key means that the table has none.
    pub fn is_full(&self) -> bool {
        !self.names.is_empty()
    }

    /// The primary key's columns, in key order; empty without one, or without `binlog_row_metadata=FULL`.
    pub fn primary_key(&self) -> &[MetadataKeyPart] {
        &self.primary_key
    }

    /// A default collation, and pairs of a column (counted among those of its kind) and its collation.
    fn take_default_collation(
        &mut self,
        mut value: Cursor<'a>,
        columns: &Columns,
        is_meant: impl Fn(ColumnType) -> bool,
    ) -> Result<(), DecodeError> {
        let default = collation(&mut value)?;
        let mut exception = next_exception(&mut value)?;
        self.collations.resize(columns.len(), None);
        let meant = columns.iter().zip(&mut self.collations);
        let meant = meant.filter(|(column, _)| is_meant(*column));
        for (nth, (_, place)) in meant.enumerate() {
            *place = Some(default);
            if let Some((column, collation)) = exception
                && column == nth as u64
            {
                *place = Some(collation);
                exception = next_exception(&mut value)?;
            }
        }
        Ok(())
    }

    /// A collation for each column of a kind.
    fn take_collations(
        &mut self,
        mut value: Cursor<'a>,
        columns: &Columns,
        is_meant: impl Fn(ColumnType) -> bool,
    ) -> Result<(), DecodeError> {
        self.collations.resize(columns.len(), None);
        for (column, place) in columns.iter().zip(&mut self.collations) {
            if is_meant(column) {
                *place = Some(collation(&mut value)?);
            }
        }
        Ok(())
    }
}

fn collation(value: &mut Cursor<'_>) -> Result<CollationId, DecodeError> {
    let number = value.length_encoded("a collation")?;
    u32::try_from(number)
        .map(CollationId)
        .map_err(|_| invalid("a collation", "its number has more than 32 bits"))
}

fn next_exception(value: &mut Cursor<'_>) -> Result<Option<(u64, CollationId)>, DecodeError> {
    if value.is_empty() {
        return Ok(None);
    }
    let column = value.length_encoded("a column's number")?;
    Ok(Some((column, collation(value)?)))
}

fn names<'a>(mut value: Cursor<'a>, columns: &Columns) -> Result<Vec<&'a [u8]>, DecodeError> {
    let mut names = Vec::with_capacity(columns.len());
    for _ in columns.iter() {
        names.push(value.length_encoded_bytes("a column's name")?);
    }
    value.finish("the columns' names")?;
    Ok(names)
}

fn primary_key(
    mut value: Cursor<'_>,
    columns: &Columns,
    with_prefixes: bool,
) -> Result<Vec<MetadataKeyPart>, DecodeError> {
    let mut parts = Vec::new();
    while !value.is_empty() {
        let column = value.length_encoded("a key's column")?;
        let column = usize::try_from(column)
            .ok()
            .filter(|column| *column < columns.len())
            .ok_or(invalid("primary key", "a column of it is not in the table"))?;
        let prefix = if with_prefixes {
            let length = value.length_encoded("a key's prefix")?;
            let length = u32::try_from(length)
                .map_err(|_| invalid("a key's prefix", "its length has more than 32 bits"))?;
            (length > 0).then_some(length)
        } else {
            None
        };
        parts.push(MetadataKeyPart { column, prefix });
    }
    Ok(parts)
}
