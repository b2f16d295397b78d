//! Options of a server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::process::Mysqld;

/// Finds another server that is reachable now, by host and port. Never returns the caller itself.
pub type FindServer = Arc<dyn Fn(&str, u16) -> Option<Mysqld> + Send + Sync>;

/// The options of a server, which are the same for all its starts.
#[derive(Clone)]
pub struct MysqldOptions {
    /// The data directory, with real binlog files. It is created if it is missing.
    pub data_dir: PathBuf,
    /// `@@server_uuid`.
    pub server_uuid: Uuid,
    /// `@@server_id`.
    pub server_id: u32,
    /// `@@version`.
    pub version: String,
    /// Accounts.
    pub accounts: Vec<Account>,
    /// If true, commits wait for ACKs as the variables require. If false, the server acknowledges too early, so that a test can show that
    /// this is detected.
    pub waits_for_acks: bool,
    /// Finds other servers: the donor of a clone, and the source of plain replication.
    pub donors: FindServer,
    /// Duration of the file copy of a clone.
    pub copy_takes: Duration,
    /// The host's monotonic clock: the time since a fixed moment.
    pub clock: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl MysqldOptions {
    /// The simulated version of MySQL.
    pub const VERSION: &'static str = "9.7.4";

    /// Returns the options of a server of [`Self::VERSION`] with the accounts `root` (without a password) and `client`.
    pub fn new(
        data_dir: PathBuf,
        server_uuid: Uuid,
        server_id: u32,
        clock: Arc<dyn Fn() -> Duration + Send + Sync>,
    ) -> Self {
        Self {
            data_dir,
            server_uuid,
            server_id,
            version: Self::VERSION.to_owned(),
            accounts: vec![
                Account::new("root", "", Rights::All),
                Account::new("client", "", Rights::Client),
            ],
            waits_for_acks: true,
            donors: Arc::new(|_, _| None),
            copy_takes: Duration::from_millis(500),
            clock,
        }
    }
}

impl fmt::Debug for MysqldOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqldOptions")
            .field("data_dir", &self.data_dir)
            .field("server_uuid", &self.server_uuid)
            .field("server_id", &self.server_id)
            .finish_non_exhaustive()
    }
}

/// An account that may log in from any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The account's name.
    pub user: String,
    /// The password; empty if there is none.
    pub password: String,
    /// The account's privileges.
    pub rights: Rights,
}

impl Account {
    /// Creates an account.
    pub fn new(user: &str, password: &str, rights: Rights) -> Self {
        Self {
            user: user.to_owned(),
            password: password.to_owned(),
            rights,
        }
    }
}

/// An account's privileges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rights {
    /// ALL PRIVILEGES.
    All,
    /// The privileges of a member whose mysqld applies with native replica threads.
    Member,
    /// The privileges to read and write data.
    #[default]
    Client,
    /// BACKUP_ADMIN, for the account of a clone at its donor.
    Backup,
    /// Only the right to log in.
    Login,
}

impl Rights {
    /// Returns whether the account has CONNECTION_ADMIN and the other administrative privileges.
    pub(crate) fn administers(self) -> bool {
        matches!(self, Self::All | Self::Member)
    }
}
