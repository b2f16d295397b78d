//! Options for applying to a MySQL, and the settings of its sessions.

use std::collections::BTreeSet;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, ServerVersion, literal};

use crate::mysql::row_run::format_description;

/// Time limit for a statement of a barrier, such as an ALTER TABLE.
pub(super) const STATEMENT_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Options for applying to a MySQL.
#[derive(Debug, Clone)]
pub struct MysqlOptions {
    /// The address and the account; [`MysqlBackend::connect`](crate::mysql::MysqlBackend::connect) lists the privileges.
    pub connect: ConnectOptions,
    /// True if transactions are written to the target's binlog. If false, a target with a binlog logs them as empty transactions, with
    /// their GTIDs only. Such files must not be served to a replica.
    pub target_binlog: bool,
    /// True if consecutive transactions may commit as one. The row `witness_applier.checkpoint`, which is created if missing, keeps
    /// the batches in order. Has no effect with [`Self::target_binlog`].
    pub batches: bool,
    /// All transactions of the log, if they are known when a run begins. Other transactions in the row are of another log, and are
    /// ignored. `None`: no entry of the row is ignored.
    pub log_has: Option<GtidSet>,
    /// Timeout for row and table locks, after which the transaction is rolled back and retried. Whole seconds.
    pub lock_wait: Duration,
    /// Time limit for one packet of rows. When it is exceeded, the connection counts as lost. The retry has twice the time, at most
    /// that of a statement.
    pub rows_limit: Duration,
}

impl MysqlOptions {
    /// The defaults for all options except the connection.
    pub fn new(connect: ConnectOptions) -> Self {
        Self {
            connect,
            target_binlog: false,
            batches: true,
            log_has: None,
            lock_wait: Duration::from_secs(10),
            rows_limit: Duration::from_secs(600),
        }
    }

    /// Returns the lock wait timeout in whole seconds, at least one.
    pub(super) fn lock_wait_seconds(&self) -> u64 {
        self.lock_wait.as_secs().max(1)
    }
}

// An account's privileges, from the lines of SHOW GRANTS. Pure.

/// The privileges that an account has on any object; on which object is not recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Grants {
    held: BTreeSet<String>,
}

impl Grants {
    /// Reads the lines of SHOW GRANTS.
    pub(super) fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut held = BTreeSet::new();
        for line in lines {
            let rest = line.strip_prefix("GRANT ");
            if let Some((list, _)) = rest.and_then(|rest| rest.split_once(" ON ")) {
                held.extend(list.split(',').map(|word| word.trim().to_uppercase()));
            }
        }
        Self { held }
    }

    /// Returns the privileges of `wanted` that the account has on no object.
    pub(super) fn lacks<'a>(&self, wanted: &[&'a str]) -> Vec<&'a str> {
        let has = |privilege: &str| self.held.contains(privilege);
        let all = has("ALL PRIVILEGES") || has("ALL");
        let missing = wanted.iter().filter(|one| !all && !has(one));
        missing.copied().collect()
    }
}

/// The privileges for rows of all tables.
pub(super) const FOR_ROWS: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

/// Returns the privileges for rows that an account lacks for a run, from the lines of SHOW GRANTS.
pub fn lacks_for_rows<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<&'static str> {
    Grants::parse(lines).lacks(&FOR_ROWS)
}

/// Returns the grant that is missing if an account may create accounts but not grant PROXY: the applier would stop at the first `GRANT
/// PROXY` or `REVOKE PROXY` of the log. ALL PRIVILEGES do not include this privilege. `lines` are those of SHOW GRANTS, `account` is
/// the result of CURRENT_USER().
pub(super) fn lacking_proxy<'a>(
    mut lines: impl Iterator<Item = &'a str> + Clone,
    account: &str,
) -> Option<String> {
    let grants = Grants::parse(lines.clone());
    let of_all = lines.any(|line| {
        let line = line.replace('`', "'");
        line.starts_with("GRANT PROXY ON ''@'' TO ") && line.ends_with(" WITH GRANT OPTION")
    });
    let lacks = !of_all && grants.lacks(&["CREATE USER"]).is_empty();
    lacks.then(|| {
        let account = quoted(account);
        // Unlogged: if the grant were in the log, it would itself stop the members that lack it.
        format!("SET sql_log_bin = 0; GRANT PROXY ON ''@'' TO {account} WITH GRANT OPTION")
    })
}

/// Returns the statement that grants the missing privileges. `account` is the result of CURRENT_USER(): user@host.
pub(super) fn grant_statement(privileges: &[&str], account: &str) -> String {
    let account = quoted(account);
    format!("GRANT {} ON *.* TO {account}", privileges.join(", "))
}

fn quoted(account: &str) -> String {
    let (user, host) = account.rsplit_once('@').unwrap_or((account, "%"));
    format!("{}@{}", literal(user), literal(host))
}

// The settings of a session before it applies anything, and again after a barrier has changed them. Pure.

const SESSION_VARIABLES_ADMIN_FROM: ServerVersion = ServerVersion::new(8, 0, 14);
const REPLICATION_APPLIER_FROM: ServerVersion = ServerVersion::new(8, 0, 18);
/// The first version in which primary keys may be hidden from `information_schema`.
pub(super) const INVISIBLE_PRIMARY_KEYS_FROM: ServerVersion = ServerVersion::new(8, 0, 30);

/// Returns the statements that prepare a new connection, in order, each with the privilege that it needs. Later, only those of
/// [`again`] may have to be repeated.
pub(super) fn settings(
    version: ServerVersion,
    connection: u32,
    options: &MysqlOptions,
) -> Vec<(Vec<u8>, &'static str)> {
    let session_admin = match version >= SESSION_VARIABLES_ADMIN_FROM {
        true => "SESSION_VARIABLES_ADMIN",
        false => "SYSTEM_VARIABLES_ADMIN",
    };
    let (applier, names_gtids) = match version >= REPLICATION_APPLIER_FROM {
        true => ("REPLICATION_APPLIER", "REPLICATION_APPLIER"),
        false => ("BINLOG_ADMIN", session_admin),
    };
    let log = u8::from(options.target_binlog);
    let lock_wait = options.lock_wait_seconds();
    // Long timeouts keep sessions that are idle or receive a statement slowly.
    let waits = format!(
        "SET innodb_lock_wait_timeout={lock_wait},wait_timeout=31536000,net_read_timeout=600,net_write_timeout=600"
    );
    let first = [
        (b"SET gtid_next='AUTOMATIC'".to_vec(), names_gtids),
        (format_description(), applier),
    ];
    let others = [format!("SET sql_log_bin={log}"), waits].into_iter();
    let others = others.chain(again(version, connection, options));
    let others = others.map(|sql| (sql.into_bytes(), session_admin));
    first.into_iter().chain(others).collect()
}

/// Returns the statements that restore settings which a barrier's statements may have changed.
///
/// `sql_mode`, `time_zone` and `lc_time_names` are not among them: they are set with the rows, since each transaction in the log has
/// its own. Rows are applied with READ COMMITTED, so that concurrent sessions lock rows and not the gaps between them.
pub(super) fn again(
    version: ServerVersion,
    connection: u32,
    options: &MysqlOptions,
) -> Vec<String> {
    let lock_wait = options.lock_wait_seconds();
    let replica = match version >= ServerVersion::SOURCE_REPLICA_NAMES {
        true => "replica",
        false => "slave",
    };
    let mut set = format!(
        "SET pseudo_{replica}_mode=1,rbr_exec_mode=STRICT,autocommit=0,completion_type=0,transaction_isolation='READ-COMMITTED',\
         transaction_read_only=0,sql_mode='',foreign_key_checks=1,unique_checks=1,sql_auto_is_null=0,sql_safe_updates=0,\
         sql_big_selects=1,sql_select_limit=18446744073709551615,max_execution_time=0,max_error_count=64,\
         auto_increment_increment=1,auto_increment_offset=1,lc_time_names=0,\
         timestamp=DEFAULT,time_zone=DEFAULT,pseudo_thread_id={connection},\
         explicit_defaults_for_timestamp=DEFAULT,original_commit_timestamp=DEFAULT,\
         default_collation_for_utf8mb4=DEFAULT,collation_server=DEFAULT,innodb_strict_mode=0,\
         lock_wait_timeout={lock_wait}"
    );
    // Statements that were valid with the source's settings must be valid here.
    let since = ServerVersion::new;
    for (from, more) in [
        (since(8, 0, 14), ",original_server_version=DEFAULT"),
        (since(8, 0, 13), ",sql_require_primary_key=0"),
        (since(8, 0, 16), ",default_table_encryption=DEFAULT"),
        (
            INVISIBLE_PRIMARY_KEYS_FROM,
            ",sql_generate_invisible_primary_key=0",
        ),
        (since(9, 7, 0), ",enable_cascade_triggers=DEFAULT"),
        (since(8, 4, 0), ",restrict_fk_on_non_standard_key=0"),
    ] {
        if version >= from {
            set.push_str(more);
        }
    }
    vec![
        "SET NAMES utf8mb4".to_owned(),
        set,
        // A schema that always exists, so that no statement depends on the default schema of an earlier statement.
        "USE information_schema".to_owned(),
        // BINLOG statements are parsed faster with a binary character set.
        "SET character_set_client=binary".to_owned(),
    ]
}

/// Returns the settings for a barrier, in addition to those of its events. Statements run with REPEATABLE READ, the default on their
/// source. Barriers with rows only run with READ COMMITTED, as in mysqld's own applier threads. An XA transaction keeps its locks from
/// `XA PREPARE` to its end, which comes after other transactions in the log. At `XA PREPARE`, InnoDB releases gap locks only with READ
/// COMMITTED.
///
/// A statement waits for readers of its table for as long as it may run. With a shorter limit, a rebuilt table would be discarded, and
/// the retry would start from the beginning. No session of the applier blocks it, since everything before a barrier is committed and
/// nothing later has begun.
pub(super) fn for_barrier(has_statements: bool, options: &MysqlOptions) -> String {
    let (isolation, lock_wait) = match has_statements {
        true => ("REPEATABLE-READ", STATEMENT_LIMIT.as_secs()),
        false => ("READ-COMMITTED", options.lock_wait_seconds()),
    };
    format!(
        "SET NAMES utf8mb4,transaction_isolation='{isolation}',autocommit=1,lock_wait_timeout={lock_wait}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_privileges_become_a_grant_statement() {
        let grants = Grants::parse([
            "GRANT SELECT, INSERT ON *.* TO `w`@`%`",
            "GRANT CONNECTION_ADMIN,REPLICATION_APPLIER ON *.* TO `w`@`%`",
            "GRANT UPDATE ON `app`.* TO `w`@`%`",
            "GRANT `role`@`%` TO `w`@`%`",
        ]);
        let lacking = grants.lacks(&["INSERT", "UPDATE", "DELETE", "CONNECTION_ADMIN"]);
        assert_eq!(lacking, ["DELETE"]);
        assert_eq!(
            grant_statement(&lacking, "o'w@%"),
            "GRANT DELETE ON *.* TO 'o''w'@'%'"
        );
        let root = Grants::parse(["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost`"]);
        assert!(root.lacks(&["DELETE", "CONNECTION_ADMIN"]).is_empty());
    }

    #[test]
    fn an_account_with_create_user_needs_proxy() {
        let lacking = |lines: &[&str]| lacking_proxy(lines.iter().copied(), "w@localhost");
        let all = "GRANT SELECT, CREATE USER ON *.* TO `w`@`localhost` WITH GRANT OPTION";
        let told = Some(
            "SET sql_log_bin = 0; GRANT PROXY ON ''@'' TO 'w'@'localhost' WITH GRANT OPTION"
                .to_owned(),
        );
        assert_eq!(lacking(&[all]), told);
        let of_one = "GRANT PROXY ON `a`@`b` TO `w`@`localhost` WITH GRANT OPTION";
        assert_eq!(lacking(&[all, of_one]), told);
        // Servers quote names in either way.
        for of_all in ["``@``", "''@''"] {
            let grant = format!("GRANT PROXY ON {of_all} TO `w`@`localhost` WITH GRANT OPTION");
            assert_eq!(lacking(&[all, &grant]), None);
        }
        assert_eq!(lacking(&["GRANT SELECT ON *.* TO `w`@`localhost`"]), None);
    }
}

#[cfg(test)]
mod settings_tests {
    use mysql_link::Endpoint;

    use super::*;

    #[test]
    fn statements_wait_longer_for_locks_than_rows() {
        let connect = ConnectOptions::new(Endpoint::tcp("h", 1), "u", "");
        let options = MysqlOptions::new(connect);
        let waits = |set: &str, seconds: u64| {
            let wait = format!("lock_wait_timeout={seconds}");
            set.split(',').any(|assignment| assignment == wait)
        };
        let version = ServerVersion::new(9, 7, 4);
        assert!(waits(&for_barrier(true, &options), 24 * 3600));
        assert!(waits(&for_barrier(false, &options), 10));
        let again = again(version, 7, &options);
        assert!(again.iter().any(|set| waits(set, 10)), "{again:?}");
    }

    #[test]
    fn settings_and_privileges_depend_on_the_version() {
        let connect = ConnectOptions::new(Endpoint::tcp("h", 1), "u", "");
        let options = MysqlOptions::new(connect);
        let text = |version| {
            let all = settings(version, 7, &options);
            let sql: Vec<_> = all
                .iter()
                .map(|(sql, _)| String::from_utf8_lossy(sql))
                .collect();
            let privileges: Vec<_> = all.iter().map(|(_, privilege)| *privilege).collect();
            (sql.join(";"), privileges)
        };
        let (new, rights) = text(ServerVersion::new(9, 7, 4));
        assert!(new.contains("pseudo_replica_mode=1") && new.contains("sql_log_bin=0"));
        assert!(new.contains("restrict_fk_on_non_standard_key"));
        assert_eq!(
            rights[..3],
            [
                "REPLICATION_APPLIER",
                "REPLICATION_APPLIER",
                "SESSION_VARIABLES_ADMIN"
            ]
        );
        let (old, rights) = text(ServerVersion::new(8, 0, 12));
        assert!(old.contains("pseudo_slave_mode=1"));
        assert!(
            !old.contains("sql_require_primary_key") && !old.contains("original_server_version")
        );
        assert_eq!(
            rights[..3],
            [
                "SYSTEM_VARIABLES_ADMIN",
                "BINLOG_ADMIN",
                "SYSTEM_VARIABLES_ADMIN"
            ]
        );
    }
}
