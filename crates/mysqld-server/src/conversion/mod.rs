//! The part of a conversion of plain MySQL replication that happens at a server: [`look()`] observes it, [`look_at_plain`] finds its
//! place in plain replication, and [`steps`] holds the statements of the plans.

mod server_probe;
pub mod steps;

pub(crate) use crate::conversion::server_probe::takes_tls;
pub use crate::conversion::server_probe::{
    PlainServer, ReplicatesFrom, ServerLook, look, look_at_plain,
};
pub use crate::conversion::steps::ConversionError;
