//! A file start that came from another member: its header was read, and says what the start says.

use std::io;

use bytes::Bytes;
use raft_types::{FileStart, OpId, RingId};

use super::file_header::FileHeader;

/// A start with which a log can begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedStart {
    /// The last entry before the file.
    pub(crate) before: OpId,
    /// What the header says.
    pub(crate) header: FileHeader,
    /// The header's bytes.
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
    /// Takes a start whose header was read from its bytes.
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
