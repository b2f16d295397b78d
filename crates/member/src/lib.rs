//! One running member: its data directory, ring, mysqld, status, operators' commands and graceful stop. [`Opened`] is the entry point.
//! Command lines, exit codes and HTTP are in other crates.
//!
//! ```text
//!   settings   status   protocol     configuration, status and commands: plain values
//!   ring_handle                      its Raft and its log together
//!   log_keeping   provisioning       old and damaged files; the data of its mysqld
//!   mysqld                           management of its mysqld
//!   binlog_serving   hooks           clients of its log; the operator's own programs
//!   credentials                      certificates and passwords; changes without a restart
//!   reachability                     whether the others reach it, and accept its certificate
//!   state   commands                 its state; execution of orders
//!   leaving                          its graceful stop
//!   ring_history                     its record of ring events
//!   phases                           from its start to its end
//! ```

mod archiving;
mod binlog_serving;
mod commands;
pub mod conversion;
mod credentials;
mod data_directory;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/member.rs"]
pub mod fuzzing;
mod hooks;
mod leaving;
mod log_keeping;
mod mysqld;
mod other_members;
mod phases;
pub mod protocol;
mod provisioning;
mod reachability;
mod ring_handle;
mod ring_history;
pub mod settings;
mod state;
pub mod status;

pub use commands::Commands;
pub use credentials::{Reload, Renewed, UnusableFile, unusable_files};
pub use data_directory::{IdentityFileError, LockError};
pub use error::MemberError;
#[cfg(feature = "simulation")]
pub use mysqld::{ConvertedMysqld, MysqldBeside, Reached};
pub use mysqld::{GUARD, GUARDS, GuardCommand, RELOAD, connect_options, guarded_server};
pub use phases::{Joined, Opened, Running, Surroundings};
pub use provisioning::Donor;
pub use reachability::HeardHereAlone;
pub use ring_handle::{RingHandle, RotateError, Rotated};
pub use state::{TakeoverObserver, TakeoverPhase};
