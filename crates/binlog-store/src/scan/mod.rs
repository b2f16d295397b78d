//! Reading log files: a window over a file, single events, file headers, and entries in order, each checked as far as the caller requests.
//! Used by recovery, readers and the command line.

mod entry_scanner;
mod event_reader;
mod header_scan;

use std::io;

use binlog_format::DecodeError;
use binlog_format::event::EventType;
use raft_types::{OpId, PayloadChecksumError, RingId};

use crate::format::{ContentFault, FileNumber, MarkerError};
pub(crate) use crate::scan::entry_scanner::{
    Depth, EntryScanner, FileState, Scanned, find_entry_after,
};
pub(crate) use crate::scan::event_reader::Window;
#[cfg(feature = "fuzzing")]
pub(crate) use crate::scan::header_scan::InMemory;
pub(crate) use crate::scan::header_scan::{
    ReceivedStart, scan_header, scan_noted_start, scan_start,
};

// Faults of bytes in a log file, with their positions.

/// The fault at an offset of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// The file ends within an event's header.
    #[error("the file ends {0} bytes into an event's header")]
    HeaderCut(u64),
    /// The file ends within an event.
    #[error("the file ends {available} bytes into an event of {needed} bytes")]
    EventCut {
        /// The event's size in its header.
        needed: u64,
        /// Bytes from the event's start to the file's end.
        available: u64,
    },
    /// The file ends between a marker and its payload.
    #[error("the file ends after the marker of entry {0}, before its payload")]
    PayloadMissing(OpId),
    /// The bytes are not a valid event.
    #[error("{0}")]
    Event(DecodeError),
    /// The event is larger than its type permits.
    #[error("a {event_type} event of {size} bytes stands where at most {limit} are possible")]
    TooLarge {
        /// The event's type in its header.
        event_type: EventType,
        /// The event's size in its header.
        size: u64,
        /// The largest permitted size.
        limit: u64,
    },
    /// The end position in an event's header differs from its position in this file.
    #[error("the event's end position is {found}, but it ends at {expected}")]
    Misplaced {
        /// The position in the header.
        found: u32,
        /// The low 32 bits of the event's end in this file.
        expected: u32,
    },
    /// The file does not begin like a binlog file.
    #[error("the file does not begin with the magic number of a binlog file")]
    NoMagic,
    /// A mysqld wrote the file: it begins like a binlog file, and has no header of a member's log.
    #[error("this is mysqld's own binlog, not a file of a member's log")]
    MysqldsOwn,
    /// An event of another type was expected here.
    #[error("a {1} event is where {0} is expected")]
    Unexpected(&'static str, EventType),
    /// The marker cannot be read.
    #[error("the marker cannot be read: {0}")]
    Marker(MarkerError),
    /// The payload's CRC32C differs from that computed when the payload was created.
    #[error("entry {0}: {1}")]
    Payload(OpId, PayloadChecksumError),
    /// The payload's events do not have the length in the marker.
    #[error("entry {op_id} has {found} bytes of payload, but its marker says {expected}")]
    PayloadLength {
        /// The entry of the marker.
        op_id: OpId,
        /// Bytes of payload according to the marker.
        expected: u64,
        /// Bytes of payload in the events.
        found: u64,
    },
    /// The entries are not consecutive.
    #[error("entry {found} follows entry {last}: the log has a gap here")]
    Gap {
        /// The last entry before the gap.
        last: OpId,
        /// The entry after the gap.
        found: OpId,
    },
    /// Bytes follow the rotate event.
    #[error("bytes follow the rotate event, which must be a file's last one")]
    AfterRotate,
    /// A file with a successor does not end with a rotate event.
    #[error("the file has a successor, but does not end with a rotate event")]
    NoRotate,
    /// The header belongs to another file.
    #[error("the header is that of {0}")]
    WrongFile(FileNumber),
    /// The file belongs to another ring's log.
    #[error("the file belongs to ring {found}, but this member to ring {expected}")]
    ForeignRing {
        /// The ring in the header.
        found: RingId,
        /// The ring of the opened log.
        expected: RingId,
    },
    /// The header does not match the previous files.
    #[error("the header's {0} are not those that follow from the file before")]
    WrongHeader(&'static str),
    /// A part of a marker's payload cannot be read.
    #[error("{0}")]
    Content(ContentFault),
}

impl FaultKind {
    /// True if the fault is that the file ends too early.
    pub fn is_cut_off(&self) -> bool {
        matches!(
            self,
            Self::HeaderCut { .. } | Self::EventCut { .. } | Self::PayloadMissing { .. }
        )
    }
}

/// A fault and its position in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset}: {kind}")]
pub struct Fault {
    /// Start of the faulty event.
    pub offset: u64,
    /// The kind of fault.
    pub kind: FaultKind,
    /// Start of the entry with the fault; the previous entry ends there.
    pub entry_offset: u64,
}

impl Fault {
    /// A fault at an offset at which an entry begins, as far as is known.
    pub(crate) fn at(offset: u64, kind: FaultKind) -> Self {
        Self {
            offset,
            kind,
            entry_offset: offset,
        }
    }

    /// A header that does not match the log before it.
    pub(crate) fn wrong_header(what: &'static str) -> Self {
        Self::at(0, FaultKind::WrongHeader(what))
    }
}

/// A fault in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} {fault}")]
pub struct Corruption {
    /// The file with the fault.
    pub file: FileNumber,
    /// The fault and its position in that file.
    pub fault: Fault,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanError {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("reading at offset {offset}: {source}")]
    Io { offset: u64, source: io::Error },
}

impl ScanError {
    /// Returns the fault with `entry_offset` as the start of the faulty entry.
    pub(crate) fn in_entry(self, entry_offset: u64) -> Self {
        match self {
            Self::Fault(fault) => Self::Fault(Fault {
                entry_offset,
                ..fault
            }),
            io => io,
        }
    }
}
