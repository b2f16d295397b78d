//! The entries of one file, in order.

use std::io;
use std::sync::Arc;

use binlog_format::event::{EventHeader, EventType, HEADER_LEN};
use binlog_format::events::Rotate as RotateEvent;
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use raft_types::{
    AppEntry, Entry, EntryPayload, LogId, MembershipPayload, OpId, PayloadChecksumError, Rotate,
    TransactionPayload,
};
use spilling_bytes::{SpillFolder, SpillingBytes};

use crate::file_system::StorageFile;
use crate::format::{
    Content, ContentFault, FileHeader, FileNumber, FirstEvent, LoggedMembership, MARKER_MAGIC,
    MAX_MARKER_EVENT_BYTES, Marker, MarkerKind, decode_rotate, with_timestamp,
};
use crate::scan::event_reader::{
    Window, decoded, decoded_marker, event_header, fault, read_event, unexpected, whole_event,
};
use crate::scan::{Fault, FaultKind, ScanError};

/// The largest GTID event that is decoded; real ones have less than a kilobyte.
const MAX_FIRST_EVENT_BYTES: usize = 1 << 20;

/// How much of an entry is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Only the entry's marker; the payload is skipped.
    Marker,
    /// The entry's marker and the first event of the payload.
    FirstEvent,
    /// Every byte, with all checksums.
    Full,
}

/// An entry in a file.
#[derive(Debug, Clone)]
pub(crate) struct Scanned {
    pub(crate) offset: u64,
    /// Offset of the next entry's marker.
    pub(crate) end: u64,
    pub(crate) op_id: OpId,
    pub(crate) marker: Marker,
    pub(crate) timestamp: u32,
    /// The entry's content. At [`Depth::Marker`], a transaction's first event is not read.
    pub(crate) content: Content,
}

/// The log up to the last entry read of a file.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    pub(crate) end: u64,
    /// The last entry of the file; `None` while none was read.
    pub(crate) last: Option<OpId>,
    pub(crate) before: Option<OpId>,
    pub(crate) gtids: GtidSet,
    /// The sequence number of the last transaction in the file that the next entry belongs to; 0 if that file has none.
    pub(crate) sequence_number: i64,
    pub(crate) membership: Option<LoggedMembership>,
    /// The rotate entry, which is the last one.
    pub(crate) rotate: Option<Rotate>,
}

impl FileState {
    pub(crate) fn begin(header: &FileHeader) -> Self {
        Self {
            end: header.end,
            before: header.before,
            gtids: header.previous_gtids.clone(),
            membership: header.membership.clone(),
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, entry: &Scanned) {
        self.end = entry.end;
        self.last = Some(entry.op_id);
        match &entry.content {
            Content::Blank => {}
            Content::Membership(logged) => self.membership = Some(logged.clone()),
            Content::Transaction(first) => {
                self.gtids.extend(first.gtid);
                self.sequence_number = first.sequence_number;
            }
            Content::Rotate(rotate) => {
                self.sequence_number = 0;
                self.rotate = Some(rotate.clone());
            }
        }
    }

    /// The fault of a file that has a successor but no rotate entry.
    pub(crate) fn missing_rotate(&self) -> Option<Fault> {
        let fault = Fault::at(self.end, FaultKind::NoRotate);
        self.rotate.is_none().then_some(fault)
    }

    /// The fault of the next file if its header does not match the log before it.
    pub(crate) fn fault_of_next(&self, next: &FileHeader) -> Option<Fault> {
        let rotate = self.rotate.as_ref()?;
        let what = if next.before != self.last.or(self.before) {
            "entry before the file"
        } else if next.previous_gtids != self.gtids {
            "previous GTIDs"
        } else if next.format_description != with_timestamp(&rotate.format_description, 0)
            || next.timestamp != rotate.timestamp
        {
            "format description and time"
        } else if next.membership != self.membership {
            "membership"
        } else {
            return None;
        };
        Some(Fault::wrong_header(what))
    }
}

/// Reads entries starting at an offset.
pub(crate) struct EntryScanner {
    window: Window,
    number: FileNumber,
    offset: u64,
    last: Option<OpId>,
    rotated: bool,
    /// The folder for large payloads of entries that are read in full; without a folder they stay in memory.
    pub(crate) spill: SpillFolder,
}

impl EntryScanner {
    /// Reads the entries of file `number` starting at `offset`, after entry `last`.
    pub(crate) fn new(window: Window, number: FileNumber, offset: u64, last: Option<OpId>) -> Self {
        Self {
            window,
            number,
            offset,
            last,
            rotated: false,
            spill: SpillFolder::default(),
        }
    }

    /// Reads all entries of a file of this size.
    pub(crate) fn of_file(file: &Arc<dyn StorageFile>, size: u64, header: &FileHeader) -> Self {
        let window = Window::new(file, size, Window::SCAN_BYTES);
        Self::new(window, header.number, header.end, header.before)
    }

    /// The index of the next entry, if the previous one is known.
    pub(crate) fn next_index(&self) -> Option<u64> {
        self.last.map(|last| last.index + 1)
    }

    /// The end of the last entry read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next entry; `None` at the file's end.
    pub(crate) fn next(&mut self, depth: Depth) -> Result<Option<Scanned>, ScanError> {
        let begin = self.offset;
        self.step(depth, None)
            .map_err(|error| error.in_entry(begin))
    }

    /// The next entry with its payload; `None` at the file's end. The payload takes its size in memory, unless it is spilled to a file.
    pub(crate) fn next_entry(&mut self) -> Result<Option<(Scanned, Entry)>, ScanError> {
        let begin = self.offset;
        let mut payload = SpillingBytes::begin(&self.spill, 0);
        let scanned = self.step(Depth::Full, Some(&mut payload));
        let Some(scanned) = scanned.map_err(|error| error.in_entry(begin))? else {
            return Ok(None);
        };
        let carried = match &scanned.content {
            Content::Blank => EntryPayload::Blank,
            Content::Membership(logged) => EntryPayload::Membership(logged.payload()),
            Content::Rotate(rotate) => EntryPayload::Normal(AppEntry::Rotate(rotate.clone())),
            Content::Transaction(_) => {
                let gathered = payload.finish().map_err(|lost| ScanError::Io {
                    offset: begin,
                    source: io::Error::other(lost),
                })?;
                let expected = scanned.marker.payload_crc32c;
                let payload =
                    TransactionPayload::verify_gathered(gathered, expected).map_err(|source| {
                        let op_id = scanned.op_id;
                        fault(begin, FaultKind::Payload(op_id, source)).in_entry(begin)
                    })?;
                EntryPayload::Normal(AppEntry::Transaction(payload))
            }
        };
        let entry = Entry {
            log_id: LogId::from(scanned.op_id),
            payload: carried,
        };
        Ok(Some((scanned, entry)))
    }

    fn step(
        &mut self,
        depth: Depth,
        payload: Option<&mut SpillingBytes>,
    ) -> Result<Option<Scanned>, ScanError> {
        let begin = self.offset;
        if self.rotated && begin < self.window.end {
            return Err(fault(begin, FaultKind::AfterRotate));
        }
        let Some(header) = event_header(&mut self.window, begin)? else {
            return Ok(None);
        };
        let (marker, op_id, held) = self.marker(begin, &header)?;
        if let Some(last) = self.last
            && (op_id.index != last.index + 1 || op_id.term < last.term)
        {
            return Err(fault(begin, FaultKind::Gap { last, found: op_id }));
        }
        let after = begin + u64::from(header.event_size);
        let content = |what| fault(begin, FaultKind::Content(what));
        let (content, end) = match marker.kind {
            MarkerKind::Blank => (Content::Blank, after),
            MarkerKind::Membership => {
                let payload = MembershipPayload::read(held)
                    .map_err(|error| content(ContentFault::Membership(error.to_string())))?;
                let logged = LoggedMembership::new(op_id, &payload);
                (Content::Membership(logged), after)
            }
            MarkerKind::Rotate => {
                let rotate = decode_rotate(&held).ok_or(content(ContentFault::Rotate))?;
                let end = self.rotate_event(op_id, after)?;
                (Content::Rotate(rotate), end)
            }
            MarkerKind::Transaction => {
                let (first, end) = match depth {
                    Depth::Full => self.whole_payload(&marker, op_id, after, payload)?,
                    Depth::Marker | Depth::FirstEvent => {
                        self.glance_at_payload(&marker, op_id, after, depth)?
                    }
                };
                (Content::Transaction(first), end)
            }
            MarkerKind::FileHeader => return Err(unexpected(begin, "an entry's marker", &header)),
        };
        self.offset = end;
        self.last = Some(op_id);
        self.rotated = marker.kind == MarkerKind::Rotate;
        Ok(Some(Scanned {
            offset: begin,
            end,
            op_id,
            marker,
            timestamp: header.timestamp,
            content,
        }))
    }

    fn marker(
        &mut self,
        offset: u64,
        header: &EventHeader,
    ) -> Result<(Marker, OpId, Bytes), ScanError> {
        if header.event_type != EventType::Ignorable {
            return Err(unexpected(offset, "an entry's marker", header));
        }
        let event = whole_event(&mut self.window, offset, header, MAX_MARKER_EVENT_BYTES)?;
        let (marker, held) = decoded_marker(offset, &event)?;
        Ok((marker, marker.op_id.unwrap_or_default(), held))
    }

    /// The header of the next event of an entry's payload.
    fn payload_event(
        &mut self,
        op_id: OpId,
        offset: u64,
        begin: u64,
    ) -> Result<EventHeader, ScanError> {
        match event_header(&mut self.window, offset)? {
            Some(header) => Ok(header),
            None if offset == begin => Err(fault(offset, FaultKind::PayloadMissing(op_id))),
            None => Err(fault(offset, FaultKind::HeaderCut(0))),
        }
    }

    /// Checks the event after a rotate entry's marker; returns its end.
    fn rotate_event(&mut self, op_id: OpId, offset: u64) -> Result<u64, ScanError> {
        let header = self.payload_event(op_id, offset, offset)?;
        if header.event_type != EventType::Rotate {
            return Err(unexpected(offset, "the rotate event", &header));
        }
        let event = whole_event(&mut self.window, offset, &header, MAX_MARKER_EVENT_BYTES)?;
        let rotate = decoded(offset, &event, RotateEvent::decode)?;
        let next = self.number.next();
        if rotate.position != RotateEvent::FIRST_POSITION
            || *rotate.next_file != *next.name().as_bytes()
        {
            let kind = FaultKind::Content(ContentFault::RotateTarget(next));
            return Err(fault(offset, kind));
        }
        Ok(offset + u64::from(header.event_size))
    }

    /// Verifies every event of a payload, and collects the canonical ones if `payload` is a buffer.
    fn whole_payload(
        &mut self,
        marker: &Marker,
        op_id: OpId,
        begin: u64,
        mut payload: Option<&mut SpillingBytes>,
    ) -> Result<(FirstEvent, u64), ScanError> {
        let mut first = FirstEvent::default();
        let (mut offset, mut length, mut checksum) = (begin, 0_u64, 0_u32);
        if let Some(buffer) = &mut payload {
            // Allocates at most the size of the rest of the file, because the marker's size may be damaged.
            let at_most = marker
                .payload_len
                .min(self.window.end.saturating_sub(begin));
            buffer.announce(usize::try_from(at_most).unwrap_or_default());
        }
        for at in 0..marker.event_count {
            let header = self.payload_event(op_id, offset, begin)?;
            if at == 0 {
                first = self.first_event(offset, &header)?;
            }
            read_event(&mut self.window, offset, &header, &mut |piece| {
                length += piece.len() as u64;
                match &mut payload {
                    Some(buffer) => buffer.push(piece),
                    None => checksum = crc32c::crc32c_append(checksum, piece),
                }
            })?;
            offset += u64::from(header.event_size);
        }
        if length != marker.payload_len {
            let kind = FaultKind::PayloadLength {
                op_id,
                expected: marker.payload_len,
                found: length,
            };
            return Err(fault(begin, kind));
        }
        // A collected payload is verified when it becomes an entry.
        if payload.is_none() && checksum != marker.payload_crc32c {
            let source = PayloadChecksumError {
                expected: marker.payload_crc32c,
                found: checksum,
            };
            return Err(fault(begin, FaultKind::Payload(op_id, source)));
        }
        Ok((first, offset))
    }

    /// Skips a payload, reading its first event only if the depth requires it.
    fn glance_at_payload(
        &mut self,
        marker: &Marker,
        op_id: OpId,
        begin: u64,
        depth: Depth,
    ) -> Result<(FirstEvent, u64), ScanError> {
        let needed = marker.stored_payload_len();
        let available = self.window.end.saturating_sub(begin);
        if available == 0 {
            return Err(fault(begin, FaultKind::PayloadMissing(op_id)));
        }
        if needed > available {
            return Err(fault(begin, FaultKind::EventCut { needed, available }));
        }
        let first = if depth == Depth::FirstEvent {
            let header = self.payload_event(op_id, begin, begin)?;
            self.first_event(begin, &header)?
        } else {
            FirstEvent::default()
        };
        Ok((first, begin + needed))
    }

    fn first_event(&mut self, offset: u64, header: &EventHeader) -> Result<FirstEvent, ScanError> {
        if !matches!(header.event_type, EventType::Gtid | EventType::GtidTagged) {
            return Ok(FirstEvent::default());
        }
        let event = whole_event(&mut self.window, offset, header, MAX_FIRST_EVENT_BYTES)?;
        decoded(offset, &event, FirstEvent::read)
    }
}

// Searches for entries after the event boundaries are lost.

/// Finds the first complete, valid entry that begins after `offset`, at any position. `end` is the file's end. If there is such an entry, a
/// fault before it is damage and not a torn tail.
pub(crate) fn find_entry_after(
    file: &Arc<dyn StorageFile>,
    end: u64,
    number: FileNumber,
    offset: u64,
) -> Result<Option<Scanned>, ScanError> {
    let mut search = Window::new(file, end, Window::SCAN_BYTES);
    let mut from = offset + 1;
    while let Some(candidate) = next_magic(&mut search, from)? {
        let window = Window::new(file, end, Window::LOOKUP_BYTES);
        match EntryScanner::new(window, number, candidate, None).next(Depth::Full) {
            Ok(Some(entry)) => return Ok(Some(entry)),
            Err(ScanError::Io { offset, source }) => return Err(ScanError::Io { offset, source }),
            Ok(None) | Err(ScanError::Fault(_)) => from = candidate + 1,
        }
    }
    Ok(None)
}

/// The next possible start of an event whose body begins like a marker's.
fn next_magic(window: &mut Window, from: u64) -> Result<Option<u64>, ScanError> {
    let mut at = from + HEADER_LEN as u64;
    loop {
        let bytes = window.bytes(at, Window::LOOKUP_BYTES)?;
        if bytes.len() < MARKER_MAGIC.len() {
            return Ok(None);
        }
        if let Some(hit) = bytes
            .windows(MARKER_MAGIC.len())
            .position(|four| four == MARKER_MAGIC)
        {
            return Ok(Some(at + hit as u64 - HEADER_LEN as u64));
        }
        at += (bytes.len() - MARKER_MAGIC.len() + 1) as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::format::encode_marker;
    use crate::scan::header_scan::InMemory;

    /// Returns `before` bytes that are followed by blank entries.
    fn blanks(before: usize, ids: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; before];
        for (term, index) in ids {
            let id = OpId::new(*term, *index);
            let marker = Marker::holding(MarkerKind::Blank, Some(id), &[]);
            let offset = bytes.len() as u64;
            encode_marker(&marker, &[], (0, 0), offset, &mut bytes);
        }
        bytes
    }

    fn in_memory(bytes: Vec<u8>) -> (Arc<dyn StorageFile>, u64) {
        let end = bytes.len() as u64;
        (Arc::new(InMemory(bytes.into())), end)
    }

    fn scanner(bytes: Vec<u8>) -> EntryScanner {
        let (file, end) = in_memory(bytes);
        let window = Window::new(&file, end, Window::LOOKUP_BYTES);
        EntryScanner::new(window, FileNumber::FIRST, 0, None)
    }

    #[test]
    fn entries_follow_each_other_and_their_terms_never_fall() {
        for (ids, follows) in [
            ([(1, 5), (1, 6)], true),
            ([(1, 5), (3, 6)], true),
            ([(1, 5), (1, 5)], false),
            ([(1, 5), (1, 7)], false),
            ([(1, 5), (2, 7)], false),
            ([(2, 5), (1, 6)], false),
        ] {
            let mut scanner = scanner(blanks(0, &ids));
            let first = scanner.next(Depth::Marker).unwrap().unwrap();
            assert_eq!(scanner.offset(), first.end);
            match scanner.next(Depth::Marker) {
                Ok(Some(second)) => assert!(follows && second.op_id.index == 6, "{ids:?}"),
                Err(ScanError::Fault(Fault {
                    kind: FaultKind::Gap { last, found },
                    ..
                })) => {
                    let [last_id, found_id] = ids.map(|(term, index)| OpId::new(term, index));
                    assert!(!follows && (last, found) == (last_id, found_id), "{ids:?}");
                }
                other => panic!("{ids:?}: {other:?}"),
            }
        }
    }

    /// A search that resumes at the wrong offset may never end.
    #[test]
    fn an_entry_is_found_after_any_number_of_bytes() {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            finds_entries();
            sender.send(()).unwrap();
        });
        receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    }

    /// Checks that entries are found at any position in the window, and after any bytes.
    fn finds_entries() {
        let window = Window::LOOKUP_BYTES;
        let near = |bytes: usize| bytes - 70..bytes + 30;
        for before in (1..4).chain(near(window)).chain(near(3 * window)) {
            let (file, end) = in_memory(blanks(before, &[(1, 5)]));
            let find = |offset| find_entry_after(&file, end, FileNumber::FIRST, offset).unwrap();
            let place = |found: Option<Scanned>| found.map(|entry| (entry.offset, entry.end));
            let expected = Some((before as u64, end));
            assert_eq!(place(find(0)), expected, "{before}");
            assert_eq!(place(find(before as u64 - 1)), expected, "{before}");
            assert_eq!(place(find(before as u64)), None, "{before}");
        }
        // A false marker and a damaged one come before a complete one.
        let mut bytes = blanks(40, &[(1, 5), (1, 6)]);
        bytes[20..24].copy_from_slice(&MARKER_MAGIC);
        bytes[40 + HEADER_LEN + 9] ^= 1;
        let (file, end) = in_memory(bytes);
        let found = find_entry_after(&file, end, FileNumber::FIRST, 0).unwrap();
        assert_eq!(found.unwrap().op_id, OpId::new(1, 6));
    }
}
