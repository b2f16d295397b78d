//! One event of a file, verified piece by piece, so that a large one takes no more memory than the
//! window.

use std::sync::Arc;

use binlog_format::DecodeError;
use binlog_format::checksum::CHECKSUM_LEN;
use binlog_format::event::{EventHeader, HEADER_LEN};

use crate::file_system::StorageFile;
use crate::scan::{Fault, FaultKind, ScanError};

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

// A window of bounded size over a file that is read from front to back.

/// Reads ahead so that small events do not cost a call each. Its memory is bounded by the size given
/// at its making, whatever is asked of it.
pub(crate) struct Window {
    file: Arc<dyn StorageFile>,
    /// Where the file ends for this reader.
    end: u64,
    buffer: Vec<u8>,
    filled: usize,
    start: u64,
}

impl Window {
    /// Size of the window when whole files are read in order.
    pub(crate) const SCAN_BYTES: usize = 512 << 10;
    /// For looking up single entries.
    pub(crate) const LOOKUP_BYTES: usize = 64 << 10;

    /// Of `size` bytes, or of as many as the file has.
    pub(crate) fn new(file: &Arc<dyn StorageFile>, end: u64, size: usize) -> Self {
        let size = size.min(usize::try_from(end).unwrap_or(usize::MAX));
        Self {
            file: file.clone(),
            end,
            buffer: vec![0; size],
            filled: 0,
            start: 0,
        }
    }

    /// Bytes of the file that may be read, set when the window is made.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// At most `wanted` bytes from `offset` on; fewer where the file ends or the window is smaller.
    /// Empty only at the file's end.
    pub(crate) fn bytes(&mut self, offset: u64, wanted: usize) -> Result<&[u8], ScanError> {
        let left = self.end.saturating_sub(offset);
        let wanted = wanted
            .min(self.buffer.len())
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let inside =
            offset >= self.start && offset + wanted as u64 <= self.start + self.filled as u64;
        if !inside {
            self.fill(offset, left)?;
        }
        let from = (offset - self.start) as usize;
        let available = self.buffer.get(from..self.filled).unwrap_or_default();
        Ok(&available[..wanted.min(available.len())])
    }

    fn fill(&mut self, offset: u64, left: u64) -> Result<(), ScanError> {
        let room = self
            .buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        self.start = offset;
        self.filled = 0;
        if room > 0 {
            let read = self.file.read_at(&mut self.buffer[..room], offset);
            self.filled = read.map_err(|source| ScanError::Io { offset, source })?;
        }
        Ok(())
    }
}
