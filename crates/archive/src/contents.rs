//! Extracts a piece's contents in one pass: op ids, GTIDs, times and SHA-256. Verifies each event's checksum, so that archived and restored
//! bytes are those that the ring has committed.
//!
//! Accepts bytes in chunks of any size. Keeps one small event in memory at a time; large row events are skipped.

use std::fmt;

use binlog_format::checksum::{CHECKSUM_LEN, ChecksumAlgorithm};
use binlog_format::event::{EventFlags, EventHeader, EventRef, EventType, HEADER_LEN};
use binlog_format::events::{CommitTimestamp, GtidEvent, Ignorable, PreviousGtids};
use binlog_format::gtid::{Gtid, GtidSet};
use binlog_format::{DecodeError, MAGIC};
use binlog_store::{MARKER_MAGIC, Marker, MarkerError, MarkerKind};
use raft_types::OpId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::name::Malformed;

/// Maximum size of a decoded event: a set of previous GTIDs may have millions of intervals.
const MAX_KEPT_BYTES: u64 = 64 << 20;

/// Contents of a piece. The default is that of an empty piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of log bytes in the piece.
    pub bytes: u64,
    /// SHA-256 of these bytes.
    pub sha256: Hash,
    /// The data in the file header, if the piece begins with the file.
    pub beginning: Option<FileBeginning>,
    /// First and last entry; `None` if the piece is only a header.
    pub entries: Option<(OpId, OpId)>,
    /// The first entry of each term.
    pub terms: Vec<OpId>,
    /// Number of transactions.
    pub transactions: u64,
    /// GTIDs of the transactions.
    pub gtids: GtidSet,
    /// The earliest and the latest commit time of the transactions, by the clock of the server that wrote the log.
    pub committed: Option<(CommitTimestamp, CommitTimestamp)>,
    /// Whether the piece ends with its file.
    pub closed: bool,
}

/// What a file header records about the log before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBeginning {
    /// The entry before the file; `None` before the log's first entry.
    pub before: Option<OpId>,
    /// The GTIDs of all earlier files.
    pub previous_gtids: GtidSet,
}

/// A SHA-256, displayed in hexadecimal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Hashes bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for Hash {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let refused = || Malformed::new(&text, "a SHA-256 in hexadecimal");
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(refused());
        }
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| refused())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| refused())?;
        }
        Ok(Self(hash))
    }
}

/// Why bytes are not a piece of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset} of the file: {kind}")]
pub struct ContentsError {
    /// Offset in the file of the invalid event.
    pub offset: u64,
    /// The cause.
    pub kind: ContentsErrorKind,
}

/// What is invalid in a piece.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsErrorKind {
    /// The file has no binlog magic number.
    #[error("the file does not begin with the magic number of a binlog file")]
    NoMagic,
    /// The bytes are not an event, or are damaged.
    #[error("{0}")]
    Event(#[from] DecodeError),
    /// The file is marked as in use: a server is writing it or has crashed. Files of the ring are never marked so.
    #[error("the file is marked as one that is being written to")]
    InUse,
    /// The event's end position differs from the position in its header.
    #[error("an event ends here that says that it ends at {0}")]
    Misplaced(u32),
    /// A marker of the ring cannot be decoded.
    #[error("the ring's marker cannot be read: {0}")]
    Marker(#[from] MarkerError),
    /// An event to be decoded exceeds the size limit.
    #[error("a {0} event of {1} bytes")]
    TooLarge(EventType, u64),
    /// An entry is missing or duplicated.
    #[error("entry {found} follows entry {last}")]
    Gap {
        /// The previous entry.
        last: OpId,
        /// The entry found instead of the next one.
        found: OpId,
    },
    /// Bytes after the end of the file.
    #[error("the file continues after its end")]
    AfterTheEnd,
    /// The piece ends within an entry.
    #[error("the piece ends within an entry")]
    WithinAnEntry,
}

/// Receives each transaction's GTID and commit time.
type Listener = Box<dyn FnMut(Gtid, Option<CommitTimestamp>) + Send>;

/// Reads one piece, in chunks of any size.
pub struct ContentsReader {
    /// Offset of the next byte in the file.
    offset: u64,
    begin: u64,
    sha256: Sha256,
    event: Event,
    magic_left: usize,
    /// End offset of the events that the current marker announced.
    entry_ends: u64,
    found: Contents,
    listener: Option<Listener>,
}

/// The event being read: all bytes if it is decoded, otherwise only its header.
#[derive(Default)]
struct Event {
    header: Option<EventHeader>,
    taken: u64,
    kept: Vec<u8>,
    /// Covers all bytes except the last four, which are the checksum.
    crc32: crc32fast::Hasher,
    stored: [u8; CHECKSUM_LEN],
}

impl Event {
    fn size(&self) -> u64 {
        let header = self.header.map(|header| u64::from(header.event_size));
        header.unwrap_or(HEADER_LEN as u64)
    }

    fn is_looked_into(&self) -> bool {
        self.header.is_none_or(|header| {
            matches!(
                header.event_type,
                EventType::FormatDescription
                    | EventType::Ignorable
                    | EventType::PreviousGtids
                    | EventType::Gtid
                    | EventType::GtidTagged
            )
        })
    }

    /// Reads bytes up to the end of the header or of the event, and returns their number.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let covered = match self.header {
            Some(_) => self.size() - CHECKSUM_LEN as u64,
            None => HEADER_LEN as u64,
        };
        let end = if self.taken < covered {
            covered
        } else {
            self.size()
        };
        let left = usize::try_from(end - self.taken).unwrap_or(usize::MAX);
        let part = &bytes[..left.min(bytes.len())];
        if self.is_looked_into() {
            self.kept.extend_from_slice(part);
        }
        if self.taken < covered {
            self.crc32.update(part);
        } else {
            let at = (self.taken - covered) as usize;
            self.stored[at..at + part.len()].copy_from_slice(part);
        }
        self.taken += part.len() as u64;
        part.len()
    }

    /// Returns the event after verifying its checksum; only the header if the event is not decoded.
    fn verified(&self) -> Result<Option<EventRef<'_>>, DecodeError> {
        if self.is_looked_into() {
            let event = EventRef::new(&self.kept)?;
            return event.verified(ChecksumAlgorithm::Crc32).map(Some);
        }
        let expected = u32::from_le_bytes(self.stored);
        let found = self.crc32.clone().finalize();
        match self.header {
            Some(header) if expected != found => Err(DecodeError::ChecksumMismatch {
                event_type: header.event_type,
                expected,
                found,
            }),
            _ => Ok(None),
        }
    }
}

impl ContentsReader {
    /// Creates a reader for a piece that starts at this offset in its file.
    pub fn from(begin: u64) -> Self {
        Self {
            offset: begin,
            begin,
            sha256: Sha256::new(),
            event: Event::default(),
            magic_left: if begin == 0 { MAGIC.len() } else { 0 },
            entry_ends: begin,
            found: Contents::default(),
            listener: None,
        }
    }

    /// Calls `listener` at the start of each transaction, in log order.
    #[must_use]
    pub fn telling(
        self,
        listener: impl FnMut(Gtid, Option<CommitTimestamp>) + Send + 'static,
    ) -> Self {
        Self {
            listener: Some(Box::new(listener)),
            ..self
        }
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// Fails at the first invalid byte. The reader must not be used afterwards.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), ContentsError> {
        self.sha256.update(bytes);
        while self.magic_left > 0 && !bytes.is_empty() {
            let at = MAGIC.len() - self.magic_left;
            if bytes[0] != MAGIC[at] {
                return Err(self.error(0, ContentsErrorKind::NoMagic));
            }
            bytes = &bytes[1..];
            self.magic_left -= 1;
            self.offset += 1;
            self.entry_ends = self.offset;
        }
        while !bytes.is_empty() {
            let begins = self.offset - self.event.taken;
            let taken = self.step(bytes);
            let taken = taken.map_err(|kind| self.error(begins, kind))?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Returns the contents of the piece, which ends here.
    ///
    /// # Errors
    /// When the piece ends within an entry.
    pub fn finish(mut self) -> Result<Contents, ContentsError> {
        let within = self.event.taken > 0 || self.magic_left > 0 || self.offset < self.entry_ends;
        if within || self.offset == self.begin {
            return Err(self.error(self.offset, ContentsErrorKind::WithinAnEntry));
        }
        self.found.bytes = self.offset - self.begin;
        self.found.sha256 = Hash(self.sha256.finalize().into());
        Ok(self.found)
    }

    fn error(&self, offset: u64, kind: ContentsErrorKind) -> ContentsError {
        ContentsError { offset, kind }
    }

    /// Reads bytes of at most one event, and returns their number.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, ContentsErrorKind> {
        if self.found.closed {
            return Err(ContentsErrorKind::AfterTheEnd);
        }
        let taken = self.event.take(bytes);
        self.offset += taken as u64;
        if self.event.header.is_none() && self.event.taken == HEADER_LEN as u64 {
            self.header()?;
        }
        if self.event.header.is_some() && self.event.taken == self.event.size() {
            self.whole_event()?;
        }
        Ok(taken)
    }

    fn header(&mut self) -> Result<(), ContentsErrorKind> {
        let header = EventHeader::parse(&self.event.kept)?;
        let size = u64::from(header.event_size);
        if size < (HEADER_LEN + CHECKSUM_LEN) as u64 {
            let (field, reason) = ("event size", "smaller than a header and a checksum");
            return Err(DecodeError::Invalid { field, reason }.into());
        }
        // Positions in a file have 32 bits, and wrap around in a larger file.
        let ends = (self.offset - HEADER_LEN as u64).wrapping_add(size);
        if header.log_pos != ends as u32 {
            return Err(ContentsErrorKind::Misplaced(header.log_pos));
        }
        // No checksum covers this bit.
        if header.event_type == EventType::FormatDescription
            && header.flags.contains(EventFlags::BINLOG_IN_USE)
        {
            return Err(ContentsErrorKind::InUse);
        }
        self.event.header = Some(header);
        if self.event.is_looked_into() && size > MAX_KEPT_BYTES {
            return Err(ContentsErrorKind::TooLarge(header.event_type, size));
        }
        Ok(())
    }

    fn whole_event(&mut self) -> Result<(), ContentsErrorKind> {
        let event = std::mem::take(&mut self.event);
        let Some(header) = event.header else {
            return Ok(());
        };
        match (header.event_type, event.verified()?) {
            (EventType::PreviousGtids, Some(event)) => {
                let previous_gtids = PreviousGtids::decode(event)?.gtids;
                self.found.beginning = Some(FileBeginning {
                    before: None,
                    previous_gtids,
                });
            }
            (EventType::Ignorable, Some(event)) => {
                let body = Ignorable::decode(event)?.body;
                if body.starts_with(&MARKER_MAGIC) {
                    self.marker(&Marker::decode(&body)?.0)?;
                }
            }
            (EventType::Gtid | EventType::GtidTagged, Some(event)) => {
                self.transaction(&GtidEvent::decode(event)?);
            }
            (EventType::Rotate, _) => self.found.closed = true,
            _ => {}
        }
        Ok(())
    }

    fn marker(&mut self, marker: &Marker) -> Result<(), ContentsErrorKind> {
        self.entry_ends = self.offset.saturating_add(marker.stored_payload_len());
        let Some(op_id) = marker.op_id else {
            return Ok(());
        };
        if marker.kind == MarkerKind::FileHeader {
            if let Some(beginning) = &mut self.found.beginning {
                beginning.before = Some(op_id);
            }
            return Ok(());
        }
        if marker.kind == MarkerKind::Rotate {
            // The next event is the rotate event, which may have any length.
            self.entry_ends = self.offset + 1;
        }
        let last = self.found.entries.map(|(_, last)| last);
        let before = last.or_else(|| self.found.beginning.as_ref()?.before);
        if let Some(last) = before
            && (op_id.index != last.index + 1 || op_id.term < last.term)
        {
            return Err(ContentsErrorKind::Gap { last, found: op_id });
        }
        let first = self.found.entries.map_or(op_id, |(first, _)| first);
        self.found.entries = Some((first, op_id));
        let last_term = self.found.terms.last().map(|begun| begun.term);
        if last_term != Some(op_id.term) {
            self.found.terms.push(op_id);
        }
        Ok(())
    }

    fn transaction(&mut self, event: &GtidEvent) {
        self.found.transactions += 1;
        self.found.gtids.add(event.gtid);
        if let Some(listener) = &mut self.listener {
            listener(event.gtid, event.immediate_commit);
        }
        if let Some(at) = event.immediate_commit {
            let known = self.found.committed;
            let (earliest, latest) = known.unwrap_or((at, at));
            self.found.committed = Some((earliest.min(at), latest.max(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use binlog_format::canonical::stamp;
    use binlog_format::events::EncodeEvent;

    use super::*;

    /// A forged or damaged marker with a valid checksum.
    #[test]
    fn marker_beyond_the_file_size_is_an_incomplete_entry() {
        let marker = Marker {
            kind: MarkerKind::Transaction,
            op_id: Some(OpId::new(1, 7)),
            payload_len: u64::MAX,
            payload_crc32c: 0,
            event_count: 1,
        };
        let body = marker.encode().to_vec().into();
        let event = Ignorable { body }.encode(Ignorable::origin(0, 1));
        let mut stored = Vec::new();
        stamp(&event, 100, &mut stored).unwrap();
        let mut contents = ContentsReader::from(100);
        contents.take(&stored).unwrap();
        let refused = contents.finish().unwrap_err();
        assert_eq!(refused.kind, ContentsErrorKind::WithinAnEntry);
    }
}
