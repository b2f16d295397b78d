//! The header of a log file: magic, format description, previous GTIDs, and a marker with the file's number, its ring and the preceding
//! state. All of it follows from the log, so it is the same on every member.
//!
//! ```text
//! payload of the marker:
//! offset 0  16 bytes  ring id
//!       16  u64       file number
//!       24            where a membership is in effect before the file:
//!                     u64 term, u64 index of its entry, then its JSON
//! ```

use binlog_format::MAGIC;
use binlog_format::canonical::stamp;
use binlog_format::event::{EventFlags, EventRef};
use binlog_format::events::{EncodeEvent, EventOrigin, PreviousGtids};
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use raft_types::{LogId, MembershipPayload, OpId, RingId, Rotate, StoredMembership};
use uuid::Uuid;

use crate::format::file_name::FileNumber;
use crate::format::marker::{Marker, MarkerKind, encode_marker};

/// Bytes of the marker's payload where no membership is in effect.
const BODY_MIN: usize = 24;
const MEMBERSHIP_OP_ID_LEN: usize = 16;

/// A file's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    /// The file's number, as its marker says.
    pub number: FileNumber,
    /// The ring whose log this is.
    pub ring: RingId,
    /// The entry before the file; `None` at the log's begin.
    pub before: Option<OpId>,
    /// All GTIDs of the files before this one.
    pub previous_gtids: GtidSet,
    /// The canonical format description event, with a zero timestamp for comparison.
    pub format_description: Bytes,
    /// Creation time of the file in seconds since the epoch; 0 in the first one.
    pub timestamp: u32,
    /// Offset of the first entry's marker.
    pub end: u64,
    /// The last membership entry before the file.
    pub(crate) membership: Option<LoggedMembership>,
}

impl FileHeader {
    /// The membership in effect at the file's start; the default one if there was none.
    #[must_use]
    pub fn membership(&self) -> StoredMembership {
        self.membership
            .as_ref()
            .map(LoggedMembership::stored)
            .unwrap_or_default()
    }
}

/// The inputs of a file's header.
pub(crate) struct HeaderSource<'a> {
    pub(crate) number: FileNumber,
    pub(crate) ring: RingId,
    pub(crate) before: Option<OpId>,
    pub(crate) membership: Option<&'a LoggedMembership>,
    pub(crate) previous_gtids: &'a GtidSet,
    pub(crate) format_description: &'a Bytes,
    pub(crate) timestamp: u32,
}

/// The first bytes of a file, and their decoded form.
pub(crate) fn encode_file_header(source: &HeaderSource<'_>) -> (Vec<u8>, FileHeader) {
    let description = EventRef::new(source.format_description).ok();
    let server_id = description.map_or(0, |event| event.header().server_id);
    let origin = EventOrigin {
        timestamp: source.timestamp,
        server_id,
        flags: EventFlags::NONE,
    };

    // The format description is the entry's, with the file's timestamp.
    let timed_description = with_timestamp(source.format_description, source.timestamp);

    let mut out = MAGIC.to_vec();
    let mut end = MAGIC.len() as u64;
    let gtids = PreviousGtids {
        gtids: source.previous_gtids.clone(),
    }
    .encode(origin);
    for event in [&timed_description, &gtids] {
        end = stamp(event, end, &mut out).expect("both were checked or encoded as one whole event");
    }
    let payload = encode_body(source);
    let marker = Marker::holding(MarkerKind::FileHeader, source.before, &payload);
    let end = encode_marker(
        &marker,
        &payload,
        (source.timestamp, server_id),
        end,
        &mut Vec::new(),
        &mut out,
    );

    let header = FileHeader {
        number: source.number,
        ring: source.ring,
        before: source.before,
        previous_gtids: source.previous_gtids.clone(),
        format_description: with_timestamp(source.format_description, 0).into(),
        timestamp: source.timestamp,
        end,
        membership: source.membership.cloned(),
    };
    (out, header)
}

/// The event with another timestamp.
pub(crate) fn with_timestamp(event: &[u8], timestamp: u32) -> Vec<u8> {
    let mut event = event.to_vec();
    if let Some(place) = event.get_mut(0..4) {
        place.copy_from_slice(&timestamp.to_le_bytes());
    }
    event
}

fn encode_body(source: &HeaderSource<'_>) -> Vec<u8> {
    let mut body = source.ring.0.as_bytes().to_vec();
    body.extend_from_slice(&source.number.get().to_le_bytes());
    if let Some(membership) = source.membership {
        body.extend_from_slice(&membership.op_id.term.to_le_bytes());
        body.extend_from_slice(&membership.op_id.index.to_le_bytes());
        body.extend_from_slice(&membership.json);
    }
    body
}

/// The payload of a file header's marker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileHeaderBody {
    pub(crate) ring: RingId,
    pub(crate) number: FileNumber,
    pub(crate) membership: Option<LoggedMembership>,
}

impl FileHeaderBody {
    /// Decodes the payload; the error describes the fault.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, String> {
        let (fixed, rest) = payload
            .split_first_chunk::<BODY_MIN>()
            .ok_or("the payload of the file header's marker is too short")?;
        let (ring, number) = fixed.split_at(16);
        let ring = Uuid::from_slice(ring).map_err(|error| error.to_string())?;
        let mut number_bytes = [0; 8];
        number_bytes.copy_from_slice(number);
        let number = FileNumber::try_from(u64::from_le_bytes(number_bytes))?;
        let membership = if rest.is_empty() {
            None
        } else {
            Some(decode_membership(rest)?)
        };
        Ok(Self {
            ring: RingId(ring),
            number,
            membership,
        })
    }
}

fn decode_membership(bytes: &[u8]) -> Result<LoggedMembership, String> {
    let (op_id, json) = bytes
        .split_first_chunk::<MEMBERSHIP_OP_ID_LEN>()
        .ok_or("the membership in the file header's marker is cut off")?;
    let (mut term, mut index) = ([0; 8], [0; 8]);
    term.copy_from_slice(&op_id[..8]);
    index.copy_from_slice(&op_id[8..]);
    let op_id = OpId::new(u64::from_le_bytes(term), u64::from_le_bytes(index));
    let payload = MembershipPayload::read(Bytes::copy_from_slice(json)).map_err(|error| {
        format!("the membership in the file header's marker is not readable: {error}")
    })?;
    Ok(LoggedMembership::new(op_id, &payload))
}

// Transition between files: the next file's header must follow from the log.

/// The log up to the end of a file.
pub(crate) struct FileEnd<'a> {
    pub(crate) last: Option<OpId>,
    pub(crate) gtids: &'a GtidSet,
    pub(crate) membership: Option<&'a LoggedMembership>,
    /// The rotate entry that ends the file.
    pub(crate) rotate: &'a Rotate,
}

/// The part of the next file's header that does not follow from the log before it.
pub(crate) fn wrong_part(end: &FileEnd<'_>, next: &FileHeader) -> Option<&'static str> {
    if next.before != end.last {
        Some("entry before the file")
    } else if next.previous_gtids != *end.gtids {
        Some("previous GTIDs")
    } else if next.format_description != with_timestamp(&end.rotate.format_description, 0)
        || next.timestamp != end.rotate.timestamp
    {
        Some("format description and time")
    } else if next.membership.as_ref() != end.membership {
        Some("membership")
    } else {
        None
    }
}

// A membership in the log: the entry's op id and its bytes.

/// A membership entry. Its decoded form takes ten times as much memory, and there is one per change and file: it is decoded on demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedMembership {
    pub(crate) op_id: OpId,
    /// The bytes are copied unchanged, so that every member writes the same.
    json: Bytes,
}

impl LoggedMembership {
    pub(crate) fn new(op_id: OpId, payload: &MembershipPayload) -> Self {
        // A slice of a larger read would keep all of it in memory.
        let json = Bytes::copy_from_slice(payload.json());
        Self { op_id, json }
    }

    /// The decoded membership with its bytes.
    ///
    /// # Panics
    /// Never: the bytes are those of a payload.
    pub(crate) fn payload(&self) -> MembershipPayload {
        MembershipPayload::read(self.json.clone()).expect("the bytes of a payload can be read")
    }

    /// In the engine's form.
    pub(crate) fn stored(&self) -> StoredMembership {
        let membership = self.payload().membership().clone();
        StoredMembership::new(Some(LogId::from(self.op_id)), membership)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use binlog_format::events::FormatDescription;
    use raft_types::Membership;

    fn source<'a>(
        gtids: &'a GtidSet,
        description: &'a Bytes,
        membership: Option<&'a LoggedMembership>,
    ) -> HeaderSource<'a> {
        HeaderSource {
            number: FileNumber::FIRST.next(),
            ring: RingId(Uuid::from_u128(7)),
            before: Some(OpId::new(3, 12)),
            membership,
            previous_gtids: gtids,
            format_description: description,
            timestamp: 99,
        }
    }

    #[test]
    fn a_membership_is_kept_as_its_bytes_alone() {
        let kept = size_of::<LoggedMembership>();
        assert_eq!(kept, size_of::<OpId>() + size_of::<Bytes>());
    }

    #[test]
    fn equal_sources_give_equal_bytes() {
        let description = Bytes::from(FormatDescription::built_in_event());
        let gtids = GtidSet::new();
        let membership = LoggedMembership::new(
            OpId::new(1, 0),
            &MembershipPayload::seal(Membership::default()),
        );
        let one = encode_file_header(&source(&gtids, &description, Some(&membership)));
        let other = encode_file_header(&source(&gtids, &description, Some(&membership)));
        assert_eq!(one, other);
        assert_eq!(one.0.len() as u64, one.1.end);
        assert_ne!(
            one.0,
            encode_file_header(&source(&gtids, &description, None)).0
        );
    }

    #[test]
    fn marker_payload_round_trips() {
        let description = Bytes::from(FormatDescription::built_in_event());
        let gtids = GtidSet::new();
        let membership = LoggedMembership::new(
            OpId::new(1, 0),
            &MembershipPayload::seal(Membership::default()),
        );
        for membership in [None, Some(&membership)] {
            let payload = encode_body(&source(&gtids, &description, membership));
            let body = FileHeaderBody::decode(&payload).unwrap();
            assert_eq!(body.ring, RingId(Uuid::from_u128(7)));
            assert_eq!(body.number.get(), 2);
            assert_eq!(body.membership.as_ref(), membership);
        }
        assert!(FileHeaderBody::decode(&[0; 23]).is_err());
        assert!(FileHeaderBody::decode(&[0; 24]).is_err());
        assert!(FileHeaderBody::decode(&[1; 30]).is_err());
    }
}
