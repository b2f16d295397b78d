//! How a typed view becomes a canonical event.

use crate::event::{EventFlags, EventHeader, HEADER_LEN};
use crate::event_type::EventType;

/// The part of an event's header that its body does not decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventOrigin {
    /// Seconds since the epoch.
    pub timestamp: u32,
    /// The server that made the event.
    pub server_id: u32,
    /// Flag bits.
    pub flags: EventFlags,
}

impl From<&EventHeader> for EventOrigin {
    fn from(header: &EventHeader) -> Self {
        Self {
            timestamp: header.timestamp,
            server_id: header.server_id,
            flags: header.flags,
        }
    }
}

/// A typed view that can be written.
pub trait EncodeEvent {
    /// The type that stands in the header.
    fn event_type(&self) -> EventType;

    /// Appends what follows the header.
    fn encode_body(&self, out: &mut Vec<u8>);

    /// Appends the whole event in canonical form.
    fn encode_into(&self, origin: EventOrigin, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + HEADER_LEN, 0);
        self.encode_body(out);
        let header = EventHeader {
            timestamp: origin.timestamp,
            event_type: self.event_type(),
            server_id: origin.server_id,
            // Bodies are slices in memory of at most MAX_EVENT_BYTES; what is larger fails at its first reader.
            event_size: u32::try_from(out.len() - start).unwrap_or(u32::MAX),
            log_pos: 0,
            flags: origin.flags,
        };
        if let Some(place) = out.get_mut(start..start + HEADER_LEN) {
            place.copy_from_slice(&header.encode());
        }
    }

    /// The whole event in canonical form.
    fn encode(&self, origin: EventOrigin) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(origin, &mut out);
        out
    }
}
