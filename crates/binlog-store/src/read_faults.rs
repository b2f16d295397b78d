//! Records failed reads of log files for a receiver until the reads succeed. The member reports them as an alarm.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::StoreError;
use crate::format::FileNumber;

/// A file that could not be read last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFault {
    /// The file's number.
    pub file: FileNumber,
    /// The first requested entry; `None` for a read by bytes or of the whole file.
    pub index: Option<u64>,
    /// The requested bytes that still have not been read; `None` if the failed read was by entries or of the whole file.
    pub(crate) bytes: Option<Range<u64>>,
    /// The fault, as text.
    pub why: String,
}

impl ReadFault {
    pub(crate) fn new(file: FileNumber, index: u64, error: &StoreError) -> Self {
        // The reporting code adds the remedy.
        let why = match error {
            StoreError::Corrupt(corruption) => corruption.to_string(),
            StoreError::Unreadable(error) => error.to_string(),
            other => other.to_string(),
        };
        let index = Some(index);
        Self {
            index,
            ..Self::damaged(file, why)
        }
    }

    /// Bytes of a file that the disk cannot return.
    pub(crate) fn of_bytes(file: FileNumber, bytes: Range<u64>, error: &io::Error) -> Self {
        Self {
            bytes: Some(bytes),
            ..Self::damaged(file, format!("reading {file} failed: {error}"))
        }
    }

    /// True if only a read of the whole file can show that it is intact.
    fn is_whole(&self) -> bool {
        self.index.is_none() && self.bytes.is_none()
    }

    /// A file that was read and is damaged.
    pub(crate) fn damaged(file: FileNumber, why: String) -> Self {
        Self {
            file,
            index: None,
            bytes: None,
            why,
        }
    }
}

/// The read faults of one log.
#[derive(Debug, Default)]
pub(crate) struct ReadFaults {
    failed: AtomicU64,
    now: Mutex<BTreeMap<FileNumber, ReadFault>>,
}

impl ReadFaults {
    /// Records a failed read, and logs it unless the same fault was logged before.
    pub(crate) fn failed(&self, fault: ReadFault) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut now = self.lock();
        let before = now.get(&fault.file).cloned();
        if before.as_ref().is_some_and(ReadFault::is_whole) && !fault.is_whole() {
            return;
        }
        now.insert(fault.file, fault.clone());
        drop(now);
        if before.is_none_or(|before| before.why != fault.why) {
            tracing::error!(
                file = %fault.file.name(),
                entry = fault.index,
                why = fault.why,
                "a file of the log is damaged or cannot be read: check this machine's disk. Only members that lack its entries wait; \
                 once it is closed, the file is replaced by another member's as soon as one has it"
            );
        }
    }

    /// Records that entries of a file were read, starting at `index`.
    pub(crate) fn succeeded(&self, file: FileNumber, index: u64) {
        let mut now = self.lock();
        // The fault ends only if the failed read succeeds: a read that starts elsewhere may not reach the damage.
        if now.get(&file).and_then(|fault| fault.index) == Some(index) {
            now.remove(&file);
            tracing::info!(file = %file.name(), "the log is readable again where a read had failed");
        }
    }

    /// Records that these bytes of a file were read. The failed range may be read in pieces.
    pub(crate) fn read(&self, file: FileNumber, bytes: &Range<u64>) {
        let mut now = self.lock();
        let Some(unread) = now.get_mut(&file).and_then(|fault| fault.bytes.as_mut()) else {
            return;
        };
        if bytes.contains(&unread.start) {
            unread.start = bytes.end;
        }
        if unread.is_empty() {
            now.remove(&file);
            tracing::info!(file = %file.name(), "the log is readable again where a read had failed");
        }
    }

    /// Records that a file was removed, or was read back intact.
    pub(crate) fn forget(&self, file: FileNumber) {
        if self.lock().remove(&file).is_some() {
            tracing::info!(file = %file.name(), "an unreadable file of the log is intact again, or was purged");
        }
    }

    pub(crate) fn has(&self, file: FileNumber) -> bool {
        self.lock().contains_key(&file)
    }

    pub(crate) fn count(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The current read faults.
    pub(crate) fn now(&self) -> Vec<ReadFault> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileNumber, ReadFault>> {
        // Each value is replaced as a whole, so the lock is used even if poisoned.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_fault_stays_until_the_failed_read_succeeds() {
        let faults = ReadFaults::default();
        let file = FileNumber::FIRST;
        let error = StoreError::unreadable("reading", &io::Error::other("no"));
        let fault = ReadFault::new(file, 7, &error);
        assert_eq!(fault.why, "reading failed: no");
        faults.failed(fault.clone());
        faults.failed(fault.clone());
        faults.succeeded(file, 8);
        assert_eq!((faults.count(), faults.now()), (2, vec![fault.clone()]));
        faults.succeeded(file, 7);
        assert_eq!(faults.now(), []);
        faults.failed(fault);
        faults.forget(file);
        assert_eq!((faults.count(), faults.now()), (3, vec![]));
    }

    #[test]
    fn failed_bytes_count_as_read_once_every_piece_was_read() {
        let faults = ReadFaults::default();
        let file = FileNumber::FIRST;
        let error = io::Error::other("no");
        faults.failed(ReadFault::of_bytes(file, 100..200, &error));
        for elsewhere in [0..100, 150..300] {
            faults.read(file, &elsewhere);
        }
        assert_eq!(faults.now()[0].why, "reading binlog.000001 failed: no");
        faults.read(file, &(50..160));
        assert!(faults.has(file));
        faults.read(file, &(160..200));
        assert_eq!(faults.now(), []);
        // Detected damage stays recorded after a successful read of bytes, even if another read failed in between.
        faults.failed(ReadFault::damaged(file, "a bit has turned".to_owned()));
        faults.failed(ReadFault::of_bytes(file, 100..200, &error));
        faults.read(file, &(0..u64::MAX));
        assert_eq!(faults.now()[0].why, "a bit has turned");
    }
}
