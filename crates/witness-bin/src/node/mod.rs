//! One running member: its data directory, its ring, what it says of itself, and its end.

mod binlog_serving;
mod commands;
mod copied_mysqld;
mod desk;
mod directory_lock;
mod donor_member;
mod error;
mod giving_way;
mod hands_off;
mod identity;
mod joining;
mod leaving;
mod log_opening;
mod log_reading;
mod mysql;
mod mysqld_orders;
mod observer;
mod portrait;
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
mod teller;

pub use directory_lock::{DirectoryLock, LockError};
pub use error::NodeError;
pub use identity::{Claim, IdentityFileError, IdentityRecord, open_identity};
pub use mysql::{GUARD, GUARDS, GuardCommand};
pub(crate) use mysql::{connect_options, guarded_server};
pub use ring_handle::{RingHandle, RotateError, Rotated};
pub use running::Node;
