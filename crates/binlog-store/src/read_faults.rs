//! Reads of the log's files that failed while somebody was to be sent what is in them: the alarm about them, until they succeed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::StoreError;
use crate::format::FileNumber;

/// A file that could not be read when it was last tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFault {
    /// The file.
    pub file: FileNumber,
    /// The first entry that was wanted of it.
    pub index: u64,
    /// What is wrong.
    pub error: StoreError,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ReadFaults {
    failed: AtomicU64,
    now: Mutex<BTreeMap<FileNumber, ReadFault>>,
}

impl ReadFaults {
    /// A read failed.
    pub(crate) fn failed(&self, fault: ReadFault) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let before = self.lock().insert(fault.file, fault.clone());
        if before.is_none_or(|before| before.error != fault.error) {
            tracing::error!(
                file = %fault.file.name(),
                entry = fault.index,
                error = %fault.error,
                "entries that another member lacks cannot be read here; it waits, everybody else is served. Look at this \
                 machine's disk; the file can be copied from a stopped member that has it, or the leadership be given to one"
            );
        }
    }

    /// A file could be read from this entry on.
    pub(crate) fn succeeded(&self, file: FileNumber, index: u64) {
        let mut now = self.lock();
        if now.get(&file).is_some_and(|fault| fault.index >= index) {
            now.remove(&file);
            tracing::info!(file = %file.name(), "what could not be read of the log can be read again");
        }
    }

    /// A file has gone.
    pub(crate) fn forget(&self, file: FileNumber) {
        self.lock().remove(&file);
    }

    pub(crate) fn count(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// What cannot be read now.
    pub(crate) fn now(&self) -> Vec<ReadFault> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileNumber, ReadFault>> {
        // Its entries are replaced as a whole.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_fault_stays_until_what_failed_can_be_read() {
        let faults = ReadFaults::default();
        let file = FileNumber::FIRST;
        let fault = ReadFault {
            file,
            index: 7,
            error: StoreError::io("reading", &io::Error::other("no")),
        };
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
}
