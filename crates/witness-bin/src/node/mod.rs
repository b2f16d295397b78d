//! One running member: its data directory, its ring, what it says of itself, and its end.

mod automatic_demotion;
mod binlog_serving;
mod commands;
mod copied_mysqld;
mod directory_lock;
mod donor_member;
mod error;
mod hands_off;
mod identity;
mod joining;
mod leaving;
mod log_opening;
mod log_reading;
mod member_state;
mod mysql;
mod mysqld_orders;
mod observer;
mod progress;
mod promotion_fitness;
mod provision_order;
mod provisioning;
mod purge_order;
mod purging;
mod returning;
mod ring_handle;
mod rotation;
mod running;
mod scrubbing;
mod status_view;

pub use directory_lock::{DirectoryLock, LockError};
pub use error::NodeError;
pub use identity::{Claim, IdentityFileError, IdentityRecord, open_identity};
pub use mysql::{GUARD, GUARDS, GuardCommand};
pub(crate) use mysql::{connect_options, guarded_server};
pub use ring_handle::{RingHandle, RotateError, Rotated};
pub use running::Node;
