//! Replaces a damaged file with another member's bytes. Closed files are byte-identical on every member, and checksums cover every byte. So
//! three conditions suffice: the new file is whole, begins with the header that the log knows, and the next file follows from it. The new
//! file is used only after all of it was read back from the disk and verified.
//!
//! The new file has a separate name until it atomically replaces the old one. A crash before that leaves the old file; the next start
//! removes the new one. A crash afterwards leaves only the new one.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use raft_types::{FilePart, LogIntake};

use crate::file_system::StorageFile;
use crate::format::FileNumber;
use crate::handle::LogHandle;
use crate::log::LogPlace;
use crate::scrub::record::ClosedFile;
use crate::writer::lock;

/// Suffix of unfinished replacement files.
pub(crate) const UNFINISHED: &str = ".repair";
/// The most bytes of a part.
const PART_BYTES: u64 = 128 << 10;

/// The replacement of a closed file in progress; dropped unfinished, it leaves no file.
pub struct FileRepair {
    log: LogHandle,
    closed: ClosedFile,
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    written: u64,
}

impl LogHandle {
    /// Starts to replace a closed file. `None` if the file is no longer there.
    ///
    /// # Errors
    /// Disk errors; `StorageFull` without room for a second copy.
    pub fn begin_repair(&self, number: FileNumber) -> io::Result<Option<FileRepair>> {
        let closed = self.closed_files();
        let Some(closed) = closed.into_iter().find(|file| file.number == number) else {
            return Ok(None);
        };
        if self.room(closed.end).in_all < closed.end {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let path = self.shared.dir.join(format!("{number}{UNFINISHED}"));
        let file = self.shared.fs.create(&path)?;
        Ok(Some(FileRepair {
            log: self.clone(),
            closed,
            path,
            file,
            written: 0,
        }))
    }

    /// A part of a closed file, for a member whose own is damaged.
    ///
    /// # Errors
    /// `NotFound` if this log does not have exactly that file; disk errors.
    pub async fn part_of_file(&self, part: FilePart) -> io::Result<Bytes> {
        let wanted = |file: &ClosedFile| {
            let same = file.number.get() == part.file && file.before == part.before;
            same && file.last == part.last
        };
        let file = self.closed_files().into_iter().find(wanted);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        let place = LogPlace {
            file: file.number,
            offset: part.offset,
        };
        let at_most = PART_BYTES.min(file.end.saturating_sub(part.offset));
        self.read_file(place, at_most as usize).await
    }
}

impl FileRepair {
    /// The next part to fetch; `None` when all bytes are here.
    #[must_use]
    pub fn next_part(&self) -> Option<FilePart> {
        (self.written < self.closed.end).then_some(FilePart {
            file: self.closed.number.get(),
            before: self.closed.before,
            last: self.closed.last,
            offset: self.written,
        })
    }

    /// Writes the bytes of that part. Blocks.
    ///
    /// # Errors
    /// Disk errors; `InvalidData` for no bytes, or more than the file has.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let behind = self.written + bytes.len() as u64;
        if bytes.is_empty() || behind > self.closed.end {
            let message = format!(
                "{} bytes are not what is wanted at {}",
                bytes.len(),
                self.written
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.file.write_at(bytes, self.written)?;
        self.written = behind;
        Ok(())
    }

    /// Verifies the new file and replaces the old one with it. Blocks.
    ///
    /// # Errors
    /// `InvalidData` if the bytes are not those of this file; `NotFound` if the log no longer has it; disk errors. The old file is
    /// unchanged then.
    pub fn finish(self) -> io::Result<()> {
        let ClosedFile {
            number, last, end, ..
        } = self.closed;
        let shared = &self.log.shared;
        self.file.sync_data()?;
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let directory = self.log.directory();
        let verified = directory.verify_closed_at(number, &self.path, &mut |_| true);
        let verified = verified.map_err(|error| invalid(error.to_string()))?;
        let verified = verified.ok_or_else(|| invalid("it was not read".to_owned()))?;
        if (verified.last, verified.end) != (last, end) {
            return Err(invalid(format!("it ends otherwise: {verified:?}")));
        }
        let header = directory.header_at(number, &self.path);
        let header = header.map_err(|error| invalid(error.to_string()))?;
        {
            // The writer purges, truncates and restarts the log; it is paused here.
            let _writer = lock(&shared.writer);
            let same = {
                let mut view = shared.view.lock();
                let committed = view.committed;
                // From memory, verified when the file was written or opened: the header on the disk may be damaged as well.
                let next = view.files.get_mut(number.next());
                if let Some(fault) = next.and_then(|next| verified.fault_of_next(&next.header)) {
                    return Err(invalid(format!(
                        "{} does not follow from it: {fault}",
                        number.next()
                    )));
                }
                view.files.get_mut(number).is_some_and(|file| {
                    ClosedFile::of(file, committed).as_ref() == Some(&self.closed)
                        && *file.header == header
                })
            };
            if !same {
                return Err(io::ErrorKind::NotFound.into());
            }
            let path = shared.dir.join(number.name());
            shared.fs.rename(&self.path, &path)?;
            shared.handles.forget(number);
            shared.fs.sync_dir(&shared.dir)?;
        }
        shared.read_faults.forget(number);
        shared.scrub.repaired.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for FileRepair {
    fn drop(&mut self) {
        // After the rename this name no longer exists.
        match self.log.shared.fs.remove(&self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "a file that was to repair the log stays until the next start")
            }
        }
    }
}

impl std::fmt::Debug for FileRepair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileRepair")
            .field("file", &self.closed.number)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}
