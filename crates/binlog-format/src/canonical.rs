//! The two forms of an event. The ring transmits and compares the *canonical* form: it has no checksum, and its end position is zero. Files
//! store the *stamped* form: it has the end position and the CRC32 for one place in one file. Stamping depends only on the canonical bytes
//! and the offset, so equal logs have equal files.

use bytes::Bytes;

use crate::decode::DecodeError;
use crate::event::{
    CHECKSUM_LEN, ChecksumAlgorithm, EventRef, HEADER_LEN, LOG_POS_RANGE, MAX_EVENT_BYTES,
    RawEvent, SIZE_RANGE, event_crc32,
};

/// Iterates over the events of a canonical payload, in order, sharing its memory. Ends after the first error.
#[derive(Debug, Clone)]
pub struct CanonicalEvents {
    rest: Bytes,
}

impl CanonicalEvents {
    /// Creates the iterator for a canonical payload.
    pub fn new(payload: Bytes) -> Self {
        Self { rest: payload }
    }
}

impl Iterator for CanonicalEvents {
    type Item = Result<RawEvent, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = RawEvent::split_from(&mut self.rest);
        if next.is_err() {
            self.rest.clear();
        }
        next.transpose()
    }
}

/// Converts a server's event to the canonical form, and verifies its checksum.
///
/// # Errors
/// When the event's checksum does not match, or the event is too short to have one.
pub fn canonicalise(event: &RawEvent, checksum: ChecksumAlgorithm) -> Result<Bytes, DecodeError> {
    let mut out = Vec::with_capacity(event.bytes().len());
    append_canonical(event.verified(checksum)?, &mut out);
    Ok(out.into())
}

fn append_canonical(verified: EventRef<'_>, out: &mut Vec<u8>) {
    let (header, rest) = canonical_parts(verified);
    out.extend_from_slice(&header);
    out.extend_from_slice(rest);
}

/// The canonical form of an event in two parts: its header, and the rest.
pub(crate) fn canonical_parts(verified: EventRef<'_>) -> ([u8; HEADER_LEN], &[u8]) {
    let mut header = [0; HEADER_LEN];
    let (begin, rest) = verified.bytes().split_at(HEADER_LEN);
    header.copy_from_slice(begin);
    // An event is at most MAX_EVENT_BYTES long.
    let size = verified.bytes().len() as u32;
    header[SIZE_RANGE].copy_from_slice(&size.to_le_bytes());
    header[LOG_POS_RANGE].fill(0);
    (header, rest)
}

/// Appends the stored form of one canonical event that begins at `offset` in its file; returns the event's end offset. As in MySQL, the end
/// position in the event's header is the low 32 bits of that offset.
///
/// # Errors
/// When `canonical_event` is not exactly one event, or is too large; `out` is then unchanged.
pub fn stamp(canonical_event: &[u8], offset: u64, out: &mut Vec<u8>) -> Result<u64, DecodeError> {
    Ok(append_stamped(EventRef::new(canonical_event)?, offset, out))
}

/// Appends the stored form of a canonical payload's events, starting at `offset` in the file; returns the end offset.
///
/// # Errors
/// When the payload does not consist of whole events; events before the damaged one stay in `out`.
pub fn stamp_payload(payload: &[u8], offset: u64, out: &mut Vec<u8>) -> Result<u64, DecodeError> {
    let (mut rest, mut offset) = (payload, offset);
    while let Some(event) = EventRef::split_from(&mut rest)? {
        offset = append_stamped(event, offset, out);
    }
    Ok(offset)
}

fn append_stamped(event: EventRef<'_>, offset: u64, out: &mut Vec<u8>) -> u64 {
    let start = out.len();
    // An event has at most MAX_EVENT_BYTES, so its size with a checksum fits into 32 bits.
    let size = (event.bytes().len() + CHECKSUM_LEN) as u32;
    let end = offset.wrapping_add(u64::from(size));
    out.extend_from_slice(event.bytes());
    let stamped = &mut out[start..];
    stamped[SIZE_RANGE].copy_from_slice(&size.to_le_bytes());
    stamped[LOG_POS_RANGE].copy_from_slice(&(end as u32).to_le_bytes());
    let checksum = event_crc32(stamped);
    out.extend_from_slice(&checksum.to_le_bytes());
    end
}

/// Number of bytes that a canonical payload takes in a file.
///
/// # Errors
/// When the payload does not consist of whole events.
pub fn stamped_len(payload: &[u8]) -> Result<u64, DecodeError> {
    let mut rest = payload;
    let mut length = 0;
    while let Some(event) = EventRef::split_from(&mut rest)? {
        length += (event.bytes().len() + CHECKSUM_LEN) as u64;
    }
    Ok(length)
}

/// Converts stored events to the canonical form, and verifies each CRC32: the reverse of [`stamp_payload`].
///
/// # Errors
/// When the bytes do not consist of whole events, or a checksum does not match.
pub fn unstamp(stored: &[u8]) -> Result<Bytes, DecodeError> {
    let mut rest = stored;
    let mut out = Vec::with_capacity(stored.len());
    while let Some(event) = EventRef::split_from(&mut rest)? {
        append_canonical(event.verified(ChecksumAlgorithm::Crc32)?, &mut out);
    }
    Ok(out.into())
}

const _: () = assert!(MAX_EVENT_BYTES as usize + CHECKSUM_LEN < u32::MAX as usize);
const _: () = assert!(HEADER_LEN > LOG_POS_RANGE.end);
