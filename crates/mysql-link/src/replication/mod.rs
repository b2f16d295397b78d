//! Being a replica as far as a dump and semi-sync ACKs go: registering, asking for what a GTID set
//! lacks, reading events, acknowledging positions.

mod dump_error;
mod dump_options;
mod request;
mod semi_sync;
mod stream;

pub use dump_error::{DumpError, DumpRefusal};
pub use dump_options::DumpOptions;
pub use stream::{Acker, DumpEvent, EventReader, ReplicationStream};
