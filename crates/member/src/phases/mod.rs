//! A member from start to end, in phases that are types: each offers only what it can do.
//!
//! ```text
//!   Opened::open ──► answers calls, role `joining` ──► join ──► take_part ──► Running ──► stop
//!                       (identify, adopt, status)                                └─► failed: why
//! ```

mod base;
mod joining;
mod opened;
mod running;

pub use crate::phases::base::Surroundings;
pub use crate::phases::joining::Joined;
pub use crate::phases::opened::Opened;
pub use crate::phases::running::Running;
