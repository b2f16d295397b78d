//! A source that says how far it was read, for the progress bar.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use applier::source::{Source, SourceError};
use binlog_format::framing::FramedTransaction;

use super::origin::Origin;

/// How far a log of files is read, in bytes.
#[derive(Debug, Default)]
pub(super) struct ReadSoFar {
    /// Of the files.
    pub(super) file_done: AtomicU64,
    /// Of the files.
    pub(super) file_total: AtomicU64,
    /// Of the transactions that were given out.
    pub(super) given: AtomicU64,
}

/// See the module.
pub(super) struct Watched {
    origin: Origin,
    read: Arc<ReadSoFar>,
}

impl Watched {
    pub(super) fn new(origin: Origin, read: Arc<ReadSoFar>) -> Self {
        let watched = Self { origin, read };
        watched.note(0);
        watched
    }

    fn note(&self, given: u64) {
        self.read.given.fetch_add(given, Relaxed);
        if let Some(files) = self.origin.read() {
            self.read.file_done.store(files.done, Relaxed);
            self.read.file_total.store(files.total, Relaxed);
        }
    }
}

impl Source for Watched {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        let next = self.origin.next().await?;
        let bytes = next.as_ref().map_or(0, |next| next.payload.len());
        self.note(bytes as u64);
        Ok(next)
    }

    fn is_drained(&self) -> bool {
        self.origin.is_drained()
    }
}
