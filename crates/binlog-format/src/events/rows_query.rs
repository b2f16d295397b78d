//! ROWS_QUERY: the text of the statement whose rows follow (`binlog_rows_query_log_events`).

use std::borrow::Cow;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::body::EncodeEvent;

/// A statement, for whoever reads the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsQuery<'a> {
    /// A byte in front of the text. Once its length, where that fits; 0 from 9.7. Nothing reads it: the
    /// text goes to the event's end.
    pub unread_length: u8,
    /// The statement's text.
    pub statement: Cow<'a, [u8]>,
}

impl<'a> RowsQuery<'a> {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type or empty.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::RowsQuery)?);
        let unread_length = cursor.u8("statement length")?;
        Ok(Self {
            unread_length,
            statement: Cow::Borrowed(cursor.take_rest()),
        })
    }
}

impl EncodeEvent for RowsQuery<'_> {
    fn event_type(&self) -> EventType {
        EventType::RowsQuery
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.push(self.unread_length);
        out.extend_from_slice(&self.statement);
    }
}
