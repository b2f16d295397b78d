//! A database member's mysqld.

mod account_watch;
mod automatic_demotion;
mod beside;
mod candidacy;
mod connection;
mod guard_line;
mod lacks_of_the_ring;
mod managed_process;
mod management;
mod other_mysqlds;
mod tasks;

pub use beside::{ConvertedMysqld, MysqldBeside, Reached};
pub use connection::{connect_options, guarded_server};
pub(crate) use connection::{native_source, requirements, usual_server_id};
pub use guard_line::{GUARD, GUARDS, GuardCommand, RELOAD};
pub(crate) use management::{Given, MysqldManagement};
pub(crate) use other_mysqlds::ask_around;
pub(crate) use tasks::Child;

/// Sends a warning about the server, and logs it when it changes.
fn tell(told: &tokio::sync::watch::Sender<Option<String>>, warning: Option<String>) {
    let changed = told.send_if_modified(|told| {
        let changed = *told != warning;
        told.clone_from(&warning);
        changed
    });
    if let Some(warning) = warning.filter(|_| changed) {
        tracing::warn!("{warning}");
    }
}
