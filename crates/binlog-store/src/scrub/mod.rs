//! Continuously reads closed files back at a limited rate. Each is read once soon after it was closed, so that the next start need not.
//! Then all are read in turn, so that damage is found while another member still has the data. Damage is a [`crate::ReadFault`] until the
//! file reads well again; [`crate::FileRepair`] replaces the file.

mod file_repair;
pub(crate) mod record;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::directory::{LogDirectory, VerifiedClosed};
use crate::error::{StoreError, is_full};
use crate::file_handles::ReadFault;
use crate::format::FileNumber;
use crate::handle::LogHandle;
use crate::hard_state::{SCRUB, ScrubRecord};
pub use crate::scrub::file_repair::FileRepair;
pub(crate) use crate::scrub::file_repair::UNFINISHED;
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
        // The end of a file is checked against the next one, so it waits with that file.
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

    /// Durably stores the scrub record. Readers of the record do not wait for the disk: only one thread scrubs. The disk reports a failed
    /// sync only once. If it reports it to the scrub, the writer must not treat its own last sync of the hard state as successful.
    fn keep(&self, record: ScrubRecord) {
        if *self.shared.scrub.record() == record {
            return;
        }
        *self.shared.scrub.record() = record;
        let Err(error) = self.shared.hard.store(SCRUB, Some(&record)) else {
            return;
        };
        // No write was made that could be lost.
        if is_full(&error) {
            tracing::warn!(%error, "which files were verified cannot be stored");
            return;
        }
        let error = StoreError::io("storing which files were verified", &error);
        tracing::error!(%error, "the log's writer stops");
        lock(&self.shared.writer).fail(error);
    }

    /// Reads a file with a [`crate::ReadFault`] again: a good copy may have replaced it, or the disk may be able to read it now.
    pub fn verify_again(&self, number: FileNumber) -> ScrubStep {
        let closed = self.closed_files();
        match closed.iter().find(|file| file.number == number) {
            Some(file) => {
                self.shared.handles.forget(number);
                self.verify_closed(file, u64::MAX)
            }
            None => {
                if !self.has_file(number) {
                    self.shared.read_faults.forget(number);
                }
                ScrubStep::Interrupted
            }
        }
    }

    /// Progress of the scrub.
    #[must_use]
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
            turn_bytes: bytes(&|number| Some(number) <= record.behind),
            unverified_bytes: bytes(&|number| Some(number) > verified),
            closed_bytes: bytes(&|_| true),
            completed_at: record.completed_at,
        }
    }

    /// The log's files, as others read them.
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
        let mut goes_on = |read: u64| {
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
        let verified = self.directory().verify_closed(file.number, &mut goes_on);
        let (number, why) = match verified {
            Ok(Some(verified)) if (verified.last, verified.end) == (file.last, file.end) => {
                self.shared.read_faults.forget(file.number);
                match self.directory().fault_behind(&verified, file.number) {
                    None => return ScrubStep::Good(file.number),
                    Some(error) => (file.number.next(), error.to_string()),
                }
            }
            Ok(Some(VerifiedClosed { last, end, .. })) => {
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
