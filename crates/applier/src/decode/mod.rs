//! Prepares transactions of the log for scheduling: separates row changes from barriers, splits rows events into
//! rows, and finds the keys of each row. Pure: the caller supplies the shapes of the target's tables.
//!
//! ```text
//! FramedTransaction ─► Decoder::parse ─► Parsed ─(the target's tables)─► Parsed::finish ─► Transaction
//! ```

mod failure;
mod own_schema;
mod parsed;
mod schema_change;

use binlog_format::DecodeError;
use binlog_format::canonical::{CanonicalEvents, canonicalise};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventType, RawEvent};
use binlog_format::events::{GtidEvent, TransactionPayload};
use binlog_format::framing::FramedTransaction;
use spilling_bytes::long_work;

pub use crate::decode::failure::{DecodeCause, DecodeFailure};
use crate::decode::failure::{INCOMPLETE, misplaced};
use crate::decode::own_schema::OwnSchema;
pub use crate::decode::parsed::{LoggedTable, Parsed, ReadyTables};
use crate::decode::parsed::{Parts, read_barrier};
use crate::transaction::{Body, RowChanges, Seq, Transaction};

/// Maximum bytes of the metadata of a transaction's rows and keys, so that indexes into it fit into 32 bits.
const MAX_KEY_BYTES: u64 = 8 << 30;

/// Decodes transactions. It keeps no state from one transaction to the next.
#[derive(Debug, Clone, Copy)]
pub struct Decoder {
    max_transaction_bytes: u64,
}

impl Decoder {
    /// Creates a decoder. The limit applies to the decompressed events of a transaction, and separately to the
    /// metadata of its rows.
    pub fn new(max_transaction_bytes: u64) -> Self {
        Self {
            max_transaction_bytes,
        }
    }

    /// Reads a transaction's events. Rows are decoded only in [`Parsed::finish`].
    ///
    /// # Errors
    /// [`DecodeFailure`], with the remedy.
    pub fn parse(&self, framed: &FramedTransaction) -> Result<Parsed, DecodeFailure> {
        let parsed = self.read(framed);
        parsed.map_err(|cause| DecodeFailure::new(framed.gtid, None, cause))
    }

    fn read(&self, framed: &FramedTransaction) -> Result<Parsed, DecodeCause> {
        let mut events = CanonicalEvents::new(framed.payload.clone());
        let first = events.next().ok_or(INCOMPLETE)??;
        let gtid = GtidEvent::decode(first.canonical())?;
        let mut bytes = framed.payload.len();
        let mut own = OwnSchema::default();
        for event in events {
            let event = event?;
            if event.event_type() != EventType::TransactionPayload {
                keep(event, &mut own)?;
                continue;
            }
            if !own.kept.is_empty() {
                return Err(misplaced(&event));
            }
            // The compressed bytes are no longer needed.
            bytes = 0;
            for event in self.decompress(&event)? {
                let event = event?;
                bytes += event.bytes().len();
                keep(bare(event)?, &mut own)?;
            }
        }
        let OwnSchema { left_out, kept, .. } = own;
        let rows = Body::Rows(RowChanges::default());
        let (parts, events, body) = match (kept.is_empty(), Parts::read(&kept)?) {
            (true, _) if !left_out => return Err(misplaced(&first)),
            (true, _) => (Parts::default(), kept, rows),
            (false, Some(parts)) => (parts, kept, rows),
            (false, None) => {
                let barrier = Body::Barrier(read_barrier(kept)?);
                (Parts::default(), Vec::new(), barrier)
            }
        };
        Ok(Parsed {
            transaction: Transaction {
                seq: Seq::default(),
                gtid: framed.gtid,
                immediate_commit: gtid.immediate_commit,
                original_commit: gtid.original_commit.or(gtid.immediate_commit),
                original_version: gtid.original_version.or(gtid.immediate_version),
                bytes,
                body,
            },
            parts,
            events,
            max_key_bytes: self.max_transaction_bytes.min(MAX_KEY_BYTES),
        })
    }

    fn decompress(&self, event: &RawEvent) -> Result<CanonicalEvents, DecodeCause> {
        let limit = self.max_transaction_bytes;
        let payload = TransactionPayload::decode(event.canonical())?;
        let bytes = payload.uncompressed_size.unwrap_or(limit).min(limit);
        let events = long_work::run(usize::try_from(bytes).unwrap_or(usize::MAX), || {
            payload.events(limit)
        });
        events.map_err(|error| match error {
            DecodeError::TooLarge { .. } => DecodeCause::TooLarge { limit },
            other => DecodeCause::Unreadable(other),
        })
    }
}

/// Converts an event without a checksum to canonical form, in which the log position is zero.
fn bare(event: RawEvent) -> Result<RawEvent, DecodeCause> {
    if event.header().log_pos == 0 {
        return Ok(event);
    }
    let canonical = canonicalise(&event, ChecksumAlgorithm::None)?;
    Ok(RawEvent::new(canonical)?)
}

/// True if replicas ignore an event, wherever it is.
fn is_neutral(event: &RawEvent) -> bool {
    matches!(
        event.event_type(),
        EventType::Ignorable
            | EventType::RowsQuery
            | EventType::TransactionContext
            | EventType::ViewChange
            | EventType::DeleteFile
    ) || event.header().flags.contains(EventFlags::IGNORABLE)
}

/// Keeps an event, unless it belongs to the applier's own schema. LOAD DATA in statement format is an error.
fn keep(event: RawEvent, own: &mut OwnSchema) -> Result<(), DecodeCause> {
    match event.event_type() {
        EventType::BeginLoadQuery | EventType::AppendBlock | EventType::ExecuteLoadQuery => {
            Err(DecodeCause::LoadData)
        }
        _ if is_neutral(&event) => Ok(()),
        _ => own.take(event),
    }
}
