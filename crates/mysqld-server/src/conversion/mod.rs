//! The server's part of a conversion of plain MySQL replication. [`look()`] observes a server, [`look_at_plain`] determines its role in
//! plain replication, and [`steps`] has the statements of the plans.

mod server_probe;
pub mod steps;

pub(crate) use crate::conversion::server_probe::takes_tls;
pub use crate::conversion::server_probe::{
    PlainServer, ReplicatesFrom, ServerLook, look, look_at_plain,
};
pub use crate::conversion::steps::ConversionError;
