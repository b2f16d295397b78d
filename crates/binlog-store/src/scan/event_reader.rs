//! One event of a file, verified piece by piece, so that a large one takes no more memory than the
//! window.

use binlog_format::DecodeError;
use binlog_format::checksum::CHECKSUM_LEN;
use binlog_format::event::{EventHeader, HEADER_LEN};

use super::fault::{Fault, FaultKind, ScanError};
use super::window::Window;

/// Reads the header of the event at `offset`, and checks that its place is the one that it names. `None` at the file's end.
pub(crate) fn event_header(
    window: &mut Window,
    offset: u64,
) -> Result<Option<EventHeader>, ScanError> {
    let end = window.end();
    let bytes = window.bytes(offset, HEADER_LEN)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() < HEADER_LEN {
        return Err(fault(
            offset,
            FaultKind::HeaderCut {
                available: bytes.len() as u64,
            },
        ));
    }
    let header =
        EventHeader::parse(bytes).map_err(|error| fault(offset, FaultKind::Event(error)))?;
    let needed = u64::from(header.event_size);
    if needed < (HEADER_LEN + CHECKSUM_LEN) as u64 {
        let error = DecodeError::Truncated {
            field: "event",
            needed: (HEADER_LEN + CHECKSUM_LEN) as u64,
            remaining: needed,
        };
        return Err(fault(offset, FaultKind::Event(error)));
    }
    // The size and the end position say the same twice: before they agree, the size says nothing about the file's end.
    let event_end = (offset + needed) as u32;
    if header.log_pos != event_end {
        return Err(fault(
            offset,
            FaultKind::Misplaced {
                found: header.log_pos,
                expected: event_end,
            },
        ));
    }
    if offset + needed > end {
        return Err(fault(
            offset,
            FaultKind::EventCut {
                needed,
                available: end - offset,
            },
        ));
    }
    Ok(Some(header))
}

/// Verifies the CRC32 of the event at `offset`, and hands its canonical form to `sink` in
/// pieces. The header is the one that [`event_header`] returned for the offset.
pub(crate) fn read_event(
    window: &mut Window,
    offset: u64,
    header: &EventHeader,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), ScanError> {
    let size = u64::from(header.event_size);
    let end = offset + size;
    let canonical = EventHeader {
        event_size: header.event_size - CHECKSUM_LEN as u32,
        log_pos: 0,
        ..*header
    }
    .encode();
    sink(&canonical);

    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&header.encode());
    let mut at = offset + HEADER_LEN as u64;
    let body_end = end - CHECKSUM_LEN as u64;
    while at < body_end {
        let piece = window.bytes(at, (body_end - at) as usize)?;
        if piece.is_empty() {
            return Err(fault(
                offset,
                FaultKind::EventCut {
                    needed: size,
                    available: at - offset,
                },
            ));
        }
        checksum.update(piece);
        sink(piece);
        at += piece.len() as u64;
    }
    let stored = window.bytes(body_end, CHECKSUM_LEN)?;
    let Some(stored) = stored.first_chunk::<CHECKSUM_LEN>() else {
        return Err(fault(
            offset,
            FaultKind::EventCut {
                needed: size,
                available: size - 1,
            },
        ));
    };
    let (expected, found) = (u32::from_le_bytes(*stored), checksum.finalize());
    if expected == found {
        return Ok(());
    }
    let error = DecodeError::ChecksumMismatch {
        event_type: header.event_type,
        expected,
        found,
    };
    Err(fault(offset, FaultKind::Event(error)))
}

/// The whole canonical form of the event at `offset`, where it has at most `limit` bytes.
pub(crate) fn whole_event(
    window: &mut Window,
    offset: u64,
    header: &EventHeader,
    limit: usize,
) -> Result<Vec<u8>, ScanError> {
    if header.event_size as usize > limit {
        let (event_type, size) = (header.event_type, u64::from(header.event_size));
        return Err(fault(
            offset,
            FaultKind::TooLarge {
                event_type,
                size,
                limit: limit as u64,
            },
        ));
    }
    let mut event = Vec::with_capacity(header.event_size as usize);
    read_event(window, offset, header, &mut |piece| {
        event.extend_from_slice(piece)
    })?;
    Ok(event)
}

pub(crate) fn fault(offset: u64, kind: FaultKind) -> ScanError {
    ScanError::Fault(Fault {
        offset,
        kind,
        entry_offset: offset,
    })
}
