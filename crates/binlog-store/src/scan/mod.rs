//! Reading log files: a window over a file, single events, file headers, and entries one after the
//! other, each checked as far as the caller asks. Recovery, readers and the command line share it.

mod entry_scanner;
mod event_reader;
mod header_scan;
mod received_start;

use std::io;

use binlog_format::DecodeError;
use binlog_format::event::EventType;
use raft_types::{OpId, PayloadChecksumError, RingId};

use crate::format::{FileNumber, MarkerError};
pub(crate) use crate::scan::entry_scanner::{
    Depth, EntryScanner, Scanned, ScannedContent, find_entry_after,
};
pub(crate) use crate::scan::event_reader::Window;
pub(crate) use crate::scan::header_scan::{InMemory, scan_header};
pub(crate) use crate::scan::received_start::{ReceivedStart, scan_noted_start, scan_start};

// What can be wrong with bytes in a log file, and where.

/// What is wrong at an offset of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// The file ends inside of an event's header.
    #[error("the file ends {available} bytes into an event's header")]
    HeaderCut {
        /// Bytes from the header's begin to the file's end.
        available: u64,
    },
    /// The file ends inside of an event.
    #[error("the file ends {available} bytes into an event of {needed} bytes")]
    EventCut {
        /// The event's size as its header says.
        needed: u64,
        /// Bytes from the event's begin to the file's end.
        available: u64,
    },
    /// The file ends between a marker and its payload.
    #[error("the file ends behind the marker of entry {op_id}, before its payload")]
    PayloadMissing {
        /// The entry that the marker announces.
        op_id: OpId,
    },
    /// The bytes are no event, or a damaged one.
    #[error("{0}")]
    Event(DecodeError),
    /// The event is larger than one of its kind can be.
    #[error("a {event_type} event of {size} bytes stands where at most {limit} are possible")]
    TooLarge {
        /// The event's type as its header says.
        event_type: EventType,
        /// The event's size as its header says.
        size: u64,
        /// The largest size that is possible here.
        limit: u64,
    },
    /// The end position in an event's header is not its place in this file.
    #[error("the event's end position is {found}, but it ends at {expected}")]
    Misplaced {
        /// The position in the header.
        found: u32,
        /// The low 32 bits of the event's end in this file.
        expected: u32,
    },
    /// The file does not begin as a binlog file does.
    #[error("the file does not begin with the magic number of a binlog file")]
    NoMagic,
    /// A mysqld wrote the file: it begins as a binlog file does, and has no header of a member's log.
    #[error("this is mysqld's own binlog, not a file of a member's log")]
    MysqldsOwn,
    /// An event of another type was expected here.
    #[error("a {found} event stands where {expected} is expected")]
    Unexpected {
        /// The kind of event that has to stand here.
        expected: &'static str,
        /// The type that stands here.
        found: EventType,
    },
    /// The marker cannot be read.
    #[error("the marker cannot be read: {0}")]
    Marker(MarkerError),
    /// The payload is not the one that was sealed at ingest.
    #[error("entry {op_id}: {source}")]
    Payload {
        /// The entry whose payload is damaged.
        op_id: OpId,
        /// The checksum that was sealed and the one that was found.
        source: PayloadChecksumError,
    },
    /// The payload's events are not as long as the marker says.
    #[error("entry {op_id} has {found} bytes of payload, but its marker says {expected}")]
    PayloadLength {
        /// The entry that the marker announces.
        op_id: OpId,
        /// Bytes of payload as the marker says.
        expected: u64,
        /// Bytes of payload that the events have.
        found: u64,
    },
    /// The entries are not consecutive.
    #[error("entry {found} stands behind entry {last}: the log has a gap here")]
    Gap {
        /// The last entry before the gap.
        last: OpId,
        /// The entry that stands here.
        found: OpId,
    },
    /// Something stands behind the rotate event.
    #[error("bytes stand behind the rotate event, which must be a file's last one")]
    AfterRotate,
    /// A file that has a successor does not end with a rotate event.
    #[error("the file has a successor, but does not end with a rotate event")]
    NoRotate,
    /// The header belongs to another file.
    #[error("the header is that of {found}")]
    WrongFile {
        /// The file that the header names.
        found: FileNumber,
    },
    /// The file is from another ring's log.
    #[error("the file belongs to ring {found}, but this member to ring {expected}")]
    ForeignRing {
        /// The ring in the header.
        found: RingId,
        /// The ring that the log is opened for.
        expected: RingId,
    },
    /// The header does not say what follows from the files before.
    #[error("the header's {what} are not those that follow from the file before")]
    WrongHeader {
        /// The part of the header.
        what: &'static str,
    },
    /// A part of a marker's payload cannot be read.
    #[error("{0}")]
    Content(String),
}

impl FaultKind {
    /// Whether the file simply ends too early.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        matches!(
            self,
            Self::HeaderCut { .. } | Self::EventCut { .. } | Self::PayloadMissing { .. }
        )
    }
}

/// A fault and its place in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset}: {kind}")]
pub struct Fault {
    /// Where the faulty event begins.
    pub offset: u64,
    /// What is wrong with it.
    pub kind: FaultKind,
    /// Where the entry begins that the fault is in; the entry before it ends there.
    pub entry_offset: u64,
}

/// A fault in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} {fault}")]
pub struct Corruption {
    /// The file in which the fault is.
    pub file: FileNumber,
    /// The fault and its place in that file.
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
    /// The same, inside of the entry that begins at `entry_offset`.
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
