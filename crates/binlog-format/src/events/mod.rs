//! Typed views of the events that something acts on. Each decodes from an event without checksum and
//! encodes to the canonical form; whatever has no view here stays bytes.

mod body;
mod format_description;
mod ignorable;
mod previous_gtids;
mod rotate;

pub use body::{EncodeEvent, EventOrigin};
pub use format_description::FormatDescription;
pub use ignorable::Ignorable;
pub use previous_gtids::PreviousGtids;
pub use rotate::Rotate;
