//! The 19-byte header that every event begins with, the event types, and one event as raw bytes.

mod header;
mod raw;

pub use crate::event_type::EventType;
pub use header::{EventFlags, EventHeader, HEADER_LEN, MAX_EVENT_BYTES};
pub use raw::{EventRef, RawEvent};

pub(crate) use header::{LOG_POS_RANGE, SIZE_RANGE};
pub(crate) use raw::event_crc32;
