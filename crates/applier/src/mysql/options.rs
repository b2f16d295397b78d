//! How a MySQL is applied to.

use std::time::Duration;

use mysql_link::ConnectOptions;

/// How a MySQL is applied to.
#[derive(Debug, Clone)]
pub struct MysqlOptions {
    /// Where it is, and as whom to connect; see the rights in [`MysqlBackend::connect`](super::MysqlBackend::connect).
    pub connect: ConnectOptions,
    /// Whether transactions go into the target's binlog. Without it they go there empty, with their GTIDs alone, where the
    /// target writes a binlog at all: such files must not be served to a replica.
    pub target_binlog: bool,
    /// Whether commits in the log's order pass on their turn by the row of `witness_applier.turn`, which is made where it is
    /// not. Only done on a target without a binlog that forces its log at each commit: nothing is won on others.
    pub turns: bool,
    /// How long a row or a table lock is waited for before the transaction is taken back and tried again. Whole seconds.
    pub lock_wait: Duration,
    /// How long rows may take: one packet of them. What takes longer counts as a lost connection.
    pub rows_limit: Duration,
    /// How long a statement of a barrier may take, such as an ALTER TABLE.
    pub statement_limit: Duration,
}

impl MysqlOptions {
    /// The defaults for everything but the connection.
    pub fn new(connect: ConnectOptions) -> Self {
        Self {
            connect,
            target_binlog: false,
            turns: false,
            lock_wait: Duration::from_secs(10),
            rows_limit: Duration::from_secs(600),
            statement_limit: Duration::from_secs(24 * 3600),
        }
    }

    /// The lock wait as the server takes it: at least a second.
    pub(super) fn lock_wait_seconds(&self) -> u64 {
        self.lock_wait.as_secs().max(1)
    }
}
