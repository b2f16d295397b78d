//! Read handles of log files, a bounded number of them open at a time.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::file_system::{FileSystem, StorageFile};
use crate::format::FileNumber;

/// How many files are open for reading at most.
const OPEN_AT_MOST: usize = 32;

/// Opens files for readers and remembers the handles, the most recently used ones last.
pub(crate) struct FileHandles {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    open: Mutex<Vec<(FileNumber, Arc<dyn StorageFile>)>>,
}

impl FileHandles {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, dir: PathBuf) -> Self {
        Self {
            fs,
            dir,
            open: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn get(&self, number: FileNumber) -> io::Result<Arc<dyn StorageFile>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().position(|(open, _)| *open == number) {
            let found = open.remove(at);
            let file = found.1.clone();
            open.push(found);
            return Ok(file);
        }
        let file = self.fs.open_read_only(&self.dir.join(number.name()))?;
        if open.len() >= OPEN_AT_MOST {
            open.remove(0);
        }
        open.push((number, file.clone()));
        Ok(file)
    }

    /// Forgets a file that was removed; another one may get its number.
    pub(crate) fn forget(&self, number: FileNumber) {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(open, _)| *open != number);
    }
}
