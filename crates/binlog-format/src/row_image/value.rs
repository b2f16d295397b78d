//! One image of a row, column by column.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::row_image::column_type::ColumnType;
use crate::row_image::columns::Columns;

/// What an image says of a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Value<'a> {
    /// Nothing: the column is not in the image.
    #[default]
    Absent,
    /// It is NULL.
    Null,
    /// Its value as the server writes it for the column's type, without a length.
    Bytes(&'a [u8]),
    /// What changes in a JSON value; an image after an update only.
    JsonDiff(&'a [u8]),
}

/// One image of a row: a value for each column of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image<'a> {
    values: Vec<Value<'a>>,
}

impl<'a> Image<'a> {
    /// What it says of a column, counted from 0; [`Value::Absent`] for one that the table has not.
    pub fn value(&self, column: usize) -> Value<'a> {
        self.values.get(column).copied().unwrap_or_default()
    }

    /// What it says of all columns, in order.
    pub fn values(&self) -> &[Value<'a>] {
        &self.values
    }

    /// Reads the next image into this one. `present` has a bit for each column that it holds; `diffs` one for each JSON
    /// column of the table that is a difference in it, and is empty otherwise.
    pub(super) fn read(
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
            let value = if !bit(present, at) {
                Value::Absent
            } else {
                nth += 1;
                if bit(nulls, nth - 1) {
                    Value::Null
                } else if is_diff {
                    Value::JsonDiff(column.take(images)?)
                } else {
                    Value::Bytes(column.take(images)?)
                }
            };
            self.values.push(value);
        }
        Ok(())
    }
}

/// A bit, counted from the lowest of the first byte; false beyond the end.
pub(super) fn bit(bits: &[u8], at: usize) -> bool {
    bits.get(at / 8)
        .is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}
