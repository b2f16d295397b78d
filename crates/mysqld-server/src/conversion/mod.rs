//! The part of a conversion of plain MySQL replication that happens at a server: [`look()`] observes it, [`look_at_plain`] finds its place in
//! plain replication, and [`steps`] holds the statements of the plans.

mod plain_server;
mod server_probe;
pub mod steps;

pub use crate::conversion::plain_server::{PlainServer, look_at_plain};
pub use crate::conversion::server_probe::{ReplicatesFrom, ServerLook, look};
pub use crate::conversion::steps::ConversionError;
