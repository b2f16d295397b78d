//! What a stream of events consists of.

use bytes::Bytes;

use crate::checksum::ChecksumAlgorithm;
use crate::event_type::EventType;
use crate::events::{CommitTimestamp, LogicalClock};
use crate::framing::boundary::TransactionEnd;
use crate::framing::position::SourcePosition;
use crate::gtid::{Gtid, GtidSet};

/// One transaction of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramedTransaction {
    /// Its identifier.
    pub gtid: Gtid,
    /// Its events in canonical form.
    pub payload: Bytes,
    /// How many events these are.
    pub event_count: u32,
    /// The position behind its last event on the source.
    pub end_position: SourcePosition,
    /// How it ended.
    pub end: TransactionEnd,
    /// The server in its GTID event's header.
    pub server_id: u32,
    /// Seconds since the epoch in its GTID event's header.
    pub timestamp: u32,
    /// When the source committed it; from 8.0 on.
    pub immediate_commit: Option<CommitTimestamp>,
    /// When the server on which it originated committed it, if that is another time.
    pub original_commit: Option<CommitTimestamp>,
    /// The source's view of what may be applied in parallel.
    pub clock: LogicalClock,
}

/// What the framer makes of one or several events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamItem {
    /// A whole transaction.
    Transaction(FramedTransaction),
    /// How the events that follow are written.
    FormatDescription {
        /// The canonical event: what a file of the ring would begin with.
        canonical: Bytes,
        /// The source's version.
        server_version: String,
        /// How the source protects its events.
        checksum: ChecksumAlgorithm,
    },
    /// The stream goes on in another file, or begins.
    Rotate {
        /// Where.
        to: SourcePosition,
        /// Whether the source made the event up for its replica; a real one ends a file.
        artificial: bool,
    },
    /// The source has nothing to send.
    Heartbeat(SourcePosition),
    /// The GTIDs of all files before this one.
    PreviousGtids(GtidSet),
    /// An event between transactions that means nothing to a replica.
    Ignored(EventType),
}
