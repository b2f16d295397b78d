//! Looks for entries where the order of events is lost.

use std::sync::Arc;

use binlog_format::event::HEADER_LEN;

use crate::file_system::StorageFile;
use crate::format::{FileNumber, MARKER_MAGIC};

use super::entry_scanner::{Depth, EntryScanner, Scanned};
use super::fault::ScanError;
use super::window::Window;

/// The first complete, valid entry that begins behind `offset`, wherever it may be: what tells a torn
/// tail from damage in the middle. `end` is the file's.
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

/// Where the next event may begin whose body begins as a marker's.
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
