//! One row's values as rows events hold them: a bit for each NULL, then the other values in order.

use crate::synthesis::error::SynthesisError;
use crate::synthesis::table::{Column, ColumnType, Table, Value, set_bit};

/// Appends the image of a row in which every column is present.
pub(super) fn put_row(
    out: &mut Vec<u8>,
    table: &Table,
    row: &[Value],
) -> Result<(), SynthesisError> {
    if row.len() != table.columns.len() {
        return Err(SynthesisError::ColumnCount {
            table: table.full_name(),
            columns: table.columns.len(),
            values: row.len(),
        });
    }
    let mut nulls = vec![0; row.len().div_ceil(8)];
    for (at, value) in row.iter().enumerate() {
        if *value == Value::Null {
            set_bit(&mut nulls, at);
        }
    }
    out.extend_from_slice(&nulls);
    for (at, (column, value)) in table.columns.iter().zip(row).enumerate() {
        put_value(out, *column, value).map_err(|refusal| refusal.in_column(table, at + 1))?;
    }
    Ok(())
}

enum Refusal {
    WrongValue,
    TooLong { size: usize, limit: u16 },
}

impl Refusal {
    fn in_column(self, table: &Table, column: usize) -> SynthesisError {
        let table = table.full_name();
        match self {
            Self::WrongValue => SynthesisError::WrongValue { table, column },
            Self::TooLong { size, limit } => SynthesisError::TooLong {
                table,
                column,
                size,
                limit,
            },
        }
    }
}

fn put_value(out: &mut Vec<u8>, column: Column, value: &Value) -> Result<(), Refusal> {
    match (column.column_type, value) {
        (_, Value::Null) if column.nullable => {}
        (ColumnType::Int, Value::Int(number)) => out.extend_from_slice(&number.to_le_bytes()),
        (ColumnType::BigInt, Value::BigInt(number)) => out.extend_from_slice(&number.to_le_bytes()),
        (ColumnType::Varchar { max_bytes }, Value::Text(text)) => {
            let size = text.len();
            let too_long = Refusal::TooLong {
                size,
                limit: max_bytes,
            };
            let length = u16::try_from(size)
                .ok()
                .filter(|length| *length <= max_bytes)
                .ok_or(too_long)?;
            // Two bytes for the length as soon as some value of the column needs them.
            let [low, high] = length.to_le_bytes();
            out.push(low);
            if max_bytes > u16::from(u8::MAX) {
                out.push(high);
            }
            out.extend_from_slice(text.as_bytes());
        }
        _ => return Err(Refusal::WrongValue),
    }
    Ok(())
}
