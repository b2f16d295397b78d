//! What a server is made with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::process::Mysqld;

/// Finds a server by its host and port, as another one reaches it at the moment; never the one that asks.
pub type FindServer = Arc<dyn Fn(&str, u16) -> Option<Mysqld> + Send + Sync>;

/// How a server is made: what does not change from one start to the next.
#[derive(Clone)]
pub struct MysqldOptions {
    /// Its data directory: made where it is missing. Binlog files in it are real.
    pub data_dir: PathBuf,
    /// `@@server_uuid`.
    pub server_uuid: Uuid,
    /// `@@server_id`.
    pub server_id: u32,
    /// `@@version`.
    pub version: String,
    /// Who may log in.
    pub accounts: Vec<Account>,
    /// Whether commits wait for ACKs as the variables say. A server that does not lies to its clients, to see that it is found.
    pub waits_for_acks: bool,
    /// How other servers are reached: the donor of a copy, and the source of plain replication.
    pub donors: FindServer,
    /// How long the files of a copy take.
    pub copy_takes: Duration,
    /// The host's time since some fixed moment. It never goes back.
    pub clock: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl MysqldOptions {
    /// The version that is imitated unless another one is set.
    pub const VERSION: &'static str = "9.7.4";

    /// A server of [`Self::VERSION`] that knows `root` (without a password), and the clients' account `client`.
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

/// Somebody who may log in, from any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub user: String,
    /// Its password; empty for none.
    pub password: String,
    /// What it may do.
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

/// What an account may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// ALL PRIVILEGES.
    All,
    /// What a member needs whose mysqld applies by its own replica threads, privilege by privilege.
    Member,
    /// To read and write data.
    Client,
    /// BACKUP_ADMIN: to be a copy's account at its donor.
    Backup,
    /// To log in.
    Login,
}

impl Rights {
    /// Whether it has CONNECTION_ADMIN, and the other privileges of an administrator with it.
    pub(crate) fn administers(self) -> bool {
        matches!(self, Self::All | Self::Member)
    }
}
