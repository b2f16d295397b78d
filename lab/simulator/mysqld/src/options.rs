//! Options of a server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::process::Mysqld;

/// Finds a server by host and port, as currently reachable from another one; never the caller itself.
pub type FindServer = Arc<dyn Fn(&str, u16) -> Option<Mysqld> + Send + Sync>;

/// The options that stay the same for all starts.
#[derive(Clone)]
pub struct MysqldOptions {
    /// Its data directory, created if missing, with real binlog files.
    pub data_dir: PathBuf,
    /// `@@server_uuid`.
    pub server_uuid: Uuid,
    /// `@@server_id`.
    pub server_id: u32,
    /// `@@version`.
    pub version: String,
    /// Accounts.
    pub accounts: Vec<Account>,
    /// Whether commits wait for ACKs as the variables require. Otherwise it misinforms its clients, to prove that this is detected.
    pub waits_for_acks: bool,
    /// How other servers are reached: a copy's donor, and plain replication's source.
    pub donors: FindServer,
    /// Time to copy files.
    pub copy_takes: Duration,
    /// The host's time since some fixed moment. Never decreases.
    pub clock: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl MysqldOptions {
    /// The default simulated version.
    pub const VERSION: &'static str = "9.7.4";

    /// A server of [`Self::VERSION`] with the accounts `root` (without a password) and `client`.
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

/// An account for any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub user: String,
    /// Its password; empty for none.
    pub password: String,
    /// Its privileges.
    pub rights: Rights,
}

impl Account {
    /// An account.
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
    /// The privileges of a member whose mysqld applies by its own replica threads.
    Member,
    /// Reading and writing data.
    #[default]
    Client,
    /// BACKUP_ADMIN: for a copy's account at its donor.
    Backup,
    /// Only logging in.
    Login,
}

impl Rights {
    /// True if it has CONNECTION_ADMIN and the other administrative privileges.
    pub(crate) fn administers(self) -> bool {
        matches!(self, Self::All | Self::Member)
    }
}
