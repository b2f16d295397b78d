//! The mysqld beside a database member.

mod beside;
mod candidacy;
mod committed_source;
mod connection;
mod guard_line;
mod primary_health;
mod ring_bridge;
mod steering;
mod unasked_stop;
mod writer;

pub(crate) use beside::Child;
pub(crate) use connection::{
    connect_options, guarded_server, native_source, requirements, usual_server_id,
};
pub use guard_line::{GUARD, GUARDS, GuardCommand};
pub(crate) use primary_health::PrimaryHealth;
pub(crate) use steering::{Given, Steering};
