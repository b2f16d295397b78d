//! A session's settings before it applies anything, and again after a barrier has changed them. Pure.

use std::sync::atomic::{AtomicBool, Ordering};

use mysql_link::{ConnectOptions, Connection, LinkError, ServerError, ServerVersion, server_code};

use crate::mysql::options::MysqlOptions;
use crate::mysql::row_run::format_description;

/// A statement, and the privilege that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) sql: Vec<u8>,
    pub(super) privilege: &'static str,
}

const REPLICA_NAMES: ServerVersion = ServerVersion::SOURCE_REPLICA_NAMES;
const SESSION_VARIABLES_ADMIN_FROM: ServerVersion = ServerVersion::new(8, 0, 14);
const REPLICATION_APPLIER_FROM: ServerVersion = ServerVersion::new(8, 0, 18);
const INVISIBLE_PRIMARY_KEYS_FROM: ServerVersion = ServerVersion::new(8, 0, 30);
const REQUIRED_PRIMARY_KEYS_FROM: ServerVersion = ServerVersion::new(8, 0, 13);
const ORIGINAL_VERSION_FROM: ServerVersion = ServerVersion::new(8, 0, 14);
const TABLE_ENCRYPTION_FROM: ServerVersion = ServerVersion::new(8, 0, 16);
const CASCADE_TRIGGERS_FROM: ServerVersion = ServerVersion::new(9, 7, 0);
const STANDARD_FOREIGN_KEYS_FROM: ServerVersion = ServerVersion::new(8, 4, 0);

/// The largest `lock_wait_timeout` that a server accepts, in seconds.
const LONGEST_LOCK_WAIT: u64 = 31_536_000;

/// The statements that make a new connection a session, in order. Only those of [`again`] ever need to be
/// repeated.
pub(super) fn settings(
    version: ServerVersion,
    connection: u32,
    options: &MysqlOptions,
) -> Vec<Setting> {
    let session_admin = if version >= SESSION_VARIABLES_ADMIN_FROM {
        "SESSION_VARIABLES_ADMIN"
    } else {
        "SYSTEM_VARIABLES_ADMIN"
    };
    let applier = if version >= REPLICATION_APPLIER_FROM {
        "REPLICATION_APPLIER"
    } else {
        "BINLOG_ADMIN"
    };
    let mut all = vec![Setting {
        sql: b"SET gtid_next='AUTOMATIC'".to_vec(),
        privilege: if version >= REPLICATION_APPLIER_FROM {
            applier
        } else {
            session_admin
        },
    }];
    all.push(Setting {
        sql: format_description(),
        privilege: applier,
    });
    let log = if options.target_binlog { 1 } else { 0 };
    all.push(Setting {
        sql: format!("SET sql_log_bin={log}").into_bytes(),
        privilege: session_admin,
    });
    let lock_wait = options.lock_wait_seconds();
    // An idle session stays, and so does one that receives a statement slowly.
    all.push(Setting {
        sql: format!(
            "SET innodb_lock_wait_timeout={lock_wait},wait_timeout=31536000,\
             net_read_timeout=600,net_write_timeout=600"
        )
        .into_bytes(),
        privilege: session_admin,
    });
    let again = again(version, connection, options);
    all.extend(again.into_iter().map(|sql| Setting {
        sql: sql.into_bytes(),
        privilege: session_admin,
    }));
    all
}

/// The statements that restore settings which a barrier's statements may have changed.
///
/// `sql_mode`, `time_zone` and `lc_time_names` are set together with the rows, since each transaction in the log has its own.
/// Rows are applied as read committed, so that concurrent sessions lock rows and not the gaps between them.
pub(super) fn again(
    version: ServerVersion,
    connection: u32,
    options: &MysqlOptions,
) -> Vec<String> {
    let lock_wait = options.lock_wait_seconds();
    let replica = if version >= REPLICA_NAMES {
        "pseudo_replica_mode"
    } else {
        "pseudo_slave_mode"
    };
    let mut set = format!(
        "SET {replica}=1,rbr_exec_mode=STRICT,autocommit=0,completion_type=0,transaction_isolation='READ-COMMITTED',\
         transaction_read_only=0,sql_mode='',foreign_key_checks=1,unique_checks=1,sql_auto_is_null=0,sql_safe_updates=0,\
         sql_big_selects=1,sql_select_limit=18446744073709551615,max_execution_time=0,max_error_count=64,\
         auto_increment_increment=1,auto_increment_offset=1,lc_time_names=0,\
         timestamp=DEFAULT,time_zone=DEFAULT,pseudo_thread_id={connection},\
         explicit_defaults_for_timestamp=DEFAULT,original_commit_timestamp=DEFAULT,\
         default_collation_for_utf8mb4=DEFAULT,collation_server=DEFAULT,innodb_strict_mode=0,\
         lock_wait_timeout={lock_wait}"
    );
    // Settings of the source are valid here.
    for (from, more) in [
        (ORIGINAL_VERSION_FROM, ",original_server_version=DEFAULT"),
        (REQUIRED_PRIMARY_KEYS_FROM, ",sql_require_primary_key=0"),
        (TABLE_ENCRYPTION_FROM, ",default_table_encryption=DEFAULT"),
        (
            INVISIBLE_PRIMARY_KEYS_FROM,
            ",sql_generate_invisible_primary_key=0",
        ),
        (CASCADE_TRIGGERS_FROM, ",enable_cascade_triggers=DEFAULT"),
        (
            STANDARD_FOREIGN_KEYS_FROM,
            ",restrict_fk_on_non_standard_key=0",
        ),
    ] {
        if version >= from {
            set.push_str(more);
        }
    }
    vec![
        "SET NAMES utf8mb4".to_owned(),
        set,
        // A schema that always exists, so that no statement depends on the default schema of another one.
        "USE information_schema".to_owned(),
        // BINLOG statements are parsed faster with a binary character set.
        "SET character_set_client=binary".to_owned(),
    ]
}

/// Assignments for a barrier in addition to its events. Statements are repeatable reads, as they are on their
/// source by default. Rows alone are read committed, as mysqld's own replica threads apply them. A prepared transaction keeps
/// its locks until its end, which comes after others in the log. Only at that level InnoDB releases gap locks at
/// `XA PREPARE`.
///
/// A statement waits for readers of its table as long as it may run: giving up would discard its rebuilt table, and
/// a retry would begin again. No session of ours blocks it, since everything before a barrier is committed and nothing later is begun.
pub(super) fn for_barrier(has_statements: bool, options: &MysqlOptions) -> String {
    let (isolation, lock_wait) = match has_statements {
        true => (
            "REPEATABLE-READ",
            options
                .statement_limit
                .as_secs()
                .clamp(1, LONGEST_LOCK_WAIT),
        ),
        false => ("READ-COMMITTED", options.lock_wait_seconds()),
    };
    format!(
        "SET NAMES utf8mb4,transaction_isolation='{isolation}',autocommit=1,lock_wait_timeout={lock_wait}"
    )
}

// Packets for rows that are larger than the target's `max_allowed_packet`.
//
// A row of n bytes is a `BINLOG` statement of 4/3 n, so a row that fitted into a packet on the source may not fit into one
// here. A session's limit is the server's at the moment of its connection, and cannot be changed afterwards. So the
// server's limit is raised for the moment of one connection and then restored. That is safe: the setting bounds a client's
// packets and affects no data, and only a client that connects in that moment may send more than others. If the applier
// is killed in it, the raised value stays until the target is restarted or it is reset.

/// The largest `max_allowed_packet` that a server has.
pub(super) const LARGEST: usize = 1 << 30;

/// Whether new sessions are opened with more room, one at a time.
#[derive(Debug, Default)]
pub(super) struct PacketRoom {
    asked: AtomicBool,
    opening: tokio::sync::Mutex<()>,
}

impl PacketRoom {
    /// Sessions that are opened from now on get more room.
    pub(super) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Whether more room was requested.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Opens a connection with the server's largest packets; with ordinary ones if the account may not set
    /// them, which is logged.
    ///
    /// # Errors
    /// When there is no connection.
    pub(super) async fn open(&self, connect: &ConnectOptions) -> Result<Connection, LinkError> {
        let _one = self.opening.lock().await;
        let mut first = Connection::open(connect).await?;
        let answer = first.query("SELECT @@GLOBAL.max_allowed_packet").await?;
        let before = answer.first().and_then(|row| row.text_at(0));
        let before: usize = before.and_then(|text| text.parse().ok()).unwrap_or(LARGEST);
        if before >= LARGEST {
            return Connection::open(connect).await;
        }
        match first.execute(set_statement(LARGEST)).await {
            Ok(_) => {}
            Err(LinkError::Server(error)) => {
                tracing::warn!(
                    %error,
                    "a row needs a larger packet than the target takes: GRANT SYSTEM_VARIABLES_ADMIN lets the applier \
                     raise max_allowed_packet for the moment in which it connects"
                );
                return Ok(first);
            }
            Err(error) => return Err(error),
        }
        let opened = Connection::open(connect).await;
        let mut back = first.execute(set_statement(before)).await;
        if back.is_err()
            && let Ok(mut again) = Connection::open(connect).await
        {
            back = again.execute(set_statement(before)).await;
        }
        if let Err(error) = back {
            tracing::warn!(%error, "max_allowed_packet of the target stays raised; it was {before}");
        }
        opened
    }
}

/// The error for a row that fits into no packet.
pub(super) fn no_packet(length: usize) -> ServerError {
    ServerError {
        code: server_code::PACKET_TOO_LARGE,
        sqlstate: "08S01".to_owned(),
        message: format!(
            "A row takes a statement of {length} bytes, and no packet is larger than {LARGEST}. mysqld's own replica threads \
             can apply it (mysql.apply = \"native\" for the member beside it), or a copy of another server's data brings it"
        ),
    }
}

fn set_statement(bytes: usize) -> String {
    format!("SET GLOBAL max_allowed_packet = {bytes}")
}

#[cfg(test)]
mod tests {
    use mysql_link::ConnectOptions;
    use mysql_link::Endpoint;

    use super::*;

    #[test]
    fn statements_wait_for_readers_as_long_as_they_may_run_and_rows_do_not() {
        let connect = ConnectOptions::new(Endpoint::tcp("h", 1), "u", "");
        let mut options = MysqlOptions::new(connect);
        let waits = |set: &str, seconds: u64| {
            let wait = format!("lock_wait_timeout={seconds}");
            set.split(',').any(|assignment| assignment == wait)
        };
        let version = ServerVersion::new(9, 7, 4);
        assert!(waits(&for_barrier(true, &options), 24 * 3600));
        assert!(waits(&for_barrier(false, &options), 10));
        let again = again(version, 7, &options);
        assert!(again.iter().any(|set| waits(set, 10)), "{again:?}");
        options.statement_limit = std::time::Duration::MAX;
        assert!(waits(&for_barrier(true, &options), LONGEST_LOCK_WAIT));
    }

    #[test]
    fn older_servers_are_told_what_they_know_and_asked_for_the_rights_that_they_have() {
        let connect = ConnectOptions::new(Endpoint::tcp("h", 1), "u", "");
        let options = MysqlOptions::new(connect);
        let text = |version| {
            let all = settings(version, 7, &options);
            let sql: Vec<_> = all
                .iter()
                .map(|one| String::from_utf8_lossy(&one.sql))
                .collect();
            let privileges: Vec<_> = all.iter().map(|one| one.privilege).collect();
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
