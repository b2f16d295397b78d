//! Binlog files of a mysqld or of a member, read in sequence.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventHeader, EventType, HEADER_LEN, RawEvent};
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::gtid::GtidSet;
use binlog_format::{ENCRYPTED_MAGIC, MAGIC};
use bytes::BytesMut;
use spilling_bytes::long_work;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use crate::source::{Drained, Source, SourceError};

/// Reads the files in the given order.
#[derive(Debug)]
pub struct FileSource {
    waiting: VecDeque<PathBuf>,
    open: Option<EventFile>,
    framer: TransactionFramer,
    /// The target's transactions, and those read since; `None` for a reader that applies nothing.
    seen: Option<GtidSet>,
    /// Whether the open file is marked as not closed by its server.
    in_use: bool,
    read: ReadBytes,
    drained: Drained,
}

/// Progress of reading the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadBytes {
    /// Bytes that were read so far.
    pub done: u64,
    /// Bytes of all files together.
    pub total: u64,
}

impl FileSource {
    /// Files in their order, for a target that has the transactions of `executed`. It must contain everything that
    /// the files presuppose.
    ///
    /// # Errors
    /// When a file is missing or cannot be read.
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
    /// When a file is missing or cannot be read.
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
            drained: Drained::default(),
        })
    }

    /// Progress of reading the files.
    pub fn read(&self) -> ReadBytes {
        let open = self.open.as_ref().map_or(0, EventFile::offset);
        ReadBytes {
            done: self.read.done + open,
            ..self.read
        }
    }

    /// Opens the next file; false when there is none.
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
        // The server was writing when the file was copied, or died: its unfinished transaction was not committed there.
        if self.in_use && self.waiting.is_empty() {
            tracing::warn!(
                file = %file.path().display(),
                "the last file ends within a transaction, which is not applied: its server had not finished it"
            );
            return Ok(());
        }
        Err(file.damaged(&"it ends within a transaction"))
    }

    /// Handles an event between transactions.
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
                    false => {
                        self.drained.set(true);
                        return Ok(None);
                    }
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

    fn drained(&self) -> Drained {
        self.drained.clone()
    }
}

// The events of one binlog file, read from front to back through a buffer.

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;

/// One binlog file that is being read.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
    buffer: BytesMut,
    /// Offset of the buffer in the file.
    offset: u64,
}

/// The end of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next<T> {
    Event(T),
    End,
    /// The file ends in the middle of an event, which begins at this offset.
    CutOff(u64),
}

impl EventFile {
    /// Opens a file and checks its beginning.
    pub(super) async fn open(path: &Path) -> Result<Self, SourceError> {
        let broken = |error: &io::Error| {
            let path = path.display();
            SourceError::Refused(format!("the binlog file {path} cannot be read: {error}"))
        };
        // Opening and reading a pipe could wait indefinitely, and it can be read only once.
        let metadata = tokio::fs::metadata(path).await;
        if !metadata.map_err(|error| broken(&error))?.is_file() {
            return Err(SourceError::Refused(format!(
                "{} is not a regular file; write the binlog to a file first, or apply from its server",
                path.display()
            )));
        }
        let mut file = File::open(path).await.map_err(|error| broken(&error))?;
        file.set_max_buf_size(READ_BYTES);
        let mut magic = [0; MAGIC.len()];
        let read = file.read_exact(&mut magic).await;
        let short = matches!(&read, Err(error) if error.kind() == io::ErrorKind::UnexpectedEof);
        if let (Err(error), false) = (&read, short) {
            return Err(broken(error));
        }
        let name = path.display();
        match magic {
            MAGIC => Ok(Self {
                path: path.to_owned(),
                file,
                buffer: BytesMut::new(),
                offset: MAGIC.len() as u64,
            }),
            ENCRYPTED_MAGIC => Err(SourceError::Refused(format!(
                "{name} is an encrypted binlog; apply from the server that has its key, or set binlog_encryption=OFF there"
            ))),
            _ => Err(SourceError::Refused(format!(
                "{name} is no binlog file: it does not begin with the bytes fe 62 69 6e"
            ))),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes returned so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next event. At the end it may be called again: the file may have grown.
    pub(super) async fn next(&mut self) -> Result<Next<RawEvent>, SourceError> {
        loop {
            let wanted = match EventHeader::parse(&self.buffer) {
                Ok(header) => (header.event_size as usize).max(HEADER_LEN),
                Err(_) if self.buffer.len() < HEADER_LEN => HEADER_LEN,
                Err(error) => return Err(self.damaged(&error)),
            };
            if wanted <= self.buffer.len() && self.buffer.len() >= HEADER_LEN {
                let event = RawEvent::new(self.buffer.split_to(wanted).freeze());
                let event = event.map_err(|error| self.damaged(&error))?;
                self.offset += wanted as u64;
                return Ok(Next::Event(event));
            }
            self.buffer.reserve(wanted.max(READ_BYTES));
            let read = self.file.read_buf(&mut self.buffer).await;
            let read = read.map_err(|error| self.unreadable(&error))?;
            if read == 0 {
                return Ok(match self.buffer.is_empty() {
                    true => Next::End,
                    false => Next::CutOff(self.offset),
                });
            }
        }
    }

    /// The current size of the file in bytes.
    pub(super) async fn len(&mut self) -> Result<u64, SourceError> {
        let metadata = self.file.metadata().await;
        Ok(metadata.map_err(|error| self.unreadable(&error))?.len())
    }

    fn unreadable(&self, error: &io::Error) -> SourceError {
        let (path, offset) = (self.path.display(), self.offset);
        SourceError::Refused(format!("{path} cannot be read at offset {offset}: {error}"))
    }

    pub(super) fn damaged(&self, error: &impl std::fmt::Display) -> SourceError {
        let (path, offset) = (self.path.display(), self.offset);
        SourceError::Refused(format!(
            "{path} is damaged at offset {offset}: {error}; fetch the file again from its server, or from a member"
        ))
    }
}
