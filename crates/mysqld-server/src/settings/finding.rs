//! A finding: a wrong setting or state, its consequence and its fix. Also the limits that the ring requires.

use std::fmt;

use binlog_format::event::MAX_EVENT_BYTES;
use raft_types::MAX_TRANSACTION_BYTES;
use uuid::Uuid;

use crate::binlog_place::BinlogPlace;
use crate::settings::observed::SemiSyncReplica;

/// The setting or state that a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// Version and product of the server.
    Version,
    /// The binlog is enabled.
    BinlogEnabled,
    /// `gtid_mode`, which must be ON.
    GtidMode,
    /// `enforce_gtid_consistency`, which must be ON.
    GtidConsistency,
    /// `server_id`, which must differ from the member's own.
    ServerId,
    /// `binlog_format`, which must be ROW.
    BinlogFormat,
    /// `binlog_row_image`: which columns rows have in the log.
    RowImage,
    /// `binlog-do-db` and `binlog-ignore-db`, which leave transactions out of the binlog.
    BinlogFilter,
    /// `binlog_encryption`, which prevents trimming a binlog after a crash.
    BinlogEncryption,
    /// `log_replica_updates`: transactions of mysqld's own replica threads are in its binlog.
    ReplicaUpdates,
    /// `replica_preserve_commit_order` and `binlog_order_commits`: whether readers of a follower see transactions in the log's order.
    CommitOrder,
    /// `binlog_error_action`: mysqld's reaction when it cannot write its binlog.
    BinlogErrorAction,
    /// `sync_binlog`: a commit is durable in the binlog.
    SyncBinlog,
    /// `innodb_flush_log_at_trx_commit`: a commit is durable in InnoDB.
    RedoFlush,
    /// `ALTER INSTANCE DISABLE INNODB REDO_LOG`: a crash then leaves a data directory that cannot be started.
    RedoLog,
    /// `max_binlog_cache_size`: the largest transaction on tables of transactional engines.
    TransactionCache,
    /// `max_binlog_stmt_cache_size`: the largest transaction on tables of other engines.
    StatementCache,
    /// Whether the semi-sync source plugin is loaded.
    SemiSyncPlugin,
    /// Whether semi-sync is enabled at the source.
    SemiSyncEnabled,
    /// How long a commit waits before semi-sync gives up.
    SemiSyncTimeout,
    /// How many ACKs a commit waits for.
    SemiSyncReplicaCount,
    /// True if a commit waits while no replica is attached.
    SemiSyncWaitNoReplica,
    /// At which point of the commit semi-sync waits.
    SemiSyncWaitPoint,
    /// Semi-sync has turned itself off.
    SemiSyncStatus,
    /// Whether a foreign replica's ACK would count.
    ForeignAcker,
    /// The privileges of the member's account.
    Grants,
    /// Which other accounts may shut the server down.
    ShutdownPrivilege,
    /// True if the password of the member's account expires.
    AccountExpires,
    /// `log_bin`: the place of the server's binlog, which the member reads after a crash.
    BinlogPlace,
    /// A persisted value that overrides the member's settings at the next start.
    Persisted,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Informational; no loss follows from it.
    Advice,
    /// A commit may become visible or durable without the ring: the primary is not protected.
    Unprotected,
    /// The member cannot attach at all.
    Blocks,
}

/// How to fix a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Adds quotes to words, as `SET` requires. Numbers and switches must not have quotes.
pub(crate) fn quoted(value: &str) -> String {
    if ["ON", "OFF"].contains(&value) || value.bytes().all(|byte| byte.is_ascii_digit()) {
        value.to_owned()
    } else {
        format!("'{value}'")
    }
}

/// A wrong setting or state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The setting or state with the problem.
    pub check: Check,
    /// Whether it prevents the attachment, makes the primary unprotected, or is informational.
    pub severity: Severity,
    /// The observed value, as text.
    pub found: String,
    /// The possible consequence.
    pub why: String,
    /// How to fix it.
    pub fix: Fix,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.found, self.why, self.fix)
    }
}

// The ring's requirements on a primary that differ between rings.

/// The largest `max_binlog_cache_size` in bytes with which every transaction fits into the ring. MySQL checks the limit before it writes an
/// event to the cache, so the last event, of up to 1 GiB ([`MAX_EVENT_BYTES`]), is added to this size. The remainder is for the GTID event
/// and the cache's buffer.
pub const LARGEST_CACHE: u64 = (1 << 30) - (1 << 20);
const _: () =
    assert!(LARGEST_CACHE + (MAX_EVENT_BYTES as u64) + (512 << 10) < MAX_TRANSACTION_BYTES);
/// MySQL rounds `max_binlog_cache_size` down to a multiple of this.
const CACHE_STEP: u64 = 4096;

/// A timeout of ten years or more counts as infinite.
const INFINITE_MS: u64 = 10 * 365 * 24 * 3600 * 1000;
/// The timeout that the member sets: never reached, and without an overflow in mysqld.
pub(crate) const TIMEOUT_MS: u64 = 1_000_000_000_000_000_000;

/// How many ACKs a commit waits for while the member is attached. The member sends both, from two server ids. An ACK names no account, so
/// with one required ACK any semi-sync replica could release commits.
pub const MEMBER_ACKS: u32 = 2;
/// How many ACKs a commit waits for while no member is attached: more than any set of replicas sends.
pub const UNREACHABLE_ACKS: u32 = 1000;

/// Whether commits with this number of ACKs wait for the member.
pub fn keeps_replicas_from_releasing(acks: &str) -> bool {
    let accepted = [MEMBER_ACKS, UNREACHABLE_ACKS];
    acks.parse().is_ok_and(|acks| accepted.contains(&acks))
}

/// True if a semi-sync timeout counts as infinite.
pub fn is_effectively_infinite(milliseconds: u64) -> bool {
    milliseconds >= INFINITE_MS
}

/// The bit in which the server id and UUID of the member's second dump differ from those of the first. The ids of members are numbered too
/// low to reach this bit.
const SECOND: u32 = 1 << 28;

/// Requirements on the mysqld of this member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements {
    /// The largest transaction that the primary should accept, in bytes of binlog without the last event. The ring accepts transactions of
    /// up to [`MAX_TRANSACTION_BYTES`], since a session may still have an older, larger limit.
    pub max_transaction_bytes: u64,
    /// The server id under which the member attaches.
    pub replica_server_id: u32,
    /// The server UUID under which the member attaches.
    pub replica_uuid: Uuid,
    /// True if the member changes settings where possible and installs a missing semi-sync plugin. The installation needs `super_read_only`
    /// off for a moment. If false, the member only reports.
    pub manage_settings: bool,
    /// True if a server of a version or product that is not fully tested is accepted.
    pub accept_unproven: bool,
    /// True if another program starts the server (`mysql.mode = "attach"`). Settings for the next start are then persisted in the server.
    pub starts_elsewhere: bool,
    /// Where the member reads the server's binlog after a crash; `None` if the member's configuration does not determine the location.
    pub binlog: Option<BinlogPlace>,
    /// True if mysqld's own replica threads follow the ring. The account then needs only [`NATIVE_RIGHTS`].
    ///
    /// [`NATIVE_RIGHTS`]: crate::settings::NATIVE_RIGHTS
    pub native: bool,
}

impl Requirements {
    /// The defaults for a replica with this identity: settings are managed, a missing plugin is installed, and the server must be fully
    /// tested.
    pub fn new(replica_server_id: u32, replica_uuid: Uuid) -> Self {
        Self {
            max_transaction_bytes: LARGEST_CACHE,
            replica_server_id,
            replica_uuid,
            manage_settings: true,
            accept_unproven: false,
            starts_elsewhere: false,
            binlog: None,
            native: false,
        }
    }

    /// The server id and the UUID of the member's second dump, which only acknowledges.
    pub fn second_replica(&self) -> (u32, Uuid) {
        let id = (self.replica_server_id ^ SECOND).max(1);
        let uuid = self.replica_uuid.as_u128() ^ u128::from(SECOND);
        (id, Uuid::from_u128(uuid))
    }

    /// True if a semi-sync replica is one of the member's two dumps.
    pub fn is_ours(&self, replica: &SemiSyncReplica) -> bool {
        let ours = [self.replica_uuid, self.second_replica().1];
        replica.uuid.is_some_and(|uuid| ours.contains(&uuid))
    }

    /// The `max_binlog_cache_size` for the primary, in bytes. Transactions within this size do not exceed the operator's limit, and fit
    /// into the ring.
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
