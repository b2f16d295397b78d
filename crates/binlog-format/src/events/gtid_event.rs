//! GTID and GTID_TAGGED: the first event of every transaction. The classic form has fields at fixed offsets. The tagged form, since 8.3,
//! has numbered fields of MySQL's serialization library. One view covers both forms.

use std::fmt;
use std::time::SystemTime;

use crate::decode::{self, Cursor, DecodeError, ensure, invalid, put_length_encoded};
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::EncodeEvent;
use crate::gtid::{Gno, Gtid, SourceId, Tag};

// The first event of a transaction, in either form.

/// Microseconds since the epoch at which a server committed a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitTimestamp(pub u64);

impl CommitTimestamp {
    /// The current time, by this host's clock.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for CommitTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// A server version, encoded as in events: 90704 is 9.7.4.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerVersion(pub u32);

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = (self.0 / 10_000, self.0 / 100 % 100);
        write!(f, "{major}.{minor}.{}", self.0 % 100)
    }
}

/// The logical clock of MySQL's parallel applier: determines which transactions of a file may run in parallel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LogicalClock {
    /// The sequence number of the last transaction that must be committed before this one starts.
    pub last_committed: i64,
    /// The transaction's own number in its file.
    pub sequence_number: i64,
}

/// The first event of a transaction. Fields that servers before 8.0 do not write are then `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GtidEvent {
    /// True for a GTID_TAGGED event, false for a GTID event, which has fields at fixed offsets and no tag.
    pub tagged: bool,
    /// Flag bits; bit 0: the transaction may have statement-format events.
    pub flags: u8,
    /// The transaction's identifier. In the classic form it has no tag.
    pub gtid: Gtid,
    /// The logical clock for parallel appliers.
    pub clock: LogicalClock,
    /// Commit time on the server that wrote this file.
    pub immediate_commit: Option<CommitTimestamp>,
    /// Commit time on the originating server, if different.
    pub original_commit: Option<CommitTimestamp>,
    /// Total size of the transaction's events in that server's file in bytes, including checksums.
    pub transaction_length: Option<u64>,
    /// The version of the server that wrote this file.
    pub immediate_version: Option<ServerVersion>,
    /// The version of the originating server, if different.
    pub original_version: Option<ServerVersion>,
    /// Orders the commits of several sessions; only group replication sets it.
    pub commit_group_ticket: Option<u64>,
}

impl GtidEvent {
    /// Flag bit of a transaction that may have statement-format events.
    pub const MAY_HAVE_STATEMENTS: u8 = 1;

    /// Decodes either form from an event without its checksum. Skips fields of later versions.
    ///
    /// # Errors
    /// When the event has another type, is truncated, or has a field of a later version that readers must support.
    pub fn decode(event: EventRef<'_>) -> Result<Self, DecodeError> {
        if event.event_type() == EventType::GtidTagged {
            decode_tagged(event.body())
        } else {
            decode_classic(event.body_of(EventType::Gtid)?)
        }
    }
}

impl EncodeEvent for GtidEvent {
    const TYPE: EventType = EventType::Gtid;

    fn event_type(&self) -> EventType {
        match self.tagged {
            true => EventType::GtidTagged,
            false => EventType::Gtid,
        }
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self.tagged {
            true => encode_tagged(self, out),
            false => encode_classic(self, out),
        }
    }
}

// The body of GTID:
//
// ```text
// u8 flags; 16 bytes source; i64 number; u8 clock type (2); i64 last committed; i64 sequence number
// since 8.0, each only after those before it:
//   7 bytes commit timestamp [its top bit: 7 bytes original commit timestamp];
//   length-encoded transaction length; u32 version [its top bit: u32 original version]; u64 ticket
// ```

const CLASSIC_CLOCK: u8 = 2;
/// Set in a 7-byte timestamp or a 4-byte version if the original one follows.
const TIMESTAMP_HAS_ORIGINAL: u64 = 1 << 55;
const VERSION_HAS_ORIGINAL: u32 = 1 << 31;

fn decode_classic(body: &[u8]) -> Result<GtidEvent, DecodeError> {
    let mut cursor = Cursor::new(body);
    let flags = cursor.u8("GTID flags")?;
    let source = SourceId::from_bytes(cursor.array("GTID source")?);
    let gno = Gno::from_signed(cursor.i64("GTID number")?)?;
    let is_known = cursor.u8("logical clock type")? == CLASSIC_CLOCK;
    let reason = "only type 2 (MySQL 5.7 and later) is read";
    ensure(is_known, "logical clock type", reason)?;
    let clock = LogicalClock {
        last_committed: cursor.i64("last committed")?,
        sequence_number: cursor.i64("sequence number")?,
    };
    let mut event = GtidEvent {
        tagged: false,
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
    // The fields that were added in 8.0. Each is present only if all fields before it are.
    if !cursor.is_empty() {
        let immediate = cursor.uint("commit timestamp", 7)?;
        event.immediate_commit = Some(CommitTimestamp(immediate & !TIMESTAMP_HAS_ORIGINAL));
        if immediate & TIMESTAMP_HAS_ORIGINAL != 0 {
            let original = cursor.uint("original commit timestamp", 7)?;
            event.original_commit = Some(CommitTimestamp(original));
        }
    }
    if !cursor.is_empty() {
        event.transaction_length = Some(cursor.length_encoded("transaction length")?);
    }
    if !cursor.is_empty() {
        let immediate = cursor.u32("server version")?;
        event.immediate_version = Some(ServerVersion(immediate & !VERSION_HAS_ORIGINAL));
        if immediate & VERSION_HAS_ORIGINAL != 0 {
            event.original_version = Some(ServerVersion(cursor.u32("original server version")?));
        }
    }
    if !cursor.is_empty() {
        event.commit_group_ticket = Some(cursor.u64("commit group ticket")?);
    }
    cursor.finish("the GTID event")?;
    Ok(event)
}

fn encode_classic(event: &GtidEvent, out: &mut Vec<u8>) {
    out.push(event.flags);
    out.extend_from_slice(event.gtid.source.as_bytes());
    out.extend_from_slice(&event.gtid.gno.get().to_le_bytes());
    out.push(CLASSIC_CLOCK);
    out.extend_from_slice(&event.clock.last_committed.to_le_bytes());
    out.extend_from_slice(&event.clock.sequence_number.to_le_bytes());
    // Each field is written only if all fields before it are.
    let Some(immediate) = event.immediate_commit else {
        return;
    };
    match event.original_commit {
        None => put_seven_bytes(out, immediate.0),
        Some(original) => {
            put_seven_bytes(out, immediate.0 | TIMESTAMP_HAS_ORIGINAL);
            put_seven_bytes(out, original.0);
        }
    }
    let Some(length) = event.transaction_length else {
        return;
    };
    put_length_encoded(out, length);
    let Some(immediate) = event.immediate_version else {
        return;
    };
    match event.original_version {
        None => out.extend_from_slice(&immediate.0.to_le_bytes()),
        Some(original) => {
            let marked = immediate.0 | VERSION_HAS_ORIGINAL;
            out.extend_from_slice(&marked.to_le_bytes());
            out.extend_from_slice(&original.0.to_le_bytes());
        }
    }
    if let Some(ticket) = event.commit_group_ticket {
        out.extend_from_slice(&ticket.to_le_bytes());
    }
}

fn put_seven_bytes(out: &mut Vec<u8>, value: u64) {
    out.extend(value.to_le_bytes().iter().take(7));
}

// The body of GTID_TAGGED in MySQL's serialization format:
//
// ```text
// varlen format version (1); varlen size of the whole body; varlen last field that must be known;
// then for each field: varlen field number, value
// ```
//
// Fields are ordered by number. A missing field has its default. The source is an array of bytes, each of which is a separate varlen
// integer.

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

fn decode_tagged(body: &[u8]) -> Result<GtidEvent, DecodeError> {
    let mut cursor = Cursor::new(body);
    let mut number = |field| decode::unsigned(&mut cursor, field);
    let is_known = number("serialization version")? == FORMAT_VERSION;
    ensure(is_known, "serialization version", "only version 1 is read")?;
    let fits = number("serialized size")? == body.len() as u64;
    let reason = "it is not the size of the event's body";
    ensure(fits, "serialized size", reason)?;
    let is_known = number("last non-ignorable field")? <= LAST_KNOWN;
    let reason = "it has a field of a later MySQL version that readers must know";
    ensure(is_known, "GTID event", reason)?;
    let fields = &mut cursor;
    let flags = required(fields, FLAGS, decode::unsigned)?;
    let flags = u8::try_from(flags).map_err(|_| invalid("GTID flags", "more than eight bits"))?;
    let source = SourceId::from_bytes(required(fields, SOURCE, source_bytes)?);
    let gno = Gno::from_signed(required(fields, GNO, decode::signed)?)?;
    let tag = Tag::new(required(fields, TAG, decode::string)?)?;
    let clock = LogicalClock {
        last_committed: required(fields, LAST_COMMITTED, decode::signed)?,
        sequence_number: required(fields, SEQUENCE_NUMBER, decode::signed)?,
    };
    let immediate_commit = optional(fields, IMMEDIATE_COMMIT, decode::unsigned)?;
    let original_commit = optional(fields, ORIGINAL_COMMIT, decode::unsigned)?;
    let event = GtidEvent {
        flags,
        gtid: Gtid { source, tag, gno },
        clock,
        immediate_commit: immediate_commit.map(CommitTimestamp),
        original_commit: original_commit.map(CommitTimestamp),
        transaction_length: optional(fields, TRANSACTION_LENGTH, decode::unsigned)?,
        immediate_version: optional(fields, IMMEDIATE_VERSION, server_version)?,
        original_version: optional(fields, ORIGINAL_VERSION, server_version)?,
        commit_group_ticket: optional(fields, COMMIT_GROUP_TICKET, decode::unsigned)?,
        tagged: true,
    };
    // If there are more bytes, they must begin with a field of a later version.
    let fits = fields.is_empty() || decode::unsigned(fields, "GTID field number")? > LAST_KNOWN;
    ensure(fits, "GTID event", "a field is doubled or not in its order")?;
    Ok(event)
}

fn encode_tagged(event: &GtidEvent, out: &mut Vec<u8>) {
    let mut rest = Vec::new();
    // The number of the last field that a reader must support. This is the value that servers from 8.3 to 9.7 write.
    decode::put_unsigned(&mut rest, FLAGS);
    put_field(&mut rest, FLAGS, u64::from(event.flags));
    decode::put_unsigned(&mut rest, SOURCE);
    for byte in event.gtid.source.as_bytes() {
        decode::put_unsigned(&mut rest, u64::from(*byte));
    }
    put_signed_field(&mut rest, GNO, event.gtid.gno.get() as i64);
    decode::put_unsigned(&mut rest, TAG);
    decode::put_string(&mut rest, event.gtid.tag.as_bytes());
    put_signed_field(&mut rest, LAST_COMMITTED, event.clock.last_committed);
    put_signed_field(&mut rest, SEQUENCE_NUMBER, event.clock.sequence_number);
    let version = |version: Option<ServerVersion>| version.map(|version| version.0.into());
    let optional = [
        (IMMEDIATE_COMMIT, event.immediate_commit.map(|it| it.0)),
        (ORIGINAL_COMMIT, event.original_commit.map(|it| it.0)),
        (TRANSACTION_LENGTH, event.transaction_length),
        (IMMEDIATE_VERSION, version(event.immediate_version)),
        (ORIGINAL_VERSION, version(event.original_version)),
        (COMMIT_GROUP_TICKET, event.commit_group_ticket),
    ];
    for (number, value) in optional {
        if let Some(value) = value {
            put_field(&mut rest, number, value);
        }
    }

    decode::put_unsigned(out, FORMAT_VERSION);
    decode::put_unsigned(out, whole_size(rest.len()));
    out.extend_from_slice(&rest);
}

/// The size of the whole body. It includes the version byte and the size field itself, so the size field's length must be found first.
fn whole_size(rest: usize) -> u64 {
    let mut size_len = 1;
    loop {
        let whole = (1 + size_len + rest) as u64;
        let mut coded = Vec::new();
        decode::put_unsigned(&mut coded, whole);
        if coded.len() <= size_len {
            return whole;
        }
        size_len = coded.len();
    }
}

fn put_field(out: &mut Vec<u8>, number: u64, value: u64) {
    decode::put_unsigned(out, number);
    decode::put_unsigned(out, value);
}

fn put_signed_field(out: &mut Vec<u8>, number: u64, value: i64) {
    decode::put_unsigned(out, number);
    decode::put_signed(out, value);
}

/// Reads a field if it is the next one.
fn optional<'a, T>(
    cursor: &mut Cursor<'a>,
    number: u64,
    read: impl FnOnce(&mut Cursor<'a>, &'static str) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    let mut ahead = *cursor;
    if ahead.is_empty() || decode::unsigned(&mut ahead, "GTID field number")? != number {
        return Ok(None);
    }
    let value = read(&mut ahead, "GTID field")?;
    *cursor = ahead;
    Ok(Some(value))
}

fn required<'a, T>(
    cursor: &mut Cursor<'a>,
    number: u64,
    read: impl FnOnce(&mut Cursor<'a>, &'static str) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let reason = "a field is missing or not in its order";
    let value = optional(cursor, number, read)?;
    value.ok_or(invalid("GTID event", reason))
}

fn source_bytes(
    cursor: &mut Cursor<'_>,
    field: &'static str,
) -> Result<[u8; SourceId::LEN], DecodeError> {
    let mut bytes = [0; SourceId::LEN];
    for byte in &mut bytes {
        let value = decode::unsigned(cursor, field)?;
        *byte = u8::try_from(value).map_err(|_| invalid("GTID source", "an element is no byte"))?;
    }
    Ok(bytes)
}

fn server_version(
    cursor: &mut Cursor<'_>,
    field: &'static str,
) -> Result<ServerVersion, DecodeError> {
    let value = decode::unsigned(cursor, field)?;
    let version = u32::try_from(value).map(ServerVersion);
    version.map_err(|_| invalid("server version", "more than 32 bits"))
}
