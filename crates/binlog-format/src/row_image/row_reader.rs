//! Takes a rows event apart into rows.
//!
//! ```text
//! image:       a bit for each column in it that is NULL; the other values in order
//! row:         the image; in updates the image before, then the one after
//! with diffs:  length-encoded options in front of an image after; if they have bit 0, a bit for each JSON column of the
//!              table, set for a difference
//! ```

use std::ops::Range;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::events::{Rows, RowsChange};
use crate::row_image::columns::Columns;
use crate::row_image::value::{Image, bit};

/// Option bit of an image after that has differences of JSON values.
const HAS_JSON_DIFFS: u64 = 1;

/// Reads the rows of an event, one after the other, into memory that it uses again for each.
#[derive(Debug, Clone)]
pub struct RowReader<'a> {
    columns: &'a Columns,
    change: RowsChange,
    present: &'a [u8],
    present_after: &'a [u8],
    images: Cursor<'a>,
    len: usize,
    ended: bool,
    /// Of the row that was read last; which of them are used is the change's matter.
    first: Image<'a>,
    second: Image<'a>,
}

/// One row of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'r, 'a> {
    /// The bytes of its images within [`Rows::images`].
    pub range: Range<usize>,
    /// The row as it was; `None` for an inserted one.
    pub before: Option<&'r Image<'a>>,
    /// The row as it became; `None` for a deleted one.
    pub after: Option<&'r Image<'a>>,
}

impl<'a> RowReader<'a> {
    /// A reader of the rows of `rows`, whose table map gave `columns`.
    ///
    /// # Errors
    /// When the event has another number of columns.
    pub fn new(rows: &'a Rows<'_>, columns: &'a Columns) -> Result<Self, DecodeError> {
        if rows.column_count != columns.len() as u64 {
            return Err(DecodeError::invalid(
                "rows event",
                "it has another number of columns than its table map",
            ));
        }
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

    /// The next row; `None` behind the last one, and after an error. An event without any bytes of images whose images
    /// have no columns either is one row (an INSERT of nothing but defaults under `binlog_row_image=MINIMAL`).
    ///
    /// # Errors
    /// When the images do not fit the columns.
    pub fn next_row(&mut self) -> Result<Option<Row<'_, 'a>>, DecodeError> {
        if self.ended {
            return Ok(None);
        }
        let start = self.len - self.images.remaining();
        if self.images.is_empty() && (start > 0 || self.has_columns()) {
            self.ended = true;
            return Ok(None);
        }
        if let Err(error) = self.read() {
            self.ended = true;
            return Err(error);
        }
        let range = start..self.len - self.images.remaining();
        if range.is_empty() {
            self.ended = true;
            if !self.images.is_empty() {
                return Err(DecodeError::invalid(
                    "rows event",
                    "its images have no columns, but bytes",
                ));
            }
        }
        let (before, after) = match self.change {
            RowsChange::Write => (None, Some(&self.first)),
            RowsChange::Delete => (Some(&self.first), None),
            RowsChange::Update | RowsChange::PartialUpdate => {
                (Some(&self.first), Some(&self.second))
            }
        };
        Ok(Some(Row {
            range,
            before,
            after,
        }))
    }

    fn has_columns(&self) -> bool {
        (0..self.columns.len()).any(|at| bit(self.present, at) || bit(self.present_after, at))
    }

    fn read(&mut self) -> Result<(), DecodeError> {
        self.first
            .read(self.columns, self.present, &[], &mut self.images)?;
        if self.change.has_two_images() {
            let diffs = match self.change {
                RowsChange::PartialUpdate => self.json_diff_bits()?,
                _ => &[],
            };
            self.second
                .read(self.columns, self.present_after, diffs, &mut self.images)?;
        }
        Ok(())
    }

    fn json_diff_bits(&mut self) -> Result<&'a [u8], DecodeError> {
        let options = self.images.length_encoded("an image's options")?;
        if options & !HAS_JSON_DIFFS != 0 {
            return Err(DecodeError::invalid(
                "an image's options",
                "an option of a later MySQL version",
            ));
        }
        if options & HAS_JSON_DIFFS == 0 {
            return Ok(&[]);
        }
        let bytes = self.columns.json_count().div_ceil(8);
        self.images.bytes("an image's JSON bits", bytes)
    }
}
