//! Reads a log file's header, from the file or as received from another member.

use std::io;
use std::sync::Arc;

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventHeader, EventType};
use binlog_format::events::{FormatDescription, PreviousGtids};
use binlog_format::{ENCRYPTED_MAGIC, MAGIC};
use bytes::Bytes;
use raft_types::{FileStart, OpId, RingId};

use crate::file_system::StorageFile;
use crate::format::{
    ContentFault, FileHeader, FileNumber, MAX_MARKER_EVENT_BYTES, MarkerKind, decode_body,
    with_timestamp,
};
use crate::scan::event_reader::{
    Window, decoded, decoded_marker, event_header, fault, unexpected, whole_event,
};
use crate::scan::{FaultKind, ScanError};

/// The largest accepted PREVIOUS_GTIDS event; a set of millions of intervals fits.
const MAX_GTIDS_EVENT_BYTES: usize = 64 << 20;

/// Reads a received header as if it were in a file; no bytes may follow it.
pub(crate) fn scan_header_bytes(bytes: &Bytes) -> Result<FileHeader, ScanError> {
    let file: Arc<dyn StorageFile> = Arc::new(InMemory(bytes.clone()));
    let end = bytes.len() as u64;
    let header = scan_header(&mut Window::new(&file, end, Window::LOOKUP_BYTES), None)?;
    if header.end != end {
        let kind = FaultKind::Content(ContentFault::AfterHeader);
        return Err(fault(header.end, kind));
    }
    Ok(header)
}

/// Reads a header and verifies its checksums, and the file's number if it is known.
pub(crate) fn scan_header(
    window: &mut Window,
    expected: Option<FileNumber>,
) -> Result<FileHeader, ScanError> {
    match read_members_header(window, expected) {
        Err(ScanError::Fault(found)) if mysqld_wrote(window).unwrap_or(false) => {
            Err(fault(found.offset, FaultKind::MysqldsOwn))
        }
        read => read,
    }
}

fn read_members_header(
    window: &mut Window,
    expected: Option<FileNumber>,
) -> Result<FileHeader, ScanError> {
    let end = window.end;
    let magic = window.bytes(0, MAGIC.len())?;
    if magic.len() < MAGIC.len() && MAGIC.starts_with(magic) {
        let (needed, available) = (MAGIC.len() as u64, end);
        return Err(fault(0, FaultKind::EventCut { needed, available }));
    }
    if *magic != MAGIC {
        return Err(fault(0, FaultKind::NoMagic));
    }
    let mut at = MAGIC.len() as u64;
    let (what, event_type) = ("a format description", EventType::FormatDescription);
    let (header, event) = expect(window, at, what, event_type, MAX_MARKER_EVENT_BYTES)?;
    decoded(at, &event, FormatDescription::decode)?;
    let timestamp = header.timestamp;
    let format_description = Bytes::from(with_timestamp(&event, 0));
    at += u64::from(header.event_size);

    let (what, event_type) = ("the previous GTIDs", EventType::PreviousGtids);
    let (header, event) = expect(window, at, what, event_type, MAX_GTIDS_EVENT_BYTES)?;
    let previous_gtids = decoded(at, &event, PreviousGtids::decode)?.gtids;
    at += u64::from(header.event_size);

    let (what, event_type) = ("the file header's marker", EventType::Ignorable);
    let (header, event) = expect(window, at, what, event_type, MAX_MARKER_EVENT_BYTES)?;
    let (marker, payload) = decoded_marker(at, &event)?;
    if marker.kind != MarkerKind::FileHeader {
        return Err(unexpected(at, what, &header));
    }
    let body = decode_body(&payload).map_err(|what| fault(at, FaultKind::Content(what)));
    let (ring, number, membership) = body?;
    if expected.is_some_and(|expected| expected != number) {
        return Err(fault(at, FaultKind::WrongFile(number)));
    }
    Ok(FileHeader {
        number,
        ring,
        before: marker.op_id,
        previous_gtids,
        format_description,
        timestamp,
        end: at + u64::from(header.event_size),
        membership,
    })
}

/// Bytes that are read like a file.
pub(crate) struct InMemory(pub(crate) Bytes);

impl StorageFile for InMemory {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.0.len());
        let read = buffer.len().min(self.0.len() - from);
        buffer[..read].copy_from_slice(&self.0[from..from + read]);
        Ok(read)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}

/// Returns true if a mysqld wrote the file: its part before the first transaction is complete, and does not belong to a member's log.
/// Returns false on errors, which prove nothing about the writer.
fn mysqld_wrote(window: &mut Window) -> Result<bool, ScanError> {
    let mut offset = MAGIC.len() as u64;
    let magic = window.bytes(0, MAGIC.len())?;
    if *magic != MAGIC {
        return Ok(*magic == ENCRYPTED_MAGIC);
    }
    let Some(header) = event_header(window, offset)? else {
        return Ok(false);
    };
    // A mysqld sets the flag while it writes the file; the checksum covers the event without the flag.
    let in_use = header.flags.contains(EventFlags::BINLOG_IN_USE);
    let closed = EventHeader {
        flags: header.flags.without(EventFlags::BINLOG_IN_USE),
        ..header
    };
    let event = whole_event(window, offset, &closed, MAX_MARKER_EVENT_BYTES)?;
    let description = decoded(offset, &event, FormatDescription::decode)?;
    if description.checksum != ChecksumAlgorithm::Crc32 {
        return Ok(true);
    }
    offset += u64::from(header.event_size);
    let (what, event_type) = ("the previous GTIDs", EventType::PreviousGtids);
    let (gtids, _) = expect(window, offset, what, event_type, MAX_GTIDS_EVENT_BYTES)?;
    offset += u64::from(gtids.event_size);
    match event_header(window, offset)? {
        None => Ok(in_use),
        Some(header) => {
            whole_event(window, offset, &header, MAX_MARKER_EVENT_BYTES)?;
            Ok(header.event_type != EventType::Ignorable)
        }
    }
}

/// The event at `offset`, which must have this type.
fn expect(
    window: &mut Window,
    offset: u64,
    expected: &'static str,
    event_type: EventType,
    limit: usize,
) -> Result<(EventHeader, Vec<u8>), ScanError> {
    let Some(header) = event_header(window, offset)? else {
        return Err(fault(offset, FaultKind::HeaderCut(0)));
    };
    if header.event_type != event_type {
        return Err(unexpected(offset, expected, &header));
    }
    let event = whole_event(window, offset, &header, limit)?;
    Ok((header, event))
}

// A file start from another member, with its decoded header.

/// A file start with which a log can begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedStart {
    /// The last entry before the file.
    pub(crate) before: OpId,
    pub(crate) header: FileHeader,
    /// The header as it will be written, byte for byte.
    pub(crate) bytes: Bytes,
}

// Reads a file start from another member or from the hard state.

/// Decodes a file start from another member and verifies its checksums.
pub(crate) fn scan_start(start: &FileStart, own: RingId) -> io::Result<ReceivedStart> {
    let header = scan_header_bytes(&start.header).map_err(unusable)?;
    let (found, expected) = (header.ring, own);
    let kind = if found != expected {
        FaultKind::ForeignRing { found, expected }
    } else if header.before != Some(start.before) {
        FaultKind::WrongHeader("entry before the file")
    } else if header.membership() != start.membership {
        FaultKind::WrongHeader("membership")
    } else {
        return Ok(ReceivedStart {
            before: start.before,
            header,
            bytes: start.header.clone(),
        });
    };
    Err(unusable(fault(0, kind)))
}

/// Decodes the file start in the hard state, which was checked before it was recorded.
pub(crate) fn scan_noted_start(bytes: Bytes) -> io::Result<ReceivedStart> {
    let header = scan_header_bytes(&bytes).map_err(unusable)?;
    let Some(before) = header.before else {
        let what = "the noted header is that of a log's first file";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    };
    Ok(ReceivedStart {
        before,
        header,
        bytes,
    })
}

fn unusable(error: ScanError) -> io::Error {
    match error {
        ScanError::Fault(fault) => {
            let what = format!("the header of the file cannot be used: {fault}");
            io::Error::new(io::ErrorKind::InvalidData, what)
        }
        ScanError::Io { source, .. } => source,
    }
}

#[cfg(test)]
mod tests {
    use binlog_format::canonical::{stamp, unstamp};
    use binlog_format::event::EventRef;
    use binlog_format::gtid::GtidSet;

    use super::*;
    use crate::format::encode_file_header;
    use crate::scan::Fault;

    const NUMBER: FileNumber = FileNumber::FIRST;

    /// The canonical events of a header.
    fn events() -> Vec<Vec<u8>> {
        let bytes = encode_file_header(&mut FileHeader {
            number: NUMBER,
            ring: RingId::default(),
            before: None,
            membership: None,
            previous_gtids: GtidSet::new(),
            format_description: FormatDescription::built_in_event().into(),
            timestamp: 7,
            end: 0,
        });
        let canonical = unstamp(&bytes[MAGIC.len()..]).unwrap();
        let mut rest: &[u8] = &canonical;
        let mut events = Vec::new();
        while let Some(event) = EventRef::split_from(&mut rest).unwrap() {
            events.push(event.bytes().to_vec());
        }
        events
    }

    /// A file that begins with these events, and the offset of each.
    fn file(events: &[Vec<u8>]) -> (Vec<u8>, Vec<u64>) {
        let (mut bytes, mut places) = (MAGIC.to_vec(), Vec::new());
        for event in events {
            let place = bytes.len() as u64;
            places.push(place);
            stamp(event, place, &mut bytes).unwrap();
        }
        (bytes, places)
    }

    fn read(bytes: &[u8], number: FileNumber) -> Result<FileHeader, Fault> {
        let file: Arc<dyn StorageFile> = Arc::new(InMemory(bytes.to_vec().into()));
        let mut window = Window::new(&file, bytes.len() as u64, Window::LOOKUP_BYTES);
        scan_header(&mut window, Some(number)).map_err(|error| match error {
            ScanError::Fault(fault) => fault,
            ScanError::Io { .. } => panic!("{error}"),
        })
    }

    #[test]
    fn a_header_that_is_cut_off_is_one_wherever_it_ends() {
        let (bytes, places) = file(&events());
        let header = read(&bytes, NUMBER).unwrap();
        assert_eq!((header.timestamp, header.end), (7, bytes.len() as u64));
        for there in 0..bytes.len() {
            let fault = read(&bytes[..there], NUMBER).unwrap_err();
            assert!(fault.kind.is_cut_off(), "{there}: {fault:?}");
            let begun = places.iter().rev().find(|place| **place <= there as u64);
            assert_eq!(fault.offset, begun.copied().unwrap_or_default(), "{there}");
        }
        let none = read(b"no magic at all", NUMBER).unwrap_err();
        assert_eq!(none.kind, FaultKind::NoMagic);
        assert_eq!(read(b"x", NUMBER).unwrap_err().kind, FaultKind::NoMagic);
    }

    #[test]
    fn header_faults_are_reported_with_their_offset() {
        for which in 0..3 {
            // The event's checksum is correct, but its content is invalid.
            let mut cut = events();
            let (header, _) = cut[which].split_at(binlog_format::event::HEADER_LEN);
            let mut short = [header, &[1]].concat();
            let size = (short.len() as u32).to_le_bytes();
            short[9..13].copy_from_slice(&size);
            cut[which] = short;
            let (bytes, places) = file(&cut);
            let fault = read(&bytes, NUMBER).unwrap_err();
            assert_eq!(fault.offset, places[which], "{fault:?}");
            let is_read = matches!(fault.kind, FaultKind::Event(_) | FaultKind::Marker(_));
            assert!(is_read, "{fault:?}");

            let mut missing = events();
            missing.remove(which);
            let (bytes, places) = file(&missing);
            let fault = read(&bytes, NUMBER).unwrap_err();
            let place = places.get(which).copied();
            assert_eq!(
                fault.offset,
                place.unwrap_or(bytes.len() as u64),
                "{fault:?}"
            );
        }
        let (bytes, places) = file(&events());
        let fault = read(&bytes, NUMBER.next()).unwrap_err();
        let found = NUMBER;
        let wrong = (fault.offset, fault.kind);
        assert_eq!(wrong, (places[2], FaultKind::WrongFile(found)));
    }

    #[test]
    fn a_file_of_mysqld_is_named_as_one_and_a_damaged_file_is_not() {
        const GOLDEN: &str = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../binlog-format/testdata/in_use.binlog"
        );
        let whole = std::fs::read(GOLDEN).unwrap();
        let kind = |bytes: &[u8]| read(bytes, NUMBER).unwrap_err().kind;
        assert_eq!(kind(&whole), FaultKind::MysqldsOwn);
        // A mysqld has just created the file: it ends after the previous GTIDs.
        assert_eq!(kind(&whole[..491]), FaultKind::MysqldsOwn);
        assert_ne!(kind(&whole[..490]), FaultKind::MysqldsOwn);
        assert_eq!(kind(&ENCRYPTED_MAGIC), FaultKind::MysqldsOwn);
        // The type of the first event after the previous GTIDs is damaged.
        let (mut bytes, places) = file(&events());
        bytes[places[2] as usize + 4] = EventType::Gtid.code();
        assert!(matches!(kind(&bytes), FaultKind::Unexpected { .. }));
    }

    #[test]
    fn nothing_follows_a_header_that_came_from_elsewhere() {
        let (mut bytes, _) = file(&events());
        let end = bytes.len() as u64;
        assert_eq!(scan_header_bytes(&bytes.clone().into()).unwrap().end, end);
        bytes.push(0);
        let Err(ScanError::Fault(fault)) = scan_header_bytes(&bytes.into()) else {
            panic!("it was taken")
        };
        assert_eq!(fault.offset, end);
        assert!(matches!(fault.kind, FaultKind::Content(_)));
    }
}
