//! The data of the model: lists of numbers, as rows of a table and as events of the binlog.

use std::collections::BTreeMap;

use binlog_format::canonical::CanonicalEvents;
use binlog_format::event::EventType;
use binlog_format::events::{Rows, RowsChange, TableId, TableMap};
use binlog_format::row_image::{Columns, RowReader, Value as ImageValue};
use binlog_format::synthesis::{Column, ColumnType, RowTransaction, Table, TransactionHead, Value};
use bytes::Bytes;

/// Schema of the table that holds the lists.
pub const SCHEMA: &str = "sim";
/// Name of the table that holds the lists.
pub const TABLE: &str = "lists";

/// Lists by number, each with its values in order.
pub type Lists = BTreeMap<u64, Vec<u64>>;

/// The statements that create the table in a real server.
pub fn table_statements() -> [String; 2] {
    [
        format!("CREATE DATABASE {SCHEMA}"),
        format!(
            "CREATE TABLE {SCHEMA}.{TABLE} (id BIGINT NOT NULL, position BIGINT NOT NULL, value BIGINT NOT NULL, \
             PRIMARY KEY (id, position))"
        ),
    ]
}

/// One value of a list, with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListRow {
    pub(crate) list: u64,
    /// The position in the list, counted from 1.
    pub(crate) position: u64,
    pub(crate) value: u64,
}

fn table() -> Table {
    let column = Column {
        column_type: ColumnType::BigInt,
        nullable: false,
    };
    Table {
        id: TableId(90),
        schema: SCHEMA.to_owned(),
        name: TABLE.to_owned(),
        columns: vec![column; 3],
    }
}

/// Returns the canonical payload of a transaction that inserts these rows.
pub(crate) fn payload(head: TransactionHead, rows: &[ListRow]) -> Bytes {
    let mut transaction = RowTransaction::begin(head);
    let rows: Vec<Vec<Value>> = rows
        .iter()
        .map(|row| {
            [row.list, row.position, row.value]
                .map(|number| Value::BigInt(number.cast_signed()))
                .to_vec()
        })
        .collect();
    // The insert cannot fail, because three numbers match the table's three columns.
    drop(transaction.insert(&table(), &rows));
    transaction.commit()
}

/// Returns the rows that a canonical payload inserts into the table of lists. Ignores other tables.
pub(crate) fn rows_of(payload: &Bytes) -> Result<Vec<ListRow>, String> {
    let mut found = Vec::new();
    let mut columns: Option<Columns> = None;
    for event in CanonicalEvents::new(payload.clone()) {
        let event = event.map_err(told)?;
        match event.event_type() {
            EventType::TableMap => {
                let map = TableMap::decode(event.canonical()).map_err(told)?;
                let ours =
                    &map.schema[..] == SCHEMA.as_bytes() && &map.table[..] == TABLE.as_bytes();
                columns = match ours {
                    true => Some(Columns::of(&map).map_err(told)?),
                    false => None,
                };
            }
            EventType::WriteRows => {
                let (Some(columns), rows) =
                    (&columns, Rows::decode(event.canonical()).map_err(told)?)
                else {
                    continue;
                };
                if rows.change != RowsChange::Write {
                    continue;
                }
                let mut reader = RowReader::new(&rows, columns).map_err(told)?;
                while let Some(row) = reader.next_row().map_err(told)? {
                    let number = |column| match row.after.map(|after| after.value(column)) {
                        Some(ImageValue::Bytes(bytes)) => {
                            bytes.try_into().ok().map(u64::from_le_bytes)
                        }
                        _ => None,
                    };
                    let (Some(list), Some(position), Some(value)) =
                        (number(0), number(1), number(2))
                    else {
                        return Err(format!("a row of {SCHEMA}.{TABLE} is not three numbers"));
                    };
                    found.push(ListRow {
                        list,
                        position,
                        value,
                    });
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Returns the appends in a canonical payload, in order, each with its list and value.
///
/// # Errors
/// A message, if the payload is damaged.
pub fn appends_of(payload: &Bytes) -> Result<Vec<(u64, u64)>, String> {
    let rows = rows_of(payload)?;
    Ok(rows.iter().map(|row| (row.list, row.value)).collect())
}

fn told(error: binlog_format::DecodeError) -> String {
    error.to_string()
}
