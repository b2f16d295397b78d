//! Events of a schema (`CREATE EVENT`), which run at the primary and at no follower. mysqld's scheduler is off from its start and while it
//! follows. Opening the primary for writes switches it on, if it was configured to be on.
//!
//! No follower runs one: `event_scheduler` is off before the applier or the replica threads begin, and only the opening of the primary
//! switches it on. A start begins with it off: in mode `child` by the command line, and everywhere by the persisted value, which takes
//! precedence. Until the opening, `super_read_only` is on, so that a scheduler switched on by an operator executes nothing.

mod configured;
mod scheduler;

pub use crate::events::configured::EventsWanted;
#[cfg(feature = "fuzzing")]
pub(crate) use crate::events::configured::FoundScheduler;
pub(crate) use crate::events::scheduler::disable_what_is_over;
pub use crate::events::scheduler::{
    EventScheduler, enable_replicated, events_that_are_over, stop_events,
};
