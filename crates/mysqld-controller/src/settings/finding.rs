//! One thing that is not as it must be: what it is, why it matters, what mends it; and the bounds that the ring sets.

use std::fmt;

use raft_types::MAX_TRANSACTION_BYTES;
use serde::Serialize;
use uuid::Uuid;

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The server's version.
    Version,
    /// Whether there is a binlog.
    BinlogEnabled,
    /// `gtid_mode`.
    GtidMode,
    /// `enforce_gtid_consistency`.
    GtidConsistency,
    /// `server_id`.
    ServerId,
    /// `binlog_format`.
    BinlogFormat,
    /// `binlog_row_image`.
    RowImage,
    /// `binlog-do-db` and `binlog-ignore-db`.
    BinlogFilter,
    /// `binlog_encryption`.
    BinlogEncryption,
    /// `binlog_error_action`.
    BinlogErrorAction,
    /// `sync_binlog`.
    SyncBinlog,
    /// `innodb_flush_log_at_trx_commit`.
    RedoFlush,
    /// `max_binlog_cache_size`.
    TransactionCache,
    /// `max_binlog_stmt_cache_size`.
    StatementCache,
    /// Whether the semi-sync source plugin is loaded.
    SemiSyncPlugin,
    /// Whether it is enabled.
    SemiSyncEnabled,
    /// Its timeout.
    SemiSyncTimeout,
    /// How many ACKs it waits for.
    SemiSyncReplicaCount,
    /// Whether it waits while nobody is there to acknowledge.
    SemiSyncWaitNoReplica,
    /// Where in the commit it waits.
    SemiSyncWaitPoint,
    /// Whether it has turned itself off.
    SemiSyncStatus,
    /// Whether somebody else's ACK would count.
    ForeignAcker,
    /// The privileges of our account.
    Grants,
    /// Who else may shut the server down.
    ShutdownPrivilege,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; nothing is lost by it.
    Advice,
    /// A commit may become visible or durable without the ring: the primary is not protected.
    Unprotected,
    /// The member cannot attach at all.
    Blocks,
}

/// What mends a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fix {
    /// Statements to run as an administrator, in this order.
    Sql(Vec<String>),
    /// Options for the next start of mysqld.
    Restart(String),
    /// Something else, in words.
    Manual(String),
}

impl Fix {
    pub(crate) fn sql(statement: impl Into<String>) -> Self {
        Self::Sql(vec![statement.into()])
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sql(statements) => write!(f, "run: {}", statements.join("; ")),
            Self::Restart(options) => write!(f, "restart mysqld with {options}"),
            Self::Manual(words) => f.write_str(words),
        }
    }
}

/// One thing that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What follows from it.
    pub why: String,
    /// What mends it.
    pub fix: Fix,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.found, self.why, self.fix)
    }
}

// What the ring asks of a primary that is not the same for every ring.

/// A transaction's canonical payload is what its cache held plus a GTID event; with that and MySQL's
/// rounding of the setting to 4 KiB, this much is left free below the ring's limit.
const CACHE_HEADROOM: u64 = 1 << 20;

/// What is asked of the mysqld beside this member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements {
    /// The largest transaction that the ring takes, in bytes of its canonical payload.
    pub max_transaction_bytes: u64,
    /// The server id under which the member attaches.
    pub replica_server_id: u32,
    /// The server UUID under which the member attaches.
    pub replica_uuid: Uuid,
    /// Whether the member sets what can be set. If not, it only reports.
    pub manage_settings: bool,
    /// Whether a server is taken with whose version or product not everything was proven.
    pub accept_unproven: bool,
    /// Whether a missing semi-sync plugin may be installed, which needs `super_read_only` off for a moment.
    pub may_install_plugin: bool,
}

impl Requirements {
    /// The defaults for a replica of this identity: settings are managed, a missing plugin is installed, and the server is one
    /// with which everything was proven.
    pub fn new(replica_server_id: u32, replica_uuid: Uuid) -> Self {
        Self {
            max_transaction_bytes: MAX_TRANSACTION_BYTES,
            replica_server_id,
            replica_uuid,
            manage_settings: true,
            accept_unproven: false,
            may_install_plugin: true,
        }
    }

    /// The largest `max_binlog_cache_size`, in bytes: a transaction that fits into it fits into the ring.
    pub fn max_cache_bytes(&self) -> u64 {
        let free = CACHE_HEADROOM.min(self.max_transaction_bytes / 2);
        let largest = self.max_transaction_bytes.saturating_sub(free);
        largest - largest % 4096
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_fits_into_the_ring() {
        let mut requirements = Requirements::new(1, Uuid::nil());
        assert_eq!(
            requirements.max_cache_bytes(),
            MAX_TRANSACTION_BYTES - CACHE_HEADROOM
        );
        requirements.max_transaction_bytes = 10_000;
        assert_eq!(requirements.max_cache_bytes(), 4096);
    }
}
