//! Decodes rows events into column values. A table map contains the columns' types ([`Columns`]), which are needed to split the images of a
//! rows event ([`RowReader`]). Values stay in the server's encoding, without their lengths. [`TableMetadata`] contains the
//! `binlog_row_metadata` part of a table map.

mod columns;

use std::ops::Range;

use crate::decode::{Cursor, DecodeError, ensure, invalid};
use crate::events::{Rows, RowsChange, TableMap};
pub use crate::row_image::columns::{ColumnType, Columns};

// Splits a rows event into rows.
//
// ```text
// image:       a bit for each column in it that is NULL; the other values in order
// row:         the image; in updates the image before, then the one after
// with diffs:  length-encoded options in front of an image after; if they have bit 0, a bit for each JSON column of the
//              table, set for a difference
// ```

/// Option bit of an after image that contains differences of JSON values.
const HAS_JSON_DIFFS: u64 = 1;

/// Reads the rows of an event in order, reusing memory.
#[derive(Debug, Clone)]
pub struct RowReader<'a> {
    columns: &'a Columns,
    change: RowsChange,
    present: &'a [u8],
    present_after: &'a [u8],
    images: Cursor<'a>,
    len: usize,
    ended: bool,
    /// The images of the last row. The kind of change determines which of them are used.
    first: Image<'a>,
    second: Image<'a>,
}

/// One row of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'r, 'a> {
    /// The range of the row's images in [`Rows::images`].
    pub range: Range<usize>,
    /// Start of the after image in those bytes; for a deleted row, their end.
    pub after_at: usize,
    /// The row before the change; `None` for an inserted row.
    pub before: Option<&'r Image<'a>>,
    /// The row after the change; `None` for a deleted row.
    pub after: Option<&'r Image<'a>>,
}

impl<'a> RowReader<'a> {
    /// Reads the rows of `rows`, with the `columns` of its table map.
    ///
    /// # Errors
    /// When the event's number of columns differs from the table map's.
    pub fn new(rows: &'a Rows<'_>, columns: &'a Columns) -> Result<Self, DecodeError> {
        let fits = rows.column_count == columns.len() as u64;
        let reason = "it has another number of columns than its table map";
        ensure(fits, "rows event", reason)?;
        Ok(Self {
            columns,
            change: rows.change,
            present: &rows.columns,
            present_after: &rows.columns_after,
            images: Cursor::new(&rows.images),
            len: rows.images.len(),
            ended: false,
            first: Image::default(),
            second: Image::default(),
        })
    }

    /// Returns the next row; `None` after the last one, and after an error. If an event has no image bytes and its images have no columns,
    /// it is one row: an INSERT of only defaults under `binlog_row_image=MINIMAL`.
    ///
    /// # Errors
    /// When the images do not match the columns.
    pub fn next_row(&mut self) -> Result<Option<Row<'_, 'a>>, DecodeError> {
        if self.ended {
            return Ok(None);
        }
        let start = self.len - self.images.remaining();
        if self.images.is_empty() && (start > 0 || self.has_columns()) {
            self.ended = true;
            return Ok(None);
        }
        let read = self.read();
        self.ended = read.is_err();
        let first_ends = read?;
        let range = start..self.len - self.images.remaining();
        if range.is_empty() {
            self.ended = true;
            let reason = "its images have no columns, but bytes";
            ensure(self.images.is_empty(), "rows event", reason)?;
        }
        let (before, after, after_at) = match self.change {
            RowsChange::Write => (None, Some(&self.first), start),
            RowsChange::Delete => (Some(&self.first), None, first_ends),
            RowsChange::Update | RowsChange::PartialUpdate => {
                (Some(&self.first), Some(&self.second), first_ends)
            }
        };
        Ok(Some(Row {
            range,
            after_at,
            before,
            after,
        }))
    }

    fn has_columns(&self) -> bool {
        (0..self.columns.len()).any(|at| bit(self.present, at) || bit(self.present_after, at))
    }

    /// Reads the images of a row; returns the end of the first image.
    fn read(&mut self) -> Result<usize, DecodeError> {
        let (present, images) = (self.present, &mut self.images);
        self.first.read(self.columns, present, &[], images)?;
        let first_ends = self.len - self.images.remaining();
        if self.change.has_two_images() {
            let diffs = match self.change {
                RowsChange::PartialUpdate => self.json_diff_bits()?,
                _ => &[],
            };
            let (present, images) = (self.present_after, &mut self.images);
            self.second.read(self.columns, present, diffs, images)?;
        }
        Ok(first_ends)
    }

    fn json_diff_bits(&mut self) -> Result<&'a [u8], DecodeError> {
        let options = self.images.length_encoded("an image's options")?;
        let is_known = options & !HAS_JSON_DIFFS == 0;
        let reason = "an option of a later MySQL version";
        ensure(is_known, "an image's options", reason)?;
        if options & HAS_JSON_DIFFS == 0 {
            return Ok(&[]);
        }
        let bytes = self.columns.json.div_ceil(8);
        self.images.bytes("an image's JSON bits", bytes)
    }
}

// One image of a row, column by column.

/// The value of a column in an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Value<'a> {
    /// The column is not in the image.
    #[default]
    Absent,
    /// The column is NULL.
    Null,
    /// The value as the server encodes it for the column's type, without a length.
    Bytes(&'a [u8]),
    /// The difference of a JSON value; only in the after image of an update.
    JsonDiff(&'a [u8]),
}

/// One image of a row: a value for each column of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image<'a> {
    values: Vec<Value<'a>>,
}

impl<'a> Image<'a> {
    /// The value of a column, counted from 0; [`Value::Absent`] after the last column.
    pub fn value(&self, column: usize) -> Value<'a> {
        self.values.get(column).copied().unwrap_or_default()
    }

    /// The values of all columns, in order.
    pub fn values(&self) -> &[Value<'a>] {
        &self.values
    }

    /// Decodes the next image into this one. `present` has a bit for each column of the table. `diffs` has a bit for each JSON column of
    /// the table: 1 if the value is a difference. `diffs` is empty if the image has no differences.
    fn read(
        &mut self,
        columns: &Columns,
        present: &[u8],
        diffs: &[u8],
        images: &mut Cursor<'a>,
    ) -> Result<(), DecodeError> {
        self.values.clear();
        self.values.reserve_exact(columns.len());
        let count = (0..columns.len()).filter(|at| bit(present, *at)).count();
        let nulls = images.bytes("a row's NULL bits", count.div_ceil(8))?;
        let (mut nth, mut nth_json) = (0, 0);
        for (at, column) in columns.iter().enumerate() {
            let mut is_diff = false;
            if matches!(column, ColumnType::Json { .. }) {
                is_diff = bit(diffs, nth_json);
                nth_json += 1;
            }
            let is_present = bit(present, at);
            self.values.push(match is_present {
                false => Value::Absent,
                true if bit(nulls, nth) => Value::Null,
                true if is_diff => Value::JsonDiff(column.take(images)?),
                true => Value::Bytes(column.take(images)?),
            });
            nth += usize::from(is_present);
        }
        Ok(())
    }
}

/// A bit, counted from the lowest bit of the first byte; false after the end.
fn bit(bits: &[u8], at: usize) -> bool {
    let byte = bits.get(at / 8);
    byte.is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

// The optional metadata of a table map: fields of (number, length-encoded length, value), in any order.

/// A collation id (`information_schema.collations.id`); 63 is binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollationId(pub u32);

/// A column of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPart {
    /// The column, counted from 0.
    pub column: usize,
    /// Length of the key's prefix in characters, or in bytes for binary columns; `None` if the key has the whole column.
    pub prefix: Option<u32>,
}

/// The optional metadata that is used here: character sets (since 8.0), and names and keys (only under `binlog_row_metadata=FULL`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableMetadata<'a> {
    collations: Vec<Option<CollationId>>,
    names: Vec<&'a [u8]>,
    /// The primary key's columns, in key order; empty without a primary key, or without `binlog_row_metadata=FULL`.
    pub primary_key: Vec<KeyPart>,
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
            2 => self.take_default_collation(value, columns, ColumnType::is_text)?,
            // COLUMN_CHARSET.
            3 => self.take_collations(value, columns, ColumnType::is_text)?,
            // ENUM_AND_SET_DEFAULT_CHARSET.
            10 => self.take_default_collation(value, columns, ColumnType::is_enum_or_set)?,
            // ENUM_AND_SET_COLUMN_CHARSET.
            11 => self.take_collations(value, columns, ColumnType::is_enum_or_set)?,
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

    /// True if the table map was written under `binlog_row_metadata=FULL`. Then a missing primary key means that the table has none.
    pub fn is_full(&self) -> bool {
        !self.names.is_empty()
    }

    /// Reads a default collation, and pairs of a column and its collation. The column is counted among the columns of its kind.
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

    /// Reads a collation for each column of a kind.
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
    let number = u32::try_from(number).map(CollationId);
    number.map_err(|_| invalid("a collation", "its number has more than 32 bits"))
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
) -> Result<Vec<KeyPart>, DecodeError> {
    let mut parts = Vec::new();
    while !value.is_empty() {
        let column = value.length_encoded("a key's column")?;
        let column = usize::try_from(column).unwrap_or(usize::MAX);
        let is_there = column < columns.len();
        let reason = "a column of it is not in the table";
        ensure(is_there, "primary key", reason)?;
        let prefix = match with_prefixes {
            true => value.length_encoded("a key's prefix")?,
            false => 0,
        };
        let prefix = u32::try_from(prefix)
            .map_err(|_| invalid("a key's prefix", "its length has more than 32 bits"))?;
        parts.push(KeyPart {
            column,
            prefix: (prefix > 0).then_some(prefix),
        });
    }
    Ok(parts)
}
