//! A database member's mysqld.

mod automatic_demotion;
mod beside;
mod candidacy;
mod connection;
mod guard_line;
mod managed_process;
mod management;
mod other_mysqlds;
mod startup;
mod tasks;

pub use beside::{ConvertedMysqld, MysqldBeside, Reached};
pub use connection::{connect_options, guarded_server};
pub(crate) use connection::{native_source, requirements, usual_server_id};
pub use guard_line::{GUARD, GUARDS, GuardCommand, RELOAD};
pub(crate) use management::MysqldManagement;
pub(crate) use other_mysqlds::ask_around;
pub(crate) use startup::Given;
pub(crate) use tasks::Child;
