//! The mysqld beside a database member.

mod beside;
mod candidacy;
mod committed_source;
mod connection;
mod primary_health;
mod ring_bridge;
mod steering;
mod unasked_stop;
mod writer;

pub(crate) use beside::Child;
pub(crate) use connection::{connect_options, native_source, requirements, usual_server_id};
pub(crate) use primary_health::PrimaryHealth;
pub(crate) use steering::Steering;
