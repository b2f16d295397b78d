//! Conversion of entries of all kinds: a few numbers and a body. A transaction's body shares the log's cache when it is sent, and the
//! receive buffer when it is received.

use bytes::Bytes;
use raft_types::{
    AppEntry, Entry, EntryPayload, FileStart, LogId, MAX_MESSAGE_BYTES, MAX_TRANSACTION_BYTES,
    Membership, MembershipPayload, OpId, PayloadChecksumError, Rotate, StoredMembership,
    TransactionPayload, Vote,
};

use spilling_bytes::SpillFolder;

use crate::compression::{UnpackError, unpack};
use crate::schema::{self, EntryKind};
use crate::wire::calls::{decode, encode, log_id_from, log_id_to, required_vote, vote_to};
use crate::wire::{Decoded, WireError};

/// Maximum size of an entry in a message, without its body.
pub(crate) const ENTRY_OVERHEAD: usize = 64;

/// Encodes an entry with its whole body, in the compressed form `packed` if it is given.
pub(crate) fn entry_to(entry: Entry, packed: Option<Bytes>) -> schema::Entry {
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
    schema::Entry {
        length_in_log,
        term: log_id.leader_id.term,
        index: log_id.index,
        kind: kind.into(),
        body_length: body.len() as u64,
        body,
        crc32c,
        timestamp,
    }
}

/// Returns the log id of a received entry.
pub(crate) fn log_id_of(entry: &schema::Entry) -> LogId {
    OpId::new(entry.term, entry.index).into()
}

/// Decodes a received entry with its whole body.
pub(crate) fn entry_from(entry: schema::Entry, spill: &SpillFolder) -> Decoded<Entry> {
    let log_id = log_id_of(&entry);
    let op_id = OpId::from(log_id);
    let payload = match kind_of(&entry)? {
        EntryKind::Blank => EntryPayload::Blank,
        EntryKind::Transaction => {
            let payload = match length_in_log(&entry)? {
                None => {
                    TransactionPayload::verify(entry.body, entry.crc32c).map_err(damaged(op_id))?
                }
                Some(length) => {
                    unpack(&entry.body, length, entry.crc32c, spill).map_err(damaged(op_id))?
                }
            };
            EntryPayload::Normal(AppEntry::Transaction(payload))
        }
        EntryKind::Rotate => {
            check(op_id, &entry.body, entry.crc32c)?;
            EntryPayload::Normal(AppEntry::Rotate(Rotate {
                // The bytes are copied, because a rotate is kept for long and the receive buffer is large.
                format_description: Bytes::copy_from_slice(&entry.body),
                timestamp: entry.timestamp,
            }))
        }
        EntryKind::Membership => {
            check(op_id, &entry.body, entry.crc32c)?;
            // The bytes are copied, as for a rotate.
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

/// Returns the size that a compressed entry's body has in the log.
pub(crate) fn length_in_log(entry: &schema::Entry) -> Decoded<Option<usize>> {
    let length = entry_length(log_id_of(entry).into(), entry.length_in_log)?;
    Ok((length != 0).then_some(length))
}

/// Checks the stated size of a body, and returns it.
pub(crate) fn entry_length(op_id: OpId, length: u64) -> Decoded<usize> {
    let fits = usize::try_from(length)
        .ok()
        .filter(|_| length <= MAX_TRANSACTION_BYTES);
    fits.ok_or(WireError::TooLong { op_id, length })
}

pub(crate) fn damaged<E: Into<UnpackError>>(op_id: OpId) -> impl FnOnce(E) -> WireError {
    move |error| {
        let source = error.into();
        WireError::Damaged { op_id, source }
    }
}

pub(crate) fn kind_of(entry: &schema::Entry) -> Decoded<EntryKind> {
    EntryKind::try_from(entry.kind).map_err(|_| WireError::Unknown {
        what: "entry",
        value: entry.kind,
    })
}

fn check(op_id: OpId, body: &[u8], expected: u32) -> Decoded {
    let found = crc32c::crc32c(body);
    if found == expected {
        return Ok(());
    }
    Err(damaged(op_id)(PayloadChecksumError { expected, found }))
}

// File starts. A log begins with one if earlier entries are purged on other members.

/// Maximum size of a file start without its header and membership.
const FRAME_BYTES: usize = 256;

/// Encodes a file start as one message.
///
/// # Errors
/// [`WireError::StartTooLarge`] if the file start does not fit.
pub(crate) fn begin_request(vote: &Vote, start: &FileStart) -> Decoded<schema::BeginRequest> {
    let membership = encode(start.membership.membership());
    let bytes = start.header.len() + membership.len() + FRAME_BYTES;
    if bytes > MAX_MESSAGE_BYTES {
        return Err(WireError::StartTooLarge {
            before: start.before,
            bytes,
        });
    }
    Ok(schema::BeginRequest {
        vote: Some(vote_to(vote)),
        before: Some(log_id_to(start.before.into())),
        membership_log_id: start.membership.log_id().map(log_id_to),
        membership,
        header: start.header.clone(),
    })
}

pub(crate) fn begin_request_from(request: schema::BeginRequest) -> Decoded<(Vote, FileStart)> {
    let vote = required_vote(request.vote)?;
    let before = request.before.ok_or(WireError::Missing("entry before"))?;
    let membership: Membership = decode("membership", &request.membership)?;
    let start = FileStart {
        before: OpId::from(log_id_from(before)),
        membership: StoredMembership::new(request.membership_log_id.map(log_id_from), membership),
        header: request.header,
    };
    Ok((vote, start))
}
#[cfg(test)]
mod tests {
    use raft_types::MemberId;

    use super::*;

    fn start(header: usize) -> FileStart {
        FileStart {
            before: OpId::new(3, 14),
            membership: StoredMembership::new(
                Some(OpId::new(2, 5).into()),
                Membership::new_with_defaults(vec![[MemberId(1), MemberId(2)].into()], []),
            ),
            header: vec![7; header].into(),
        }
    }

    #[test]
    fn a_start_round_trips() {
        let vote = Vote::new_committed(4, MemberId(2));
        let request = begin_request(&vote, &start(200)).unwrap();
        assert_eq!(begin_request_from(request).unwrap(), (vote, start(200)));
        assert!(begin_request_from(schema::BeginRequest::default()).is_err());
    }

    #[test]
    fn a_start_above_the_message_size_is_refused() {
        let vote = Vote::new_committed(4, MemberId(2));
        let refused = begin_request(&vote, &start(MAX_MESSAGE_BYTES)).unwrap_err();
        assert!(refused.to_string().contains("3.14"), "{refused}");
    }
}
