//! The log as committed files: what a server of binlogs reads. It asks for what is committed, and reads no
//! further; the bytes are those of the files.

use std::io;

use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use raft_types::OpId;

use crate::error::StoreError;
use crate::format::FileNumber;
use crate::handle::LogHandle;
use crate::log::LogPlace;
use crate::options::WriterMode;
use crate::purge::PurgeHold;

/// A file of the log, as it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSize {
    /// The file.
    pub number: FileNumber,
    /// Its bytes, as far as they are written; in the last file more than is committed.
    pub bytes: u64,
}

/// A file that follows nothing but given transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileWithin {
    /// The file.
    pub number: FileNumber,
    /// The entry before it; `None` at the log's begin.
    pub before: Option<OpId>,
}

impl LogHandle {
    /// The files that are not purged, oldest first.
    #[must_use]
    pub fn files(&self) -> Vec<FileSize> {
        let view = self.shared.view.lock();
        let size = |file: &crate::log::LogFile| FileSize {
            number: file.number(),
            bytes: file.end,
        };
        view.unpurged_files().map(size).collect()
    }

    /// Where the part of the log ends that is committed and written here. `mark` is the committed entry as the caller
    /// knows it; the engine may have told the log of a later one.
    #[must_use]
    pub fn committed_end(&self, mark: Option<OpId>) -> LogPlace {
        self.shared.view.lock().committed_end(mark)
    }

    /// The GTIDs of purged files and of what [`Self::committed_end`] covers.
    #[must_use]
    pub fn committed_gtids(&self, mark: Option<OpId>) -> GtidSet {
        self.shared.view.lock().committed_gtids(mark)
    }

    /// The GTIDs before the first file.
    #[must_use]
    pub fn purged_gtids(&self) -> GtidSet {
        let view = self.shared.view.lock();
        let first = view.unpurged_files().next();
        first.map_or_else(GtidSet::new, |file| file.header.previous_gtids.clone())
    }

    /// The last file that follows nothing but transactions of `have`: who has them needs no file before it. `None` when
    /// the log begins behind others.
    #[must_use]
    pub fn last_file_within(&self, have: &GtidSet) -> Option<FileWithin> {
        let view = self.shared.view.lock();
        let within = view
            .unpurged_files()
            .rev()
            .find(|file| have.contains_set(&file.header.previous_gtids))?;
        Some(FileWithin {
            number: within.number(),
            before: within.header.before,
        })
    }

    /// Keeps a file, and all behind it, until the hold is dropped. `None` when it is not there any more.
    #[must_use]
    pub fn hold_file(&self, number: FileNumber) -> Option<PurgeHold> {
        let mut view = self.shared.view.lock();
        let file = view.files.get_mut(number)?;
        let first = file.header.before.map_or(0, |before| before.index + 1);
        drop(view);
        let hold = self.hold(first);
        // A purge may have come in between.
        let there = self.shared.view.lock().files.get_mut(number).is_some();
        there.then_some(hold)
    }

    /// At most `at_most` bytes of a file from an offset on; fewer at its end. Reads off the async threads.
    ///
    /// # Errors
    /// `NotFound` when the file is gone; what the disk reports.
    pub async fn read_file(&self, place: LogPlace, at_most: usize) -> io::Result<Bytes> {
        let log = self.clone();
        let read = move || {
            let file = log.shared.handles.get(place.file)?;
            let mut bytes = vec![0; at_most];
            let read = file.read_at(&mut bytes, place.offset)?;
            bytes.truncate(read);
            Ok(Bytes::from(bytes))
        };
        let runtime = match self.shared.writer_mode {
            WriterMode::Inline | WriterMode::Stepped => None,
            WriterMode::Thread => tokio::runtime::Handle::try_current().ok(),
        };
        let done: io::Result<Bytes> = match runtime {
            Some(runtime) => runtime
                .spawn_blocking(read)
                .await
                .map_err(io::Error::other)?,
            None => read(),
        };
        done.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => error,
            _ => StoreError::io(format!("reading {}", place.file), &error).into(),
        })
    }
}
