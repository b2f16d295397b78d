//! QUERY: a statement with what it needs of its session, or BEGIN, COMMIT and their kin.
//!
//! ```text
//! u32 thread; u32 seconds; u8 schema length; u16 error code; u16 status variables' length;
//! status variables; schema; 0; statement
//! ```

use std::borrow::Cow;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::body::EncodeEvent;

/// A statement. Its parts are bytes: statements need not be UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query<'a> {
    /// The connection that ran it.
    pub thread_id: u32,
    /// Seconds that it took.
    pub execution_seconds: u32,
    /// The error that it ended with on the source; 0 for none.
    pub error_code: u16,
    /// Session variables in MySQL's coding; at most 65,535 bytes. [`SessionContext`](crate::events::SessionContext) reads
    /// them.
    pub status_variables: Cow<'a, [u8]>,
    /// The default schema; at most 255 bytes.
    pub schema: Cow<'a, [u8]>,
    /// The statement.
    pub statement: Cow<'a, [u8]>,
}

impl<'a> Query<'a> {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type or cut off.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::Query)?);
        let thread_id = cursor.u32("thread id")?;
        let execution_seconds = cursor.u32("execution time")?;
        let schema_len = cursor.u8("schema length")?;
        let error_code = cursor.u16("error code")?;
        let status_len = cursor.u16("status variables' length")?;
        let status_variables = cursor.bytes("status variables", usize::from(status_len))?;
        let schema = cursor.bytes("schema", usize::from(schema_len))?;
        if cursor.u8("schema's end")? != 0 {
            return Err(DecodeError::invalid("schema", "it is not terminated"));
        }
        Ok(Self {
            thread_id,
            execution_seconds,
            error_code,
            status_variables: Cow::Borrowed(status_variables),
            schema: Cow::Borrowed(schema),
            statement: Cow::Borrowed(cursor.take_rest()),
        })
    }
}

/// What a statement is to the transaction that it stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatementKind {
    /// BEGIN.
    Begin,
    /// XA START.
    XaStart,
    /// COMMIT.
    Commit,
    /// ROLLBACK of the whole transaction.
    Rollback,
    /// XA ROLLBACK: stands alone, or ends what XA START began.
    XaRollback,
    /// Any other: alone it is a transaction, behind BEGIN a part of one.
    Other,
}

impl StatementKind {
    /// The kind of a statement's text. The server writes BEGIN, COMMIT and XA START itself, in capitals; the others may be
    /// a client's words.
    pub fn of(statement: &[u8]) -> Self {
        if statement == b"BEGIN" {
            Self::Begin
        } else if statement.starts_with(b"XA START") {
            Self::XaStart
        } else if statement == b"COMMIT" {
            Self::Commit
        } else if begins_with(statement, b"ROLLBACK") && !begins_with(statement, b"ROLLBACK TO ") {
            Self::Rollback
        } else if begins_with(statement, b"XA ROLLBACK") {
            Self::XaRollback
        } else {
            Self::Other
        }
    }
}

fn begins_with(statement: &[u8], words: &[u8]) -> bool {
    statement
        .get(..words.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(words))
}

impl EncodeEvent for Query<'_> {
    fn event_type(&self) -> EventType {
        EventType::Query
    }

    /// Cuts a schema or status variables that are longer than their length field can say.
    fn encode_body(&self, out: &mut Vec<u8>) {
        let schema = self
            .schema
            .get(..usize::from(u8::MAX))
            .unwrap_or(&self.schema);
        let status = self
            .status_variables
            .get(..usize::from(u16::MAX))
            .unwrap_or(&self.status_variables);
        out.extend_from_slice(&self.thread_id.to_le_bytes());
        out.extend_from_slice(&self.execution_seconds.to_le_bytes());
        out.push(schema.len() as u8);
        out.extend_from_slice(&self.error_code.to_le_bytes());
        out.extend_from_slice(&(status.len() as u16).to_le_bytes());
        out.extend_from_slice(status);
        out.extend_from_slice(schema);
        out.push(0);
        out.extend_from_slice(&self.statement);
    }
}
