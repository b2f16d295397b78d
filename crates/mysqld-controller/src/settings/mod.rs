//! What a mysqld must be set to so that a commit waits for the ring: observed, judged, and set.
//! [`preflight()`] judges and [`Plan`] says which SQL mends it, both pure; [`observe`] and
//! [`apply`] talk to the server.

mod collector;
mod finding;
mod grants;
mod limits;
mod names;
mod no_waiting;
mod observed;
mod plan;
mod preflight;
mod probe;
mod semi_sync_findings;

pub use finding::{Check, Finding, Fix, Severity};
pub use grants::{Grants, Privilege};
pub use limits::Requirements;
pub use names::SemiSyncNames;
pub use no_waiting::{StopWaitingError, let_commits_through, stop_waiting_for_acks};
pub use observed::{Depth, Observed, SemiSyncReplica};
pub(crate) use observed::{parse_gtid_owned, says_on};
pub use plan::{Phase, Plan, Statement};
pub use preflight::preflight;
pub use probe::{ApplyError, apply, binlog_filters, observe};
pub(crate) use probe::{CommitLook, commits, semi_sync_clients, server_clock};
pub(crate) use semi_sync_findings::TIMEOUT_MS;
pub use semi_sync_findings::is_effectively_infinite;
