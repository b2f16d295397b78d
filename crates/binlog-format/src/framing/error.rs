//! Why a stream cannot be framed.

use thiserror::Error;

use crate::decode_error::DecodeError;
use crate::event_type::EventType;
use crate::gtid::Gtid;

/// Why a stream of events does not consist of transactions that can be taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FramingError {
    /// A transaction without a GTID.
    #[error(
        "the source sends transactions without a GTID: set gtid_mode=ON (and enforce_gtid_consistency=ON) on it"
    )]
    AnonymousTransaction,
    /// More than the configured limit.
    #[error(
        "transaction {gtid} has at least {size} bytes, more than max_transaction_bytes ({limit}): raise that limit on \
         all members, and keep the primary's max_binlog_cache_size below it"
    )]
    TransactionTooLarge {
        /// The transaction.
        gtid: Gtid,
        /// Bytes of its canonical payload that are known of.
        size: u64,
        /// `max_transaction_bytes`.
        limit: u64,
    },
    /// An event that belongs into a transaction came between two of them.
    #[error(
        "a {event_type} event came outside of a transaction: the stream lacks events; reconnect by GTID set"
    )]
    OutsideTransaction {
        /// The event's type.
        event_type: EventType,
    },
    /// An event came that cannot stand at this place of a transaction.
    #[error(
        "a {event_type} event cannot stand at its place in transaction {gtid}: reconnect by GTID set"
    )]
    Misplaced {
        /// The transaction.
        gtid: Gtid,
        /// The event's type.
        event_type: EventType,
    },
    /// The file or the stream ended within a transaction.
    #[error(
        "transaction {gtid} was cut off by a {event_type} event: the source lost its end, or the stream was \
         restarted; reconnect by GTID set"
    )]
    Interrupted {
        /// The transaction.
        gtid: Gtid,
        /// The type of the event that came in its place.
        event_type: EventType,
    },
    /// The transaction has another length than its GTID event says.
    #[error(
        "transaction {gtid} came with {received} bytes, but its GTID event announces {announced}: the stream lacks \
         events, or was cut at the wrong place"
    )]
    LengthMismatch {
        /// The transaction.
        gtid: Gtid,
        /// What the GTID event says, in bytes.
        announced: u64,
        /// Bytes that came.
        received: u64,
    },
    /// The source reports that its binlog lacks events.
    #[error(
        "the source's binlog has an incident (lost events): rebuild the ring's members from a copy of the source"
    )]
    Incident,
    /// An event is damaged.
    #[error("an event of the stream cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// An earlier event was refused.
    #[error("the stream failed before: reset the framer and reconnect by GTID set")]
    NeedsReset,
}
