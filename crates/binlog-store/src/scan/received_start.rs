//! A file start from another member, with its decoded header.

use std::io;

use bytes::Bytes;
use raft_types::{FileStart, OpId, RingId};

use crate::format::FileHeader;
use crate::scan::ScanError;
use crate::scan::header_scan::scan_header_bytes;

/// A start with which a log can begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedStart {
    /// The last entry before the file.
    pub(crate) before: OpId,
    pub(crate) header: FileHeader,
    /// The header as it will be written, byte for byte.
    pub(crate) bytes: Bytes,
}

/// Why a log cannot begin with a start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StartFault {
    #[error("it belongs to ring {found}, and this log to ring {own}")]
    ForeignRing { found: RingId, own: RingId },
    #[error("its header is that of {}, behind {}; it should begin behind {before}", .header.number, match .header.before {
        Some(found) => found.to_string(),
        None => "no entry".to_owned(),
    })]
    WrongPlace {
        before: OpId,
        header: Box<FileHeader>,
    },
    #[error("the membership that comes with it is not the one in its header")]
    WrongMembership,
}

impl ReceivedStart {
    /// Checks a start whose header was read from its bytes.
    pub(crate) fn check(
        start: &FileStart,
        header: FileHeader,
        own: RingId,
    ) -> Result<Self, StartFault> {
        if header.ring != own {
            let found = header.ring;
            return Err(StartFault::ForeignRing { found, own });
        }
        if header.before != Some(start.before) {
            let (before, header) = (start.before, Box::new(header));
            return Err(StartFault::WrongPlace { before, header });
        }
        if header.membership() != start.membership {
            return Err(StartFault::WrongMembership);
        }
        Ok(Self {
            before: start.before,
            header,
            bytes: start.header.clone(),
        })
    }
}

impl From<StartFault> for io::Error {
    fn from(fault: StartFault) -> Self {
        Self::new(io::ErrorKind::InvalidData, fault)
    }
}

// Reads a file start from another member or from the hard state.

/// Reads a start from another member and verifies its checksums.
pub(crate) fn scan_start(start: &FileStart, own: RingId) -> io::Result<ReceivedStart> {
    let header = scan_header_bytes(&start.header).map_err(unreadable)?;
    Ok(ReceivedStart::check(start, header, own)?)
}

/// Reads the start in the hard state, which was checked before it was recorded.
pub(crate) fn scan_noted_start(bytes: Bytes) -> io::Result<ReceivedStart> {
    let header = scan_header_bytes(&bytes).map_err(unreadable)?;
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

fn unreadable(error: ScanError) -> io::Error {
    match error {
        ScanError::Fault(fault) => {
            let what = format!("the header of the file cannot be read: {fault}");
            io::Error::new(io::ErrorKind::InvalidData, what)
        }
        ScanError::Io { source, .. } => source,
    }
}
