//! PREVIOUS_GTIDS: all GTIDs of the files before this one, in the binary form of a GTID set.

use crate::decode_error::DecodeError;
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::body::EncodeEvent;
use crate::gtid::{GtidSet, GtidSetFormat};

/// The second event of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreviousGtids {
    /// The GTIDs of all files before this one.
    pub gtids: GtidSet,
}

impl PreviousGtids {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type, or holds no GTID set.
    pub fn decode(event: EventRef<'_>) -> Result<Self, DecodeError> {
        let gtids = GtidSet::decode(event.body_of(EventType::PreviousGtids)?)?;
        Ok(Self { gtids })
    }
}

impl EncodeEvent for PreviousGtids {
    fn event_type(&self) -> EventType {
        EventType::PreviousGtids
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.gtids.encode(GtidSetFormat::Automatic));
    }
}
