//! The body of GTID:
//!
//! ```text
//! u8 flags; 16 bytes source; i64 number; u8 clock type (2); i64 last committed; i64 sequence number
//! since 8.0, each only behind those before it:
//!   7 bytes commit timestamp [its top bit: 7 bytes original commit timestamp];
//!   length-encoded transaction length; u32 version [its top bit: u32 original version]; u64 ticket
//! ```

use crate::cursor::{Cursor, put_length_encoded};
use crate::decode_error::DecodeError;
use crate::events::gtid_event::view::{
    CommitTimestamp, GtidEvent, GtidForm, LogicalClock, ServerVersion,
};
use crate::gtid::{Gno, Gtid, SourceId, Tag};

const CLASSIC_CLOCK: u8 = 2;
/// Set in a 7-byte timestamp or a 4-byte version when the original one follows.
const TIMESTAMP_HAS_ORIGINAL: u64 = 1 << 55;
const VERSION_HAS_ORIGINAL: u32 = 1 << 31;

pub(super) fn decode(body: &[u8]) -> Result<GtidEvent<'static>, DecodeError> {
    let mut cursor = Cursor::new(body);
    let flags = cursor.u8("GTID flags")?;
    let source = SourceId::from_bytes(cursor.array("GTID source")?);
    let gno = Gno::from_signed(cursor.i64("GTID number")?)?;
    if cursor.u8("logical clock type")? != CLASSIC_CLOCK {
        return Err(DecodeError::invalid(
            "logical clock type",
            "only type 2 (MySQL 5.7 and later) is read",
        ));
    }
    let clock = LogicalClock {
        last_committed: cursor.i64("last committed")?,
        sequence_number: cursor.i64("sequence number")?,
    };
    let mut event = GtidEvent {
        form: GtidForm::Classic,
        flags,
        gtid: Gtid {
            source,
            tag: Tag::NONE,
            gno,
        },
        clock,
        immediate_commit: None,
        original_commit: None,
        transaction_length: None,
        immediate_version: None,
        original_version: None,
        commit_group_ticket: None,
    };
    decode_tail(&mut event, cursor)?;
    Ok(event)
}

/// What 8.0 appended, piece by piece: each may be missing.
fn decode_tail(event: &mut GtidEvent<'_>, mut cursor: Cursor<'_>) -> Result<(), DecodeError> {
    if cursor.is_empty() {
        return Ok(());
    }
    let immediate = cursor.uint("commit timestamp", 7)?;
    event.immediate_commit = Some(CommitTimestamp(immediate & !TIMESTAMP_HAS_ORIGINAL));
    if immediate & TIMESTAMP_HAS_ORIGINAL != 0 {
        event.original_commit = Some(CommitTimestamp(
            cursor.uint("original commit timestamp", 7)?,
        ));
    }
    if cursor.is_empty() {
        return Ok(());
    }
    event.transaction_length = Some(cursor.length_encoded("transaction length")?);
    if cursor.is_empty() {
        return Ok(());
    }
    let immediate = cursor.u32("server version")?;
    event.immediate_version = Some(ServerVersion(immediate & !VERSION_HAS_ORIGINAL));
    if immediate & VERSION_HAS_ORIGINAL != 0 {
        event.original_version = Some(ServerVersion(cursor.u32("original server version")?));
    }
    if cursor.is_empty() {
        return Ok(());
    }
    event.commit_group_ticket = Some(cursor.u64("commit group ticket")?);
    cursor.finish("the GTID event")
}

pub(super) fn encode(event: &GtidEvent<'_>, out: &mut Vec<u8>) {
    out.push(event.flags);
    out.extend_from_slice(event.gtid.source.as_bytes());
    out.extend_from_slice(&event.gtid.gno.get().to_le_bytes());
    out.push(CLASSIC_CLOCK);
    out.extend_from_slice(&event.clock.last_committed.to_le_bytes());
    out.extend_from_slice(&event.clock.sequence_number.to_le_bytes());
    // Each piece stands only behind all those before it.
    let Some(immediate) = event.immediate_commit else {
        return;
    };
    let mark = if event.original_commit.is_some() {
        TIMESTAMP_HAS_ORIGINAL
    } else {
        0
    };
    put_seven_bytes(out, immediate.0 | mark);
    if let Some(original) = event.original_commit {
        put_seven_bytes(out, original.0);
    }
    let Some(length) = event.transaction_length else {
        return;
    };
    put_length_encoded(out, length);
    let Some(immediate) = event.immediate_version else {
        return;
    };
    let mark = if event.original_version.is_some() {
        VERSION_HAS_ORIGINAL
    } else {
        0
    };
    out.extend_from_slice(&(immediate.0 | mark).to_le_bytes());
    if let Some(original) = event.original_version {
        out.extend_from_slice(&original.0.to_le_bytes());
    }
    if let Some(ticket) = event.commit_group_ticket {
        out.extend_from_slice(&ticket.to_le_bytes());
    }
}

fn put_seven_bytes(out: &mut Vec<u8>, value: u64) {
    out.extend(value.to_le_bytes().iter().take(7));
}
