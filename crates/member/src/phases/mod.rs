//! A member from its start to its end, in phases that are types: each has only what it can do.
//!
//! ```text
//!   Opened::open ──► answers calls, role `joining` ──► join ──► take_part ──► Running ──► stop
//!                       (identify, adopt, status)                                └─► failed: why
//! ```

mod base;
mod joining;
mod leaving;
mod log_opening;
mod opened;
mod running;

pub use base::Surroundings;
pub use joining::Joined;
pub use opened::Opened;
pub use running::Running;
