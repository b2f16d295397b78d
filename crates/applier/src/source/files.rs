//! Binlog files of a mysqld or of a member, one after the other.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventType};
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::gtid::GtidSet;

use super::event_file::{EventFile, Next};
use super::{Source, SourceError};

/// Reads the files in the order in which they are given.
#[derive(Debug)]
pub struct FileSource {
    waiting: VecDeque<PathBuf>,
    open: Option<EventFile>,
    framer: TransactionFramer,
    /// What the target has, and what was read since; `None` when nobody applies what is read.
    seen: Option<GtidSet>,
    /// Whether the file that is open says that its server did not close it.
    in_use: bool,
    read: ReadBytes,
}

/// How far the files are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadBytes {
    /// Bytes that are read.
    pub done: u64,
    /// Bytes of all files.
    pub total: u64,
}

impl FileSource {
    /// Files in their order, for a target that has the transactions of `executed`. Everything that the files assume to be
    /// there must be in it.
    ///
    /// # Errors
    /// When a file is not there or cannot be read.
    pub async fn open(
        files: Vec<PathBuf>,
        executed: GtidSet,
        max_transaction_bytes: u64,
    ) -> Result<Self, SourceError> {
        Self::open_files(files, Some(executed), max_transaction_bytes).await
    }

    /// Files in their order, for a reader that applies nothing: transactions may be missing before them and between them.
    ///
    /// # Errors
    /// When a file is not there or cannot be read.
    pub async fn open_to_look_at(
        files: Vec<PathBuf>,
        max_transaction_bytes: u64,
    ) -> Result<Self, SourceError> {
        Self::open_files(files, None, max_transaction_bytes).await
    }

    async fn open_files(
        files: Vec<PathBuf>,
        seen: Option<GtidSet>,
        max_transaction_bytes: u64,
    ) -> Result<Self, SourceError> {
        let mut total = 0;
        for file in &files {
            let mut file = EventFile::open(file).await?;
            total += file.len().await?;
        }
        Ok(Self {
            waiting: files.into(),
            open: None,
            framer: TransactionFramer::new(ChecksumAlgorithm::Crc32, max_transaction_bytes),
            seen,
            in_use: false,
            read: ReadBytes { done: 0, total },
        })
    }

    /// How far the files are read.
    pub fn read(&self) -> ReadBytes {
        let open = self.open.as_ref().map_or(0, EventFile::offset);
        ReadBytes {
            done: self.read.done + open,
            ..self.read
        }
    }

    /// The next file; false when there is none.
    async fn open_next(&mut self) -> Result<bool, SourceError> {
        let Some(path) = self.waiting.pop_front() else {
            return Ok(false);
        };
        self.open = Some(EventFile::open(&path).await?);
        self.framer.reset(ChecksumAlgorithm::Crc32);
        self.in_use = false;
        Ok(true)
    }

    fn finished(&mut self, cut_off_at: Option<u64>) -> Result<(), SourceError> {
        let Some(file) = self.open.take() else {
            return Ok(());
        };
        self.read.done += file.offset();
        if cut_off_at.is_none() && !self.framer.in_transaction() {
            return Ok(());
        }
        // The server was writing when the file was copied, or died: what it had not finished was not committed there.
        if self.in_use && self.waiting.is_empty() {
            tracing::warn!(
                file = %file.path().display(),
                "the last file ends within a transaction, which is not applied: its server had not finished it"
            );
            return Ok(());
        }
        Err(file.damaged(&"it ends within a transaction"))
    }

    /// What an event between transactions means.
    fn note(&mut self, item: &StreamItem, path: &Path) -> Result<(), SourceError> {
        let (StreamItem::PreviousGtids(previous), Some(seen)) = (item, &self.seen) else {
            return Ok(());
        };
        let missing = previous.difference(seen);
        if missing.is_empty() {
            return Ok(());
        }
        Err(SourceError::Refused(format!(
            "{} follows transactions that the target lacks and no file before it has: {missing}; add the files that have \
             them, or provision the target with a copy that has them",
            path.display()
        )))
    }
}

impl Source for FileSource {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        loop {
            let Some(file) = &mut self.open else {
                match self.open_next().await? {
                    true => continue,
                    false => return Ok(None),
                }
            };
            let event = match file.next().await? {
                Next::Event(event) => event,
                Next::End => {
                    self.finished(None)?;
                    continue;
                }
                Next::CutOff(offset) => {
                    self.finished(Some(offset))?;
                    continue;
                }
            };
            if event.event_type() == EventType::FormatDescription {
                self.in_use = event.header().flags.contains(EventFlags::BINLOG_IN_USE);
            }
            let framed = long_work::run(event.bytes().len(), || self.framer.push(&event));
            let item = framed.map_err(|error| file.damaged(&error))?;
            match item {
                Some(StreamItem::Transaction(transaction)) => {
                    if let Some(seen) = &mut self.seen {
                        seen.add(transaction.gtid);
                    }
                    return Ok(Some(transaction));
                }
                Some(item) => {
                    let path = file.path().to_owned();
                    self.note(&item, &path)?;
                }
                None => {}
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty()
    }
}
