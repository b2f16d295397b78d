//! Between the engine's types and the schema's: votes and log ids, entries, and requests that are cut
//! into parts and put together again. Pure; nothing that arrives here is trusted.

mod append;
mod calls;
mod entry;
mod proxy;
#[cfg(test)]
mod tests;

use raft_types::{OpId, PayloadChecksumError};
use spilling_bytes::SpillLost;
use thiserror::Error;

use crate::compression::UnpackError;
pub(crate) use crate::wire::append::{Assembly, PART_BYTES, PackedRequest, Splitter};
pub(crate) use crate::wire::calls::{
    answer, answer_from, answered_from, append_answer, append_result, head_of, heartbeat_request,
    question, question_from, reported_answer, transfer_answer, transfer_request,
    transfer_request_from, transfer_response, vote_answer, vote_request, vote_request_from,
    vote_response,
};
pub(crate) use crate::wire::entry::{
    ENTRY_OVERHEAD, begin_answer, begin_answer_from, begin_request, begin_request_from,
};
pub(crate) use crate::wire::proxy::{AnswerReader, AnswerWriter, RequestReader, RequestWriter};

// What can be wrong with a message of another member.

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
    Unknown { what: &'static str, value: i32 },
    /// Parts in an order that has no meaning.
    #[error("a part of an entry came out of order: {0}")]
    OutOfOrder(&'static str),
    /// An entry that is larger than any may be.
    #[error(
        "entry {op_id} says that it has {length} bytes, more than the {limit} that an entry may have"
    )]
    TooLong {
        op_id: OpId,
        length: u64,
        limit: u64,
    },
    /// The bytes are not those that were sent.
    #[error("entry {op_id} was damaged on its way: {source}")]
    Damaged {
        op_id: OpId,
        source: PayloadChecksumError,
    },
    /// The file that held the entry's first pieces failed.
    #[error("entry {op_id} cannot be taken in: {source}")]
    Lost { op_id: OpId, source: SpillLost },
    /// A packed payload that does not unpack to what was packed.
    #[error("entry {op_id} was damaged on its way: {source}")]
    NotUnpacked {
        op_id: OpId,
        /// What is wrong with it.
        source: UnpackError,
    },
    /// A document that this version cannot read.
    #[error("the {what} cannot be read: {reason}; run the same version on all members")]
    Document { what: &'static str, reason: String },
    /// The start of a file that is larger than a message may be.
    #[error(
        "the start of the file behind {before} has {bytes} bytes, more than a message may have; the GTID set is \
         too fragmented for another log to begin there: copy the data directory of a stopped member instead"
    )]
    StartTooLarge {
        /// The entry before the file.
        before: OpId,
        bytes: usize,
    },
    /// A membership that cannot be read or written.
    #[error("the membership of entry {op_id} cannot be read: {reason}")]
    Membership { op_id: OpId, reason: String },
}
