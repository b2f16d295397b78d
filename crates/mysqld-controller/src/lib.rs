//! Controls a member's mysqld. One [`Controller`] decides: [`plan`] is its pure decision, based on the facts of its observers. [`watch`]
//! observes mysqld, and corrects the settings that make commits wait for the ring. Executors act concurrently: [`write_fence`] opens and
//! closes mysqld for writes, and [`read_fence`] for readers. [`apply`] makes mysqld a follower or fit to be the primary. The crate
//! `mysqld-server` has their statements.
//!
//! In addition, [`ingest`] reads the primary's transactions into the ring and acknowledges them. Before a start of mysqld, [`TailTrim`]
//! removes transactions that the ring never committed from its binlog. The trait [`Ring`] abstracts the ring.

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
