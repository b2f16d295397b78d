//! What a log entry of the application carries. No-op and membership entries are openraft's own.

use std::fmt;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// The application's part of an entry. Cloning is cheap: payloads are shared bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AppEntry {
    /// One transaction of the primary.
    Transaction(TransactionPayload),
    /// The end of one binlog file and the beginning of the next.
    Rotate(Rotate),
}

impl fmt::Display for AppEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transaction(payload) => write!(f, "transaction({} bytes)", payload.bytes().len()),
            Self::Rotate(_) => f.write_str("rotate"),
        }
    }
}

/// A canonical payload and its checksum: the events of one transaction, each with `log_pos` zero
/// and without its own CRC32, one after the other.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionPayload {
    bytes: Bytes,
    crc32c: u32,
}

impl TransactionPayload {
    /// Takes a canonical payload in at its origin and makes its checksum. This is the only place
    /// where a checksum is made; everywhere else it is checked.
    pub fn seal(bytes: Bytes) -> Self {
        let crc32c = crc32c::crc32c(&bytes);
        Self { bytes, crc32c }
    }

    /// Takes a payload in that came from a peer or from the disk, with the checksum that came with
    /// it.
    ///
    /// # Errors
    /// [`PayloadChecksumError`] when the bytes are not those that were sealed.
    pub fn verify(bytes: Bytes, crc32c: u32) -> Result<Self, PayloadChecksumError> {
        let found = crc32c::crc32c(&bytes);
        if found == crc32c {
            Ok(Self { bytes, crc32c })
        } else {
            Err(PayloadChecksumError {
                expected: crc32c,
                found,
            })
        }
    }

    /// The canonical payload.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The CRC32C (Castagnoli) of [`Self::bytes`], made at ingest.
    pub fn crc32c(&self) -> u32 {
        self.crc32c
    }
}

impl fmt::Debug for TransactionPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TransactionPayload({} bytes, crc32c {:08x})",
            self.bytes.len(),
            self.crc32c
        )
    }
}

/// A payload that arrives in pieces. Its checksum is computed piece by piece, so that taking in a
/// large one never holds a thread for its whole length.
#[derive(Debug)]
pub struct PayloadAssembly {
    bytes: BytesMut,
    computed: u32,
    expected: u32,
}

impl PayloadAssembly {
    /// How much room is made at once for a payload that says that it is large; the rest is made as
    /// its pieces arrive, so that an announced length alone takes no memory.
    const FIRST_RESERVATION: usize = 1 << 20;

    /// Begins a payload of `length` bytes that was sealed with this checksum.
    pub fn begin(length: usize, crc32c: u32) -> Self {
        let bytes = BytesMut::with_capacity(length.min(Self::FIRST_RESERVATION));
        Self {
            bytes,
            computed: 0,
            expected: crc32c,
        }
    }

    /// How many bytes have arrived.
    pub fn received(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the next piece in.
    pub fn push(&mut self, piece: &[u8]) {
        self.computed = crc32c::crc32c_append(self.computed, piece);
        self.bytes.extend_from_slice(piece);
    }

    /// The whole payload.
    ///
    /// # Errors
    /// [`PayloadChecksumError`] when the pieces are not those of the payload that was sealed.
    pub fn finish(self) -> Result<TransactionPayload, PayloadChecksumError> {
        let Self {
            bytes,
            computed,
            expected,
        } = self;
        if computed == expected {
            Ok(TransactionPayload {
                bytes: bytes.freeze(),
                crc32c: expected,
            })
        } else {
            Err(PayloadChecksumError {
                expected,
                found: computed,
            })
        }
    }
}

/// A payload's bytes do not have the checksum that was made for them at ingest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadChecksumError {
    /// The CRC32C that came with the payload.
    pub expected: u32,
    /// The CRC32C of the bytes at hand.
    pub found: u32,
}

impl fmt::Display for PayloadChecksumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the payload's CRC32C is {:08x}, but {:08x} was made for it at ingest",
            self.found, self.expected
        )
    }
}

impl std::error::Error for PayloadChecksumError {}

/// Ends the current binlog file and says how the next one begins. What follows from the log itself
/// (file name, previous GTIDs) is computed by every member and therefore not carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotate {
    /// The canonical format description event of the next file: whole event with its header,
    /// `log_pos` zero, created-time zero, checksum algorithm CRC32, without the CRC32 itself.
    pub format_description: Bytes,
    /// Seconds since the epoch, for the headers of the rotate event and of the next file.
    pub timestamp: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_payload_that_was_sealed() {
        let whole = TransactionPayload::seal(Bytes::from_static(b"one transaction in pieces"));
        let mut assembly = PayloadAssembly::begin(whole.bytes().len(), whole.crc32c());
        for piece in whole.bytes().chunks(4) {
            assembly.push(piece);
        }
        assert_eq!(assembly.received(), whole.bytes().len());
        assert_eq!(assembly.finish(), Ok(whole));
    }

    #[test]
    fn a_changed_piece_is_found() {
        let whole = TransactionPayload::seal(Bytes::from_static(b"abcdef"));
        let mut assembly = PayloadAssembly::begin(6, whole.crc32c());
        assembly.push(b"abc");
        assembly.push(b"deF");
        let error = assembly.finish().expect_err("the checksum must not match");
        assert_eq!(error.expected, whole.crc32c());
    }
}
