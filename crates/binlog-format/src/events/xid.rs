//! XID: the commit of a transaction; XA_PREPARE: the end of an XA transaction's first phase.

use std::borrow::Cow;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::body::EncodeEvent;

/// The commit of a transaction in a transactional engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xid {
    /// The number by which the source's engines know the transaction at recovery.
    pub xid: u64,
}

impl Xid {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type or size.
    pub fn decode(event: EventRef<'_>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::Xid)?);
        let xid = cursor.u64("XID")?;
        cursor.finish("the XID")?;
        Ok(Self { xid })
    }
}

impl EncodeEvent for Xid {
    fn event_type(&self) -> EventType {
        EventType::Xid
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.xid.to_le_bytes());
    }
}

/// The end of the part of an XA transaction that one event group holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XaPrepare<'a> {
    /// True for XA COMMIT … ONE PHASE: nothing follows.
    pub one_phase: bool,
    /// The format identifier of the client's XA id.
    pub format_id: u32,
    /// The global part of the XA id.
    pub global_id: Cow<'a, [u8]>,
    /// The branch part of the XA id.
    pub branch: Cow<'a, [u8]>,
}

impl<'a> XaPrepare<'a> {
    /// The longest global or branch part.
    pub const MAX_PART_LEN: usize = 64;

    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type or cut off, or the XA id is longer than XA allows.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::XaPrepare)?);
        let one_phase = match cursor.u8("XA phase")? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::invalid("XA phase", "neither 0 nor 1")),
        };
        let format_id = cursor.u32("XA format id")?;
        let global_len = part_length(cursor.u32("XA global id length")?)?;
        let branch_len = part_length(cursor.u32("XA branch length")?)?;
        let global_id = Cow::Borrowed(cursor.bytes("XA global id", global_len)?);
        let branch = Cow::Borrowed(cursor.bytes("XA branch", branch_len)?);
        cursor.finish("the XA id")?;
        Ok(Self {
            one_phase,
            format_id,
            global_id,
            branch,
        })
    }
}

fn part_length(length: u32) -> Result<usize, DecodeError> {
    let length = length as usize;
    if length <= XaPrepare::MAX_PART_LEN {
        Ok(length)
    } else {
        Err(DecodeError::invalid(
            "XA id",
            "a part has more than 64 bytes",
        ))
    }
}

impl EncodeEvent for XaPrepare<'_> {
    fn event_type(&self) -> EventType {
        EventType::XaPrepare
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.one_phase));
        out.extend_from_slice(&self.format_id.to_le_bytes());
        for part in [&self.global_id, &self.branch] {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        out.extend_from_slice(&self.global_id);
        out.extend_from_slice(&self.branch);
    }
}
