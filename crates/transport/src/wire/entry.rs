//! Entries: a few numbers and a body, whatever the entry is. A transaction's body is shared with the
//! log's cache on the way out and with the receive buffer on the way in.

use bytes::Bytes;
use raft_types::{
    AppEntry, CommittedLeaderId, Entry, EntryPayload, LogId, Membership, OpId,
    PayloadChecksumError, Rotate, TransactionPayload,
};

use super::error::WireError;
use crate::schema::{self, EntryKind};

/// What an entry costs in a message on top of its body, at most.
pub(crate) const ENTRY_OVERHEAD: usize = 64;

/// An entry with its whole body.
pub(crate) fn entry_to(entry: Entry) -> Result<schema::Entry, WireError> {
    let Entry { log_id, payload } = entry;
    let mut timestamp = 0;
    let (kind, body, crc32c) = match payload {
        EntryPayload::Blank => (EntryKind::Blank, Bytes::new(), 0),
        EntryPayload::Normal(AppEntry::Transaction(payload)) => {
            let crc32c = payload.crc32c();
            (EntryKind::Transaction, payload.bytes().clone(), crc32c)
        }
        EntryPayload::Normal(AppEntry::Rotate(rotate)) => {
            timestamp = rotate.timestamp;
            let crc32c = crc32c::crc32c(&rotate.format_description);
            (EntryKind::Rotate, rotate.format_description, crc32c)
        }
        EntryPayload::Membership(membership) => {
            let json = serde_json::to_vec(&membership).map_err(|error| WireError::Membership {
                op_id: log_id.into(),
                reason: error.to_string(),
            })?;
            let crc32c = crc32c::crc32c(&json);
            (EntryKind::Membership, Bytes::from(json), crc32c)
        }
    };
    Ok(schema::Entry {
        term: log_id.leader_id.term,
        index: log_id.index,
        kind: kind.into(),
        body_length: body.len() as u64,
        body,
        crc32c,
        timestamp,
    })
}

/// The log id of an entry that arrived.
pub(crate) fn log_id_of(entry: &schema::Entry) -> LogId {
    LogId {
        leader_id: CommittedLeaderId::new(entry.term),
        index: entry.index,
    }
}

/// An entry whose whole body is in the message.
pub(crate) fn entry_from(entry: schema::Entry) -> Result<Entry, WireError> {
    let log_id = log_id_of(&entry);
    let op_id = OpId::from(log_id);
    let payload = match kind_of(&entry)? {
        EntryKind::Blank => EntryPayload::Blank,
        EntryKind::Transaction => {
            let payload = TransactionPayload::verify(entry.body, entry.crc32c);
            let payload = payload.map_err(|source| WireError::Damaged { op_id, source })?;
            EntryPayload::Normal(AppEntry::Transaction(payload))
        }
        EntryKind::Rotate => {
            check(op_id, &entry.body, entry.crc32c)?;
            EntryPayload::Normal(AppEntry::Rotate(Rotate {
                // A copy, because rotates live long and the receive buffer is large.
                format_description: Bytes::copy_from_slice(&entry.body),
                timestamp: entry.timestamp,
            }))
        }
        EntryKind::Membership => {
            check(op_id, &entry.body, entry.crc32c)?;
            let membership: Membership =
                serde_json::from_slice(&entry.body).map_err(|error| WireError::Membership {
                    op_id,
                    reason: error.to_string(),
                })?;
            EntryPayload::Membership(membership)
        }
        EntryKind::Unspecified => return Err(WireError::Missing("kind of an entry")),
    };
    Ok(Entry { log_id, payload })
}

/// The entry that a transaction put together from pieces makes.
pub(crate) fn transaction_entry(log_id: LogId, payload: TransactionPayload) -> Entry {
    Entry {
        log_id,
        payload: EntryPayload::Normal(AppEntry::Transaction(payload)),
    }
}

pub(crate) fn kind_of(entry: &schema::Entry) -> Result<EntryKind, WireError> {
    EntryKind::try_from(entry.kind).map_err(|_| WireError::Unknown {
        what: "entry",
        value: entry.kind,
    })
}

fn check(op_id: OpId, body: &[u8], expected: u32) -> Result<(), WireError> {
    let found = crc32c::crc32c(body);
    if found == expected {
        return Ok(());
    }
    let source = PayloadChecksumError { expected, found };
    Err(WireError::Damaged { op_id, source })
}
