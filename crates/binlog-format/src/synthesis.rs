//! Creates transactions as a MySQL server writes them, for an embedded writer without a server. A transaction is GTID, BEGIN, a table map
//! and rows for each change, XID; or GTID and one statement. mysqld applies them, and mysqlbinlog decodes them. Columns are INT, BIGINT and
//! VARCHAR.

use bytes::Bytes;
use thiserror::Error;

use crate::canonical::stamped_len;
use crate::decode::{put_length_encoded, put_numbered_field};
use crate::event::{CHECKSUM_LEN, EventFlags};
use crate::events::{
    CommitTimestamp, EncodeEvent, EventOrigin, GtidEvent, LogicalClock, Query, Rows, RowsChange,
    ServerVersion, TableId, TableMap, Xid,
};
use crate::gtid::Gtid;

// Whole transactions in canonical form.

/// The origin of a transaction, used in its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionHead {
    /// The transaction's identifier. With a tag, the GTID event has the tagged form.
    pub gtid: Gtid,
    /// The server id in the events.
    pub server_id: u32,
    /// The connection id in the events.
    pub thread_id: u32,
    /// Commit time. Event headers contain its seconds.
    pub commit: CommitTimestamp,
    /// The server version in the GTID event.
    pub version: ServerVersion,
    /// The logical clock for parallel applying.
    pub clock: LogicalClock,
    /// The number in the transaction's XID event.
    pub xid: u64,
}

/// The session variables that mysqld writes before BEGIN.
#[rustfmt::skip]
const STATUS_VARIABLES: [u8; 29] = [
    0, 0, 0, 0, 0,                          // options: none
    1, 0x20, 0, 0xa0, 0x45, 0, 0, 0, 0,     // sql_mode of 8.0 and later by default
    6, 3, b's', b't', b'd',                 // catalogue
    4, 255, 0, 255, 0, 255, 0,              // character sets of client, connection, server: utf8mb4
    18, 255, 0,                             // default collation of utf8mb4
];

/// A transaction of row changes. Readers see each change as a separate statement.
#[derive(Debug, Clone)]
pub struct RowTransaction {
    head: TransactionHead,
    /// Everything after the GTID event.
    body: Vec<u8>,
}

impl RowTransaction {
    /// Begins a transaction; [`Self::commit`] ends it.
    pub fn begin(head: TransactionHead) -> Self {
        let begin = head.query("", b"BEGIN");
        let body = begin.encode(head.origin(EventFlags::SUPPRESS_USE));
        Self { head, body }
    }

    /// Adds inserted rows.
    ///
    /// # Errors
    /// When a row does not match the table; nothing is added then.
    pub fn insert(&mut self, table: &Table, rows: &[Vec<Value>]) -> Result<(), SynthesisError> {
        self.change(table, RowsChange::Write, rows)
    }

    /// Adds updated rows, as pairs of the row before and after the update.
    ///
    /// # Errors
    /// When a row does not match the table; nothing is added then.
    pub fn update(
        &mut self,
        table: &Table,
        rows: &[(Vec<Value>, Vec<Value>)],
    ) -> Result<(), SynthesisError> {
        let images = rows.iter().flat_map(|(before, after)| [before, after]);
        self.change(table, RowsChange::Update, images)
    }

    /// Adds deleted rows.
    ///
    /// # Errors
    /// When a row does not match the table; nothing is added then.
    pub fn delete(&mut self, table: &Table, rows: &[Vec<Value>]) -> Result<(), SynthesisError> {
        self.change(table, RowsChange::Delete, rows)
    }

    fn change<'r>(
        &mut self,
        table: &Table,
        change: RowsChange,
        rows: impl IntoIterator<Item = &'r Vec<Value>>,
    ) -> Result<(), SynthesisError> {
        let mut images = Vec::new();
        for row in rows {
            put_row(&mut images, table, row)?;
        }
        let columns = table.columns.len();
        // All columns are present. The unused bits after the last column are set, as in the server's events.
        let present = vec![u8::MAX; columns.div_ceil(8)];
        let after = match change.has_two_images() {
            true => present.clone(),
            false => Vec::new(),
        };
        let rows = Rows {
            change,
            table_id: table.id,
            flags: Rows::END_OF_STATEMENT,
            extra_data: Some(Default::default()),
            column_count: columns as u64,
            columns: present.into(),
            columns_after: after.into(),
            images: images.into(),
        };
        let origin = self.head.origin(EventFlags::NONE);
        table.map().encode_into(origin, &mut self.body);
        rows.encode_into(origin, &mut self.body);
        Ok(())
    }

    /// Ends the transaction; returns its canonical payload, GTID event first.
    pub fn commit(mut self) -> Bytes {
        Xid { xid: self.head.xid }.encode_into(self.head.origin(EventFlags::NONE), &mut self.body);
        self.head.with_gtid(0, &self.body)
    }
}

/// The canonical payload of a transaction with a single statement, such as CREATE TABLE.
pub fn statement_transaction(head: TransactionHead, schema: &str, statement: &str) -> Bytes {
    let query = head.query(schema, statement.as_bytes());
    let body = query.encode(head.origin(EventFlags::NONE));
    head.with_gtid(GtidEvent::MAY_HAVE_STATEMENTS, &body)
}

impl TransactionHead {
    fn origin(&self, flags: EventFlags) -> EventOrigin {
        EventOrigin {
            // Event headers have 32 bits for the time.
            timestamp: u32::try_from(self.commit.0 / 1_000_000).unwrap_or(u32::MAX),
            server_id: self.server_id,
            flags,
        }
    }

    fn query<'a>(&self, schema: &'a str, statement: &'a [u8]) -> Query<'a> {
        Query {
            thread_id: self.thread_id,
            execution_seconds: 0,
            error_code: 0,
            status_variables: STATUS_VARIABLES.as_slice().into(),
            schema: schema.as_bytes().into(),
            statement: statement.into(),
        }
    }

    /// Prepends the GTID event. It contains the transaction's total length in a file, including its own length, which depends on that
    /// number.
    fn with_gtid(&self, flags: u8, body: &[u8]) -> Bytes {
        let body_len = stamped_len(body).unwrap_or_default();
        let mut event = GtidEvent {
            tagged: !self.gtid.tag.is_none(),
            flags,
            gtid: self.gtid,
            clock: self.clock,
            immediate_commit: Some(self.commit),
            original_commit: None,
            transaction_length: Some(body_len),
            immediate_version: Some(self.version),
            original_version: None,
            commit_group_ticket: None,
        };
        // Longer numbers make longer events, so the loop ends after a few iterations.
        loop {
            let mut payload = event.encode(self.origin(EventFlags::NONE));
            let whole = Some(body_len + (payload.len() + CHECKSUM_LEN) as u64);
            if event.transaction_length == whole {
                payload.extend_from_slice(body);
                return payload.into();
            }
            event.transaction_length = whole;
        }
    }
}

// Tables, columns and values, and their description in a table map.

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// INT: 4 bytes, with a sign.
    Int,
    /// BIGINT: 8 bytes, with a sign.
    BigInt,
    /// VARCHAR with a limit in bytes: in utf8mb4, four times the number of characters.
    Varchar {
        /// The longest value in bytes.
        max_bytes: u16,
    },
}

/// A column of a table for synthesized rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column {
    /// INT, BIGINT or VARCHAR.
    pub column_type: ColumnType,
    /// Whether the column may be NULL.
    pub nullable: bool,
}

/// A value in a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// NULL, for columns that allow it.
    Null,
    /// A value of an INT column.
    Int(i32),
    /// A value of a BIGINT column.
    BigInt(i64),
    /// A value of a VARCHAR column, in utf8mb4.
    Text(String),
}

/// A table that rows are written to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table {
    /// The table's number in events; distinct within a transaction.
    pub id: TableId,
    /// Name of the table's schema.
    pub schema: String,
    /// Name of the table in that schema.
    pub name: String,
    /// The table's columns in order, equal to those on the applying server.
    pub columns: Vec<Column>,
}

/// Type bytes of MySQL's columns.
const TYPE_LONG: u8 = 3;
const TYPE_LONGLONG: u8 = 8;
const TYPE_VARCHAR: u8 = 15;

/// A flag that servers since 5.1.4 set in table maps.
const EXACT_BIT_LENGTHS: u16 = 1;

/// Field numbers of optional metadata.
const SIGNEDNESS: u8 = 1;
const DEFAULT_CHARSET: u64 = 2;
const COLLATION: u64 = 255;

impl Table {
    /// `schema.name`, for messages.
    fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    fn map(&self) -> TableMap<'_> {
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

    /// Encodes the signedness of columns (none is unsigned) and the character set.
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
            put_numbered_field(&mut metadata, DEFAULT_CHARSET, COLLATION);
        }
        metadata
    }
}

/// Sets a bit, counted from the lowest bit of the first byte.
fn set_bit(bits: &mut [u8], at: usize) {
    if let Some(byte) = bits.get_mut(at / 8) {
        *byte |= 1 << (at % 8);
    }
}

// The values of a row in rows events: a bit for each column, set for NULL; then the other values in order.

/// Appends a row image with all columns.
fn put_row(out: &mut Vec<u8>, table: &Table, row: &[Value]) -> Result<(), SynthesisError> {
    if row.len() != table.columns.len() {
        return Err(SynthesisError::ColumnCount {
            table: table.full_name(),
            columns: table.columns.len(),
            values: row.len(),
        });
    }
    let bits = out.len();
    out.resize(bits + row.len().div_ceil(8), 0);
    let values = row.iter().enumerate();
    let nulls = values.filter(|(_, value)| **value == Value::Null);
    nulls.for_each(|(at, _)| set_bit(&mut out[bits..], at));
    for (at, value) in row.iter().enumerate() {
        put_value(out, table, at, value)?;
    }
    Ok(())
}

fn put_value(
    out: &mut Vec<u8>,
    table: &Table,
    at: usize,
    value: &Value,
) -> Result<(), SynthesisError> {
    let column = table.columns[at];
    match (column.column_type, value) {
        (_, Value::Null) if column.nullable => {}
        (ColumnType::Int, Value::Int(number)) => out.extend_from_slice(&number.to_le_bytes()),
        (ColumnType::BigInt, Value::BigInt(number)) => out.extend_from_slice(&number.to_le_bytes()),
        (ColumnType::Varchar { max_bytes }, Value::Text(text)) => {
            let length = u16::try_from(text.len()).ok();
            let Some(length) = length.filter(|length| *length <= max_bytes) else {
                return Err(SynthesisError::TooLong {
                    table: table.full_name(),
                    column: at + 1,
                    size: text.len(),
                    limit: max_bytes,
                });
            };
            // The length takes two bytes if the column's maximum length needs them.
            let [low, high] = length.to_le_bytes();
            out.push(low);
            if max_bytes > u16::from(u8::MAX) {
                out.push(high);
            }
            out.extend_from_slice(text.as_bytes());
        }
        _ => {
            return Err(SynthesisError::WrongValue {
                table: table.full_name(),
                column: at + 1,
            });
        }
    }
    Ok(())
}

// Errors of writing a row.

/// A row does not match its table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SynthesisError {
    /// The number of values differs from the number of columns.
    #[error("table {table} has {columns} columns, but the row has {values} values")]
    ColumnCount {
        /// Schema and name of the table.
        table: String,
        /// Number of columns.
        columns: usize,
        /// Number of values.
        values: usize,
    },
    /// A value's type differs from its column's type, or NULL is not allowed.
    #[error("column {column} of table {table} (counted from 1) takes no such value")]
    WrongValue {
        /// Schema and name of the table.
        table: String,
        /// The column, counted from 1.
        column: usize,
    },
    /// A text is longer than its column allows.
    #[error(
        "column {column} of table {table} (counted from 1) holds {limit} bytes, the value has {size}"
    )]
    TooLong {
        /// Schema and name of the table.
        table: String,
        /// The column, counted from 1.
        column: usize,
        /// Bytes of the value in utf8mb4.
        size: usize,
        /// The column's limit in bytes.
        limit: u16,
    },
}
