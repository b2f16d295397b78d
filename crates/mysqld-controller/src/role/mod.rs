//! What the mysqld beside a member is at the moment: the primary, a follower that the applier writes the ring's committed log
//! to, or neither. A pure plan decides ([`plan`]); the runner acts, and where it is in doubt nothing is applied and nothing
//! opens: `super_read_only` stays on.
//!
//! ```text
//!   leading elsewhere, gate closed             this member serves
//!  ───────────────────────────────► following ───────────────────► finishing ──► ready: ingest attaches, the gate opens
//!                                       ▲                                                │
//!                                       └──────────── gate closed ◄── leading elsewhere ─┘
//! ```

mod catching_up;
mod errant;
mod follower;
mod handover;
mod native;
pub mod plan;
mod runner;
mod standing;
mod told;

pub use crate::role_status::{Hold, Readiness, RoleState, RoleStatus};
pub use catching_up::executed_gtids;
pub use follower::FollowOptions;
pub(crate) use handover::leave_following;
pub use plan::LockoutPatience;
pub use runner::{Role, RoleInputs};
pub use standing::StandingFile;
