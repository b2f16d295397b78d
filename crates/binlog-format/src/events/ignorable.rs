//! IGNORABLE: an event that every reader may skip; the ring's markers travel in it.

use std::borrow::Cow;

use crate::decode_error::DecodeError;
use crate::event::{EventFlags, EventRef};
use crate::event_type::EventType;
use crate::events::body::{EncodeEvent, EventOrigin};

/// An event that readers skip. Write it with [`Ignorable::origin`], whose flag says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignorable<'a> {
    /// Whatever its writer put into it.
    pub body: Cow<'a, [u8]>,
}

impl<'a> Ignorable<'a> {
    /// The rest of the header, with the flag that lets readers skip the event.
    pub fn origin(timestamp: u32, server_id: u32) -> EventOrigin {
        EventOrigin {
            timestamp,
            server_id,
            flags: EventFlags::IGNORABLE,
        }
    }

    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            body: Cow::Borrowed(event.body_of(EventType::Ignorable)?),
        })
    }
}

impl EncodeEvent for Ignorable<'_> {
    fn event_type(&self) -> EventType {
        EventType::Ignorable
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.body);
    }
}
