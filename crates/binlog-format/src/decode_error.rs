//! The decoding error. Bytes come from disks and peers, so every length is checked before use, and no input causes a panic.

use thiserror::Error;

use crate::event_type::EventType;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end before the value.
    #[error(
        "{field} needs {needed} bytes, but only {remaining} are left: the data is cut off or corrupt"
    )]
    Truncated {
        /// Name of the field or value.
        field: &'static str,
        /// Bytes that the value needs.
        needed: u64,
        /// Remaining bytes.
        remaining: u64,
    },
    /// A value that the format does not allow.
    #[error("{field} is invalid: {reason}")]
    Invalid {
        /// Name of the field or value.
        field: &'static str,
        /// The cause.
        reason: &'static str,
    },
    /// The decoder got an event of another type.
    #[error("expected a {expected} event, found {found}")]
    WrongType {
        /// The decoder's type.
        expected: EventType,
        /// The type in the event's header.
        found: EventType,
    },
    /// Bytes remain after the value.
    #[error("{count} unexpected bytes follow {field}")]
    TrailingBytes {
        /// Name of the value.
        field: &'static str,
        /// Number of remaining bytes.
        count: u64,
    },
    /// The event's CRC32 does not match its bytes.
    #[error(
        "the CRC32 of a {event_type} event is {found:08x}, but {expected:08x} is stored with it: \
         the event was damaged after the server wrote it"
    )]
    ChecksumMismatch {
        /// The event's type, from its header.
        event_type: EventType,
        /// The event's checksum field.
        expected: u32,
        /// The checksum of its bytes.
        found: u32,
    },
    /// A value exceeds the reader's limit.
    #[error("{field} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Name of the field or value.
        field: &'static str,
        /// Its size in bytes, or a lower bound.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

impl DecodeError {
    pub(crate) fn invalid(field: &'static str, reason: &'static str) -> Self {
        Self::Invalid { field, reason }
    }
}
