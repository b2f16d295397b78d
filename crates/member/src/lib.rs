//! One running member: its data directory, its ring, the mysqld beside it, what it says of itself, what operators have it do, and
//! its end. [`Opened`] is where it begins. It knows nothing of command lines, exit codes and HTTP.
//!
//! ```text
//!   settings   status   protocol     what it is told, what it says, what it can be asked: plain values
//!   ring_handle                      its Raft and its log together
//!   log_keeping   provisioning       old and damaged files; the data of its mysqld
//!   mysqld                           what it does to the mysqld beside it
//!   binlog_serving   hooks           consumers of its log; the operator's own programs
//!   credentials   reload             certificates and passwords; what is taken anew while it runs
//!   own_certificate   own_host       whether the others talk to it, and reach it
//!   state   commands                 where it stands; orders are carried out
//!   leaving                          its end in good order
//!   ring_history                     what it notes of what happens to the ring
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
mod own_certificate;
mod own_host;
mod phases;
pub mod protocol;
mod provisioning;
mod reload;
mod ring_handle;
mod ring_history;
pub mod settings;
mod state;
pub mod status;

pub use commands::Commands;
pub use credentials::{UnusableFile, unusable_files};
pub use data_directory::{IdentityFileError, LockError};
pub use error::MemberError;
pub use mysqld::{
    ConvertedMysqld, GUARD, GUARDS, GuardCommand, MysqldBeside, RELOAD, Reached, connect_options,
    guarded_server,
};
pub use own_host::HeardHereAlone;
pub use phases::{Joined, Opened, Running, Surroundings};
pub use provisioning::Donor;
pub use reload::{Reload, Renewed};
pub use ring_handle::{RingHandle, RotateError, Rotated};
pub use state::{TakeoverObserver, TakeoverPhase};
