//! Makes a mysqld follow the ring: the member's applier, or mysqld's own replica threads, write the ring's committed log to it. Before
//! mysqld becomes the primary, it is compared with the log. In doubt, `super_read_only` stays on.
//!
//! ```text
//!   another member leads,                     this member serves
//!   closed for clients
//!  ──────────────────────► following ───────────────────► finishing ──► ready: ingest attaches, the write fence opens
//!                             ▲                                                   │
//!                             └────── closed for clients ◄── another one leads ───┘
//! ```

mod arrivals;
mod carry_out;
mod catching_up;
mod errant;
mod error;
mod follower;
mod native;

pub(crate) use carry_out::{Apply, ApplyOrder};
pub use catching_up::{CompareError, executed_by, executed_gtids};
pub(crate) use errant::shortened;
pub use follower::FollowOptions;
