//! What a member does to the mysqld beside it. So far the ingest half: making sure that a commit
//! waits for the ring ([`settings`], [`watch`]), taking the primary's transactions in and
//! acknowledging them ([`ingest`]), opening and closing it for writes ([`gate`]), and running the
//! process itself ([`supervisor`]). What is decided is pure; what acts is thin. The ring is behind
//! the trait [`Ring`].

mod backoff;
pub mod gate;
pub mod ingest;
mod read_only;
pub mod ring;
pub mod settings;
pub mod supervisor;
pub mod watch;

pub use ring::{CurrentFile, LeaderTerm, Outcome, Ring, RingError, RingLog, Ticket};
