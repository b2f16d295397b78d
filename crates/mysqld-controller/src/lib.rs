//! Control of a member's mysqld. One [`Controller`] decides: [`plan`] is its pure decision over the facts of its observers. [`watch`]
//! inspects mysqld and makes sure that commits wait for the ring by its settings; [`Ring`] reports the ring. Executors act
//! concurrently: [`write_fence`] opens and closes mysqld for writes, [`read_fence`] for readers, [`apply`] makes it a follower or fit to be
//! the primary. The crate `mysqld-server` has their statements.
//!
//! In addition, [`ingest`] reads the primary's transactions into the ring and acknowledges them. [`TailTrim`] removes transactions that the
//! ring never committed from mysqld's binlog before a start. The trait [`Ring`] abstracts the ring.

pub mod apply;
pub mod checks;
mod controller;
pub mod ingest;
pub mod plan;
pub mod primary_health;
pub mod primary_writer;
pub mod read_fence;
pub mod ring;
mod start_guard;
pub mod status;
pub mod watch;
pub mod write_fence;

pub use controller::{Controller, ControllerInputs, ControllerOptions, ControllerStatus, ToGuard};
pub use ring::{CommittedLog, CurrentFile, Leading, Ring, RingChanges, RingError, RingLog};
pub use start_guard::{ProtectionStart, TailTrim, TailTrimError};
