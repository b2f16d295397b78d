//! Reads binlog files of a mysqld or of a member in sequence.

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
    /// The target's transactions, and the transactions read so far; `None` for a reader that applies nothing.
    seen: Option<GtidSet>,
    /// True if the open file has the in-use flag: its server has not closed it.
    in_use: bool,
    read: ReadBytes,
    drained: Drained,
}

/// Progress of reading the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadBytes {
    /// Bytes read so far.
    pub done: u64,
    /// The size of all files together.
    pub total: u64,
}

impl FileSource {
    /// Opens the files, which must be in the log's order. `executed` are the target's transactions: the target must have every
    /// transaction that precedes the files. `None` for a reader that applies nothing: transactions may be missing before and
    /// between the files.
    ///
    /// # Errors
    /// If a file is missing or cannot be read.
    pub async fn open(
        files: Vec<PathBuf>,
        executed: Option<GtidSet>,
        max_transaction_bytes: u64,
    ) -> Result<Self, SourceError> {
        let mut total = 0;
        for file in &files {
            total += EventFile::open(file).await?.size;
        }
        Ok(Self {
            waiting: files.into(),
            open: None,
            framer: TransactionFramer::new(ChecksumAlgorithm::Crc32, max_transaction_bytes),
            seen: executed,
            in_use: false,
            read: ReadBytes { done: 0, total },
            drained: Drained::default(),
        })
    }

    /// Returns how much of the files has been read.
    pub fn read(&self) -> ReadBytes {
        let open = self.open.as_ref().map_or(0, |file| file.offset);
        ReadBytes {
            done: self.read.done + open,
            ..self.read
        }
    }

    /// Closes the open file at its end. An incomplete transaction at the end is an error, except at the end of the last file
    /// while it is in use.
    fn finished(&mut self) -> Result<(), SourceError> {
        let Some(file) = self.open.take() else {
            return Ok(());
        };
        self.read.done += file.offset;
        if file.buffer.is_empty() && !self.framer.in_transaction() {
            return Ok(());
        }
        // The file was copied while its server was writing, or the server died. The unfinished transaction was not committed
        // there.
        if self.in_use && self.waiting.is_empty() {
            tracing::warn!(
                file = %file.path.display(),
                "the last file ends within a transaction, which is not applied: its server had not finished it"
            );
            return Ok(());
        }
        Err(file.damaged(&"it ends within a transaction"))
    }
}

impl Source for FileSource {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        loop {
            let Some(file) = &mut self.open else {
                let Some(path) = self.waiting.pop_front() else {
                    self.drained.set(true);
                    return Ok(None);
                };
                self.open = Some(EventFile::open(&path).await?);
                self.framer.reset(ChecksumAlgorithm::Crc32);
                self.in_use = false;
                continue;
            };
            let Some(event) = file.next().await? else {
                self.finished()?;
                continue;
            };
            if event.event_type() == EventType::FormatDescription {
                self.in_use = event.header().flags.contains(EventFlags::BINLOG_IN_USE);
            }
            let framed = long_work::run(event.bytes().len(), || self.framer.push(&event));
            let item = framed.map_err(|error| file.damaged(&error))?;
            match (item, &mut self.seen) {
                (Some(StreamItem::Transaction(transaction)), seen) => {
                    if let Some(seen) = seen {
                        seen.add(transaction.gtid);
                    }
                    return Ok(Some(transaction));
                }
                (Some(StreamItem::PreviousGtids(previous)), Some(seen)) => {
                    let missing = previous.difference(seen);
                    if !missing.is_empty() {
                        return Err(SourceError::Refused(format!(
                            "{} follows transactions that the target lacks and no file before it has: {missing}; add the files \
                             that have them, or provision the target with a copy that has them",
                            file.path.display()
                        )));
                    }
                }
                _ => {}
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
struct EventFile {
    path: PathBuf,
    file: File,
    buffer: BytesMut,
    /// The file offset of the buffer's first byte.
    offset: u64,
    /// The file's size when it was opened.
    size: u64,
}

impl EventFile {
    /// Opens a file and checks its beginning.
    async fn open(path: &Path) -> Result<Self, SourceError> {
        let broken = |error: &io::Error| {
            let path = path.display();
            SourceError::Refused(format!("the binlog file {path} cannot be read: {error}"))
        };
        // Opening or reading a pipe could wait indefinitely, and a pipe can be read only once.
        let metadata = tokio::fs::metadata(path).await;
        let metadata = metadata.map_err(|error| broken(&error))?;
        if !metadata.is_file() {
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
                size: metadata.len(),
            }),
            ENCRYPTED_MAGIC => Err(SourceError::Refused(format!(
                "{name} is an encrypted binlog; apply from the server that has its key, or set binlog_encryption=OFF there"
            ))),
            _ => Err(SourceError::Refused(format!(
                "{name} is no binlog file: it does not begin with the bytes fe 62 69 6e"
            ))),
        }
    }

    /// Returns the next event; `None` at the end of the file. If the file ends within an event, the incomplete bytes stay in
    /// the buffer.
    async fn next(&mut self) -> Result<Option<RawEvent>, SourceError> {
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
                return Ok(Some(event));
            }
            self.buffer.reserve(wanted.max(READ_BYTES));
            let read = self.file.read_buf(&mut self.buffer).await;
            let read = read.map_err(|error| {
                let (path, offset) = (self.path.display(), self.offset);
                SourceError::Refused(format!("{path} cannot be read at offset {offset}: {error}"))
            })?;
            if read == 0 {
                return Ok(None);
            }
        }
    }

    fn damaged(&self, error: &impl std::fmt::Display) -> SourceError {
        let (path, offset) = (self.path.display(), self.offset);
        SourceError::Refused(format!(
            "{path} is damaged at offset {offset}: {error}; fetch the file again from its server, or from a member"
        ))
    }
}
