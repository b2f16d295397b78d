//! The body of GTID_TAGGED in MySQL's serialization format:
//!
//! ```text
//! varlen format version (1); varlen size of the whole body; varlen last field that must be known;
//! then for each field: varlen field number, value
//! ```
//!
//! Fields come in the order of their numbers; a missing one has its default. The source is an array
//! of bytes, each a varlen integer of its own.

use std::borrow::Cow;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::events::gtid_event::view::{
    CommitTimestamp, GtidEvent, GtidForm, LogicalClock, ServerVersion,
};
use crate::gtid::{Gno, Gtid, SourceId, Tag};
use crate::varlen;

const FORMAT_VERSION: u64 = 1;

const FLAGS: u64 = 0;
const SOURCE: u64 = 1;
const GNO: u64 = 2;
const TAG: u64 = 3;
const LAST_COMMITTED: u64 = 4;
const SEQUENCE_NUMBER: u64 = 5;
const IMMEDIATE_COMMIT: u64 = 6;
const ORIGINAL_COMMIT: u64 = 7;
const TRANSACTION_LENGTH: u64 = 8;
const IMMEDIATE_VERSION: u64 = 9;
const ORIGINAL_VERSION: u64 = 10;
const COMMIT_GROUP_TICKET: u64 = 11;
const LAST_KNOWN: u64 = COMMIT_GROUP_TICKET;

pub(super) fn decode(body: &[u8]) -> Result<GtidEvent<'_>, DecodeError> {
    let mut cursor = Cursor::new(body);
    if varlen::unsigned(&mut cursor, "serialization version")? != FORMAT_VERSION {
        return Err(DecodeError::invalid(
            "serialization version",
            "only version 1 is read",
        ));
    }
    if varlen::unsigned(&mut cursor, "serialized size")? != body.len() as u64 {
        return Err(DecodeError::invalid(
            "serialized size",
            "it is not the size of the event's body",
        ));
    }
    let last_non_ignorable_field = varlen::unsigned(&mut cursor, "last non-ignorable field")?;
    if last_non_ignorable_field > LAST_KNOWN {
        return Err(DecodeError::invalid(
            "GTID event",
            "it has a field of a later MySQL version that readers must know",
        ));
    }
    let mut fields = Fields { cursor };
    let flags = fields.required(FLAGS, varlen::unsigned)?;
    let flags = u8::try_from(flags)
        .map_err(|_| DecodeError::invalid("GTID flags", "more than eight bits"))?;
    let source = SourceId::from_bytes(fields.required(SOURCE, source_bytes)?);
    let gno = Gno::from_signed(fields.required(GNO, varlen::signed)?)?;
    let tag = Tag::new(fields.required(TAG, varlen::string)?)?;
    let clock = LogicalClock {
        last_committed: fields.required(LAST_COMMITTED, varlen::signed)?,
        sequence_number: fields.required(SEQUENCE_NUMBER, varlen::signed)?,
    };
    Ok(GtidEvent {
        flags,
        gtid: Gtid { source, tag, gno },
        clock,
        immediate_commit: fields
            .optional(IMMEDIATE_COMMIT, varlen::unsigned)?
            .map(CommitTimestamp),
        original_commit: fields
            .optional(ORIGINAL_COMMIT, varlen::unsigned)?
            .map(CommitTimestamp),
        transaction_length: fields.optional(TRANSACTION_LENGTH, varlen::unsigned)?,
        immediate_version: fields.optional(IMMEDIATE_VERSION, server_version)?,
        original_version: fields.optional(ORIGINAL_VERSION, server_version)?,
        commit_group_ticket: fields.optional(COMMIT_GROUP_TICKET, varlen::unsigned)?,
        form: GtidForm::Tagged {
            last_non_ignorable_field,
            later_fields: Cow::Borrowed(fields.later_fields()?),
        },
    })
}

pub(super) fn encode(
    event: &GtidEvent<'_>,
    last_non_ignorable: u64,
    later_fields: &[u8],
    out: &mut Vec<u8>,
) {
    let mut rest = Vec::new();
    varlen::put_unsigned(&mut rest, last_non_ignorable);
    put_field(&mut rest, FLAGS, u64::from(event.flags));
    varlen::put_unsigned(&mut rest, SOURCE);
    for byte in event.gtid.source.as_bytes() {
        varlen::put_unsigned(&mut rest, u64::from(*byte));
    }
    put_signed_field(&mut rest, GNO, event.gtid.gno.get() as i64);
    varlen::put_unsigned(&mut rest, TAG);
    varlen::put_string(&mut rest, event.gtid.tag.as_bytes());
    put_signed_field(&mut rest, LAST_COMMITTED, event.clock.last_committed);
    put_signed_field(&mut rest, SEQUENCE_NUMBER, event.clock.sequence_number);
    let optional = [
        (IMMEDIATE_COMMIT, event.immediate_commit.map(|it| it.0)),
        (ORIGINAL_COMMIT, event.original_commit.map(|it| it.0)),
        (TRANSACTION_LENGTH, event.transaction_length),
        (
            IMMEDIATE_VERSION,
            event.immediate_version.map(|it| u64::from(it.0)),
        ),
        (
            ORIGINAL_VERSION,
            event.original_version.map(|it| u64::from(it.0)),
        ),
        (COMMIT_GROUP_TICKET, event.commit_group_ticket),
    ];
    for (number, value) in optional {
        if let Some(value) = value {
            put_field(&mut rest, number, value);
        }
    }
    rest.extend_from_slice(later_fields);

    varlen::put_unsigned(out, FORMAT_VERSION);
    varlen::put_unsigned(out, whole_size(rest.len()));
    out.extend_from_slice(&rest);
}

/// The size field counts the version byte and itself: find the length at which it fits.
fn whole_size(rest: usize) -> u64 {
    let mut size_len = 1;
    loop {
        let whole = (1 + size_len + rest) as u64;
        let mut coded = Vec::new();
        varlen::put_unsigned(&mut coded, whole);
        if coded.len() <= size_len {
            return whole;
        }
        size_len = coded.len();
    }
}

fn put_field(out: &mut Vec<u8>, number: u64, value: u64) {
    varlen::put_unsigned(out, number);
    varlen::put_unsigned(out, value);
}

fn put_signed_field(out: &mut Vec<u8>, number: u64, value: i64) {
    varlen::put_unsigned(out, number);
    varlen::put_signed(out, value);
}

/// The fields that are not read yet.
struct Fields<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Fields<'a> {
    /// The value of field `number`, if that is the next one.
    fn optional<T>(
        &mut self,
        number: u64,
        read: impl FnOnce(&mut Cursor<'a>, &'static str) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        let mut ahead = self.cursor;
        if ahead.is_empty() || varlen::unsigned(&mut ahead, "GTID field number")? != number {
            return Ok(None);
        }
        let value = read(&mut ahead, "GTID field")?;
        self.cursor = ahead;
        Ok(Some(value))
    }

    fn required<T>(
        &mut self,
        number: u64,
        read: impl FnOnce(&mut Cursor<'a>, &'static str) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        self.optional(number, read)?.ok_or(DecodeError::invalid(
            "GTID event",
            "a field is missing or not in its order",
        ))
    }

    /// The rest, when it begins with a field of a later version.
    fn later_fields(mut self) -> Result<&'a [u8], DecodeError> {
        let mut ahead = self.cursor;
        if !ahead.is_empty() && varlen::unsigned(&mut ahead, "GTID field number")? <= LAST_KNOWN {
            return Err(DecodeError::invalid(
                "GTID event",
                "a field is doubled or not in its order",
            ));
        }
        Ok(self.cursor.take_rest())
    }
}

fn source_bytes(
    cursor: &mut Cursor<'_>,
    field: &'static str,
) -> Result<[u8; SourceId::LEN], DecodeError> {
    let mut bytes = [0; SourceId::LEN];
    for byte in &mut bytes {
        let value = varlen::unsigned(cursor, field)?;
        *byte = u8::try_from(value)
            .map_err(|_| DecodeError::invalid("GTID source", "an element is no byte"))?;
    }
    Ok(bytes)
}

fn server_version(
    cursor: &mut Cursor<'_>,
    field: &'static str,
) -> Result<ServerVersion, DecodeError> {
    let value = varlen::unsigned(cursor, field)?;
    u32::try_from(value)
        .map(ServerVersion)
        .map_err(|_| DecodeError::invalid("server version", "more than 32 bits"))
}
