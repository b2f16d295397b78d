//! HEARTBEAT and HEARTBEAT_V2: the source has nothing to send, and its log ends here. The first form
//! holds the position in the event's header; the second has numbered fields, for positions beyond
//! 4 GiB, and is sent to replicas that announce that they know it.

use std::borrow::Cow;

use crate::cursor::{Cursor, put_length_encoded};
use crate::decode_error::DecodeError;
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::body::EncodeEvent;

/// A sign of life with the position that the source's dump has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// Whether it is of the second form, whose body holds the position.
    pub version_2: bool,
    /// The file that the dump reads.
    pub file: Cow<'a, [u8]>,
    /// The position in it. Only the low 32 bits in the first form.
    pub position: u64,
}

const END: u64 = 0;
const FILE: u64 = 1;
const POSITION: u64 = 2;

impl<'a> Heartbeat<'a> {
    /// Reads either form from an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type or cut off.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        if event.event_type() == EventType::HeartbeatV2 {
            return Self::decode_fields(event.body());
        }
        Ok(Self {
            version_2: false,
            file: Cow::Borrowed(event.body_of(EventType::Heartbeat)?),
            position: u64::from(event.header().log_pos),
        })
    }

    fn decode_fields(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(body);
        let (mut file, mut position) = (None, None);
        loop {
            match cursor.length_encoded("heartbeat field")? {
                END => break,
                FILE => file = Some(cursor.length_encoded_bytes("heartbeat file")?),
                POSITION => {
                    let mut value = Cursor::new(cursor.length_encoded_bytes("heartbeat position")?);
                    position = Some(value.length_encoded("heartbeat position")?);
                    value.finish("the heartbeat's position")?;
                }
                _ => {
                    // A field of a later version.
                    cursor.length_encoded_bytes("heartbeat field")?;
                }
            }
        }
        let (Some(file), Some(position)) = (file, position) else {
            return Err(DecodeError::invalid(
                "heartbeat",
                "it lacks the file or the position",
            ));
        };
        Ok(Self {
            version_2: true,
            file: Cow::Borrowed(file),
            position,
        })
    }
}

impl EncodeEvent for Heartbeat<'_> {
    fn event_type(&self) -> EventType {
        if self.version_2 {
            EventType::HeartbeatV2
        } else {
            EventType::Heartbeat
        }
    }

    /// The canonical form of a first-form heartbeat has lost its position with the header's.
    fn encode_body(&self, out: &mut Vec<u8>) {
        if !self.version_2 {
            out.extend_from_slice(&self.file);
            return;
        }
        put_length_encoded(out, FILE);
        put_length_encoded(out, self.file.len() as u64);
        out.extend_from_slice(&self.file);
        let mut position = Vec::new();
        put_length_encoded(&mut position, self.position);
        put_length_encoded(out, POSITION);
        put_length_encoded(out, position.len() as u64);
        out.extend_from_slice(&position);
        put_length_encoded(out, END);
    }
}
