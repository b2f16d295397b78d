//! A window of bounded size over a file that is read from front to back.

use std::sync::Arc;

use crate::file_system::StorageFile;

use super::fault::ScanError;

/// Reads ahead so that small events do not cost a call each. Its memory is bounded by the size given
/// at its making, whatever is asked of it.
pub(crate) struct Window {
    file: Arc<dyn StorageFile>,
    /// Where the file ends for this reader.
    end: u64,
    buffer: Vec<u8>,
    filled: usize,
    start: u64,
}

impl Window {
    /// For scanning whole files.
    pub(crate) const SCAN_BYTES: usize = 512 << 10;
    /// For looking up single entries.
    pub(crate) const LOOKUP_BYTES: usize = 64 << 10;

    pub(crate) fn new(file: &Arc<dyn StorageFile>, end: u64, size: usize) -> Self {
        Self {
            file: file.clone(),
            end,
            buffer: vec![0; size],
            filled: 0,
            start: 0,
        }
    }

    /// Where the file ends.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// At most `wanted` bytes from `offset` on; fewer where the file ends or the window is smaller.
    /// Empty only at the file's end.
    pub(crate) fn bytes(&mut self, offset: u64, wanted: usize) -> Result<&[u8], ScanError> {
        let left = self.end.saturating_sub(offset);
        let wanted = wanted
            .min(self.buffer.len())
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let inside =
            offset >= self.start && offset + wanted as u64 <= self.start + self.filled as u64;
        if !inside {
            self.fill(offset, left)?;
        }
        let from = (offset - self.start) as usize;
        let available = self.buffer.get(from..self.filled).unwrap_or_default();
        Ok(&available[..wanted.min(available.len())])
    }

    fn fill(&mut self, offset: u64, left: u64) -> Result<(), ScanError> {
        let room = self
            .buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        self.start = offset;
        self.filled = 0;
        if room > 0 {
            let read = self.file.read_at(&mut self.buffer[..room], offset);
            self.filled = read.map_err(|source| ScanError::Io { offset, source })?;
        }
        Ok(())
    }
}
