//! The events of a schema (`CREATE EVENT`), which the primary runs and no follower: mysqld's scheduler is off from the first
//! moment of a start, stays off while the server follows, and is switched on as the primary is opened for writes, if it was
//! configured to be.
//!
//! Why no follower runs one: `event_scheduler` is off before the applier or the replica threads begin, and nothing but
//! the opening of the primary switches it on. A start begins with it off: in mode `child` by the command line and everywhere by
//! the value that is persisted, which mysqld takes before the command line's. Until the opening `super_read_only` is on, under
//! which a scheduler that somebody has switched on executes nothing.

mod configured;
mod scheduler;

pub use crate::events::configured::EventsWanted;
pub(crate) use crate::events::configured::FoundScheduler;
pub use crate::events::scheduler::EventScheduler;
pub(crate) use crate::events::scheduler::{
    disable_what_is_over, enable_replicated, events_that_are_over, stop_events,
};
