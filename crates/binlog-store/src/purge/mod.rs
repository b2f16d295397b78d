//! Which old files may go: a pure plan, and holds that keep files for whoever still reads them.

mod hold;
mod plan;

pub use hold::PurgeHold;
pub(crate) use plan::{PurgeCandidate, plan_purge};
pub use plan::{PurgeLimit, PurgePlan, PurgePolicy, StillNeeded};
