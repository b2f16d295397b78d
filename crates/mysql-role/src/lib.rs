//! What a member does to the mysqld beside it. So far the ingest half: making sure that a commit
//! waits for the ring ([`settings`], [`watch`]), taking the primary's transactions in and
//! acknowledging them ([`ingest`]), opening and closing it for writes ([`gate`]), and running the
//! process itself ([`supervisor`]), and cutting what the ring never committed from its binlog before it
//! starts again ([`tail_trim`]). What is decided is pure; what acts is thin. The ring is behind
//! the trait [`Ring`].

mod backoff;
pub mod conversion;
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
pub mod settings;
pub mod supervisor;
pub mod tail_trim;
pub mod watch;

pub use leading::Leading;
pub use replication_source::ReplicationSource;
pub use ring::{CommittedLog, CurrentFile, LeaderTerm, Outcome, Ring, RingError, RingLog, Ticket};
