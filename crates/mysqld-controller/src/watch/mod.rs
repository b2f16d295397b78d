//! Observes the primary every second on its own connection, to check whether commits are sure to wait for the ring. Corrects settings that
//! this member may change, and reports all deviations. The controller acts on the reports.

mod advice;
mod commits;
mod protection;
mod starts;
mod watcher;

pub use crate::watch::commits::Standing;
pub use crate::watch::protection::{Protection, ReadOnly, ServerFacts, WatchReport};
pub use crate::watch::watcher::{WatchOptions, Watcher};
