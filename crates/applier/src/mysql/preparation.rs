//! What a session is told before it applies anything, and again after a barrier has changed it. Pure.

use mysql_link::ServerVersion;

use super::binlog_statement::format_description;
use super::options::MysqlOptions;

/// A statement, and the right that an account lacks which may not run it.
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

/// The statements that make a new connection a session, in order. None of them needs to be run again but those of
/// [`again`].
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
    // An idle session stays, and one that is written to slowly.
    all.push(Setting {
        sql: format!(
            "SET innodb_lock_wait_timeout={lock_wait},lock_wait_timeout={lock_wait},wait_timeout=31536000,\
             net_read_timeout=600,net_write_timeout=600"
        )
        .into_bytes(),
        privilege: session_admin,
    });
    all.extend(again(version, connection).into_iter().map(|sql| Setting {
        sql: sql.into_bytes(),
        privilege: session_admin,
    }));
    all
}

/// The statements that put back what the statements of a barrier may have changed.
///
/// Rows need none of the `sql_mode`: the source has checked them, and its generated columns must come out here as they did
/// there. They are read committed, so that sessions beside each other lock rows and not the gaps between them.
pub(super) fn again(version: ServerVersion, connection: u32) -> Vec<String> {
    let replica = if version >= REPLICA_NAMES {
        "pseudo_replica_mode"
    } else {
        "pseudo_slave_mode"
    };
    let mut set = format!(
        "SET {replica}=1,rbr_exec_mode=STRICT,autocommit=0,completion_type=0,transaction_isolation='READ-COMMITTED',\
         transaction_read_only=0,sql_mode='',foreign_key_checks=1,unique_checks=1,sql_auto_is_null=0,sql_safe_updates=0,\
         sql_select_limit=DEFAULT,max_execution_time=0,auto_increment_increment=1,auto_increment_offset=1,lc_time_names=0,\
         timestamp=DEFAULT,time_zone=DEFAULT,pseudo_thread_id={connection},\
         explicit_defaults_for_timestamp=DEFAULT,original_commit_timestamp=DEFAULT,\
         default_collation_for_utf8mb4=DEFAULT,collation_server=DEFAULT,innodb_strict_mode=0"
    );
    // What the source allowed is allowed here.
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
        // A schema that is always there, so that no statement finds its tables in one that another statement used.
        "USE information_schema".to_owned(),
        // The text of BINLOG statements is read faster when its bytes are no characters.
        "SET character_set_client=binary".to_owned(),
    ]
}

/// The assignments that a barrier's statements need besides what their events say.
pub(super) const FOR_STATEMENTS: &str = "SET NAMES utf8mb4,transaction_isolation='REPEATABLE-READ'";

#[cfg(test)]
mod tests {
    use mysql_link::{ConnectOptions, Endpoint};

    use super::*;

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
