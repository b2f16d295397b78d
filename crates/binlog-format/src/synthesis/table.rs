//! Tables, columns and values, and how a table map describes them.

use crate::cursor::put_length_encoded;
use crate::events::{TableId, TableMap};

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// INT.
    Int,
    /// BIGINT.
    BigInt,
    /// VARCHAR of so many bytes (four times its characters in utf8mb4).
    Varchar {
        /// The longest value in bytes.
        max_bytes: u16,
    },
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column {
    /// Its type.
    pub column_type: ColumnType,
    /// Whether it may be NULL.
    pub nullable: bool,
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// NULL.
    Null,
    /// For INT.
    Int(i32),
    /// For BIGINT.
    BigInt(i64),
    /// For VARCHAR, in utf8mb4.
    Text(String),
}

/// A table that rows are written to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table {
    /// The number that stands for it in events; different for each table of a transaction.
    pub id: TableId,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Its columns in order; the server that applies the rows must have the same.
    pub columns: Vec<Column>,
}

/// Type bytes of MySQL's columns.
const TYPE_LONG: u8 = 3;
const TYPE_LONGLONG: u8 = 8;
const TYPE_VARCHAR: u8 = 15;

/// The flag that every server since 5.1.4 sets in its table maps.
const EXACT_BIT_LENGTHS: u16 = 1;

/// Numbers of optional metadata fields.
const SIGNEDNESS: u8 = 1;
const DEFAULT_CHARSET: u8 = 2;
/// utf8mb4_0900_ai_ci.
const COLLATION: u64 = 255;

impl Table {
    /// `schema.name`, for messages.
    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    pub(super) fn map(&self) -> TableMap<'_> {
        let (mut types, mut metadata) = (Vec::new(), Vec::new());
        let mut nullable = vec![0; self.columns.len().div_ceil(8)];
        for (at, column) in self.columns.iter().enumerate() {
            match column.column_type {
                ColumnType::Int => types.push(TYPE_LONG),
                ColumnType::BigInt => types.push(TYPE_LONGLONG),
                ColumnType::Varchar { max_bytes } => {
                    types.push(TYPE_VARCHAR);
                    metadata.extend_from_slice(&max_bytes.to_le_bytes());
                }
            }
            if column.nullable {
                set_bit(&mut nullable, at);
            }
        }
        TableMap {
            table_id: self.id,
            flags: EXACT_BIT_LENGTHS,
            schema: self.schema.as_bytes().into(),
            table: self.name.as_bytes().into(),
            column_types: types.into(),
            metadata: metadata.into(),
            nullable: nullable.into(),
            optional_metadata: self.optional_metadata().into(),
        }
    }

    /// Which numbers are unsigned (none), and the character set.
    fn optional_metadata(&self) -> Vec<u8> {
        let is_text = |column: &&Column| matches!(column.column_type, ColumnType::Varchar { .. });
        let texts = self.columns.iter().filter(is_text).count();
        let numbers = self.columns.len() - texts;
        let mut metadata = Vec::new();
        if numbers > 0 {
            let bits = numbers.div_ceil(8);
            metadata.push(SIGNEDNESS);
            put_length_encoded(&mut metadata, bits as u64);
            metadata.resize(metadata.len() + bits, 0);
        }
        if texts > 0 {
            let mut collation = Vec::new();
            put_length_encoded(&mut collation, COLLATION);
            metadata.push(DEFAULT_CHARSET);
            put_length_encoded(&mut metadata, collation.len() as u64);
            metadata.extend_from_slice(&collation);
        }
        metadata
    }
}

/// Sets a bit, counted from the lowest of the first byte.
pub(super) fn set_bit(bits: &mut [u8], at: usize) {
    if let Some(byte) = bits.get_mut(at / 8) {
        *byte |= 1 << (at % 8);
    }
}
