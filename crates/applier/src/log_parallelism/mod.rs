//! How parallel a log can be applied: by the dependency information that its server wrote into it, and by what the policies
//! `transactions` and `rows` would find in its rows. Pure, without a target: shapes come from the log's own table maps.
//!
//! Two measures. *Groups*: how many transactions could go on at the same moment. *The longest chain*: how many row writes
//! have to follow each other whatever the number of workers, when each takes as long as any other; what is written in all,
//! divided by it, bounds the gain.

mod clock;
mod groups;
mod report;
mod writesets;

pub use crate::log_parallelism::groups::{GroupSize, Groups};
pub use crate::log_parallelism::report::{Analysis, Chain, Report};
