//! An event's checksum, as its file's format description announces it.

use crate::decode_error::DecodeError;

/// Bytes of an event's checksum.
pub const CHECKSUM_LEN: usize = 4;

/// How the events of a file are protected (`binlog_checksum`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumAlgorithm {
    /// Events have no checksum.
    None,
    /// CRC32 (ISO-HDLC) of everything before it.
    Crc32,
}

impl ChecksumAlgorithm {
    /// The byte in a format description.
    pub const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Crc32 => 1,
        }
    }

    /// The algorithm of a format description's byte.
    ///
    /// # Errors
    /// When the byte names no known algorithm.
    pub fn from_code(code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::None),
            1 => Ok(Self::Crc32),
            _ => Err(DecodeError::invalid(
                "checksum algorithm",
                "neither 0 (NONE) nor 1 (CRC32); the file is of a later format or corrupt",
            )),
        }
    }

    /// Bytes that this checksum adds to an event.
    pub const fn event_overhead(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc32 => CHECKSUM_LEN,
        }
    }
}
