//! Why a row cannot be written.

use thiserror::Error;

/// A row does not fit its table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SynthesisError {
    /// Another number of values than the table has columns.
    #[error("table {table} has {columns} columns, but the row has {values} values")]
    ColumnCount {
        /// The table.
        table: String,
        /// Its columns.
        columns: usize,
        /// The row's values.
        values: usize,
    },
    /// A value of another type than its column, or NULL where the column forbids it.
    #[error("column {column} of table {table} (counted from 1) takes no such value")]
    WrongValue {
        /// The table.
        table: String,
        /// The column, counted from 1.
        column: usize,
    },
    /// A text longer than its column.
    #[error(
        "column {column} of table {table} (counted from 1) holds {limit} bytes, the value has {size}"
    )]
    TooLong {
        /// The table.
        table: String,
        /// The column, counted from 1.
        column: usize,
        /// Bytes of the value.
        size: usize,
        /// Bytes that the column holds.
        limit: u16,
    },
}
