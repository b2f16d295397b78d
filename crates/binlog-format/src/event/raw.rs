//! One event as bytes: owned ([`RawEvent`]) or borrowed ([`EventRef`]). Nothing below the header is
//! looked at here, and whether the last four bytes are a checksum is the caller's knowledge.

use bytes::Bytes;

use crate::checksum::{CHECKSUM_LEN, ChecksumAlgorithm};
use crate::decode_error::DecodeError;
use crate::event::header::{FLAGS_RANGE, TYPE_AT};
use crate::event::{EventFlags, EventHeader, HEADER_LEN};
use crate::event_type::EventType;

/// The bytes of exactly one event, header included. Cloning shares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEvent {
    header: EventHeader,
    bytes: Bytes,
}

impl RawEvent {
    /// Takes a buffer that holds exactly one event.
    ///
    /// # Errors
    /// When the header is invalid or its size is not that of the buffer.
    pub fn new(bytes: Bytes) -> Result<Self, DecodeError> {
        let header = whole_event_header(&bytes)?;
        Ok(Self { header, bytes })
    }

    /// Takes the first event off a buffer that holds several; `None` when the buffer is empty.
    /// The event shares the buffer's memory.
    ///
    /// # Errors
    /// When the header is invalid or the event goes on beyond the buffer; the buffer is then as it was.
    pub fn split_from(buffer: &mut Bytes) -> Result<Option<Self>, DecodeError> {
        if buffer.is_empty() {
            return Ok(None);
        }
        let header = EventHeader::parse(buffer)?;
        let size = header.event_size as usize;
        if size > buffer.len() {
            return Err(truncated_event(size, buffer.len()));
        }
        let bytes = buffer.split_to(size);
        Ok(Some(Self { header, bytes }))
    }

    /// The parsed header.
    pub fn header(&self) -> &EventHeader {
        &self.header
    }

    /// The type in the header.
    pub fn event_type(&self) -> EventType {
        self.header.event_type
    }

    /// The whole event.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The whole event, without the handle.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The event without its checksum, after the checksum was verified.
    ///
    /// # Errors
    /// [`DecodeError::ChecksumMismatch`] for a damaged event, [`DecodeError::Truncated`] for one too short for a checksum.
    pub fn verified(&self, checksum: ChecksumAlgorithm) -> Result<EventRef<'_>, DecodeError> {
        EventRef {
            header: self.header,
            bytes: &self.bytes,
        }
        .verified(checksum)
    }

    /// The event as it is, taken as one without a checksum (a canonical one).
    pub fn canonical(&self) -> EventRef<'_> {
        EventRef {
            header: self.header,
            bytes: &self.bytes,
        }
    }
}

/// A borrowed event. Typed views decode from one that holds no checksum: a canonical one, or what
/// [`EventRef::verified`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRef<'a> {
    header: EventHeader,
    /// Header and body.
    bytes: &'a [u8],
}

impl<'a> EventRef<'a> {
    /// Takes a slice that holds exactly one event.
    ///
    /// # Errors
    /// When the header is invalid or its size is not that of the slice.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let header = whole_event_header(bytes)?;
        Ok(Self { header, bytes })
    }

    /// Takes the first event off a slice that holds several; `None` when the slice is empty.
    ///
    /// # Errors
    /// When the header is invalid or the event goes on beyond the slice; the slice is then as it was.
    pub fn split_from(buffer: &mut &'a [u8]) -> Result<Option<Self>, DecodeError> {
        if buffer.is_empty() {
            return Ok(None);
        }
        let header = EventHeader::parse(buffer)?;
        let size = header.event_size as usize;
        let (bytes, rest) = buffer
            .split_at_checked(size)
            .ok_or_else(|| truncated_event(size, buffer.len()))?;
        *buffer = rest;
        Ok(Some(Self { header, bytes }))
    }

    /// The event without its checksum, after the checksum was verified. The header stays as it was
    /// read, so its size is then larger than the bytes by the checksum.
    ///
    /// # Errors
    /// As [`RawEvent::verified`].
    pub fn verified(self, checksum: ChecksumAlgorithm) -> Result<Self, DecodeError> {
        match checksum {
            ChecksumAlgorithm::None => Ok(self),
            ChecksumAlgorithm::Crc32 => {
                let covered = self
                    .bytes
                    .len()
                    .checked_sub(CHECKSUM_LEN)
                    .filter(|len| *len >= HEADER_LEN);
                let Some(covered) = covered else {
                    return Err(truncated_event(HEADER_LEN + CHECKSUM_LEN, self.bytes.len()));
                };
                let (bytes, stored) = self.bytes.split_at(covered);
                let mut expected = [0; CHECKSUM_LEN];
                expected.copy_from_slice(stored);
                let (expected, found) = (u32::from_le_bytes(expected), event_crc32(bytes));
                if expected == found {
                    Ok(Self {
                        header: self.header,
                        bytes,
                    })
                } else {
                    Err(DecodeError::ChecksumMismatch {
                        event_type: self.header.event_type,
                        expected,
                        found,
                    })
                }
            }
        }
    }

    /// The parsed header.
    pub fn header(&self) -> &EventHeader {
        &self.header
    }

    /// The type in the header.
    pub fn event_type(&self) -> EventType {
        self.header.event_type
    }

    /// Header and body.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What follows the header.
    pub fn body(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }

    /// The body of an event of the given type.
    pub(crate) fn body_of(&self, expected: EventType) -> Result<&'a [u8], DecodeError> {
        if self.header.event_type == expected {
            Ok(self.body())
        } else {
            Err(DecodeError::WrongType {
                expected,
                found: self.header.event_type,
            })
        }
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
    DecodeError::Truncated {
        field: "event",
        needed: needed as u64,
        remaining: remaining as u64,
    }
}

/// The CRC32 that belongs behind an event. A server marks its current file as in use by a flag in
/// the format description that it later clears in place, without a new checksum: the checksum is
/// always the one without that flag.
pub(crate) fn event_crc32(event: &[u8]) -> u32 {
    let description = event.get(TYPE_AT) == Some(&EventType::FormatDescription.code());
    let (Some(head), Some(flags), Some(rest)) = (
        event.get(..FLAGS_RANGE.start),
        event.get(FLAGS_RANGE),
        event.get(FLAGS_RANGE.end..),
    ) else {
        return crc32fast::hash(event);
    };
    if !description {
        return crc32fast::hash(event);
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    let in_use = EventFlags::BINLOG_IN_USE.0.to_le_bytes();
    for (flags, in_use) in flags.iter().zip(in_use) {
        hasher.update(&[flags & !in_use]);
    }
    hasher.update(rest);
    hasher.finalize()
}
