//! The mysqld beside a database member.

mod beside;
mod committed_source;
mod connection;
mod executed;
mod ring_bridge;
mod writer;

pub(crate) use beside::{Beside, Child};
pub(crate) use connection::{connect_options, requirements, usual_server_id};
pub(crate) use executed::executed_gtids;
