//! The 19-byte event header, event checksums, and single events as raw bytes.

use std::fmt;

use bytes::Bytes;

use crate::decode::{Cursor, DecodeError, ensure, invalid};
pub use crate::event_type::EventType;

// The header of 19 bytes: timestamp 4, type 1, server id 4, size 4, end position 4, flags 2.

/// Bytes of an event header.
pub const HEADER_LEN: usize = 19;

/// Maximum size of an event that is read: MySQL's packet limit of 1 GiB plus room for the header fields that MySQL adds. A larger size in a
/// header is treated as damage.
pub const MAX_EVENT_BYTES: u32 = (1 << 30) + (1 << 16);

/// Offsets of the fields in an event that stamping rewrites.
pub(crate) const TYPE_AT: usize = 4;
pub(crate) const SIZE_RANGE: std::ops::Range<usize> = 9..13;
pub(crate) const LOG_POS_RANGE: std::ops::Range<usize> = 13..17;
pub(crate) const FLAGS_RANGE: std::ops::Range<usize> = 17..19;

/// The flag bits of an event header.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EventFlags(pub u16);

impl EventFlags {
    /// No flag is set.
    pub const NONE: Self = Self(0);
    /// In a format description: the file is being written, or was not closed properly.
    pub const BINLOG_IN_USE: Self = Self(0x01);
    /// The statement depends on its connection (temporary tables).
    pub const THREAD_SPECIFIC: Self = Self(0x04);
    /// The statement does not need its default schema.
    pub const SUPPRESS_USE: Self = Self(0x08);
    /// The source generated the event for its replica; it is in no file.
    pub const ARTIFICIAL: Self = Self(0x20);

    /// A reader that does not support the type may skip the event.
    pub const IGNORABLE: Self = Self(0x80);
    /// Replication filters do not apply to the event.
    pub const NO_FILTER: Self = Self(0x100);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags without those of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Debug for EventFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// An event's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHeader {
    /// Start of the statement in seconds since the epoch; 0 in artificial events.
    pub timestamp: u32,
    /// The type, which determines the body's format.
    pub event_type: EventType,
    /// The server on which the event originated.
    pub server_id: u32,
    /// Bytes of the whole event: header, body and the CRC32, if any.
    pub event_size: u32,
    /// Low 32 bits of the event's end position in its file; 0 in canonical events.
    pub log_pos: u32,
    /// Flags such as [`EventFlags::ARTIFICIAL`].
    pub flags: EventFlags,
}

impl EventHeader {
    /// Reads a header from the first [`HEADER_LEN`] bytes.
    ///
    /// # Errors
    /// When there are too few bytes, or the event's size in the header is smaller than a header or larger than [`MAX_EVENT_BYTES`].
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(Cursor::new(bytes).bytes("event header", HEADER_LEN)?);
        let header = Self {
            timestamp: cursor.u32("timestamp")?,
            event_type: EventType::from_code(cursor.u8("event type")?),
            server_id: cursor.u32("server id")?,
            event_size: cursor.u32("event size")?,
            log_pos: cursor.u32("end position")?,
            flags: EventFlags(cursor.u16("flags")?),
        };
        let fits = header.event_size as usize >= HEADER_LEN;
        ensure(fits, "event size", "smaller than an event header")?;
        if header.event_size > MAX_EVENT_BYTES {
            return Err(DecodeError::TooLarge {
                field: "event",
                size: u64::from(header.event_size),
                limit: u64::from(MAX_EVENT_BYTES),
            });
        }
        Ok(header)
    }

    /// Encodes the header as in a file, little-endian.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&self.timestamp.to_le_bytes());
        bytes[TYPE_AT] = self.event_type.code();
        bytes[5..9].copy_from_slice(&self.server_id.to_le_bytes());
        bytes[SIZE_RANGE].copy_from_slice(&self.event_size.to_le_bytes());
        bytes[LOG_POS_RANGE].copy_from_slice(&self.log_pos.to_le_bytes());
        bytes[FLAGS_RANGE].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes
    }
}

// The checksum of an event, as announced by the format description of its file.

/// Bytes of an event's checksum.
pub const CHECKSUM_LEN: usize = 4;

/// The checksum algorithm of a file's events (`binlog_checksum`). The code is the byte in the format description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumAlgorithm {
    /// Events have no checksum.
    None = 0,
    /// CRC32 (ISO-HDLC) of all preceding bytes of the event.
    Crc32 = 1,
}

impl ChecksumAlgorithm {
    /// The algorithm for a byte of a format description.
    ///
    /// # Errors
    /// When the byte is not a known algorithm.
    pub fn from_code(code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::None),
            1 => Ok(Self::Crc32),
            _ => Err(invalid(
                "checksum algorithm",
                "neither 0 (NONE) nor 1 (CRC32); the file is of a later format or corrupt",
            )),
        }
    }

    /// Bytes that this checksum adds to an event.
    pub const fn event_overhead(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc32 => CHECKSUM_LEN,
        }
    }
}

// One event as bytes: owned ([`RawEvent`]) or borrowed ([`EventRef`]). The body is not decoded here. The caller decides whether the last
// four bytes are a checksum.

/// The bytes of exactly one event, header included. Cloning shares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEvent {
    header: EventHeader,
    bytes: Bytes,
}

impl RawEvent {
    /// Wraps a buffer with exactly one event.
    ///
    /// # Errors
    /// When the header is invalid, or the size in the header is not the buffer's size.
    pub fn new(bytes: Bytes) -> Result<Self, DecodeError> {
        let header = whole_event_header(&bytes)?;
        Ok(Self { header, bytes })
    }

    /// Splits the first event off a buffer; `None` if the buffer is empty. The event shares the buffer's memory.
    ///
    /// # Errors
    /// When the header is invalid or the event is truncated; the buffer is then unchanged.
    pub fn split_from(buffer: &mut Bytes) -> Result<Option<Self>, DecodeError> {
        let Some(EventRef { header, .. }) = EventRef::split_from(&mut &buffer[..])? else {
            return Ok(None);
        };
        let bytes = buffer.split_to(header.event_size as usize);
        Ok(Some(Self { header, bytes }))
    }

    /// The event's header, parsed at construction.
    pub fn header(&self) -> &EventHeader {
        &self.header
    }

    /// The type in the header.
    pub fn event_type(&self) -> EventType {
        self.header.event_type
    }

    /// Header, body and the checksum, if any.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the bytes of the whole event.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Verifies the checksum; returns the event without it.
    ///
    /// # Errors
    /// [`DecodeError::ChecksumMismatch`] if the event is damaged, [`DecodeError::Truncated`] if it is too short for a checksum.
    pub fn verified(&self, checksum: ChecksumAlgorithm) -> Result<EventRef<'_>, DecodeError> {
        self.canonical().verified(checksum)
    }

    /// The event, treated as an event without a checksum, such as a canonical one.
    pub fn canonical(&self) -> EventRef<'_> {
        EventRef {
            header: self.header,
            bytes: &self.bytes,
        }
    }
}

/// A borrowed event. Typed views decode from an event without a checksum: a canonical event, or the result of [`EventRef::verified`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRef<'a> {
    header: EventHeader,
    bytes: &'a [u8],
}

impl<'a> EventRef<'a> {
    /// Wraps a slice with exactly one event.
    ///
    /// # Errors
    /// When the header is invalid, or the size in the header is not the slice's size.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let header = whole_event_header(bytes)?;
        Ok(Self { header, bytes })
    }

    /// Splits the first event off a slice; `None` if the slice is empty.
    ///
    /// # Errors
    /// When the header is invalid or the event is truncated; the slice is then unchanged.
    pub fn split_from(buffer: &mut &'a [u8]) -> Result<Option<Self>, DecodeError> {
        if buffer.is_empty() {
            return Ok(None);
        }
        let header = EventHeader::parse(buffer)?;
        let size = header.event_size as usize;
        let parts = buffer.split_at_checked(size);
        let (bytes, rest) = parts.ok_or_else(|| truncated_event(size, buffer.len()))?;
        *buffer = rest;
        Ok(Some(Self { header, bytes }))
    }

    /// Verifies the checksum; returns the event without it. The header is unchanged, so the size in it includes the checksum.
    ///
    /// # Errors
    /// As [`RawEvent::verified`].
    pub fn verified(self, checksum: ChecksumAlgorithm) -> Result<Self, DecodeError> {
        if checksum == ChecksumAlgorithm::None {
            return Ok(self);
        }
        let parts = self.bytes.split_last_chunk::<CHECKSUM_LEN>();
        let Some((bytes, stored)) = parts.filter(|(bytes, _)| bytes.len() >= HEADER_LEN) else {
            return Err(truncated_event(HEADER_LEN + CHECKSUM_LEN, self.bytes.len()));
        };
        let (expected, found) = (u32::from_le_bytes(*stored), event_crc32(bytes));
        if expected != found {
            return Err(DecodeError::ChecksumMismatch {
                event_type: self.header.event_type,
                expected,
                found,
            });
        }
        Ok(Self { bytes, ..self })
    }

    /// The event's header, parsed at construction.
    pub fn header(&self) -> &EventHeader {
        &self.header
    }

    /// The type in the header.
    pub fn event_type(&self) -> EventType {
        self.header.event_type
    }

    /// Header and body, as in the buffer.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes after the header.
    pub fn body(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }

    /// The body of an event, which must have the given type.
    pub(crate) fn body_of(&self, expected: EventType) -> Result<&'a [u8], DecodeError> {
        let found = self.header.event_type;
        if found != expected {
            return Err(DecodeError::WrongType { expected, found });
        }
        Ok(self.body())
    }
}

fn whole_event_header(bytes: &[u8]) -> Result<EventHeader, DecodeError> {
    let header = EventHeader::parse(bytes)?;
    let size = header.event_size as usize;
    match bytes.len().checked_sub(size) {
        Some(0) => Ok(header),
        Some(extra) => Err(DecodeError::TrailingBytes {
            field: "the event",
            count: extra as u64,
        }),
        None => Err(truncated_event(size, bytes.len())),
    }
}

fn truncated_event(needed: usize, remaining: usize) -> DecodeError {
    DecodeError::truncated("event", needed as u64, remaining)
}

/// The CRC32 of an event. A server marks its current file as in use with a flag in the format description. It later clears the flag in
/// place, without a new checksum. So the checksum is always computed as if the flag were not set.
pub(crate) fn event_crc32(event: &[u8]) -> u32 {
    let is_description = event.get(TYPE_AT) == Some(&EventType::FormatDescription.code());
    if !is_description || event.len() < FLAGS_RANGE.end {
        return crc32fast::hash(event);
    }
    let [low, high] = EventFlags::BINLOG_IN_USE.0.to_le_bytes();
    let (head, rest) = event.split_at(FLAGS_RANGE.start);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(&[rest[0] & !low, rest[1] & !high]);
    hasher.update(&rest[FLAGS_RANGE.len()..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> EventHeader {
        EventHeader {
            timestamp: 0x0102_0304,
            event_type: EventType::Xid,
            server_id: 7,
            event_size: 31,
            log_pos: 158,
            flags: EventFlags(EventFlags::IGNORABLE.0 | EventFlags::NO_FILTER.0),
        }
    }

    #[test]
    fn header_round_trips() {
        let bytes = header().encode();
        assert_eq!(bytes[..5], [4, 3, 2, 1, 16]);
        assert_eq!(EventHeader::parse(&bytes), Ok(header()));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for event_size in [0, 18, MAX_EVENT_BYTES + 1, u32::MAX] {
            let bytes = EventHeader {
                event_size,
                ..header()
            }
            .encode();
            assert!(EventHeader::parse(&bytes).is_err(), "{event_size}");
        }
        assert!(EventHeader::parse(&header().encode()[..18]).is_err());
    }
}
