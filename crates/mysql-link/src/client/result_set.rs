//! Rows of the text protocol, parsed without I/O.

use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::error::{ProtocolError, ServerError};
use crate::wire::{ByteReader, PacketReader, WireError};

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
    /// The first row, for statements that return one.
    pub fn first(&self) -> Option<&Row> {
        self.rows.first()
    }

    /// The first value of the first row, as text.
    pub fn value(&self) -> Option<&str> {
        self.first()?.text_at(0)
    }

    /// The first values of all rows as text.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(|row| row.text_at(0))
    }
}

/// One row of an answer. Values are read by column name or index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    columns: Arc<[String]>,
    values: Vec<Option<Bytes>>,
}

impl Row {
    /// Creates a row with a value for each column.
    pub(crate) fn of(columns: Arc<[String]>, values: Vec<Option<Bytes>>) -> Self {
        Self { columns, values }
    }

    /// The value of a column as the server wrote it; `None` if it is NULL or the column does not exist.
    pub fn get(&self, column: &str) -> Option<&Bytes> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.values.get(at)?.as_ref()
    }

    /// The value of a column as text; `None` as for [`Row::get`], and if it is not UTF-8.
    pub fn text(&self, column: &str) -> Option<&str> {
        std::str::from_utf8(self.get(column)?).ok()
    }

    /// The value at an index (from 0) as text.
    pub fn text_at(&self, place: usize) -> Option<&str> {
        std::str::from_utf8(self.values.get(place)?.as_ref()?).ok()
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
        /// True if another answer follows, because the packet held several statements.
        more: bool,
    },
    Columns(usize),
}

/// The status flag `SERVER_MORE_RESULTS_EXISTS`: another answer follows.
const MORE_RESULTS: u16 = 0x0008;

/// More columns than any table or statement of this project has.
const MAX_COLUMNS: u64 = 4096;

pub(crate) fn parse_answer(payload: Bytes) -> Result<Answer, ProtocolError> {
    let what = "the answer to a statement";
    let first = payload.first().copied();
    let mut fields = FieldReader { payload, what };
    match first {
        Some(0x00) => {
            fields.byte()?;
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
        _ => match fields.integer()? {
            columns @ 1..=MAX_COLUMNS => Ok(Answer::Columns(columns as usize)),
            other => Err(ProtocolError::malformed(
                what,
                format_args!("{other} columns"),
            )),
        },
    }
}

pub(crate) fn parse_column_name(payload: Bytes) -> Result<String, ProtocolError> {
    let what = "a column definition";
    let mut fields = FieldReader { payload, what };
    // catalog, schema, table, original table
    for _ in 0..4 {
        fields.string()?;
    }
    Ok(String::from_utf8_lossy(&fields.string()?).into_owned())
}

/// Parses a packet after the column definitions; `None` at the end of the rows.
pub(crate) fn parse_row(
    payload: Bytes,
    columns: &Arc<[String]>,
) -> Result<Option<Row>, ProtocolError> {
    // A row cannot begin with 0xfe unless its first value is longer than 16 MiB.
    if payload.first() == Some(&0xfe) && payload.len() < crate::wire::MAX_CHUNK {
        return Ok(None);
    }
    let what = "a row";
    let mut fields = FieldReader { payload, what };
    let values = columns
        .iter()
        .map(|_| fields.string_or_null())
        .collect::<Result<_, _>>()?;
    if !fields.payload.is_empty() {
        return Err(ProtocolError::malformed(
            what,
            "it has more values than columns",
        ));
    }
    Ok(Some(Row::of(Arc::clone(columns), values)))
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

/// The packets of one answer: numbered consecutively, with a limit for their total size.
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
            let (expected, found) = (self.next, packet.first_sequence);
            return Err(ProtocolError::Sequence { expected, found }.into());
        }
        self.next = packet.last_sequence.wrapping_add(1);
        self.bytes = self.bytes.saturating_add(packet.payload.len());
        if self.bytes > self.max_bytes {
            let (size, limit) = (self.bytes as u64, self.max_bytes as u64);
            return Err(ProtocolError::TooLarge { size, limit }.into());
        }
        Ok(packet.payload)
    }
}

// Parses fields in a packet, and checks every length.

/// Removes fields from the front of a packet's payload. The values share the packet's memory.
#[derive(Debug)]
struct FieldReader {
    /// The bytes that are not parsed yet.
    payload: Bytes,
    /// The packet's name in errors.
    what: &'static str,
}

impl FieldReader {
    /// The next `length` bytes.
    ///
    /// # Errors
    /// When fewer bytes are left.
    fn bytes(&mut self, length: usize) -> Result<Bytes, ProtocolError> {
        let left = self.payload.len();
        if left < length {
            let reason = format!("a field of {length} bytes, but only {left} are left");
            return Err(ProtocolError::malformed(self.what, reason));
        }
        Ok(self.payload.split_to(length))
    }

    /// One byte.
    ///
    /// # Errors
    /// At the end.
    fn byte(&mut self) -> Result<u8, ProtocolError> {
        Ok(self.bytes(1)?[0])
    }

    /// A length-encoded integer.
    ///
    /// # Errors
    /// When it is truncated, or is the NULL marker.
    fn integer(&mut self) -> Result<u64, ProtocolError> {
        self.integer_or_null()?
            .ok_or_else(|| ProtocolError::malformed(self.what, "NULL where a number is due"))
    }

    /// A length-encoded string, or `None` for NULL.
    ///
    /// # Errors
    /// When it is truncated.
    fn string_or_null(&mut self) -> Result<Option<Bytes>, ProtocolError> {
        match self.integer_or_null()? {
            None => Ok(None),
            Some(length) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                self.bytes(length).map(Some)
            }
        }
    }

    /// A length-encoded string.
    ///
    /// # Errors
    /// When it is truncated or NULL.
    fn string(&mut self) -> Result<Bytes, ProtocolError> {
        self.string_or_null()?
            .ok_or_else(|| ProtocolError::malformed(self.what, "NULL where a string is due"))
    }

    fn integer_or_null(&mut self) -> Result<Option<u64>, ProtocolError> {
        let width = match self.byte()? {
            0xfb => return Ok(None),
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            0xff => return Err(ProtocolError::malformed(self.what, "0xff is no length")),
            small => return Ok(Some(u64::from(small))),
        };
        Ok(Some(self.bytes(width)?.get_uint_le(width)))
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
        let row = parse_row(payload, &columns(&["a", "b", "c"])).unwrap();
        let row = row.expect("a row");
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

#[cfg(test)]
mod field_tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{put_integer, put_string};

    fn reader(bytes: &[u8]) -> FieldReader {
        let (payload, what) = (Bytes::copy_from_slice(bytes), "test");
        FieldReader { payload, what }
    }

    #[test]
    fn integers_of_every_width() {
        assert_eq!(reader(&[0xfa]).integer(), Ok(0xfa));
        assert_eq!(reader(&[0xfc, 1, 2]).integer(), Ok(0x0201));
        assert_eq!(reader(&[0xfd, 1, 2, 3]).integer(), Ok(0x03_0201));
        assert_eq!(
            reader(&[0xfe, 1, 2, 3, 4, 5, 6, 7, 8]).integer(),
            Ok(0x0807_0605_0403_0201)
        );
        assert!(reader(&[0xfb]).integer().is_err());
        assert!(reader(&[0xff]).integer().is_err());
        assert!(reader(&[0xfc, 1]).integer().is_err());
    }

    #[test]
    fn strings_and_nulls() {
        let mut fields = reader(&[2, b'a', b'b', 0xfb, 0]);
        assert_eq!(fields.string_or_null(), Ok(Some(Bytes::from_static(b"ab"))));
        assert_eq!(fields.string_or_null(), Ok(None));
        assert_eq!(fields.string(), Ok(Bytes::new()));
        assert!(fields.payload.is_empty());
        assert!(reader(&[3, b'a']).string().is_err());
    }

    proptest! {
        #[test]
        fn written_fields_are_read(number in any::<u64>(), bits in 0..64_u32, text in ".{0,300}") {
            let mut out = Vec::new();
            put_integer(&mut out, number >> bits);
            put_string(&mut out, text.as_bytes());
            let mut fields = reader(&out);
            prop_assert_eq!(fields.integer(), Ok(number >> bits));
            prop_assert_eq!(fields.string(), Ok(Bytes::from(text)));
            prop_assert!(fields.payload.is_empty());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut fields = reader(&bytes);
            while !fields.payload.is_empty() && fields.string_or_null().is_ok() {}
        }
    }
}
