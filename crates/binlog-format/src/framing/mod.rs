//! Splits the events of a dump stream into transactions in canonical form. `step` is the table of allowed sequences. The framer verifies
//! checksums, tracks the source's position and keeps memory below a configured limit.

use std::fmt;

use bytes::Bytes;
use spilling_bytes::{Gathered, SpillFolder, SpillLost, SpillingBytes};
use thiserror::Error;

use crate::canonical::canonical_parts;
use crate::decode::DecodeError;
use crate::event::{CHECKSUM_LEN, ChecksumAlgorithm, EventFlags, EventHeader, EventRef, RawEvent};
use crate::event_type::EventType;
use crate::events::{
    CommitTimestamp, FormatDescription, GtidEvent, Heartbeat, LogicalClock, PreviousGtids, Query,
    Rotate, StatementKind,
};
use crate::gtid::{Gtid, GtidSet};

// Splits a dump stream into transactions.

/// Receives the events of a dump stream in order, and returns the transactions that they form.
///
/// After an error it refuses all events until [`Self::reset`], so that a missing transaction is always noticed.
#[derive(Debug)]
pub struct TransactionFramer {
    max_transaction_bytes: u64,
    /// The folder for large payloads; `None` if the caller already has the events' bytes.
    folder: Option<SpillFolder>,
    /// The checksum algorithm from the last format description. Before the first one, the algorithm that the replica requested.
    checksum: ChecksumAlgorithm,
    position: SourcePosition,
    open: Option<OpenTransaction>,
    failed: bool,
}

/// An incomplete transaction. The payload of `framed` is still growing.
#[derive(Debug)]
struct OpenTransaction {
    place: Place,
    framed: FramedTransaction,
    payload: Option<SpillingBytes>,
    /// Length of the payload in bytes, even if the payload is not stored.
    length: u64,
    announced_length: Option<u64>,
    /// Bytes of the transaction's events as received.
    received: u64,
}

impl TransactionFramer {
    /// Creates a framer for a new stream. `checksum` is the replica's `@source_binlog_checksum`, which applies to the rotate event before
    /// the first format description. `max_transaction_bytes` limits the canonical payload of a transaction, and so the memory.
    pub fn new(checksum: ChecksumAlgorithm, max_transaction_bytes: u64) -> Self {
        Self {
            max_transaction_bytes,
            folder: Some(SpillFolder::default()),
            checksum,
            position: SourcePosition::default(),
            open: None,
            failed: false,
        }
    }

    /// Stores large payloads in files of `folder` instead of in memory.
    #[must_use]
    pub fn spilling(self, folder: SpillFolder) -> Self {
        let folder = Some(folder);
        Self { folder, ..self }
    }

    /// Returns transactions without a payload, for a caller that already has the events' bytes.
    #[must_use]
    pub fn without_payloads(self) -> Self {
        let folder = None;
        Self { folder, ..self }
    }

    /// Discards all state, including an open transaction, for a new stream.
    pub fn reset(&mut self, checksum: ChecksumAlgorithm) {
        *self = Self {
            folder: self.folder.take(),
            ..Self::new(checksum, self.max_transaction_bytes)
        };
    }

    /// True if a transaction has begun and not ended.
    pub fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// The position on the source after the last event.
    pub fn position(&self) -> &SourcePosition {
        &self.position
    }

    /// Receives the next event. Returns `None` if a transaction is incomplete.
    ///
    /// # Errors
    /// When the event is damaged or out of place, or the transaction is too large. The framer must then be reset.
    pub fn push(&mut self, event: &RawEvent) -> Result<Option<StreamItem>, FramingError> {
        if self.failed {
            return Err(FramingError::NeedsReset);
        }
        let result = self.take(event);
        if result.is_err() {
            self.failed = true;
            self.open = None;
        }
        result
    }

    fn take(&mut self, event: &RawEvent) -> Result<Option<StreamItem>, FramingError> {
        // A format description always has a CRC32, whatever algorithm it announces for other events.
        let checksum = match event.event_type() {
            EventType::FormatDescription => ChecksumAlgorithm::Crc32,
            _ => self.checksum,
        };
        let verified = event.verified(checksum)?;
        match event.event_type() {
            EventType::Heartbeat | EventType::HeartbeatV2 => self.heartbeat(verified).map(Some),
            EventType::FormatDescription
            | EventType::Rotate
            | EventType::PreviousGtids
            | EventType::Stop => {
                self.refuse_inside(event.event_type())?;
                self.between_transactions(verified).map(Some)
            }
            EventType::Incident => Err(FramingError::Incident),
            EventType::AnonymousGtid => Err(FramingError::AnonymousTransaction),
            EventType::Gtid | EventType::GtidTagged => {
                self.refuse_inside(event.event_type())?;
                self.advance(event.header());
                self.begin(verified)?;
                self.append(event, verified, Place::Begun)?;
                Ok(None)
            }
            event_type => {
                let Some(open) = &self.open else {
                    let is_flagged = event.header().flags.contains(EventFlags::IGNORABLE);
                    if !is_flagged && event_type != EventType::Ignorable {
                        return Err(FramingError::OutsideTransaction { event_type });
                    }
                    self.advance(event.header());
                    return Ok(Some(StreamItem::Ignored(event_type)));
                };
                let (gtid, place) = (open.framed.gtid, open.place);
                self.advance(event.header());
                match step(place, role(verified)?) {
                    Step::Continue(place) => {
                        self.append(event, verified, place)?;
                        Ok(None)
                    }
                    Step::Finish => {
                        self.append(event, verified, place)?;
                        self.finish()
                    }
                    Step::Refuse => Err(FramingError::Misplaced { gtid, event_type }),
                }
            }
        }
    }

    fn refuse_inside(&self, event_type: EventType) -> Result<(), FramingError> {
        match &self.open {
            Some(open) => Err(FramingError::Interrupted {
                gtid: open.framed.gtid,
                event_type,
            }),
            None => Ok(()),
        }
    }

    /// Advances to an event's end position, unless the event is artificial.
    fn advance(&mut self, header: &EventHeader) {
        if !is_artificial(header) {
            self.position.advance_to_low_bits(header.log_pos);
        }
    }

    fn heartbeat(&mut self, event: EventRef<'_>) -> Result<StreamItem, FramingError> {
        let heartbeat = Heartbeat::decode(event)?;
        if heartbeat.version_2 {
            self.position.offset = heartbeat.position;
        } else if event.header().log_pos != 0 {
            self.position.advance_to_low_bits(event.header().log_pos);
        }
        if self.position.file != *heartbeat.file {
            self.position.file = Bytes::copy_from_slice(&heartbeat.file);
        }
        Ok(StreamItem::Heartbeat(self.position.clone()))
    }

    fn between_transactions(&mut self, event: EventRef<'_>) -> Result<StreamItem, FramingError> {
        self.advance(event.header());
        Ok(match event.event_type() {
            EventType::FormatDescription => {
                let description = FormatDescription::decode(event)?;
                self.checksum = description.checksum;
                StreamItem::FormatDescription {
                    canonical: FormatDescription::canonical_event(event)?.into(),
                    checksum: description.checksum,
                }
            }
            EventType::Rotate => {
                let rotate = Rotate::decode(event)?;
                self.position = SourcePosition {
                    file: Bytes::copy_from_slice(&rotate.next_file),
                    offset: rotate.position,
                };
                StreamItem::Rotate {
                    to: self.position.clone(),
                    artificial: is_artificial(event.header()),
                }
            }
            EventType::PreviousGtids => {
                StreamItem::PreviousGtids(PreviousGtids::decode(event)?.gtids)
            }
            event_type => StreamItem::Ignored(event_type),
        })
    }

    fn begin(&mut self, event: EventRef<'_>) -> Result<(), FramingError> {
        let gtid_event = GtidEvent::decode(event)?;
        let gtid = gtid_event.gtid;
        let announced_length = gtid_event.transaction_length.filter(|length| *length > 0);
        let limit = self.max_transaction_bytes;
        let announced = announced_length.unwrap_or(0);
        // The announced length includes checksums, which are a small part of it. A transaction slightly above the limit is detected from
        // its events.
        let size = announced / 2;
        if size > limit {
            return Err(FramingError::TransactionTooLarge { gtid, size, limit });
        }
        let expected = announced.min(limit);
        let folder = self.folder.as_ref();
        let payload = folder.map(|folder| SpillingBytes::begin(folder, expected as usize));
        self.open = Some(OpenTransaction {
            place: Place::Begun,
            framed: FramedTransaction {
                gtid,
                payload: Bytes::new(),
                payload_crc32c: 0,
                event_count: 0,
                end_position: SourcePosition::default(),
                server_id: event.header().server_id,
                timestamp: event.header().timestamp,
                immediate_commit: gtid_event.immediate_commit,
                original_commit: gtid_event.original_commit,
                clock: gtid_event.clock,
            },
            payload,
            length: 0,
            announced_length,
            received: 0,
        });
        Ok(())
    }

    fn append(
        &mut self,
        event: &RawEvent,
        verified: EventRef<'_>,
        place: Place,
    ) -> Result<(), FramingError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let size = open.length + verified.bytes().len() as u64;
        let (gtid, limit) = (open.framed.gtid, self.max_transaction_bytes);
        if size > limit {
            return Err(FramingError::TransactionTooLarge { gtid, size, limit });
        }
        if let Some(payload) = &mut open.payload {
            let (header, rest) = canonical_parts(verified);
            payload.push(&header);
            payload.push(rest);
        }
        open.length = size;
        open.place = place;
        open.framed.event_count += 1;
        open.received += event.bytes().len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<StreamItem>, FramingError> {
        let Some(open) = self.open.take() else {
            return Ok(None);
        };
        open.check_length()?;
        let mut framed = open.framed;
        if let Some(payload) = open.payload {
            let Gathered { bytes, crc32c } = payload.finish()?;
            (framed.payload, framed.payload_crc32c) = (bytes, crc32c);
        }
        framed.end_position = self.position.clone();
        Ok(Some(StreamItem::Transaction(framed)))
    }
}

/// True for an event that is in no file: its flag is set, or its position is 0.
fn is_artificial(header: &EventHeader) -> bool {
    header.log_pos == 0 || header.flags.contains(EventFlags::ARTIFICIAL)
}

impl OpenTransaction {
    /// Compares with the announced length, which is that in the source's file. There, either all events or none have checksums; in the
    /// stream, they may have been removed.
    fn check_length(&self) -> Result<(), FramingError> {
        let bare = self.length;
        let with_checksums = bare + u64::from(self.framed.event_count) * CHECKSUM_LEN as u64;
        let (gtid, received) = (self.framed.gtid, self.received);
        match self.announced_length {
            Some(announced) if ![bare, with_checksums].contains(&announced) => {
                Err(FramingError::LengthMismatch {
                    gtid,
                    announced,
                    received,
                })
            }
            _ => Ok(()),
        }
    }
}

// Items of an event stream.

/// One transaction from the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramedTransaction {
    /// The GTID in the transaction's first event.
    pub gtid: Gtid,
    /// The transaction's events in canonical form.
    pub payload: Bytes,
    /// The payload's CRC32C, computed as events arrive; 0 if the framer does not store it.
    pub payload_crc32c: u32,
    /// Number of the transaction's events.
    pub event_count: u32,
    /// The position on the source after the transaction's last event.
    pub end_position: SourcePosition,
    /// The server id in the header of the GTID event.
    pub server_id: u32,
    /// The time in the header of the GTID event, in seconds since the epoch.
    pub timestamp: u32,
    /// Commit time on the source; since 8.0.
    pub immediate_commit: Option<CommitTimestamp>,
    /// Commit time on the originating server, if different.
    pub original_commit: Option<CommitTimestamp>,
    /// The source's logical clock for parallel applying.
    pub clock: LogicalClock,
}

/// The result of one or several events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamItem {
    /// A transaction, from its GTID event to its end.
    Transaction(FramedTransaction),
    /// The format of the following events.
    FormatDescription {
        /// The canonical event, with which a file of the ring begins.
        canonical: Bytes,
        /// The source's checksum algorithm.
        checksum: ChecksumAlgorithm,
    },
    /// The stream begins, or continues in another file.
    Rotate {
        /// The next file, and the position of its first event.
        to: SourcePosition,
        /// True for an artificial event; false for the event that ends a file.
        artificial: bool,
    },
    /// The source has no events to send.
    Heartbeat(SourcePosition),
    /// The GTIDs of all files before this one.
    PreviousGtids(GtidSet),
    /// An event between transactions that replicas ignore.
    Ignored(EventType),
}

// Positions on the source. Event headers contain only the low 32 bits; the other bits are tracked here.

/// A position in the source's log, as in a semi-sync acknowledgement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SourcePosition {
    /// The file's name without a directory; empty until the stream has named one.
    pub file: Bytes,
    /// Number of bytes in the file before the position.
    pub offset: u64,
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.escape_ascii(), self.offset)
    }
}

impl SourcePosition {
    /// Advances to the next offset with these low bits. A stream never goes backwards in a file, and events are less than 4 GiB apart.
    pub(super) fn advance_to_low_bits(&mut self, log_pos: u32) {
        let step = log_pos.wrapping_sub(self.offset as u32);
        self.offset = self.offset.saturating_add(u64::from(step));
    }
}

// Framing errors.

/// Why a stream of events cannot be split into transactions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FramingError {
    /// The transaction has no GTID.
    #[error(
        "the source sends transactions without a GTID: set gtid_mode=ON (and enforce_gtid_consistency=ON) on it"
    )]
    AnonymousTransaction,
    /// The transaction exceeds the configured limit.
    #[error(
        "transaction {gtid} has at least {size} bytes, more than max_transaction_bytes ({limit}): raise that limit on \
         all members, and keep the primary's max_binlog_cache_size below it"
    )]
    TransactionTooLarge {
        /// The transaction that is too large.
        gtid: Gtid,
        /// Known size of the transaction's canonical payload in bytes.
        size: u64,
        /// The framer's limit in bytes.
        limit: u64,
    },
    /// An event that belongs to a transaction arrived outside of one.
    #[error(
        "a {event_type} event came outside of a transaction: the stream lacks events; reconnect by GTID set"
    )]
    OutsideTransaction {
        /// The type in the event's header.
        event_type: EventType,
    },
    /// The event is not allowed at this place in a transaction.
    #[error("a {event_type} event is out of place in transaction {gtid}: reconnect by GTID set")]
    Misplaced {
        /// The transaction around the event.
        gtid: Gtid,
        /// The type in the event's header.
        event_type: EventType,
    },
    /// The file or the stream ended within a transaction.
    #[error(
        "transaction {gtid} was cut off by a {event_type} event: the source lost its end, or the stream was \
         restarted; reconnect by GTID set"
    )]
    Interrupted {
        /// The incomplete transaction.
        gtid: Gtid,
        /// The type of the event that was received instead of the transaction's end.
        event_type: EventType,
    },
    /// The transaction's length differs from the length in its GTID event.
    #[error(
        "transaction {gtid} came with {received} bytes, but its GTID event announces {announced}: the stream lacks \
         events, or was cut at the wrong place"
    )]
    LengthMismatch {
        /// The transaction of that GTID event.
        gtid: Gtid,
        /// The length in the GTID event, in bytes.
        announced: u64,
        /// Total size of the received events in bytes.
        received: u64,
    },
    /// The source reports missing events in its binlog.
    #[error(
        "the source's binlog has an incident (lost events): a statement changed something and is not in the binlog, as one \
         that writes more to a MyISAM table than a transaction may have. Give another server the source's place, and this one \
         a copy of that one's data"
    )]
    Incident,
    /// The file that held the transaction's first events failed.
    #[error(transparent)]
    Lost(#[from] SpillLost),
    /// An event cannot be decoded, or its checksum is wrong.
    #[error("an event of the stream cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// An earlier event was refused.
    #[error("the stream failed before: reset the framer and reconnect by GTID set")]
    NeedsReset,
}

// Transaction boundaries: a pure table of the place in a transaction and the next event. These are the rules by which a MySQL replica finds
// boundaries in its relay log.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// After a GTID event: the kind of transaction is not known yet.
    Begun,
    /// After a variable for the next statement, if no BEGIN came before.
    BeforeStatement,
    /// Between BEGIN and the end of the transaction.
    Inside,
}

/// The role of an event in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Begin,
    End,
    /// XA ROLLBACK: a separate transaction, or the end of a transaction that XA START began.
    XaRollback,
    /// A statement: a separate transaction or, after BEGIN, a part of one.
    Statement,
    /// A variable that the next statement needs.
    Variable,
    /// A whole transaction in one event.
    Payload,
    /// Rows, table maps and other events between BEGIN and the end of the transaction.
    Part,
    /// An event that is allowed anywhere in a transaction.
    Neutral,
}

/// The effect of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The event belongs to the transaction, which continues at this place.
    Continue(Place),
    /// The event is the last one of the transaction.
    Finish,
    Refuse,
}

/// The role of an event that may belong to a transaction.
fn role(event: EventRef<'_>) -> Result<Role, DecodeError> {
    Ok(match event.event_type() {
        EventType::Query => match StatementKind::of(&Query::decode(event)?.statement) {
            StatementKind::Begin | StatementKind::XaStart => Role::Begin,
            StatementKind::Commit | StatementKind::Rollback => Role::End,
            StatementKind::XaRollback => Role::XaRollback,
            StatementKind::Savepoint | StatementKind::Other => Role::Statement,
        },
        EventType::Xid | EventType::XaPrepare => Role::End,
        EventType::TransactionPayload => Role::Payload,
        EventType::IntVar | EventType::Rand | EventType::UserVar => Role::Variable,
        EventType::Ignorable | EventType::TransactionContext | EventType::DeleteFile => {
            Role::Neutral
        }
        EventType::Other(_) if event.header().flags.contains(EventFlags::IGNORABLE) => {
            Role::Neutral
        }
        _ => Role::Part,
    })
}

/// The effect of an event at a place of a transaction: the complete table.
fn step(place: Place, role: Role) -> Step {
    use Place::{BeforeStatement, Begun, Inside};
    match (place, role) {
        (place, Role::Neutral) => Step::Continue(place),

        (Begun, Role::Begin) => Step::Continue(Inside),
        (Begun | BeforeStatement, Role::Variable) => Step::Continue(BeforeStatement),
        (Begun | BeforeStatement, Role::Statement) => Step::Finish,
        (Begun | Inside, Role::XaRollback) => Step::Finish,
        (Begun, Role::Payload) => Step::Finish,

        (Inside, Role::End) => Step::Finish,
        (Inside, Role::Statement | Role::Variable | Role::Part) => Step::Continue(Inside),

        (Begun | BeforeStatement, Role::End | Role::Part)
        | (BeforeStatement, Role::XaRollback)
        | (BeforeStatement | Inside, Role::Begin | Role::Payload) => Step::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_continue_beyond_four_gibibytes() {
        let mut position = SourcePosition {
            file: Bytes::from_static(b"b"),
            offset: 4,
        };
        for (log_pos, offset) in [
            (158, 158),
            (u32::MAX, 0xffff_ffff),
            (10, 0x1_0000_000a),
            (10, 0x1_0000_000a),
            (9, 0x2_0000_0009),
        ] {
            position.advance_to_low_bits(log_pos);
            assert_eq!(position.offset, offset);
        }
    }
}

#[cfg(test)]
mod boundary_tests {
    use super::*;
    use crate::events::{EncodeEvent, EventOrigin};

    #[test]
    fn statements_have_the_roles_that_the_server_gives_them() {
        let table: [(&[u8], Role); 16] = [
            (b"BEGIN", Role::Begin),
            (b"begin", Role::Statement),
            (b"BEGIN WORK", Role::Statement),
            (b"XA START X'31',X'',1", Role::Begin),
            (b"XA END X'31',X'',1", Role::Statement),
            (b"XA COMMIT X'31',X'',1", Role::Statement),
            (b"XA ROLLBACK X'31',X'',1", Role::XaRollback),
            (b"COMMIT", Role::End),
            (b"COMMIT AND CHAIN", Role::Statement),
            (b"ROLLBACK", Role::End),
            (b"rollback /* tail */", Role::End),
            (b"ROLLBACK TO `s`", Role::Statement),
            (b"rollback to s", Role::Statement),
            (b"SAVEPOINT `s`", Role::Statement),
            (b"create table t (a int)", Role::Statement),
            (b"", Role::Statement),
        ];
        for (statement, expected) in table {
            let query = Query {
                statement: statement.into(),
                ..Query::default()
            };
            let event = query.encode(EventOrigin::default());
            let role = role(EventRef::new(&event).unwrap()).unwrap();
            assert_eq!(role, expected, "{}", statement.escape_ascii());
        }
    }
}
