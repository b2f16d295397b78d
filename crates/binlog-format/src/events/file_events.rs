//! Events that belong to a file or a stream, not to a transaction: FORMAT_DESCRIPTION, HEARTBEAT, ROTATE, IGNORABLE and PREVIOUS_GTIDS.

use std::borrow::Cow;

use crate::decode::{Cursor, DecodeError, ensure, invalid, put_length_encoded, put_numbered_field};
use crate::event::{ChecksumAlgorithm, EventFlags, EventRef, HEADER_LEN};
use crate::event_type::EventType;
use crate::events::{EncodeEvent, EventOrigin};
use crate::gtid::{GtidSet, GtidSetFormat};

// FORMAT_DESCRIPTION: the first event of a file. It contains the server's version, the length of the fixed part of every event type, and
// the checksum algorithm of the following events.
//
//   u16 binlog version (4); 50 bytes server version; u32 created; u8 header length (19);
//   u8 for each event type from 1: length of its fixed part; u8 checksum algorithm

/// Bytes of the server version, padded with zeros.
const VERSION_LEN: usize = 50;
const BINLOG_VERSION: u16 = 4;

/// A file's first event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatDescription<'a> {
    /// The server's version, without padding; at most 50 bytes.
    pub server_version: Cow<'a, [u8]>,
    /// The server's start time in seconds since the epoch. It is 0 in all files except the first one after a start.
    pub created: u32,
    /// Length of the fixed part of each event type, starting with type 1.
    pub post_header_lengths: Cow<'a, [u8]>,
    /// The checksum algorithm of the following events.
    pub checksum: ChecksumAlgorithm,
}

/// Lengths that MySQL 8.0.14 and later announce, up to type 42. None of them has changed since.
#[rustfmt::skip]
const POST_HEADER_LENGTHS: [u8; 42] = [
    0, 13, 0, 8, 0, 0, 0, 0, 4, 0,    // 1..: QUERY 13, ROTATE 8, APPEND_BLOCK 4
    4, 0, 0, 0, 99, 0, 4, 26, 8, 0,   // 11..: DELETE_FILE 4, FORMAT_DESCRIPTION 57 + 42, BEGIN_LOAD_QUERY 4, …
    0, 0, 0, 0, 0, 2, 0, 0, 0, 10,    // 21..: INCIDENT 2, WRITE_ROWS 10
    10, 10, 42, 42, 0, 18, 52, 0, 10, 40, // 31..: rows 10, GTIDs 42, TRANSACTION_CONTEXT 18, VIEW_CHANGE 52, …
    0, 0,                             // 41..: HEARTBEAT_V2, GTID_TAGGED
];

impl FormatDescription<'static> {
    /// The version that [`Self::built_in`] announces.
    pub const BUILT_IN_VERSION: &'static str = "9.7.0-witness";

    /// Creates a format description for a file if no server's is known. Each version has one fixed result. The version must begin with
    /// three numbers, as MySQL's versions do, and is truncated to 50 bytes.
    pub fn built_in(server_version: &str) -> Self {
        let mut version = server_version.as_bytes().to_vec();
        version.truncate(VERSION_LEN);
        Self {
            server_version: Cow::Owned(version),
            created: 0,
            post_header_lengths: Cow::Borrowed(&POST_HEADER_LENGTHS),
            checksum: ChecksumAlgorithm::Crc32,
        }
    }

    /// The whole canonical event of [`Self::built_in`], with timestamp and server id zero.
    pub fn built_in_event() -> Vec<u8> {
        Self::built_in(Self::BUILT_IN_VERSION).encode(EventOrigin::default())
    }
}

impl<'a> FormatDescription<'a> {
    /// Decodes an event without its checksum. A format description always has a CRC32: verify it with [`ChecksumAlgorithm::Crc32`].
    ///
    /// # Errors
    /// When the event has another type or binlog version, or is truncated.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::FormatDescription)?);
        let is_known = cursor.u16("binlog version")? == BINLOG_VERSION;
        let reason = "only version 4 (MySQL 5.0 and later) is read";
        ensure(is_known, "binlog version", reason)?;
        let padded = cursor.bytes("server version", VERSION_LEN)?;
        let version = padded.split(|byte| *byte == 0).next().unwrap_or_default();
        let is_padded = padded.iter().skip(version.len()).all(|byte| *byte == 0);
        ensure(is_padded, "server version", "it is not padded with zeros")?;
        let created = cursor.u32("created time")?;
        let is_known = usize::from(cursor.u8("header length")?) == HEADER_LEN;
        ensure(is_known, "header length", "event headers have 19 bytes")?;
        let lengths = cursor.take_rest().split_last();
        let reason = "it announces no checksum algorithm";
        let (checksum, lengths) = lengths.ok_or(invalid("format description", reason))?;
        Ok(Self {
            server_version: Cow::Borrowed(version),
            created,
            post_header_lengths: Cow::Borrowed(lengths),
            checksum: ChecksumAlgorithm::from_code(*checksum)?,
        })
    }

    /// Converts a received event, without its checksum, to the canonical event with which every file of the ring begins. The created time
    /// is zero, and the in-use and artificial flags are clear, because these belong to one server's file. The algorithm is CRC32, because
    /// stored events always have one.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn canonical_event(event: EventRef<'a>) -> Result<Vec<u8>, DecodeError> {
        let description = Self {
            created: 0,
            checksum: ChecksumAlgorithm::Crc32,
            ..Self::decode(event)?
        };
        let mut origin = EventOrigin::from(event.header());
        for flag in [EventFlags::BINLOG_IN_USE, EventFlags::ARTIFICIAL] {
            origin.flags = origin.flags.without(flag);
        }
        Ok(description.encode(origin))
    }
}

impl EncodeEvent for FormatDescription<'_> {
    const TYPE: EventType = EventType::FormatDescription;

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&BINLOG_VERSION.to_le_bytes());
        let padding = std::iter::repeat(&0);
        out.extend(self.server_version.iter().chain(padding).take(VERSION_LEN));
        out.extend_from_slice(&self.created.to_le_bytes());
        out.push(HEADER_LEN as u8);
        out.extend_from_slice(&self.post_header_lengths);
        out.push(self.checksum as u8);
    }
}

// HEARTBEAT and HEARTBEAT_V2: the source has no events to send, and its log ends here. In the first form, the position is in the event's
// header. The second form has numbered fields, for positions beyond 4 GiB. It is sent only to replicas that announce support for it.

/// A heartbeat with the position of the source's dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// True for the second form, with the position in its body.
    pub version_2: bool,
    /// The dump's current file.
    pub file: Cow<'a, [u8]>,
    /// The position in that file; in the first form, only its low 32 bits.
    pub position: u64,
}

const FILE: u64 = 1;
const POSITION: u64 = 2;

impl<'a> Heartbeat<'a> {
    /// Reads either form from an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type or is truncated.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        if event.event_type() != EventType::HeartbeatV2 {
            return Ok(Self {
                version_2: false,
                file: Cow::Borrowed(event.body_of(EventType::Heartbeat)?),
                position: u64::from(event.header().log_pos),
            });
        }
        let mut cursor = Cursor::new(event.body());
        let (mut file, mut position) = (None, None);
        while let Some((number, mut value)) = cursor.numbered_field("heartbeat field")? {
            match number {
                FILE => file = Some(value.take_rest()),
                POSITION => {
                    position = Some(value.length_encoded("heartbeat position")?);
                    value.finish("the heartbeat's position")?;
                }
                // A later version may add fields; they are skipped.
                _ => {}
            }
        }
        let (Some(file), Some(position)) = (file, position) else {
            return Err(invalid("heartbeat", "it lacks the file or the position"));
        };
        Ok(Self {
            version_2: true,
            file: Cow::Borrowed(file),
            position,
        })
    }
}

impl EncodeEvent for Heartbeat<'_> {
    const TYPE: EventType = EventType::Heartbeat;

    fn event_type(&self) -> EventType {
        match self.version_2 {
            true => EventType::HeartbeatV2,
            false => EventType::Heartbeat,
        }
    }

    /// In the first form, the canonical event has no position, because the position in the header is cleared.
    fn encode_body(&self, out: &mut Vec<u8>) {
        if !self.version_2 {
            out.extend_from_slice(&self.file);
            return;
        }
        put_length_encoded(out, FILE);
        put_length_encoded(out, self.file.len() as u64);
        out.extend_from_slice(&self.file);
        put_numbered_field(out, POSITION, self.position);
        out.push(0);
    }
}

// ROTATE: names the next file. It is the last event of a file. An artificial one is at the start of a stream and of every file in it.

/// The position at which the log continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotate<'a> {
    /// Offset of the next event in the next file.
    pub position: u64,
    /// The next file's name, without a directory.
    pub next_file: Cow<'a, [u8]>,
}

impl<'a> Rotate<'a> {
    /// Offset of the first event after the magic number.
    pub const FIRST_POSITION: u64 = 4;

    /// The rotate event that ends a file.
    pub fn to(next_file: &'a str) -> Self {
        Self {
            position: Self::FIRST_POSITION,
            next_file: Cow::Borrowed(next_file.as_bytes()),
        }
    }

    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type or is truncated.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::Rotate)?);
        let position = cursor.u64("rotate position")?;
        Ok(Self {
            position,
            next_file: Cow::Borrowed(cursor.take_rest()),
        })
    }
}

impl EncodeEvent for Rotate<'_> {
    const TYPE: EventType = EventType::Rotate;

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.next_file);
    }
}

// IGNORABLE: an event that every reader may skip; it carries the ring's markers.

/// An event that readers may skip. Write it with [`Ignorable::origin`], which sets the ignorable flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignorable<'a> {
    /// The content, which only the writer of the event knows.
    pub body: Cow<'a, [u8]>,
}

impl<'a> Ignorable<'a> {
    /// The header fields that do not depend on the body, with the ignorable flag set.
    pub fn origin(timestamp: u32, server_id: u32) -> EventOrigin {
        EventOrigin {
            timestamp,
            server_id,
            flags: EventFlags::IGNORABLE,
        }
    }

    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            body: Cow::Borrowed(event.body_of(EventType::Ignorable)?),
        })
    }
}

impl EncodeEvent for Ignorable<'_> {
    const TYPE: EventType = EventType::Ignorable;

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.body);
    }
}

// PREVIOUS_GTIDS: all GTIDs of the files before this one, in the binary form of a GTID set.

/// The GTIDs in the second event of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreviousGtids {
    /// The GTIDs of all files before this one.
    pub gtids: GtidSet,
}

impl PreviousGtids {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type, or contains no valid GTID set.
    pub fn decode(event: EventRef<'_>) -> Result<Self, DecodeError> {
        let gtids = GtidSet::decode(event.body_of(EventType::PreviousGtids)?)?;
        Ok(Self { gtids })
    }
}

impl EncodeEvent for PreviousGtids {
    const TYPE: EventType = EventType::PreviousGtids;

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.gtids.encode(GtidSetFormat::Automatic));
    }
}
