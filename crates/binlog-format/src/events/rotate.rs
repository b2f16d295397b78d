//! ROTATE: names the file that goes on from here. The last event of a file, or one that the source
//! makes up for its replica at the begin of a stream and of every file.

use std::borrow::Cow;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::body::EncodeEvent;

/// Where the log goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotate<'a> {
    /// Offset of the next event in the next file.
    pub position: u64,
    /// The next file's name, without a directory.
    pub next_file: Cow<'a, [u8]>,
}

impl<'a> Rotate<'a> {
    /// Offset of the first event behind the magic number.
    pub const FIRST_POSITION: u64 = 4;

    /// The rotate event that ends a file.
    pub fn to(next_file: &'a str) -> Self {
        Self {
            position: Self::FIRST_POSITION,
            next_file: Cow::Borrowed(next_file.as_bytes()),
        }
    }

    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type or cut off.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::Rotate)?);
        let position = cursor.u64("rotate position")?;
        Ok(Self {
            position,
            next_file: Cow::Borrowed(cursor.take_rest()),
        })
    }
}

impl EncodeEvent for Rotate<'_> {
    fn event_type(&self) -> EventType {
        EventType::Rotate
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.next_file);
    }
}
