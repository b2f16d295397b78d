//! Bytes that arrive in pieces and are then one [`Bytes`]. Few stay in memory. Many go into a file without a name as they come,
//! which is mapped at the end: the operating system may write its pages out and drop them, so that a payload of a gigabyte takes a
//! process a few megabytes of memory of its own. Whoever uses the bytes sees no difference.
//!
//! The file is never synced, because it is nobody's durable copy; it is gone with the last user of the bytes, or with the process.
//! What goes wrong with it costs memory and not the bytes: they are read back, and the rest stays in memory.
//! A page that the disk cannot give back ends the process (SIGBUS).

mod file;
mod folder;

use std::io;

use bytes::{Bytes, BytesMut};

use crate::file::SpillFile;
pub use crate::folder::SpillFolder;

/// From this size on, bytes are in a file. Several payloads may be on their way in a process at once, so that it is a small part
/// of what a process may have; and nearly all transactions are smaller, which then never see a file.
pub const SPILLED_FROM: usize = 16 << 20;

/// So much is gathered before it is written, so that small pieces do not cost a call each.
const WRITTEN_AT: usize = 1 << 20;

/// How much room is made at once for bytes that say that they are many, so that an announced length alone takes no memory.
const FIRST_RESERVATION: usize = 1 << 20;

/// Bytes of which more is to come.
///
/// ```text
///   few:    │ buffer ─────────────▶ │
///   many:   │ file ───────▶│ buffer │        buffer < WRITTEN_AT between two calls
///   failed: │ buffer ─────────────────────▶ the file was read back
/// ```
#[derive(Debug)]
pub struct SpillingBytes {
    folder: SpillFolder,
    /// How many were announced, which may be wrong.
    announced: usize,
    /// What is not in the file.
    buffer: BytesMut,
    file: Option<SpillFile>,
    /// It stays in memory: there is no folder, or the file failed.
    in_memory: bool,
    crc32c: u32,
    lost: Option<SpillLost>,
}

/// Bytes that were gathered, and their CRC32C, made as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    /// All pieces, one after the other.
    pub bytes: Bytes,
    /// The CRC32C (Castagnoli) of the pieces.
    pub crc32c: u32,
}

/// The file could not be used further, and what it had could not be read back either.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{bytes} bytes of a large payload in {folder} cannot be read back: {reason}; look at the disk that holds it"
)]
pub struct SpillLost {
    bytes: u64,
    folder: String,
    reason: String,
}

impl SpillingBytes {
    /// Begins bytes of which `announced` are expected; 0 where nobody knows. They go into a file of `folder` when they are many.
    pub fn begin(folder: &SpillFolder, announced: usize) -> Self {
        Self {
            folder: folder.clone(),
            announced,
            buffer: BytesMut::with_capacity(announced.min(FIRST_RESERVATION)),
            file: None,
            in_memory: folder.is_off(),
            crc32c: 0,
            lost: None,
        }
    }

    /// Says how many are expected, before the first has come. The caller knows it, so that the room is made at once.
    pub fn announce(&mut self, bytes: usize) {
        self.announced = bytes;
        if self.in_memory || bytes < SPILLED_FROM {
            self.buffer.reserve(bytes);
        }
    }

    /// How many have come.
    pub fn len(&self) -> usize {
        let written = self.file.as_ref().map_or(0, SpillFile::len);
        usize::try_from(written).unwrap_or(usize::MAX) + self.buffer.len()
    }

    /// Whether none has come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next piece in. Where it is written to the file, other tasks of the thread go on meanwhile, as in `long_work`.
    pub fn push(&mut self, piece: &[u8]) {
        self.crc32c = crc32c::crc32c_append(self.crc32c, piece);
        if self.in_memory {
            self.buffer.extend_from_slice(piece);
            return;
        }
        if self.file.is_none() && !self.is_large(self.buffer.len() + piece.len()) {
            self.buffer.extend_from_slice(piece);
            return;
        }
        if self.buffer.len() + piece.len() < WRITTEN_AT {
            self.buffer.extend_from_slice(piece);
            return;
        }
        self.write_buffer();
        if self.file.is_some() && piece.len() >= WRITTEN_AT {
            self.write(piece);
        } else {
            self.buffer.extend_from_slice(piece);
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// [`SpillLost`] when the file failed, and could not be read back.
    pub fn finish(mut self) -> Result<Gathered, SpillLost> {
        if self.file.is_some() {
            self.write_buffer();
        }
        let bytes = match self.file.take() {
            None => std::mem::take(&mut self.buffer).freeze(),
            Some(file) => match file.map() {
                Ok(map) => Bytes::from_owner(map),
                Err((file, error)) => {
                    self.stay_in_memory(file, &error);
                    std::mem::take(&mut self.buffer).freeze()
                }
            },
        };
        match self.lost.take() {
            Some(lost) => Err(lost),
            None => Ok(Gathered {
                bytes,
                crc32c: self.crc32c,
            }),
        }
    }

    fn is_large(&self, so_far: usize) -> bool {
        self.announced.max(so_far) >= SPILLED_FROM
    }

    /// Moves the buffer into the file, or leaves it where it is for good.
    fn write_buffer(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if self.write(&buffer) {
            self.buffer = buffer;
            self.buffer.clear();
            // What had come before it was known to be many is larger than what is gathered from now on.
            if self.buffer.capacity() > 2 * WRITTEN_AT {
                self.buffer = BytesMut::with_capacity(WRITTEN_AT);
            }
        } else if self.buffer.is_empty() {
            self.buffer = buffer; // nothing was in a file yet
        }
    }

    /// Writes behind what is in the file, which is made where there is none. Where that fails, all that there was, and
    /// `bytes`, is in the buffer, unless that was empty and nothing in a file: then the caller keeps `bytes`.
    fn write(&mut self, bytes: &[u8]) -> bool {
        let written = long_work::run(bytes.len().max(long_work::LARGE), || {
            let expected = self.announced.max(self.len() + bytes.len()) as u64;
            let file = match self.file.take() {
                Some(file) => file,
                None => match SpillFile::create(&self.folder, expected) {
                    Ok(file) => file,
                    Err(error) => return Err((None, error)),
                },
            };
            match file.write(bytes, expected) {
                Ok(file) => {
                    self.file = Some(file);
                    Ok(())
                }
                Err((file, error)) => Err((Some(file), error)),
            }
        });
        match written {
            Ok(()) => true,
            Err((None, error)) => {
                self.in_memory = true;
                self.folder.warn(&error);
                false
            }
            Err((Some(file), error)) => {
                self.stay_in_memory(file, &error);
                self.buffer.extend_from_slice(bytes);
                false
            }
        }
    }

    /// Reads the file back in front of the buffer.
    fn stay_in_memory(&mut self, file: SpillFile, error: &io::Error) {
        self.in_memory = true;
        self.folder.warn(error);
        match file.read_back() {
            Ok(mut bytes) => {
                bytes.extend_from_slice(&self.buffer);
                self.buffer = bytes;
            }
            Err(reason) => {
                self.lost.get_or_insert_with(|| SpillLost {
                    bytes: file.len(),
                    folder: self.folder.to_string(),
                    reason: reason.to_string(),
                });
            }
        }
    }
}
