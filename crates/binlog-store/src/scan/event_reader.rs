//! Reads one event of a file and verifies it in pieces, so that a large event takes no more memory than the window.

use std::sync::Arc;

use binlog_format::DecodeError;
use binlog_format::checksum::CHECKSUM_LEN;
use binlog_format::event::{EventHeader, EventRef, HEADER_LEN};
use binlog_format::events::Ignorable;
use bytes::Bytes;

use crate::file_system::StorageFile;
use crate::format::Marker;
use crate::scan::{Fault, FaultKind, ScanError};

/// Reads the header of the event at `offset`, and checks its end position against the offset. `None` at the file's end.
pub(crate) fn event_header(
    window: &mut Window,
    offset: u64,
) -> Result<Option<EventHeader>, ScanError> {
    let end = window.end;
    let bytes = window.bytes(offset, HEADER_LEN)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() < HEADER_LEN {
        let available = bytes.len() as u64;
        return Err(fault(offset, FaultKind::HeaderCut(available)));
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
    // If the size and the end position disagree, the size may be damaged: it does not prove that the file ends too early.
    let event_end = (offset + needed) as u32;
    if header.log_pos != event_end {
        let (found, expected) = (header.log_pos, event_end);
        return Err(fault(offset, FaultKind::Misplaced { found, expected }));
    }
    if offset + needed > end {
        let available = end - offset;
        return Err(fault(offset, FaultKind::EventCut { needed, available }));
    }
    Ok(Some(header))
}

/// Verifies the CRC32 of the event at `offset`, and passes its canonical form to `sink` in pieces. The header is the one that
/// [`event_header`] returned for the offset.
pub(crate) fn read_event(
    window: &mut Window,
    offset: u64,
    header: &EventHeader,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), ScanError> {
    let needed = u64::from(header.event_size);
    let end = offset + needed;
    let cut = |available| fault(offset, FaultKind::EventCut { needed, available });
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
            return Err(cut(at - offset));
        }
        checksum.update(piece);
        sink(piece);
        at += piece.len() as u64;
    }
    let stored = window.bytes(body_end, CHECKSUM_LEN)?;
    let Some(stored) = stored.first_chunk::<CHECKSUM_LEN>() else {
        return Err(cut(needed - 1));
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

/// The whole canonical form of the event at `offset`, if it has at most `limit` bytes.
pub(crate) fn whole_event(
    window: &mut Window,
    offset: u64,
    header: &EventHeader,
    limit: usize,
) -> Result<Vec<u8>, ScanError> {
    if header.event_size as usize > limit {
        let kind = FaultKind::TooLarge {
            event_type: header.event_type,
            size: u64::from(header.event_size),
            limit: limit as u64,
        };
        return Err(fault(offset, kind));
    }
    let mut event = Vec::with_capacity(header.event_size as usize);
    read_event(window, offset, header, &mut |piece| {
        event.extend_from_slice(piece)
    })?;
    Ok(event)
}

/// A view of the event at `offset`.
pub(crate) fn decoded<'a, T>(
    offset: u64,
    event: &'a [u8],
    decode: impl FnOnce(EventRef<'a>) -> Result<T, DecodeError>,
) -> Result<T, ScanError> {
    let decoded = EventRef::new(event).and_then(decode);
    decoded.map_err(|error| fault(offset, FaultKind::Event(error)))
}

/// The marker in the ignorable event at `offset`, and its payload if the marker holds it.
pub(crate) fn decoded_marker(offset: u64, event: &[u8]) -> Result<(Marker, Bytes), ScanError> {
    let ignorable = decoded(offset, event, Ignorable::decode)?;
    let (marker, payload) =
        Marker::decode(&ignorable.body).map_err(|error| fault(offset, FaultKind::Marker(error)))?;
    Ok((marker, Bytes::copy_from_slice(payload)))
}

/// The fault of an event of another kind.
pub(crate) fn unexpected(offset: u64, expected: &'static str, header: &EventHeader) -> ScanError {
    let found = header.event_type;
    fault(offset, FaultKind::Unexpected(expected, found))
}

pub(crate) fn fault(offset: u64, kind: FaultKind) -> ScanError {
    ScanError::Fault(Fault::at(offset, kind))
}

// A window of bounded size over a file that is read sequentially.

/// Reads ahead, so that small events do not each need a call. The size given at creation bounds the memory, whatever is requested.
pub(crate) struct Window {
    file: Arc<dyn StorageFile>,
    /// The end of the file for this reader.
    pub(crate) end: u64,
    buffer: Vec<u8>,
    filled: usize,
    start: u64,
}

impl Window {
    /// Size of the window for sequential reads of whole files.
    pub(crate) const SCAN_BYTES: usize = 512 << 10;
    /// Size of the window for lookups of single entries.
    pub(crate) const LOOKUP_BYTES: usize = 64 << 10;

    /// A window of `size` bytes, or of the file's size if smaller.
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

    /// At most `wanted` bytes starting at `offset`; fewer at the file's end or if the window is smaller. Empty only at the file's end.
    pub(crate) fn bytes(&mut self, offset: u64, wanted: usize) -> Result<&[u8], ScanError> {
        let left = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let room = self.buffer.len().min(left);
        let wanted = wanted.min(room);
        let inside =
            offset >= self.start && offset + wanted as u64 <= self.start + self.filled as u64;
        if !inside {
            self.start = offset;
            self.filled = 0;
            if room > 0 {
                let read = self.file.read_at(&mut self.buffer[..room], offset);
                self.filled = read.map_err(|source| ScanError::Io { offset, source })?;
            }
        }
        let from = (offset - self.start) as usize;
        let available = self.buffer.get(from..self.filled).unwrap_or_default();
        Ok(&available[..wanted.min(available.len())])
    }
}

#[cfg(test)]
mod tests {
    use binlog_format::canonical::stamp;
    use binlog_format::events::{EncodeEvent, EventOrigin};

    use super::*;
    use crate::scan::header_scan::InMemory;

    /// The event's offset in its file.
    const OFFSET: u64 = 7;

    fn canonical() -> Vec<u8> {
        let body = (0..100).collect::<Vec<u8>>().into();
        Ignorable { body }.encode(EventOrigin::default())
    }

    /// A file with the event, followed by 30 bytes.
    fn file() -> (Vec<u8>, u64) {
        let mut bytes = vec![0; OFFSET as usize];
        let end = stamp(&canonical(), OFFSET, &mut bytes).unwrap();
        bytes.extend_from_slice(&[9; 30]);
        (bytes, end)
    }

    /// A window over the file up to `end`, `size` bytes at a time.
    fn window(bytes: &[u8], end: u64, size: usize) -> Window {
        let file: Arc<dyn StorageFile> = Arc::new(InMemory(bytes.to_vec().into()));
        Window::new(&file, end, size)
    }

    fn kind<T: std::fmt::Debug>(read: Result<T, ScanError>) -> FaultKind {
        match read {
            Err(ScanError::Fault(Fault { offset, kind, .. })) if offset == OFFSET => kind,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_event_is_the_same_through_a_window_of_any_size() {
        let (bytes, end) = file();
        for size in [19, 20, 64, 100, 127, 128, 4096] {
            let mut window = window(&bytes, end, size);
            let header = event_header(&mut window, OFFSET).unwrap().unwrap();
            assert_eq!(OFFSET + u64::from(header.event_size), end);
            let limit = header.event_size as usize;
            let event = whole_event(&mut window, OFFSET, &header, limit).unwrap();
            assert_eq!(event, canonical(), "{size}");
            let too_large = kind(whole_event(&mut window, OFFSET, &header, limit - 1));
            assert!(matches!(too_large, FaultKind::TooLarge { .. }));
        }
    }

    #[test]
    fn a_truncated_event_reports_its_available_bytes() {
        let (bytes, end) = file();
        let needed = end - OFFSET;
        for there in 0..=needed {
            let mut window = window(&bytes, OFFSET + there, 4096);
            let read = event_header(&mut window, OFFSET);
            match there {
                0 => assert!(read.unwrap().is_none()),
                1..19 => {
                    let expected = FaultKind::HeaderCut(there);
                    assert_eq!(kind(read), expected);
                }
                _ if there < needed => {
                    let available = there;
                    assert_eq!(kind(read), FaultKind::EventCut { needed, available });
                }
                _ => assert!(read.unwrap().is_some()),
            }
        }
    }

    /// The file was truncated after the header was read.
    #[test]
    fn an_event_in_a_shortened_file_is_truncated() {
        let (bytes, end) = file();
        let (needed, mut whole) = (end - OFFSET, window(&bytes, end, 4096));
        let header = event_header(&mut whole, OFFSET).unwrap().unwrap();
        for there in 19..needed {
            let bytes = &bytes[..(OFFSET + there) as usize];
            let read = read_event(&mut window(bytes, end, 64), OFFSET, &header, &mut |_| {});
            // If the file ends within the checksum, the number of available bytes is not reported.
            let available = match there >= needed - 4 {
                true => needed - 1,
                false => there,
            };
            let expected = FaultKind::EventCut { needed, available };
            assert_eq!(kind(read), expected, "{there}");
        }
    }

    #[test]
    fn invalid_headers_and_damaged_bodies_are_reported() {
        let (bytes, end) = file();
        let small = |size: u32| {
            let mut bytes = bytes.clone();
            bytes[OFFSET as usize + 9..][..4].copy_from_slice(&size.to_le_bytes());
            let end_position = (OFFSET as u32 + size).to_le_bytes();
            bytes[OFFSET as usize + 13..][..4].copy_from_slice(&end_position);
            event_header(&mut window(&bytes, end, 4096), OFFSET)
        };
        let truncated = DecodeError::Truncated {
            field: "event",
            needed: 23,
            remaining: 22,
        };
        assert_eq!(kind(small(22)), FaultKind::Event(truncated));
        assert_eq!(small(23).unwrap().unwrap().event_size, 23);

        let mut elsewhere = bytes.clone();
        elsewhere.insert(0, 0);
        let read = event_header(&mut window(&elsewhere, end + 1, 4096), OFFSET + 1);
        let Err(ScanError::Fault(fault)) = read else {
            panic!("{read:?}")
        };
        let (found, expected) = (end as u32, end as u32 + 1);
        assert_eq!(fault.kind, FaultKind::Misplaced { found, expected });

        let mut window = window(&bytes, end, 4096);
        let header = event_header(&mut window, OFFSET).unwrap().unwrap();
        for at in [19, 60, (end - OFFSET) as usize - 1] {
            let mut bytes = bytes.clone();
            bytes[OFFSET as usize + at] ^= 1;
            let mut damaged = self::window(&bytes, end, 4096);
            let read = whole_event(&mut damaged, OFFSET, &header, 4096);
            assert!(matches!(kind(read), FaultKind::Event(_)), "{at}");
        }
    }

    #[test]
    fn a_window_returns_the_files_bytes() {
        let bytes: Vec<u8> = (0..40).collect();
        let file_end = 36_usize;
        for size in [1, 7, 16, 100] {
            let mut window = window(&bytes, file_end as u64, size);
            let room = size.min(file_end);
            for (from, wanted) in (0..45).flat_map(|from| [1, 5, 20].map(|wanted| (from, wanted))) {
                let seen = window.bytes(from as u64, wanted).unwrap();
                let expected = wanted.min(room).min(file_end.saturating_sub(from));
                let start = from.min(file_end);
                assert_eq!(seen, &bytes[start..start + expected], "{from} {wanted}");
            }
        }
    }
}
