//! Observes the primary every second, on a connection of its own: is a commit sure to wait for the
//! ring? Drift is fixed where this member may do so, and always reported. The controller acts on it.

mod advice;
mod commits;
mod protection;
mod starts;
mod watcher;

pub use crate::watch::commits::Standing;
pub use crate::watch::protection::{Protection, ReadOnly, ServerFacts, WatchReport};
pub use crate::watch::watcher::{WatchOptions, Watcher};
