//! One thing that is not as it must be: what it is, why it matters, what mends it.

use std::fmt;

use serde::Serialize;

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
