//! What a member does to the mysqld beside it. One [`Controller`] decides: [`plan`] is its pure decision over everything that
//! observers tell ([`watch`] looks at mysqld and makes sure that a commit waits for the ring by its [`settings`],
//! [`RingObserver`] looks at the ring), and executors carry it out side by side: [`write_fence`] opens and closes it for writes,
//! [`read_fence`] for readers, [`apply`] makes it a follower or fit to be the primary.
//!
//! Beside it, [`ingest`] takes the primary's transactions in and acknowledges them, [`supervisor`] runs the process, [`tail_trim`]
//! cuts what the ring never committed from its binlog before it starts again, and [`provision`] fills it from another one. The
//! ring is behind the trait [`Ring`].

pub mod apply;
mod backoff;
mod binlog_place;
mod blocking_sessions;
mod closed_server;
mod controller;
pub mod conversion;
pub mod durable_file;
pub mod events;
mod executor;
mod foreign_channels;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/mysqld_controller.rs"]
pub mod fuzzing;
pub mod ingest;
mod leading;
pub mod plan;
pub mod provision;
pub mod read_fence;
mod replication_source;
pub mod ring;
mod session_limit;
pub mod settings;
pub mod status;
pub mod supervisor;
pub mod tail_trim;
pub mod watch;
pub mod write_fence;

/// How long a connection for looking at mysqld or for a fence, and a statement on it, may take.
const STATEMENT_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

pub use binlog_place::BinlogPlace;
pub use controller::{Controller, ControllerInputs, ControllerOptions, ControllerStatus, ToGuard};
pub use leading::{Leading, RingObserver};
pub use replication_source::{ReplicationSource, SourceTls};
pub use ring::{
    CommittedLog, CurrentFile, LeaderTerm, Outcome, Ring, RingChanges, RingError, RingLog, Ticket,
};
