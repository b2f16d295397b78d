//! The events of one binlog file, read from front to back through a buffer.

use std::io;
use std::path::{Path, PathBuf};

use binlog_format::MAGIC;
use binlog_format::event::{EventHeader, HEADER_LEN, RawEvent};
use bytes::BytesMut;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use super::SourceError;

/// Bytes that one read asks for.
const READ_BYTES: usize = 1 << 20;
/// How an encrypted binlog begins.
const ENCRYPTED: [u8; 4] = [0xfd, b'b', b'i', b'n'];

/// See the module.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
    buffer: BytesMut,
    /// Where in the file the buffer begins.
    offset: u64,
}

/// What stands at the end of what a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next<T> {
    /// The next event.
    Event(T),
    /// The file ends here.
    End,
    /// The file ends in the middle of an event, which begins at this offset.
    CutOff(u64),
}

impl EventFile {
    /// Opens a file and checks how it begins.
    pub(super) async fn open(path: &Path) -> Result<Self, SourceError> {
        let broken = |error: &io::Error| {
            let path = path.display();
            SourceError::Refused(format!("the binlog file {path} cannot be read: {error}"))
        };
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
            ENCRYPTED => Err(SourceError::Refused(format!(
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

    /// Bytes that were read from it, as far as they were given out.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next event. At the end it may be asked again: the file may have grown.
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

    /// Bytes of the file as it is now.
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
