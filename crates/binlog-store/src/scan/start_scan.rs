//! Reads the start of a file that another member offers, or that the hard state notes.

use std::io;

use bytes::Bytes;
use raft_types::{FileStart, RingId};

use crate::format::ReceivedStart;

use super::fault::ScanError;
use super::header_scan::scan_header_bytes;

/// Reads a start that came from another member, checksums verified.
pub(crate) fn scan_start(start: &FileStart, own: RingId) -> io::Result<ReceivedStart> {
    let header = scan_header_bytes(&start.header).map_err(unreadable)?;
    Ok(ReceivedStart::check(start, header, own)?)
}

/// Reads the start that the hard state notes, which was checked before it was noted.
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
