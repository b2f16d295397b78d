//! Rows of the text protocol, parsed without I/O.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{ProtocolError, ServerError};
use crate::wire::{ByteReader, FieldReader, PacketReader, WireError};

/// The answer to one statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryResult {
    /// Names of the columns; none for a statement without rows.
    pub columns: Arc<[String]>,
    /// The rows, in the server's order; none for a statement without rows.
    pub rows: Vec<Row>,
    /// Rows changed, for a statement without a result.
    pub affected_rows: u64,
}

impl QueryResult {
    /// The first row, for statements that give one.
    pub fn first(&self) -> Option<&Row> {
        self.rows.first()
    }

    /// The first value of the first row as text.
    pub fn value(&self) -> Option<&str> {
        self.first()?.text_at(0)
    }

    /// The first values of all rows as text.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(|row| row.text_at(0))
    }
}

/// One row of an answer; its values are read by name or by place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    columns: Arc<[String]>,
    values: Vec<Option<Bytes>>,
}

impl Row {
    /// A row with a value for each column.
    pub(crate) fn of(columns: Arc<[String]>, values: Vec<Option<Bytes>>) -> Self {
        Self { columns, values }
    }

    /// The value of a column as the server wrote it; `None` when it is NULL or there is no such column.
    pub fn get(&self, column: &str) -> Option<&Bytes> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.values.get(at)?.as_ref()
    }

    /// The value of a column as text; `None` as for [`Row::get`], and when it is not UTF-8.
    pub fn text(&self, column: &str) -> Option<&str> {
        self.get(column)
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The value at a place (from 0) as text.
    pub fn text_at(&self, place: usize) -> Option<&str> {
        self.values
            .get(place)?
            .as_ref()
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The values in the order of the columns.
    pub fn values(&self) -> &[Option<Bytes>] {
        &self.values
    }
}

/// The first packet of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done {
        affected_rows: u64,
        /// Another answer follows: the packet held more than one statement.
        more: bool,
    },
    Columns(usize),
}

/// The bit of a status that says so.
const MORE_RESULTS: u16 = 0x0008;

/// More columns than any table or statement of ours has.
const MAX_COLUMNS: u64 = 4096;

pub(crate) fn parse_answer(payload: Bytes) -> Result<Answer, ProtocolError> {
    let what = "the answer to a statement";
    match payload.first() {
        Some(0x00) => {
            let mut fields = FieldReader::new(payload.slice(1..), what);
            let affected_rows = fields.integer()?;
            let _last_insert_id = fields.integer()?;
            let status = u16::from_le_bytes([fields.byte()?, fields.byte()?]);
            Ok(Answer::Done {
                affected_rows,
                more: status & MORE_RESULTS != 0,
            })
        }
        Some(0xfb) => Err(ProtocolError::malformed(
            what,
            "the server asks for a local file",
        )),
        _ => match FieldReader::new(payload, what).integer()? {
            columns @ 1..=MAX_COLUMNS => Ok(Answer::Columns(columns as usize)),
            other => Err(ProtocolError::malformed(
                what,
                format_args!("{other} columns"),
            )),
        },
    }
}

pub(crate) fn parse_column_name(payload: Bytes) -> Result<String, ProtocolError> {
    let mut fields = FieldReader::new(payload, "a column definition");
    // catalog, schema, table, original table
    for _ in 0..4 {
        fields.string()?;
    }
    Ok(String::from_utf8_lossy(&fields.string()?).into_owned())
}

pub(crate) enum RowPacket {
    Row(Row),
    End,
}

pub(crate) fn parse_row(
    payload: Bytes,
    columns: &Arc<[String]>,
) -> Result<RowPacket, ProtocolError> {
    // A row cannot begin with 0xfe unless its first value is longer than 16 MiB.
    if payload.first() == Some(&0xfe) && payload.len() < crate::wire::MAX_CHUNK {
        return Ok(RowPacket::End);
    }
    let mut fields = FieldReader::new(payload, "a row");
    let values = columns
        .iter()
        .map(|_| fields.string_or_null())
        .collect::<Result<_, _>>()?;
    if !fields.is_empty() {
        return Err(ProtocolError::malformed(
            "a row",
            "it has more values than columns",
        ));
    }
    Ok(RowPacket::Row(Row::of(Arc::clone(columns), values)))
}

impl ServerError {
    /// Reads an error packet (its first byte is 0xff), with or without an SQLSTATE.
    pub(crate) fn parse(payload: &[u8]) -> Result<Self, ProtocolError> {
        let [0xff, low, high, rest @ ..] = payload else {
            return Err(ProtocolError::malformed("an error packet", "it is cut off"));
        };
        let (sqlstate, message) = match rest {
            [b'#', rest @ ..] if rest.len() >= 5 => rest.split_at(5),
            _ => (&b"HY000"[..], rest),
        };
        Ok(Self {
            code: u16::from_le_bytes([*low, *high]),
            sqlstate: String::from_utf8_lossy(sqlstate).into_owned(),
            message: String::from_utf8_lossy(message).into_owned(),
        })
    }
}

// The packets of an answer.

/// The packets of one answer: numbered one after the other, and bounded in their sum.
pub(super) struct AnswerPackets<'a> {
    pub(super) reader: &'a mut PacketReader<ByteReader>,
    pub(super) next: u8,
    pub(super) bytes: usize,
    pub(super) max_bytes: usize,
}

impl AnswerPackets<'_> {
    pub(super) async fn next(&mut self) -> Result<Bytes, WireError> {
        let packet = self.reader.read().await?;
        if packet.first_sequence != self.next {
            return Err(WireError::Protocol(ProtocolError::Sequence {
                expected: self.next,
                found: packet.first_sequence,
            }));
        }
        self.next = packet.last_sequence.wrapping_add(1);
        self.bytes = self.bytes.saturating_add(packet.payload.len());
        if self.bytes > self.max_bytes {
            return Err(WireError::Protocol(ProtocolError::TooLarge {
                size: self.bytes as u64,
                limit: self.max_bytes as u64,
            }));
        }
        Ok(packet.payload)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn columns(names: &[&str]) -> Arc<[String]> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_row_is_read_by_column_name() {
        let payload = Bytes::from_static(&[2, b'o', b'n', 0xfb, 0]);
        let RowPacket::Row(row) = parse_row(payload, &columns(&["a", "b", "c"])).unwrap() else {
            panic!("not a row");
        };
        assert_eq!(row.text("a"), Some("on"));
        assert_eq!(row.text("b"), None);
        assert_eq!(row.text("c"), Some(""));
        assert_eq!(row.text("d"), None);
        assert_eq!(row.text_at(0), Some("on"));
    }

    #[test]
    fn errors_with_and_without_a_state() {
        let error = ServerError::parse(b"\xff\x15\x04#28000Access denied").unwrap();
        assert_eq!((error.code, error.sqlstate.as_str()), (1045, "28000"));
        let error = ServerError::parse(b"\xff\x10\x04Too many connections").unwrap();
        assert_eq!(
            (error.code, error.message.as_str()),
            (1040, "Too many connections")
        );
        assert!(ServerError::parse(b"\xff\x10").is_err());
    }

    #[test]
    fn a_request_for_a_local_file_is_refused() {
        assert!(parse_answer(Bytes::from_static(b"\xfb/etc/passwd")).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let payload = Bytes::from(bytes);
            let _ = parse_answer(payload.clone());
            let _ = parse_column_name(payload.clone());
            let _ = parse_row(payload.clone(), &columns(&["a", "b"]));
            let _ = ServerError::parse(&payload);
        }
    }
}
