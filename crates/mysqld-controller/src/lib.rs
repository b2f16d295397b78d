//! Control of a member's mysqld. One [`Controller`] decides: [`plan`] is its pure decision over the facts of its observers. [`watch`]
//! inspects mysqld and makes sure that commits wait for the ring by its [`settings`]; [`RingObserver`] observes the ring. Executors act
//! concurrently: [`write_fence`] opens and closes mysqld for writes, [`read_fence`] for readers, [`apply`] makes it a follower or fit to be
//! the primary.
//!
//! In addition, [`ingest`] reads the primary's transactions into the ring and acknowledges them, and [`supervisor`] runs the process.
//! [`tail_trim`] removes transactions that the ring never committed from its binlog before a start, and [`provision`] copies another
//! server's data to it. The trait [`Ring`] abstracts the ring.

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

/// Limit for a connection that inspects mysqld or moves a fence, and for a statement on it.
const STATEMENT_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

pub use binlog_place::BinlogPlace;
pub use controller::{Controller, ControllerInputs, ControllerOptions, ControllerStatus, ToGuard};
pub use leading::{Leading, RingObserver};
pub use replication_source::{ReplicationSource, SourceTls};
pub use ring::{CommittedLog, CurrentFile, Ring, RingChanges, RingError, RingLog};
