//! How parallel a log can be applied: by the dependency information that its server wrote into it, and by the conflicts that the
//! policies `transactions` and `rows` would find in its rows. Pure, without a target: shapes come from the log's own table maps.
//!
//! Two measures. *Groups*: how many transactions could proceed at the same moment. *The longest chain*: how many row writes
//! must run sequentially whatever the number of workers, if each takes the same time; all row writes
//! divided by it bound the gain.

mod clock;
mod groups;
mod report;
mod writesets;

pub use crate::log_parallelism::groups::{GroupSize, Groups};
pub use crate::log_parallelism::report::{Analysis, Chain, Report};
