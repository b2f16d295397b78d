//! A database member's mysqld.

mod candidacy;
mod connection;
mod demotion_task;
mod guard_line;
mod managed_process;
mod management;
mod other_mysqlds;
#[cfg(feature = "simulation")]
#[path = "../../../../lab/simulator/inside/member_mysqld.rs"]
mod simulated;
mod startup;
mod tasks;

pub use connection::{connect_options, guarded_server};
pub(crate) use connection::{native_source, requirements, usual_server_id};
pub(crate) use demotion_task::DemotionTask;
pub use guard_line::{GUARD, GUARDS, GuardCommand, RELOAD};
pub(crate) use management::MysqldManagement;
pub(crate) use other_mysqlds::ask_around;
#[cfg(feature = "simulation")]
pub use simulated::{ConvertedMysqld, MysqldBeside, Reached};
pub(crate) use startup::{Setup, event_scheduler};
pub(crate) use tasks::Child;
