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
use bytes::{Buf, Bytes, TryGetError};
use raft_types::{LogId, MembershipPayload, OpId, RingId, StoredMembership};
use uuid::Uuid;

use crate::format::file_name::{FileNumber, InvalidFileNumber};
use crate::format::marker::{Marker, MarkerKind, encode_marker};

/// A file's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    /// The file's number, as stored in the header's marker.
    pub number: FileNumber,
    /// The log's ring.
    pub ring: RingId,
    /// The entry before the file; `None` at the log's begin.
    pub before: Option<OpId>,
    /// All GTIDs of the files before this file.
    pub previous_gtids: GtidSet,
    /// The canonical format description event, with a zero timestamp for comparison.
    pub format_description: Bytes,
    /// Creation time of the file in seconds since the epoch; 0 in the log's first file.
    pub timestamp: u32,
    /// Offset of the first entry's marker.
    pub end: u64,
    /// The last membership entry before the file.
    pub(crate) membership: Option<LoggedMembership>,
}

impl FileHeader {
    /// The membership in effect at the file's start; the default one if there was none.
    pub fn membership(&self) -> StoredMembership {
        self.membership
            .as_ref()
            .map(LoggedMembership::stored)
            .unwrap_or_default()
    }
}

/// Encodes a header as the first bytes of a file, and sets the header's end. The format description may have any timestamp.
pub(crate) fn encode_file_header(header: &mut FileHeader) -> Vec<u8> {
    let description = EventRef::new(&header.format_description).ok();
    let server_id = description.map_or(0, |event| event.header().server_id);
    let origin = EventOrigin {
        timestamp: header.timestamp,
        server_id,
        flags: EventFlags::NONE,
    };
    // The file's format description event has the file's timestamp.
    let timed_description = with_timestamp(&header.format_description, header.timestamp);
    header.format_description = with_timestamp(&header.format_description, 0).into();
    let mut out = MAGIC.to_vec();
    let mut end = MAGIC.len() as u64;
    let gtids = header.previous_gtids.clone();
    let gtids = PreviousGtids { gtids }.encode(origin);
    for event in [&timed_description, &gtids] {
        end = stamp(event, end, &mut out).expect("both were checked or encoded as one whole event");
    }
    let payload = encode_body(header);
    let marker = Marker::holding(MarkerKind::FileHeader, header.before, &payload);
    let origin = (header.timestamp, server_id);
    header.end = encode_marker(&marker, &payload, origin, end, &mut out);
    out
}

/// The event with another timestamp.
pub(crate) fn with_timestamp(event: &[u8], timestamp: u32) -> Vec<u8> {
    let mut event = event.to_vec();
    if let Some(place) = event.get_mut(0..4) {
        place.copy_from_slice(&timestamp.to_le_bytes());
    }
    event
}

fn encode_body(header: &FileHeader) -> Vec<u8> {
    let mut body = header.ring.0.as_bytes().to_vec();
    body.extend_from_slice(&header.number.get().to_le_bytes());
    if let Some(membership) = &header.membership {
        body.extend_from_slice(&membership.op_id.term.to_le_bytes());
        body.extend_from_slice(&membership.op_id.index.to_le_bytes());
        body.extend_from_slice(&membership.json);
    }
    body
}

/// Why a part of a marker's payload cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentFault {
    /// A file header ends within its fixed part, or within its membership's op id.
    #[error("the payload of the file header's marker is cut off")]
    HeaderCut,
    /// A file header has an impossible file number.
    #[error(transparent)]
    FileNumber(#[from] InvalidFileNumber),
    /// A membership's bytes are not readable.
    #[error("the membership cannot be read: {0}")]
    Membership(String),
    /// A rotate entry has no canonical format description.
    #[error("the rotate entry cannot be read")]
    Rotate,
    /// The event after a rotate entry names another file.
    #[error("the rotate event does not name {0}")]
    RotateTarget(FileNumber),
    /// Bytes follow a header that was received without entries.
    #[error("bytes follow the header")]
    AfterHeader,
}

/// The payload of a file header's marker.
pub(crate) fn decode_body(
    mut payload: &[u8],
) -> Result<(RingId, FileNumber, Option<LoggedMembership>), ContentFault> {
    let ring = RingId(Uuid::from_u128(payload.try_get_u128()?));
    let number = payload.try_get_u64_le()?;
    let membership = match payload.is_empty() {
        true => None,
        false => Some(decode_membership(payload)?),
    };
    Ok((ring, FileNumber::try_from(number)?, membership))
}

fn decode_membership(mut bytes: &[u8]) -> Result<LoggedMembership, ContentFault> {
    let op_id = OpId::new(bytes.try_get_u64_le()?, bytes.try_get_u64_le()?);
    let payload = MembershipPayload::read(Bytes::copy_from_slice(bytes))
        .map_err(|error| ContentFault::Membership(error.to_string()))?;
    Ok(LoggedMembership::new(op_id, &payload))
}

impl From<TryGetError> for ContentFault {
    fn from(_: TryGetError) -> Self {
        Self::HeaderCut
    }
}

// A membership in the log: the entry's op id and its bytes.

/// A membership entry. It is decoded on demand, because the decoded form takes ten times as much memory. The log keeps one for each change
/// and each file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedMembership {
    pub(crate) op_id: OpId,
    /// The bytes are copied unchanged, so that every member writes the same.
    json: Bytes,
}

impl LoggedMembership {
    pub(crate) fn new(op_id: OpId, payload: &MembershipPayload) -> Self {
        // A copy: a slice of a larger read would keep all of that read in memory.
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

    /// The membership in the engine's form.
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

    fn header(membership: Option<&LoggedMembership>) -> FileHeader {
        FileHeader {
            number: FileNumber::FIRST.next(),
            ring: RingId(Uuid::from_u128(7)),
            before: Some(OpId::new(3, 12)),
            previous_gtids: GtidSet::new(),
            format_description: FormatDescription::built_in_event().into(),
            timestamp: 99,
            end: 0,
            membership: membership.cloned(),
        }
    }

    #[test]
    fn a_membership_is_kept_as_its_bytes_alone() {
        let kept = size_of::<LoggedMembership>();
        assert_eq!(kept, size_of::<OpId>() + size_of::<Bytes>());
    }

    fn membership() -> LoggedMembership {
        let payload = MembershipPayload::seal(Membership::default());
        LoggedMembership::new(OpId::new(1, 0), &payload)
    }

    #[test]
    fn equal_headers_give_equal_bytes() {
        let encoded = |membership: Option<&LoggedMembership>| {
            let mut header = header(membership);
            (encode_file_header(&mut header), header)
        };
        let membership = membership();
        let one = encoded(Some(&membership));
        assert_eq!(one, encoded(Some(&membership)));
        assert_eq!(one.0.len() as u64, one.1.end);
        assert_ne!(one.0, encoded(None).0);
    }

    #[test]
    fn marker_payload_round_trips() {
        let membership = membership();
        for membership in [None, Some(&membership)] {
            let payload = encode_body(&header(membership));
            let (ring, number, decoded) = decode_body(&payload).unwrap();
            assert_eq!(ring, RingId(Uuid::from_u128(7)));
            assert_eq!(number.get(), 2);
            assert_eq!(decoded.as_ref(), membership);
        }
        assert!(decode_body(&[0; 23]).is_err());
        assert!(decode_body(&[0; 24]).is_err());
        assert!(decode_body(&[1; 30]).is_err());
    }
}
