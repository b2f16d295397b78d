//! One thing that is not as it must be: what it is, why it matters, what mends it; and the bounds that the ring sets.

use std::fmt;

use binlog_format::event::MAX_EVENT_BYTES;
use raft_types::MAX_TRANSACTION_BYTES;
use serde::Serialize;
use uuid::Uuid;

use crate::binlog_place::BinlogPlace;
use crate::settings::observed::SemiSyncReplica;

/// The setting or state that a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// Version and product of the server.
    Version,
    /// Whether there is a binlog.
    BinlogEnabled,
    /// `gtid_mode`, which has to be ON.
    GtidMode,
    /// `enforce_gtid_consistency`, which has to be ON.
    GtidConsistency,
    /// `server_id`, which must differ from the member's own.
    ServerId,
    /// `binlog_format`, which has to be ROW.
    BinlogFormat,
    /// `binlog_row_image`: which columns rows have in the log.
    RowImage,
    /// `binlog-do-db` and `binlog-ignore-db`, which leave transactions out of the binlog.
    BinlogFilter,
    /// `binlog_encryption`, which keeps a binlog from being trimmed after a crash.
    BinlogEncryption,
    /// `log_replica_updates`: whether what mysqld's own replica threads apply is in its binlog.
    ReplicaUpdates,
    /// `replica_preserve_commit_order` and `binlog_order_commits`: whether readers of a follower see transactions in the log's order.
    CommitOrder,
    /// `binlog_error_action`: what mysqld does when it cannot write its binlog.
    BinlogErrorAction,
    /// `sync_binlog`: whether a commit is durable in the binlog.
    SyncBinlog,
    /// `innodb_flush_log_at_trx_commit`: whether a commit is durable in InnoDB.
    RedoFlush,
    /// `ALTER INSTANCE DISABLE INNODB REDO_LOG`: a crash then leaves a data directory that cannot be started.
    RedoLog,
    /// `max_binlog_cache_size`: the largest transaction with transactional engines.
    TransactionCache,
    /// `max_binlog_stmt_cache_size`: the largest with other engines.
    StatementCache,
    /// Whether the semi-sync source plugin is loaded.
    SemiSyncPlugin,
    /// Whether semi-sync is enabled at the source.
    SemiSyncEnabled,
    /// How long a commit waits before semi-sync gives up.
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
    /// Whether the password of our account expires.
    AccountExpires,
    /// `log_bin`: whether the server has its binlog where the member looks for it after a crash.
    BinlogPlace,
    /// A persisted value with which the next start would be another one than the member's.
    Persisted,
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

/// How a finding is put right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fix {
    /// Statements to run as an administrator, in this order.
    Sql(Vec<String>),
    /// Options for the next start of mysqld.
    Restart(String),
    /// Instructions that are neither SQL nor an option.
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
    /// The setting or state that it is about.
    pub check: Check,
    /// Whether it prevents the attachment, makes the primary unprotected, or is only worth knowing.
    pub severity: Severity,
    /// The value that was found, in words.
    pub found: String,
    /// What could happen because of it.
    pub why: String,
    /// How it is put right.
    pub fix: Fix,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.found, self.why, self.fix)
    }
}

// What the ring asks of a primary that is not the same for every ring.

/// The largest `max_binlog_cache_size` with which every transaction fits into the ring, in bytes. MySQL looks at the limit before it
/// writes an event to the cache, so that the last event, of up to 1 GiB ([`MAX_EVENT_BYTES`]), comes on top; the rest is for
/// the GTID event and what the cache buffers.
pub const LARGEST_CACHE: u64 = (1 << 30) - (1 << 20);
const _: () =
    assert!(LARGEST_CACHE + (MAX_EVENT_BYTES as u64) + (512 << 10) < MAX_TRANSACTION_BYTES);
/// MySQL rounds the setting down to a multiple of this.
const CACHE_STEP: u64 = 4096;

/// In which bit the ids of the member's second dump differ from those of the first. Ids of members are spaced by their numbers,
/// and so never reach it.
const SECOND: u32 = 1 << 28;

/// What is asked of the mysqld beside this member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements {
    /// The largest transaction that the primary is to take, in bytes of binlog, but for its last event. The ring takes up to
    /// [`MAX_TRANSACTION_BYTES`], from a session that has a larger limit from before as well.
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
    /// Whether something else starts the server (`mysql.mode = "attach"`): what its next start begins with is persisted in it.
    pub starts_elsewhere: bool,
    /// Where the member looks for the server's binlog after a crash; `None` where that is not its configuration's to say.
    pub binlog: Option<BinlogPlace>,
    /// Whether mysqld's own replica threads follow the ring, for which the account needs no more than [`NATIVE_RIGHTS`].
    ///
    /// [`NATIVE_RIGHTS`]: crate::settings::NATIVE_RIGHTS
    pub native: bool,
}

impl Requirements {
    /// The defaults for a replica of this identity: settings are managed, a missing plugin is installed, and the server is one
    /// with which everything was proven.
    pub fn new(replica_server_id: u32, replica_uuid: Uuid) -> Self {
        Self {
            max_transaction_bytes: LARGEST_CACHE,
            replica_server_id,
            replica_uuid,
            manage_settings: true,
            accept_unproven: false,
            may_install_plugin: true,
            starts_elsewhere: false,
            binlog: None,
            native: false,
        }
    }

    /// The server id and the UUID of the member's second dump, which only acknowledges.
    pub(crate) fn second_replica(&self) -> (u32, Uuid) {
        let id = (self.replica_server_id ^ SECOND).max(1);
        (
            id,
            Uuid::from_u128(self.replica_uuid.as_u128() ^ u128::from(SECOND)),
        )
    }

    /// Whether a semi-sync replica is one of the member's two.
    pub(crate) fn is_ours(&self, replica: &SemiSyncReplica) -> bool {
        let ours = [self.replica_uuid, self.second_replica().1];
        replica.uuid.is_some_and(|uuid| ours.contains(&uuid))
    }

    /// The `max_binlog_cache_size` that the primary gets, in bytes: a transaction that fits into it is not larger than
    /// the operator's limit, and fits into the ring.
    pub fn max_cache_bytes(&self) -> u64 {
        let largest = self.max_transaction_bytes;
        (largest - largest % CACHE_STEP).min(LARGEST_CACHE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_fits_into_the_ring_and_below_the_operators_limit() {
        let mut requirements = Requirements::new(1, Uuid::nil());
        assert_eq!(requirements.max_cache_bytes(), LARGEST_CACHE);
        requirements.max_transaction_bytes = 1 << 30;
        assert_eq!(requirements.max_cache_bytes(), LARGEST_CACHE);
        requirements.max_transaction_bytes = 10_000;
        assert_eq!(requirements.max_cache_bytes(), 8192);
    }
}
