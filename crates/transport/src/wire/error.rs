//! What can be wrong with a message of another member.

use raft_types::{OpId, PayloadChecksumError};
use thiserror::Error;

use crate::compression::UnpackError;

/// A message that does not follow the protocol, or that was damaged on its way.
#[derive(Debug, Error)]
pub(crate) enum WireError {
    /// A field that must be there is not.
    #[error("the message has no {0}; the caller speaks another version of the protocol")]
    Missing(&'static str),
    /// A number that this version does not know.
    #[error(
        "the message has a {what} of kind {value}, which this version does not know; upgrade this member"
    )]
    Unknown {
        /// What it is of.
        what: &'static str,
        /// The number.
        value: i32,
    },
    /// Parts in an order that has no meaning.
    #[error("a part of an entry came out of order: {0}")]
    OutOfOrder(&'static str),
    /// An entry that is larger than any may be.
    #[error(
        "entry {op_id} says that it has {length} bytes, more than the {limit} that an entry may have"
    )]
    TooLong {
        /// The entry.
        op_id: OpId,
        /// What it says.
        length: u64,
        /// The bound.
        limit: u64,
    },
    /// The bytes are not those that were sent.
    #[error("entry {op_id} was damaged on its way: {source}")]
    Damaged {
        /// The entry.
        op_id: OpId,
        /// Both checksums.
        source: PayloadChecksumError,
    },
    /// A packed payload that does not unpack to what was packed.
    #[error("entry {op_id} was damaged on its way: {source}")]
    NotUnpacked {
        /// The entry.
        op_id: OpId,
        /// What is wrong with it.
        source: UnpackError,
    },
    /// A document that this version cannot read.
    #[error("the {what} cannot be read: {reason}; run the same version on all members")]
    Document {
        /// What it is.
        what: &'static str,
        /// What the decoder says.
        reason: String,
    },
    /// The start of a file that is larger than a message may be.
    #[error(
        "the start of the file behind {before} has {bytes} bytes, more than a message may have; the GTID set is \
         too fragmented for another log to begin there: copy the data directory of a stopped member instead"
    )]
    StartTooLarge {
        /// The entry before the file.
        before: OpId,
        /// Its bytes.
        bytes: usize,
    },
    /// A membership that cannot be read or written.
    #[error("the membership of entry {op_id} cannot be read: {reason}")]
    Membership {
        /// The entry.
        op_id: OpId,
        /// What the decoder says.
        reason: String,
    },
}
