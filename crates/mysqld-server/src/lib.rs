//! Acts on one mysqld, without any knowledge of the ring. The crate `mysqld-controller` decides when.
//!
//! [`settings`] observes, checks and sets its configuration. [`supervisor`] runs its process. [`tail_trim`] cuts its last binlog file
//! before a start. [`events`] controls its event scheduler. [`provision`] copies another server's data to it. [`conversion`] has the
//! statements that attach a server to a ring and detach it. [`sessions`] finds and ends its sessions. The other modules open and close the
//! server, and store records about it.

mod binlog_place;
pub mod channels;
mod closed_server;
pub mod conversion;
pub mod durable_file;
pub mod events;
pub mod follower_binlog;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/mysqld_server.rs"]
pub mod fuzzing;
pub mod offline_mode;
pub mod provision;
pub mod read_only;
pub mod sessions;
pub mod settings;
pub mod standing;
pub mod supervisor;
pub mod tail_trim;

/// Time limit for a connection that inspects mysqld or sets a fence, and for a statement on it.
pub const STATEMENT_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

pub use binlog_place::BinlogPlace;
pub use channels::{ReplicationSource, SourceTls};
