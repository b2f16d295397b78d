//! The marker in front of every entry, in the body of an ignorable event:
//!
//! ```text
//! offset  0  4 bytes  magic "WTNS"
//!         4  u8       layout: the format that brought it (1)
//!         5  u8       kind
//!         6  u16      flags: bit 0 = the op id counts
//!         8  u64      term        (all numbers little-endian)
//!        16  u64      index
//!        24  u64      payload length
//!        32  u32      CRC32C of the payload
//!        36  u32      events of the payload that follow the marker
//!        40           the payload itself, where no event follows (membership, rotate, file header)
//! ```
//!
//! The payload of a transaction is its canonical events; the event's own CRC32 protects the marker.

use binlog_format::canonical::stamp;
use binlog_format::events::{EncodeEvent, Ignorable};
use bytes::Buf;
use raft_types::{FormatMismatch, FormatRange, FormatVersion, OpId};

/// The first bytes of a marker's body.
pub const MARKER_MAGIC: [u8; 4] = *b"WTNS";
/// The supported layouts; the newest is written. A layout's number is the format that introduced it. A format that leaves markers unchanged
/// keeps their layout, so all members still write the same bytes.
pub const MARKER_LAYOUTS: FormatRange = FormatRange::only(FormatVersion::FIRST);
const WRITTEN: u8 = 1;
const _: () = assert!(WRITTEN as u32 == MARKER_LAYOUTS.newest().0);
/// Bytes of the fixed part of a marker's body.
pub const MARKER_BODY_LEN: usize = 40;
/// The largest marker event: memberships and format descriptions are small, so a larger one is damage.
pub(crate) const MAX_MARKER_EVENT_BYTES: usize = 1 << 20;

const HAS_OP_ID: u16 = 1;

/// The content after a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MarkerKind {
    /// The end of a file's header; the op id is that of the entry before the file.
    FileHeader = 1,
    /// A blank entry, which a new leader commits first.
    Blank = 2,
    /// A membership entry; its JSON is in the marker.
    Membership = 3,
    /// A transaction; its events follow.
    Transaction = 4,
    /// The last entry of a file; the next file's format description is in the marker.
    Rotate = 5,
}

impl MarkerKind {
    fn from_code(code: u8) -> Option<Self> {
        let kinds = [
            Self::FileHeader,
            Self::Blank,
            Self::Membership,
            Self::Transaction,
            Self::Rotate,
        ];
        kinds.into_iter().find(|kind| *kind as u8 == code)
    }

    /// True if the payload is the events after the marker, false if it is in the marker.
    pub const fn has_events(self) -> bool {
        matches!(self, Self::Transaction)
    }

    /// The name of the kind on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FileHeader => "file-header",
            Self::Blank => "blank",
            Self::Membership => "membership",
            Self::Transaction => "transaction",
            Self::Rotate => "rotate",
        }
    }
}

/// The fixed part of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The kind of entry, or a file header.
    pub kind: MarkerKind,
    /// The entry's op id; in a file header that of the entry before the file, `None` at the log's start.
    pub op_id: Option<OpId>,
    /// Bytes of the payload: the canonical events after the marker, or the marker's own content.
    pub payload_len: u64,
    /// CRC32C of the payload.
    pub payload_crc32c: u32,
    /// Number of events in the payload; zero if the payload is in the marker.
    pub event_count: u32,
}

/// Why an ignorable event is not a readable marker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// Another program wrote the event.
    #[error("it does not begin with the marker's magic")]
    NoMagic,
    /// Another version of this program wrote the file.
    #[error("it is in {0}")]
    Layout(#[from] FormatMismatch),
    /// The kind is unknown.
    #[error("its kind {0} is not known")]
    Kind(u8),
    /// The body is too short.
    #[error("its body has {0} bytes, fewer than the fixed part")]
    Short(usize),
    /// The fields contradict one another.
    #[error("its fields contradict one another: {0}")]
    Contradiction(&'static str),
    /// The payload in the marker is damaged.
    #[error("its payload's CRC32C is {found:08x}, but the marker says {expected:08x}")]
    Checksum {
        /// The CRC32C in the marker.
        expected: u32,
        /// The CRC32C of the payload.
        found: u32,
    },
}

impl Marker {
    /// Creates a marker that contains its payload, which may be empty.
    pub fn holding(kind: MarkerKind, op_id: Option<OpId>, payload: &[u8]) -> Self {
        Self {
            kind,
            op_id,
            payload_len: payload.len() as u64,
            payload_crc32c: crc32c::crc32c(payload),
            event_count: 0,
        }
    }

    /// The marker's first [`MARKER_BODY_LEN`] bytes; a payload in the marker follows them.
    pub fn encode(&self) -> [u8; MARKER_BODY_LEN] {
        let op_id = self.op_id.unwrap_or_default();
        let flags = if self.op_id.is_some() { HAS_OP_ID } else { 0 };
        let mut body = [0; MARKER_BODY_LEN];
        body[0..4].copy_from_slice(&MARKER_MAGIC);
        body[4] = WRITTEN;
        body[5] = self.kind as u8;
        body[6..8].copy_from_slice(&flags.to_le_bytes());
        body[8..16].copy_from_slice(&op_id.term.to_le_bytes());
        body[16..24].copy_from_slice(&op_id.index.to_le_bytes());
        body[24..32].copy_from_slice(&self.payload_len.to_le_bytes());
        body[32..36].copy_from_slice(&self.payload_crc32c.to_le_bytes());
        body[36..40].copy_from_slice(&self.event_count.to_le_bytes());
        body
    }

    /// Decodes an ignorable event's body: the marker, and the payload if the marker contains it.
    ///
    /// # Errors
    /// The event is no marker, has another version, or is damaged.
    pub fn decode(body: &[u8]) -> Result<(Self, &[u8]), MarkerError> {
        if !body.starts_with(&MARKER_MAGIC) {
            return Err(MarkerError::NoMagic);
        }
        let Some((fixed, payload)) = body.split_first_chunk::<MARKER_BODY_LEN>() else {
            return Err(MarkerError::Short(body.len()));
        };
        MARKER_LAYOUTS.check(FormatVersion(fixed[4].into()))?;
        let kind = MarkerKind::from_code(fixed[5]).ok_or(MarkerError::Kind(fixed[5]))?;
        let mut fields = &fixed[6..];
        let flags = fields.get_u16_le();
        let op_id = OpId::new(fields.get_u64_le(), fields.get_u64_le());
        let marker = Self {
            kind,
            op_id: (flags & HAS_OP_ID != 0).then_some(op_id),
            payload_len: fields.get_u64_le(),
            payload_crc32c: fields.get_u32_le(),
            event_count: fields.get_u32_le(),
        };
        marker.check(flags, op_id, payload)?;
        Ok((marker, payload))
    }

    fn check(&self, flags: u16, op_id: OpId, payload: &[u8]) -> Result<(), MarkerError> {
        let contradiction = if flags & !HAS_OP_ID != 0 {
            Some("an unknown flag is set")
        } else if self.op_id.is_none() && self.kind != MarkerKind::FileHeader {
            Some("an entry has no op id")
        } else if self.op_id.is_none() && op_id != OpId::default() {
            Some("an op id that does not count is not zero")
        } else if op_id.index == u64::MAX {
            Some("no entry can follow its index")
        } else if self.kind.has_events() != (self.event_count > 0) {
            Some("the number of events is not one of its kind")
        } else if !self.kind.has_events() && self.payload_len != payload.len() as u64 {
            Some("the payload's length is not that of the bytes in it")
        } else if self.kind.has_events() && !payload.is_empty() {
            Some("it holds bytes although its payload follows")
        } else {
            None
        };
        if let Some(contradiction) = contradiction {
            return Err(MarkerError::Contradiction(contradiction));
        }
        let found = crc32c::crc32c(payload);
        if !self.kind.has_events() && found != self.payload_crc32c {
            return Err(MarkerError::Checksum {
                expected: self.payload_crc32c,
                found,
            });
        }
        Ok(())
    }

    /// Bytes that the events after the marker take in a file. Each event there has a CRC32, which the canonical form omits.
    pub fn stored_payload_len(&self) -> u64 {
        if self.kind.has_events() {
            self.payload_len
                .saturating_add(4 * u64::from(self.event_count))
        } else {
            0
        }
    }
}

/// Appends the marker's event for position `offset`, and returns its end offset. `payload` is the marker's content.
pub(crate) fn encode_marker(
    marker: &Marker,
    payload: &[u8],
    (timestamp, server_id): (u32, u32),
    offset: u64,
    out: &mut Vec<u8>,
) -> u64 {
    let mut body = Vec::with_capacity(MARKER_BODY_LEN + payload.len());
    body.extend_from_slice(&marker.encode());
    body.extend_from_slice(payload);
    let event = Ignorable { body: body.into() }.encode(Ignorable::origin(timestamp, server_id));
    stamp(&event, offset, out).expect("an event that was just encoded is one whole event")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction() -> Marker {
        Marker {
            kind: MarkerKind::Transaction,
            op_id: Some(OpId::new(3, 0x0102_0304_0506_0708)),
            payload_len: 200,
            payload_crc32c: 0xdead_beef,
            event_count: 4,
        }
    }

    #[test]
    fn bytes_of_version_1_never_change() {
        #[rustfmt::skip]
        let golden: [u8; MARKER_BODY_LEN] = [
            b'W', b'T', b'N', b'S', 1, 4, 1, 0,
            3, 0, 0, 0, 0, 0, 0, 0,
            8, 7, 6, 5, 4, 3, 2, 1,
            200, 0, 0, 0, 0, 0, 0, 0,
            0xef, 0xbe, 0xad, 0xde, 4, 0, 0, 0,
        ];
        assert_eq!(transaction().encode(), golden);
        assert_eq!(Marker::decode(&golden), Ok((transaction(), &[][..])));
    }

    #[test]
    fn an_index_that_nothing_can_follow_is_refused() {
        let last = |index| Marker {
            op_id: Some(OpId::new(3, index)),
            ..transaction()
        };
        assert!(Marker::decode(&last(u64::MAX - 1).encode()).is_ok());
        assert_eq!(
            Marker::decode(&last(u64::MAX).encode()),
            Err(MarkerError::Contradiction("no entry can follow its index"))
        );
    }

    #[test]
    fn whole_event_of_version_1_never_changes() {
        let marker = Marker::holding(MarkerKind::Blank, Some(OpId::new(2, 9)), b"");
        let mut out = Vec::new();
        let end = encode_marker(&marker, b"", (0, 0), 400, &mut out);
        #[rustfmt::skip]
        let golden = [
            0, 0, 0, 0, 28, 0, 0, 0, 0, 63, 0, 0, 0, 0xcf, 1, 0, 0, 0x80, 0,
            b'W', b'T', b'N', b'S', 1, 2, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(end, 463);
        assert_eq!(out[..59], golden);
        assert_eq!(out[59..], crc32fast::hash(&golden).to_le_bytes());
    }

    #[test]
    fn payload_in_the_marker_round_trips() {
        let marker = Marker::holding(MarkerKind::Membership, Some(OpId::new(1, 0)), b"{}");
        let mut body = marker.encode().to_vec();
        body.extend_from_slice(b"{}");
        assert_eq!(Marker::decode(&body), Ok((marker, &b"{}"[..])));
        body[MARKER_BODY_LEN] = b'[';
        assert!(matches!(
            Marker::decode(&body),
            Err(MarkerError::Checksum { .. })
        ));
        body.pop();
        assert!(matches!(
            Marker::decode(&body),
            Err(MarkerError::Contradiction(_))
        ));
    }

    #[test]
    fn other_bytes_than_markers_are_refused() {
        let good = transaction().encode();
        assert_eq!(Marker::decode(b"hello"), Err(MarkerError::NoMagic));
        assert_eq!(Marker::decode(&good[..20]), Err(MarkerError::Short(20)));
        let later = FormatMismatch {
            found: FormatVersion(2),
            speaks: MARKER_LAYOUTS,
        };
        for (at, value, wanted) in [
            (4, 2, MarkerError::Layout(later)),
            (5, 9, MarkerError::Kind(9)),
        ] {
            let mut body = good;
            body[at] = value;
            assert_eq!(Marker::decode(&body), Err(wanted));
        }
        for (at, value) in [(6, 0), (7, 1), (36, 0)] {
            let mut body = good;
            body[at] = value;
            assert!(
                matches!(Marker::decode(&body), Err(MarkerError::Contradiction(_))),
                "{at}"
            );
        }
        let mut blank_with_payload =
            Marker::holding(MarkerKind::Blank, Some(OpId::new(1, 1)), b"").encode();
        blank_with_payload[24] = 1;
        assert!(Marker::decode(&blank_with_payload).is_err());
    }
}
