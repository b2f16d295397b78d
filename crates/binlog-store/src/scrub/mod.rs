//! The scrub: reads closed files back at a limited rate, without end. Each file is read once soon after it was closed, so that the next
//! start need not verify it. Then all files are read in turn, so that damage is found while another member still has the data. A damaged
//! file is a [`crate::ReadFault`] until a read of it succeeds; [`crate::FileRepair`] replaces the file.

pub(crate) mod record;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use raft_types::{FilePart, LogIntake};

use crate::directory::LogDirectory;
use crate::error::{StoreError, is_full};
use crate::file_system::StorageFile;
use crate::format::FileNumber;
use crate::handle::LogHandle;
use crate::hard_state::{SCRUB, ScrubRecord};
use crate::log::{LogPlace, file_of};
use crate::read_faults::ReadFault;
pub(crate) use crate::scrub::record::ClosedFile;
pub use crate::scrub::record::{ScrubProgress, ScrubStep};
use crate::scrub::record::{choose, ended, good};
use crate::writer::lock;

/// The longest sleep during a file's read, after which the scrub checks whether the log is closing.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

impl LogHandle {
    /// Reads one closed file back, at most at this rate in bytes per second. Blocks until done. `now` is in seconds since the epoch.
    pub fn scrub_step(&self, bytes_per_second: u64, now: u64) -> ScrubStep {
        let scrub = &self.shared.scrub;
        let closed = self.closed_files();
        let faults = &self.shared.read_faults;
        // The end of a file is checked against the next file. So a file waits if the next file has a fault.
        let waits = |number: FileNumber| faults.has(number) || faults.has(number.next());
        let record = ended(&closed, *scrub.record(), waits, now);
        self.keep(record);
        let Some(choice) = choose(&closed, &record, waits, now) else {
            return ScrubStep::Nothing;
        };
        let Some(file) = closed.iter().find(|file| file.number == choice.file) else {
            return ScrubStep::Nothing;
        };
        let step = self.verify_closed(file, bytes_per_second);
        if step == ScrubStep::Good(choice.file) {
            self.keep(good(&closed, record, choice));
        }
        step
    }

    /// Durably stores the scrub record. Readers of the record do not wait for the disk, because only one thread scrubs. The disk reports a
    /// failed sync only once. If it reports the failure here, the writer must fail too: its own last changes of the hard state may be lost.
    fn keep(&self, record: ScrubRecord) {
        if *self.shared.scrub.record() == record {
            return;
        }
        *self.shared.scrub.record() = record;
        let Err(error) = self.shared.hard.store(SCRUB, Some(&record)) else {
            return;
        };
        // Nothing was written, so nothing can be lost.
        if is_full(&error) {
            tracing::warn!(%error, "which files were verified cannot be stored");
            return;
        }
        let error = StoreError::io("storing which files were verified", &error);
        tracing::error!(%error, "the log's writer stops");
        lock(&self.shared.writer).fail(error);
    }

    /// Reads a file with a [`crate::ReadFault`] again: the file may have been replaced, or the disk may be able to read it now.
    pub fn verify_again(&self, number: FileNumber) -> ScrubStep {
        let closed = self.closed_files();
        match closed.iter().find(|file| file.number == number) {
            Some(file) => self.verify_closed(file, u64::MAX),
            None => {
                if !self.has_file(number) {
                    self.shared.read_faults.forget(number);
                }
                ScrubStep::Interrupted
            }
        }
    }

    /// Progress of the scrub.
    pub fn scrub_progress(&self) -> ScrubProgress {
        let scrub = &self.shared.scrub;
        let closed = self.closed_files();
        let record = *scrub.record();
        let bytes = |of: &dyn Fn(FileNumber) -> bool| {
            let files = closed.iter().filter(|file| of(file.number));
            files.map(|file| file.end).sum::<u64>()
        };
        let verified = record.verified.map(|mark| mark.file);
        ScrubProgress {
            read_bytes: scrub.read_bytes.load(Ordering::Relaxed),
            damaged: scrub.damaged.load(Ordering::Relaxed),
            repaired: scrub.repaired.load(Ordering::Relaxed),
            turn_bytes: bytes(&|number| Some(number) <= record.read_upto),
            unverified_bytes: bytes(&|number| Some(number) > verified),
            closed_bytes: bytes(&|_| true),
            completed_at: record.completed_at,
        }
    }

    /// The log's files, for reading without the in-memory state.
    pub(crate) fn directory(&self) -> LogDirectory {
        LogDirectory::of(self.shared.fs.clone(), self.shared.dir.clone())
    }

    /// The closed files whose entries are all committed, oldest first.
    pub(crate) fn closed_files(&self) -> Vec<ClosedFile> {
        let view = self.shared.view.lock();
        let committed = view.committed;
        let files = view.unpurged_files();
        files
            .filter_map(|file| ClosedFile::of(file, committed))
            .collect()
    }

    fn verify_closed(&self, file: &ClosedFile, bytes_per_second: u64) -> ScrubStep {
        let scrub = &self.shared.scrub;
        let begun = Instant::now();
        let mut counted = 0;
        let mut proceeds = |read: u64| {
            scrub
                .read_bytes
                .fetch_add(read - counted, Ordering::Relaxed);
            counted = read;
            let due = Duration::from_secs_f64(read as f64 / bytes_per_second.max(1) as f64);
            while let Some(early) = due
                .checked_sub(begun.elapsed())
                .filter(|early| !early.is_zero())
            {
                if self.shared.queue.is_closed() {
                    return false;
                }
                std::thread::sleep(early.min(LONGEST_SLEEP));
            }
            !self.shared.queue.is_closed()
        };
        let path = self.shared.dir.join(file.number.name());
        let verified = (self.directory()).verify_closed(file.number, &path, &mut proceeds);
        let (number, why) = match verified {
            Ok(Some((_, verified)))
                if (verified.last, verified.end) == (Some(file.last), file.end) =>
            {
                self.shared.read_faults.forget(file.number);
                let next = file.number.next();
                match self.directory().check_successor(&verified, next) {
                    Ok(()) => return ScrubStep::Good(file.number),
                    Err(error) => (next, error.to_string()),
                }
            }
            Ok(Some((_, verified))) => {
                let (last, end) = (verified.last.unwrap_or_default(), verified.end);
                let (was, was_end) = (file.last, file.end);
                let why = format!(
                    "it ends with entry {last} at offset {end}, and was written up to entry {was} at {was_end}"
                );
                (file.number, why)
            }
            Ok(None) => return ScrubStep::Interrupted,
            Err(error) => (file.number, error.to_string()),
        };
        // A purge or a restart of the log removes files while they are read.
        if !self.closed_files().contains(file) {
            return ScrubStep::Interrupted;
        }
        scrub.damaged.fetch_add(1, Ordering::Relaxed);
        let fault = ReadFault::damaged(number, why);
        self.shared.read_faults.failed(fault);
        ScrubStep::Damaged(number)
    }
}

// Replaces a damaged file with another member's bytes. Closed files are byte-identical on every member, and checksums cover every byte. So
// three conditions suffice. The new file is whole, begins with the header that the log has recorded, and matches the next file's header.
// The new file is used only after all of it was read back from the disk and verified.
//
// The new file has a separate name until it atomically replaces the old one. A crash before that leaves the old file; the next start
// removes the new one. A crash afterwards leaves only the new one.

/// Suffix of the names of unfinished replacement files.
pub(crate) const UNFINISHED: &str = ".repair";
/// The most bytes of a part.
const PART_BYTES: u64 = 128 << 10;

/// The replacement of a closed file in progress. If it is dropped before it is finished, it leaves no file.
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

    /// A part of a closed file, for a member with a damaged one.
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
        let place = LogPlace::new(file.number, part.offset);
        let at_most = PART_BYTES.min(file.end.saturating_sub(part.offset));
        self.read_file(place, at_most as usize).await
    }
}

impl FileRepair {
    /// The next part to fetch; `None` when all bytes have been written.
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
        let written = self.written + bytes.len() as u64;
        if bytes.is_empty() || written > self.closed.end {
            let message = format!(
                "{} bytes are not what is wanted at {}",
                bytes.len(),
                self.written
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.file.write_at(bytes, self.written)?;
        self.written = written;
        Ok(())
    }

    /// Verifies the new file and replaces the old one with it. Blocks.
    ///
    /// # Errors
    /// `InvalidData` if the bytes are not those of this file; `NotFound` if the log no longer has the file; disk errors. In these cases the
    /// old file is unchanged.
    pub fn finish(self) -> io::Result<()> {
        let ClosedFile {
            number, last, end, ..
        } = self.closed;
        let shared = &self.log.shared;
        self.file.sync_data()?;
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let directory = self.log.directory();
        let verified = directory.verify_closed(number, &self.path, &mut |_| true);
        let verified = verified.map_err(|error| invalid(error.to_string()))?;
        let (header, verified) = verified.ok_or_else(|| invalid("it was not read".to_owned()))?;
        if (verified.last, verified.end) != (Some(last), end) {
            return Err(invalid(format!("it ends otherwise: {verified:?}")));
        }
        {
            // The writer purges, truncates and restarts the log; it is paused here.
            let _writer = lock(&shared.writer);
            let same = {
                let view = shared.view.lock();
                let committed = view.committed;
                // The next file's header comes from memory, and was verified when the file was written or opened. The header on the disk
                // may be damaged as well.
                let next = file_of(&view.files, number.next());
                if let Some(fault) = next.and_then(|next| verified.fault_of_next(&next.header)) {
                    return Err(invalid(format!(
                        "{} does not follow from it: {fault}",
                        number.next()
                    )));
                }
                file_of(&view.files, number).is_some_and(|file| {
                    ClosedFile::of(file, committed).as_ref() == Some(&self.closed)
                        && *file.header == header
                })
            };
            if !same {
                return Err(io::ErrorKind::NotFound.into());
            }
            let path = shared.dir.join(number.name());
            shared.fs.rename(&self.path, &path)?;
            shared.fs.sync_dir(&shared.dir)?;
        }
        shared.read_faults.forget(number);
        shared.scrub.repaired.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for FileRepair {
    fn drop(&mut self) {
        // If the file was renamed, this name no longer exists.
        match self.log.shared.fs.remove(&self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "a file that was to repair the log stays until the next start")
            }
        }
    }
}
