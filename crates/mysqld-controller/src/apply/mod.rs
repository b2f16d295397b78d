//! Makes a mysqld follow the ring: the applier, or mysqld's own replica threads, write the ring's committed log to it. Before it becomes
//! the primary it is compared with the log. In doubt, `super_read_only` stays on.
//!
//! ```text
//!   another member leads,                     this member serves
//!   closed for clients
//!  ──────────────────────► following ───────────────────► finishing ──► ready: ingest attaches, the write fence opens
//!                             ▲                                                   │
//!                             └────── closed for clients ◄── another one leads ───┘
//! ```

mod arrivals;
mod backup_lock;
mod carry_out;
mod catching_up;
mod errant;
mod error;
mod follower;
mod follower_binlog;
mod lock_holders;
mod native;
mod standing;

pub use backup_lock::backup_under_way;
pub(crate) use carry_out::{Apply, ApplyOrder};
pub use catching_up::{CompareError, executed_gtids, never_sent};
pub use follower::FollowOptions;
pub(crate) use follower_binlog::leave_following;
pub(crate) use native::drop_channel;
#[cfg(feature = "fuzzing")]
pub(crate) use standing::Standing;
pub use standing::StandingFile;
