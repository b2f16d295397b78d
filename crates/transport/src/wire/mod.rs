//! Conversions between the engine's types and the protobuf schema: votes and log ids, entries, and requests in messages. Pure functions;
//! received data is not trusted.

mod append;
mod calls;
mod entry;
mod proxy;

use raft_types::{MAX_TRANSACTION_BYTES, OpId};
use spilling_bytes::SpillLost;
use thiserror::Error;

use crate::compression::UnpackError;
pub(crate) use crate::wire::append::{Assembly, PART_BYTES, PackedRequest, Splitter};
pub(crate) use crate::wire::calls::{
    answered_from, append_answer, decode, encode, head_of, heartbeat_request, required_vote,
    transfer_answer, transfer_request, transfer_request_from, transfer_response, vote_answer,
    vote_request, vote_request_from, vote_response, vote_to,
};
pub(crate) use crate::wire::entry::{ENTRY_OVERHEAD, begin_request, begin_request_from};
pub(crate) use crate::wire::proxy::{AnswerReader, AnswerWriter, RequestReader, RequestWriter};

// Errors in the messages of other members.

/// The content of a received message.
pub(crate) type Decoded<T = ()> = Result<T, WireError>;

/// A message that violates the protocol or was damaged in transit.
#[derive(Debug, Error)]
pub(crate) enum WireError {
    /// A required field is missing.
    #[error("the message has no {0}; the caller speaks another version of the protocol")]
    Missing(&'static str),
    /// A value is unknown to this version.
    #[error(
        "the message has a {what} of kind {value}, which this version does not know; upgrade this member"
    )]
    Unknown { what: &'static str, value: i32 },
    /// The parts of an entry arrived in an invalid order.
    #[error("a part of an entry came out of order: {0}")]
    OutOfOrder(&'static str),
    /// An entry is larger than the size limit.
    #[error(
        "entry {op_id} says that it has {length} bytes, more than the {} that an entry may have",
        MAX_TRANSACTION_BYTES
    )]
    TooLong { op_id: OpId, length: u64 },
    /// The entry's checksum differs, or it cannot be decompressed to the original.
    #[error("entry {op_id} was damaged on its way: {source}")]
    Damaged { op_id: OpId, source: UnpackError },
    /// The file that stores the entry's first pieces failed.
    #[error("entry {op_id} cannot be taken in: {source}")]
    Lost { op_id: OpId, source: SpillLost },
    /// This version cannot parse a document.
    #[error("the {what} cannot be read: {reason}; run the same version on all members")]
    Document { what: &'static str, reason: String },
    /// A file start is larger than a message.
    #[error(
        "the start of the file after {before} has {bytes} bytes, more than a message may have; the GTID set is \
         too fragmented for another log to begin there: copy the data directory of a stopped member instead"
    )]
    StartTooLarge {
        /// The entry before the file.
        before: OpId,
        bytes: usize,
    },
    /// A membership cannot be parsed or encoded.
    #[error("the membership of entry {op_id} cannot be read: {reason}")]
    Membership { op_id: OpId, reason: String },
}

#[cfg(test)]
mod tests;
