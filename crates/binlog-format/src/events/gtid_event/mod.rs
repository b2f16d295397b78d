//! GTID and GTID_TAGGED: the first event of every transaction. The classic form has fixed places, the
//! tagged one (8.3 and later) numbered fields of MySQL's serialization library. One view serves both.

mod classic;
mod codec;
mod tagged;
mod view;

pub use view::{CommitTimestamp, GtidEvent, GtidForm, LogicalClock, ServerVersion};
