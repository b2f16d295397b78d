//! Bytes that arrive in pieces and become one [`Bytes`]. Small payloads stay in memory. Large ones are written to a file without a
//! name as they arrive, which is mapped at the end. The operating system may write its pages out and drop them, so a payload of a
//! gigabyte takes a few megabytes of the process's own memory. Users of the bytes see no difference.
//!
//! The file is never synced, because it is not a durable copy. It disappears with the last user of the bytes, or with the process. If
//! writing the file fails, its bytes are read back, and everything stays in memory. If the disk fails while a mapped page is read, the
//! process ends (SIGBUS).

mod folder;
pub mod long_work;

use std::io;

use bytes::{Bytes, BytesMut};

use crate::folder::SpillFile;
pub use crate::folder::SpillFolder;

/// Minimum size of a payload that is stored in a file. A process may receive several payloads concurrently, so this is a small part of its
/// memory. Nearly all transactions are smaller.
pub const SPILLED_FROM: usize = 16 << 20;

/// Bytes that are gathered before a write, so that small pieces do not each need a system call.
const WRITTEN_AT: usize = 1 << 20;

/// Maximum memory reserved in advance for an announced length. A false announcement must not cost more memory.
const FIRST_RESERVATION: usize = 1 << 20;

/// Bytes during their arrival.
///
/// ```text
///   few:    │ buffer ─────────────▶ │
///   many:   │ file ───────▶│ buffer │        buffer < WRITTEN_AT between two calls
///   failed: │ buffer ─────────────────────▶ the file was read back
/// ```
#[derive(Debug)]
pub struct SpillingBytes {
    folder: SpillFolder,
    /// The announced length, which may be wrong.
    announced: usize,
    /// The bytes that are not in the file.
    buffer: BytesMut,
    file: Option<SpillFile>,
    /// True if the payload stays in memory, because there is no folder or the file failed.
    in_memory: bool,
    crc32c: u32,
    lost: Option<SpillLost>,
}

/// Gathered bytes, with the CRC32C computed on arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    /// All pieces, concatenated.
    pub bytes: Bytes,
    /// The CRC32C (Castagnoli) of the pieces.
    pub crc32c: u32,
}

/// The file failed, and its bytes could not be read back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{bytes} bytes of a large payload in {folder} cannot be read back: {reason}; check the disk that holds it"
)]
pub struct SpillLost {
    bytes: u64,
    folder: String,
    reason: String,
}

impl SpillingBytes {
    /// Begins a payload of `announced` expected bytes; 0 if unknown. A large payload is stored in a file of `folder`.
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

    /// Sets the expected length before the first piece. The caller is certain of it, so the memory is reserved immediately.
    pub fn announce(&mut self, bytes: usize) {
        self.announced = bytes;
        if self.in_memory || bytes < SPILLED_FROM {
            self.buffer.reserve(bytes);
        }
    }

    /// The number of bytes so far.
    pub fn len(&self) -> usize {
        let written = self.file.as_ref().map_or(0, SpillFile::len);
        usize::try_from(written).unwrap_or(usize::MAX) + self.buffer.len()
    }

    /// True if there are no bytes yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the next piece. While a file is written, the thread's other tasks continue, as in [`long_work`].
    pub fn push(&mut self, piece: &[u8]) {
        self.crc32c = crc32c::crc32c_append(self.crc32c, piece);
        let waiting = self.buffer.len() + piece.len();
        let is_small = self.file.is_none() && !self.is_large(waiting);
        if self.in_memory || is_small || waiting < WRITTEN_AT {
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

    /// Returns all bytes.
    ///
    /// # Errors
    /// [`SpillLost`] if the file failed, and its bytes could not be read back.
    pub fn finish(mut self) -> Result<Gathered, SpillLost> {
        if self.file.is_some() {
            self.write_buffer();
        }
        let bytes = match self.file.take() {
            None => std::mem::take(&mut self.buffer).freeze(),
            Some(file) => match file.map() {
                Ok(map) => Bytes::from_owner(map),
                Err((file, error)) => {
                    self.stay_in_memory(&file, &error);
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

    /// Moves the buffer into the file. If that fails, the payload stays in memory permanently.
    fn write_buffer(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if self.write(&buffer) {
            self.buffer = buffer;
            self.buffer.clear();
            // The buffer from before the switch to a file is larger than is needed afterwards.
            if self.buffer.capacity() > 2 * WRITTEN_AT {
                self.buffer = BytesMut::with_capacity(WRITTEN_AT);
            }
        } else if self.buffer.is_empty() {
            self.buffer = buffer; // the file has no bytes yet
        }
    }

    /// Appends to the file, which is created if missing. If this fails, the buffer contains all earlier bytes and `bytes`. There is one
    /// exception: if the buffer was empty and no file existed, the caller keeps `bytes`.
    fn write(&mut self, bytes: &[u8]) -> bool {
        let written = long_work::run(bytes.len().max(long_work::LARGE), || {
            let expected = self.announced.max(self.len() + bytes.len()) as u64;
            let file = match &mut self.file {
                Some(file) => file,
                none => none.insert(SpillFile::create(&self.folder, expected)?),
            };
            file.write(bytes, expected)
        });
        let Err(error) = written else { return true };
        match self.file.take() {
            Some(file) => {
                self.stay_in_memory(&file, &error);
                self.buffer.extend_from_slice(bytes);
            }
            None => {
                self.in_memory = true;
                self.folder.warn(&error);
            }
        }
        false
    }

    /// Reads the file's bytes back and puts them before those of the buffer.
    fn stay_in_memory(&mut self, file: &SpillFile, error: &io::Error) {
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
