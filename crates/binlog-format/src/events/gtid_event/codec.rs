//! Chooses between the two forms.

use crate::decode_error::DecodeError;
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::body::EncodeEvent;
use crate::events::gtid_event::view::{GtidEvent, GtidForm};
use crate::events::gtid_event::{classic, tagged};

impl<'a> GtidEvent<'a> {
    /// Reads either form from an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type, cut off, or has a field of a later version that must be known.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        if event.event_type() == EventType::GtidTagged {
            tagged::decode(event.body())
        } else {
            classic::decode(event.body_of(EventType::Gtid)?)
        }
    }
}

impl EncodeEvent for GtidEvent<'_> {
    fn event_type(&self) -> EventType {
        match self.form {
            GtidForm::Classic => EventType::Gtid,
            GtidForm::Tagged { .. } => EventType::GtidTagged,
        }
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match &self.form {
            GtidForm::Classic => classic::encode(self, out),
            GtidForm::Tagged {
                last_non_ignorable_field,
                later_fields,
            } => {
                tagged::encode(self, *last_non_ignorable_field, later_fields, out);
            }
        }
    }
}
