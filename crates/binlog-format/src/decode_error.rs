//! The one error of everything that turns bytes into values here. Bytes come from disks and from
//! peers, so every length in them is checked before it is used and nothing panics on them.

use thiserror::Error;

use crate::event_type::EventType;

/// Why bytes could not be read as what they claim to be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end before the value does.
    #[error(
        "{field} needs {needed} bytes, but only {remaining} are left: the data is cut off or corrupt"
    )]
    Truncated {
        /// Name of the field or value.
        field: &'static str,
        /// Bytes that the value needs.
        needed: u64,
        /// Bytes that are left to read.
        remaining: u64,
    },
    /// A value that the format does not allow.
    #[error("{field} is invalid: {reason}")]
    Invalid {
        /// Name of the field or value.
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An event of another type was handed to this decoder.
    #[error("expected a {expected} event, found {found}")]
    WrongType {
        /// The type that the decoder reads.
        expected: EventType,
        /// The type in the event's header.
        found: EventType,
    },
    /// Bytes are left after the value's end.
    #[error("{count} unexpected bytes follow {field}")]
    TrailingBytes {
        /// Name of the value that ended.
        field: &'static str,
        /// How many bytes are left.
        count: u64,
    },
    /// The event's CRC32 is not that of its bytes.
    #[error(
        "the CRC32 of a {event_type} event is {found:08x}, but {expected:08x} is stored with it: \
         the event was damaged after the server wrote it"
    )]
    ChecksumMismatch {
        /// The damaged event's type, as its header says.
        event_type: EventType,
        /// The checksum stored in the event.
        expected: u32,
        /// The checksum of its bytes.
        found: u32,
    },
    /// A value is larger than the reader was told to accept.
    #[error("{field} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Name of the field or value.
        field: &'static str,
        /// Its size in bytes (or the least that it would be).
        size: u64,
        /// The most bytes that the reader accepts.
        limit: u64,
    },
}

impl DecodeError {
    pub(crate) fn invalid(field: &'static str, reason: &'static str) -> Self {
        Self::Invalid { field, reason }
    }
}
