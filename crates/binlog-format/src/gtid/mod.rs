//! Global transaction identifiers and sets of them, with the tags of MySQL 8.3 and later. Sets have
//! one order (source bytes, then tag) and merged intervals, so equal sets have equal encodings.

mod binary;
mod identifier;
mod interval;
mod set;
mod source_id;
mod tag;
mod text;

pub use binary::GtidSetFormat;
pub use identifier::{Gno, Gtid};
pub use interval::Interval;
pub use set::GtidSet;
pub use source_id::SourceId;
pub use tag::Tag;
pub use text::ParseGtidError;
