//! The two forms of an event: *canonical* (no checksum, end position zero), which the ring carries
//! and compares, and *stamped* (end position and CRC32 of one place in one file), which files hold.
//! Stamping is a function of the canonical bytes and the offset alone, so that equal logs give equal
//! files.

use bytes::{BufMut, Bytes, BytesMut};

use crate::checksum::{CHECKSUM_LEN, ChecksumAlgorithm};
use crate::decode_error::DecodeError;
use crate::event::{
    EventRef, HEADER_LEN, LOG_POS_RANGE, MAX_EVENT_BYTES, RawEvent, SIZE_RANGE, event_crc32,
};

/// A buffer that stamped or canonical bytes are appended to.
pub trait EventSink {
    /// How many bytes the buffer has.
    fn len(&self) -> usize;
    /// Whether the buffer is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Appends `bytes` at the end.
    fn append(&mut self, bytes: &[u8]);
    /// What was written from an offset on.
    fn written_from(&mut self, start: usize) -> &mut [u8];
}

impl EventSink for Vec<u8> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn written_from(&mut self, start: usize) -> &mut [u8] {
        self.get_mut(start..).unwrap_or_default()
    }
}

impl EventSink for BytesMut {
    fn len(&self) -> usize {
        BytesMut::len(self)
    }

    fn append(&mut self, bytes: &[u8]) {
        self.put_slice(bytes);
    }

    fn written_from(&mut self, start: usize) -> &mut [u8] {
        self.get_mut(start..).unwrap_or_default()
    }
}

/// The events of a canonical payload, one after the other, sharing its memory. Ends after the first error.
#[derive(Debug, Clone)]
pub struct CanonicalEvents {
    rest: Bytes,
}

impl CanonicalEvents {
    /// Iterates over the events of a canonical payload.
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

/// The canonical form of an event as it came from a server, its checksum verified on the way.
///
/// # Errors
/// When the event's checksum is not that of its bytes, or it is too short to have one.
pub fn canonicalise(event: &RawEvent, checksum: ChecksumAlgorithm) -> Result<Bytes, DecodeError> {
    let mut out = BytesMut::with_capacity(event.bytes().len());
    canonicalise_into(event, checksum, &mut out)?;
    Ok(out.freeze())
}

/// As [`canonicalise`], appended to a buffer, which stays as it was on an error.
///
/// # Errors
/// As [`canonicalise`].
pub fn canonicalise_into(
    event: &RawEvent,
    checksum: ChecksumAlgorithm,
    out: &mut impl EventSink,
) -> Result<(), DecodeError> {
    append_canonical(event.verified(checksum)?, out);
    Ok(())
}

pub(crate) fn append_canonical(verified: EventRef<'_>, out: &mut impl EventSink) {
    let (header, rest) = canonical_parts(verified);
    out.append(&header);
    out.append(rest);
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

/// Appends the stored form of one canonical event that begins at `offset` in its file, and returns
/// the offset behind it. The end position in the header is that offset's low 32 bits, as MySQL writes it.
///
/// # Errors
/// When `canonical_event` is not exactly one event, or is too large; `out` is then as it was.
pub fn stamp(
    canonical_event: &[u8],
    offset: u64,
    out: &mut impl EventSink,
) -> Result<u64, DecodeError> {
    Ok(append_stamped(EventRef::new(canonical_event)?, offset, out))
}

/// Appends the stored form of all events of a canonical payload that begins at `offset` in its file,
/// and returns the offset behind the last one.
///
/// # Errors
/// When the payload is not whole events; what was appended before the damaged event stays in `out`.
pub fn stamp_payload(
    payload: &[u8],
    offset: u64,
    out: &mut impl EventSink,
) -> Result<u64, DecodeError> {
    let (mut rest, mut offset) = (payload, offset);
    while let Some(event) = EventRef::split_from(&mut rest)? {
        offset = append_stamped(event, offset, out);
    }
    Ok(offset)
}

fn append_stamped(event: EventRef<'_>, offset: u64, out: &mut impl EventSink) -> u64 {
    let start = out.len();
    // An event is at most MAX_EVENT_BYTES long, far from what a u32 holds.
    let size = (event.bytes().len() + CHECKSUM_LEN) as u32;
    let end = offset.wrapping_add(u64::from(size));
    out.append(event.bytes());
    let stamped = out.written_from(start);
    stamped[SIZE_RANGE].copy_from_slice(&size.to_le_bytes());
    stamped[LOG_POS_RANGE].copy_from_slice(&(end as u32).to_le_bytes());
    let checksum = event_crc32(stamped);
    out.append(&checksum.to_le_bytes());
    end
}

/// Bytes that a canonical payload takes in a file.
///
/// # Errors
/// When the payload is not whole events.
pub fn stamped_len(payload: &[u8]) -> Result<u64, DecodeError> {
    let mut rest = payload;
    let mut length = 0;
    while let Some(event) = EventRef::split_from(&mut rest)? {
        length += (event.bytes().len() + CHECKSUM_LEN) as u64;
    }
    Ok(length)
}

/// The canonical form of stored events, each CRC32 verified: the reverse of [`stamp_payload`].
///
/// # Errors
/// When the bytes are not whole events, or a checksum does not fit.
pub fn unstamp(stored: &[u8]) -> Result<Bytes, DecodeError> {
    let mut rest = stored;
    let mut out = BytesMut::with_capacity(stored.len());
    while let Some(event) = EventRef::split_from(&mut rest)? {
        append_canonical(event.verified(ChecksumAlgorithm::Crc32)?, &mut out);
    }
    Ok(out.freeze())
}

/// Verifies the CRC32 at the end of one whole event.
///
/// # Errors
/// [`DecodeError::ChecksumMismatch`] when the event was damaged; other errors when the slice is not one event.
pub fn verify_event_crc(event: &[u8]) -> Result<(), DecodeError> {
    EventRef::new(event)?
        .verified(ChecksumAlgorithm::Crc32)
        .map(|_| ())
}

const _: () = assert!(MAX_EVENT_BYTES as usize + CHECKSUM_LEN < u32::MAX as usize);
const _: () = assert!(HEADER_LEN > LOG_POS_RANGE.end);
