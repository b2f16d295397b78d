//! Entries: a few numbers and a body, whatever the entry is. A transaction's body is shared with the
//! log's cache on the way out and with the receive buffer on the way in.

use bytes::Bytes;
use raft_types::{
    AppEntry, CommittedLeaderId, Entry, EntryPayload, LogId, MAX_TRANSACTION_BYTES,
    MembershipPayload, OpId, PayloadChecksumError, Rotate, TransactionPayload,
};

use super::error::WireError;
use crate::compression::unpack;
use crate::schema::{self, EntryKind};

/// What an entry costs in a message on top of its body, at most.
pub(crate) const ENTRY_OVERHEAD: usize = 64;

/// An entry with its whole body, which is `packed` where there is one.
pub(crate) fn entry_to(entry: Entry, packed: Option<Bytes>) -> Result<schema::Entry, WireError> {
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
        EntryPayload::Membership(payload) => {
            let json = payload.json().clone();
            let crc32c = crc32c::crc32c(&json);
            (EntryKind::Membership, json, crc32c)
        }
    };
    let (body, length_in_log) = match packed {
        Some(packed) => (packed, body.len() as u64),
        None => (body, 0),
    };
    Ok(schema::Entry {
        length_in_log,
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
            let payload = match length_in_log(&entry)? {
                None => TransactionPayload::verify(entry.body, entry.crc32c)
                    .map_err(|source| WireError::Damaged { op_id, source })?,
                Some(length) => unpack(&entry.body, length, entry.crc32c)
                    .map_err(|source| WireError::NotUnpacked { op_id, source })?,
            };
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
            // A copy, as with rotates.
            let json = Bytes::copy_from_slice(&entry.body);
            let payload = MembershipPayload::read(json).map_err(|error| WireError::Membership {
                op_id,
                reason: error.to_string(),
            })?;
            EntryPayload::Membership(payload)
        }
        EntryKind::Unspecified => return Err(WireError::Missing("kind of an entry")),
    };
    Ok(Entry { log_id, payload })
}

/// How many bytes the body of an entry that travels packed has in the log.
pub(crate) fn length_in_log(entry: &schema::Entry) -> Result<Option<usize>, WireError> {
    let length = entry.length_in_log;
    let fits = usize::try_from(length)
        .ok()
        .filter(|_| length <= MAX_TRANSACTION_BYTES);
    match fits {
        Some(0) => Ok(None),
        Some(length) => Ok(Some(length)),
        None => Err(WireError::TooLong {
            op_id: log_id_of(entry).into(),
            length,
            limit: MAX_TRANSACTION_BYTES,
        }),
    }
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
