//! What a member does to the mysqld beside it: makes sure that a commit waits for the ring
//! ([`settings`], [`watch`]), takes the primary's transactions in and acknowledges them ([`ingest`]),
//! opens and closes it for writes ([`gate`]) and for readers ([`fence`]), makes it primary or follower
//! ([`role`]), runs the process ([`supervisor`]), cuts what the ring never committed from its binlog
//! before it starts again ([`tail_trim`]), and fills it from another one ([`provision`]). What is
//! decided is pure; what acts is thin. The ring is behind the trait [`Ring`].

mod backoff;
mod binlog_place;
pub mod conversion;
#[cfg(test)]
mod deciders_together;
pub mod durable_file;
pub mod events;
pub mod fence;
pub mod gate;
pub mod ingest;
mod leading;
mod long_statements;
pub mod provision;
mod read_only;
mod replication_source;
pub mod ring;
pub mod role;
mod role_status;
pub mod settings;
pub mod supervisor;
pub mod tail_trim;
pub mod watch;

pub use binlog_place::BinlogPlace;
pub use leading::{Leading, RingObserver};
pub use replication_source::ReplicationSource;
pub use ring::{
    CommittedLog, CurrentFile, LeaderTerm, Outcome, Ring, RingChanges, RingError, RingLog, Ticket,
};
