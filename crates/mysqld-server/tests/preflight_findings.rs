//! Tests of preflight and its plan, both pure: every wrong setting is found, with its fix, in both generations of names.

use std::collections::BTreeMap;

use mysql_link::ServerVersion;
use mysqld_server::BinlogPlace;
use mysqld_server::settings::{
    Check, Finding, Fix, Grants, NATIVE_RIGHTS, Observed, Phase, Plan, Requirements,
    SemiSyncReplica, Severity, Statement, native_grants, preflight, rows_grants,
};
use uuid::Uuid;

const OURS: Uuid = Uuid::from_u128(0x4001);
const NEW: ServerVersion = ServerVersion::new(9, 7, 4);
const OLD: ServerVersion = ServerVersion::new(8, 0, 25);
const CALENDAR: ServerVersion = ServerVersion::new(26, 1, 0);

fn requirements() -> Requirements {
    Requirements::new(4001, OURS)
}

fn semi_sync(prefix: &str, count: &str, no_replica: &str) -> Vec<(String, String)> {
    [
        ("enabled", "ON"),
        ("timeout", "1000000000000000000"),
        (count, "2"),
        (no_replica, "ON"),
        ("wait_point", "AFTER_SYNC"),
    ]
    .map(|(name, value)| (format!("rpl_semi_sync_{prefix}_{name}"), value.to_owned()))
    .to_vec()
}

/// Returns the findings on a server, except the one about its version, which the operator has accepted.
fn beside_the_version(observed: &Observed) -> Vec<Finding> {
    let requirements = Requirements {
        accept_unproven: true,
        ..requirements()
    };
    let mut findings = preflight(observed, &requirements);
    findings.retain(|finding| finding.check != Check::Version);
    findings
}

/// Returns an observation without findings.
fn perfect(version: ServerVersion) -> Observed {
    let prefix = if version == OLD { "master" } else { "source" };
    let plugin = match prefix {
        "master" => semi_sync(prefix, "wait_for_slave_count", "wait_no_slave"),
        _ => semi_sync(prefix, "wait_for_replica_count", "wait_no_replica"),
    };
    let variables = [
        ("binlog_error_action", "ABORT_SERVER"),
        ("binlog_format", "ROW"),
        ("binlog_row_image", "FULL"),
        ("enforce_gtid_consistency", "ON"),
        ("gtid_mode", "ON"),
        ("innodb_flush_log_at_trx_commit", "1"),
        ("log_bin", "ON"),
        ("max_binlog_cache_size", "1072693248"),
        ("max_binlog_stmt_cache_size", "4096"),
        ("server_id", "1"),
        ("super_read_only", "OFF"),
        ("sync_binlog", "1"),
    ];
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Observed {
        version,
        variables: variables.map(own).into_iter().chain(plugin).collect(),
        status: [
            (format!("rpl_semi_sync_{prefix}_status"), "ON".to_owned()),
            (format!("rpl_semi_sync_{prefix}_clients"), "1".to_owned()),
        ]
        .into(),
        semi_sync_replicas: Some(vec![SemiSyncReplica {
            connection_id: 9,
            uuid: Some(OURS),
        }]),
        may_shut_down: Some(Vec::new()),
        grants: Some(Grants::parse(
            "w@%",
            [
                "GRANT ALL PRIVILEGES ON *.* TO `w`@`%`",
                "GRANT PROXY ON ``@`` TO `w`@`%` WITH GRANT OPTION",
            ],
        )),
        binlog_filters: Some(Vec::new()),
        account_expires: None,
        binlog_elsewhere: None,
        persisted: Some(BTreeMap::new()),
    }
}

/// Converts the section `[mysqld]` of an option file to the server's form: names of variables, and sizes in bytes.
fn options_of(file: &str) -> Vec<(String, String)> {
    let lines = file.lines().skip_while(|line| *line != "[mysqld]");
    let options = lines.skip(1).take_while(|line| !line.starts_with("```"));
    let pairs = options.filter_map(|line| line.split_once(" = "));
    let shown = pairs.map(|(name, value)| {
        let gigabytes = value.strip_suffix('G').and_then(|size| size.parse().ok());
        let value = gigabytes.map_or(value.to_owned(), |size: u64| (size << 30).to_string());
        (name.trim_start_matches("loose_").to_owned(), value)
    });
    shown.collect()
}

fn only(findings: &[Finding]) -> &Finding {
    assert_eq!(findings.len(), 1, "{findings:?}");
    &findings[0]
}

fn sql(fix: &Fix) -> String {
    match fix {
        Fix::Sql(statements) => statements.join("; "),
        other => panic!("{other:?}"),
    }
}

/// With `mysql.manage_settings = false`, no fix corrects the content of the page and the package, so it must be right.
#[test]
fn nothing_is_wrong_with_a_server_that_is_configured_as_the_page_and_the_package_have_it() {
    for file in [
        include_str!("../../../docs/external-mysqld.md"),
        include_str!("../../../packaging/external-mysqld/witness.cnf"),
    ] {
        let mut observed = perfect(NEW);
        let configured = options_of(file);
        for name in ["max_binlog_cache_size", "rpl_semi_sync_source_timeout"] {
            assert!(
                configured.iter().any(|(option, _)| option == name),
                "{name}"
            );
        }
        observed.variables.extend(configured);
        assert_eq!(beside_the_version(&observed), []);
    }
}

#[test]
fn nothing_is_wrong_with_a_server_that_is_as_it_must_be() {
    for version in [OLD, NEW, CALENDAR] {
        assert_eq!(beside_the_version(&perfect(version)), []);
        for phase in [Phase::BeforeAttach, Phase::Attached] {
            assert!(
                Plan::make(&perfect(version), &requirements(), phase)
                    .statements
                    .is_empty()
            );
        }
    }
}

#[test]
fn a_version_that_was_not_proven_needs_a_word_and_other_products_are_refused() {
    assert_eq!(preflight(&perfect(NEW), &requirements()), []);
    let accepting = Requirements {
        accept_unproven: true,
        ..requirements()
    };
    for version in [OLD, ServerVersion::new(8, 4, 3), CALENDAR] {
        for (requirements, severity) in [
            (requirements(), Severity::Blocks),
            (accepting.clone(), Severity::Advice),
        ] {
            let findings = preflight(&perfect(version), &requirements);
            let finding = only(&findings);
            assert_eq!(
                (finding.check, finding.severity),
                (Check::Version, severity)
            );
            let words = finding.to_string();
            assert!(words.contains("mysql.accept_unproven"), "{words}");
            assert!(words.contains("not proven: trim"), "{words}");
        }
    }
    // Refused even if the operator has accepted unproven versions.
    for (version, text, comment, name) in [
        (NEW, "11.8.2-MariaDB", "Debian", "it is MariaDB, not MySQL"),
        (
            NEW,
            "9.7.4",
            "Percona XtraDB Cluster (GPL)",
            "Percona XtraDB Cluster",
        ),
        (
            ServerVersion::new(8, 0, 16),
            "8.0.16",
            "",
            "needs 8.0.17 at least",
        ),
    ] {
        let mut observed = perfect(version);
        for (variable, value) in [("version", text), ("version_comment", comment)] {
            observed
                .variables
                .insert(variable.to_owned(), value.to_owned());
        }
        let findings = preflight(&observed, &accepting);
        let finding = findings
            .iter()
            .find(|finding| finding.check == Check::Version);
        let finding = finding.unwrap();
        assert_eq!(finding.severity, Severity::Blocks);
        assert!(finding.to_string().contains(name), "{finding}");
    }
}

#[test]
fn every_drift_is_found_with_the_sql_that_mends_it() {
    use Severity::{Advice, Blocks, Unprotected};
    let table = [
        (
            "server_id",
            "0",
            Check::ServerId,
            Blocks,
            "SET PERSIST server_id = 1",
        ),
        (
            "gtid_mode",
            "ON_PERMISSIVE",
            Check::GtidMode,
            Blocks,
            "SET PERSIST gtid_mode = ON",
        ),
        (
            "enforce_gtid_consistency",
            "WARN",
            Check::GtidConsistency,
            Blocks,
            "SET PERSIST enforce_gtid_consistency = ON",
        ),
        (
            "binlog_format",
            "MIXED",
            Check::BinlogFormat,
            Unprotected,
            "SET PERSIST binlog_format = 'ROW'",
        ),
        (
            "binlog_row_image",
            "MINIMAL",
            Check::RowImage,
            Advice,
            "SET PERSIST binlog_row_image = 'FULL'",
        ),
        (
            "binlog_encryption",
            "ON",
            Check::BinlogEncryption,
            Advice,
            "SET PERSIST binlog_encryption = OFF",
        ),
        (
            "log_replica_updates",
            "OFF",
            Check::ReplicaUpdates,
            Advice,
            "--log-replica-updates=ON",
        ),
        (
            "binlog_error_action",
            "IGNORE_ERROR",
            Check::BinlogErrorAction,
            Unprotected,
            "'ABORT_SERVER'",
        ),
        (
            "sync_binlog",
            "1000",
            Check::SyncBinlog,
            Unprotected,
            "SET PERSIST sync_binlog = 1",
        ),
        (
            "innodb_flush_log_at_trx_commit",
            "2",
            Check::RedoFlush,
            Unprotected,
            "SET PERSIST innodb_flush_log_at_trx_commit = 1",
        ),
        (
            "max_binlog_cache_size",
            "18446744073709547520",
            Check::TransactionCache,
            Unprotected,
            "= 1072693248",
        ),
        (
            "max_binlog_stmt_cache_size",
            "1073741824",
            Check::StatementCache,
            Unprotected,
            "= 1072693248",
        ),
        (
            "rpl_semi_sync_source_timeout",
            "10000",
            Check::SemiSyncTimeout,
            Unprotected,
            "rpl_semi_sync_source_timeout = 1000000000000000000",
        ),
        (
            "rpl_semi_sync_source_timeout",
            "4294967295",
            Check::SemiSyncTimeout,
            Unprotected,
            "= 1000000000000000000",
        ),
        (
            "rpl_semi_sync_source_wait_for_replica_count",
            "1",
            Check::SemiSyncReplicaCount,
            Unprotected,
            "_count = 2",
        ),
        (
            "rpl_semi_sync_source_wait_no_replica",
            "OFF",
            Check::SemiSyncWaitNoReplica,
            Unprotected,
            "_no_replica = ON",
        ),
        (
            "rpl_semi_sync_source_wait_point",
            "AFTER_COMMIT",
            Check::SemiSyncWaitPoint,
            Unprotected,
            "'AFTER_SYNC'",
        ),
        (
            "rpl_semi_sync_source_enabled",
            "OFF",
            Check::SemiSyncEnabled,
            Unprotected,
            "rpl_semi_sync_source_enabled = ON",
        ),
    ];
    for (name, value, check, severity, fix) in table {
        let mut observed = perfect(NEW);
        observed.variables.insert(name.to_owned(), value.to_owned());
        let findings = preflight(&observed, &requirements());
        let finding = only(&findings);
        assert_eq!((finding.check, finding.severity), (check, severity));
        assert!(
            finding.found.contains(name) && finding.found.contains(value),
            "{finding}"
        );
        assert!(finding.fix.to_string().contains(fix), "{finding}");
        assert!(!finding.why.is_empty());
    }
}

#[test]
fn the_operators_limit_on_transactions_is_set_and_protects_nothing() {
    let limited = Requirements {
        max_transaction_bytes: (64 << 20) + 1,
        accept_unproven: true,
        ..requirements()
    };
    for (value, expected) in [
        ("1072693248", true),
        ("67112960", true),
        ("67108864", false),
    ] {
        let mut observed = perfect(NEW);
        observed
            .variables
            .insert("max_binlog_cache_size".to_owned(), value.to_owned());
        let findings = preflight(&observed, &limited);
        let found = findings
            .iter()
            .find(|finding| finding.check == Check::TransactionCache);
        assert_eq!(
            found.map(|finding| finding.severity),
            expected.then_some(Severity::Advice),
            "{value}"
        );
        let plan = Plan::make(&observed, &limited, Phase::BeforeAttach);
        let sets = "SET GLOBAL max_binlog_cache_size = 67108864";
        assert_eq!(format!("{plan:?}").contains(sets), expected, "{plan:?}");
    }
}

#[test]
fn a_disabled_redo_log_is_worth_knowing() {
    let mut observed = perfect(NEW);
    let redo_log = |value: &str| ("innodb_redo_log_enabled".to_owned(), value.to_owned());
    observed.status.extend([redo_log("ON")]);
    assert!(preflight(&observed, &requirements()).is_empty());
    observed.status.extend([redo_log("OFF")]);
    let findings = preflight(&observed, &requirements());
    let [finding] = &findings[..] else {
        panic!("{findings:?}");
    };
    assert_eq!(
        (finding.check, finding.severity),
        (Check::RedoLog, Severity::Advice)
    );
    assert!(
        finding
            .to_string()
            .contains("ALTER INSTANCE ENABLE INNODB REDO_LOG")
    );
}

#[test]
fn findings_without_sql_say_what_to_do() {
    let mut observed = perfect(NEW);
    observed
        .variables
        .insert("log_bin".to_owned(), "OFF".to_owned());
    let findings = preflight(&observed, &requirements());
    assert_eq!(only(&findings).fix, Fix::Restart("--log-bin".to_owned()));

    let mut observed = perfect(NEW);
    observed
        .variables
        .insert("server_id".to_owned(), "4001".to_owned());
    let findings = preflight(&observed, &requirements());
    assert!(only(&findings).fix.to_string().contains("mysql.server_id"));

    let mut observed = perfect(NEW);
    observed.binlog_filters = Some(vec!["binlog-ignore-db=x".to_owned()]);
    let findings = preflight(&observed, &requirements());
    assert_eq!(
        (only(&findings).check, only(&findings).severity),
        (Check::BinlogFilter, Severity::Unprotected)
    );

    let mut observed = perfect(NEW);
    observed.version = ServerVersion::new(5, 7, 44);
    assert_eq!(
        only(&preflight(&observed, &requirements())).severity,
        Severity::Blocks
    );

    let mut observed = perfect(NEW);
    observed
        .status
        .insert("rpl_semi_sync_source_status".to_owned(), "OFF".to_owned());
    assert_eq!(
        only(&preflight(&observed, &requirements())).check,
        Check::SemiSyncStatus
    );
}

#[test]
fn a_variable_that_a_later_version_has_dropped_is_not_missed() {
    let mut observed = perfect(CALENDAR);
    observed.variables.remove("binlog_format");
    assert_eq!(beside_the_version(&observed), []);
}

#[test]
fn names_follow_the_plugin_and_the_version() {
    let mut observed = perfect(OLD);
    observed.variables.insert(
        "rpl_semi_sync_master_timeout".to_owned(),
        "10000".to_owned(),
    );
    let findings = beside_the_version(&observed);
    assert!(sql(&only(&findings).fix).contains("rpl_semi_sync_master_timeout"));
    for (version, plugin) in [
        (OLD, "rpl_semi_sync_master"),
        (NEW, "rpl_semi_sync_source"),
        (CALENDAR, "rpl_semi_sync_source"),
    ] {
        let mut observed = perfect(version);
        observed
            .variables
            .retain(|name, _| !name.starts_with("rpl_semi_sync"));
        let findings = beside_the_version(&observed);
        assert_eq!(only(&findings).check, Check::SemiSyncPlugin);
        let install = sql(&only(&findings).fix);
        assert!(install.starts_with(&format!("INSTALL PLUGIN {plugin} SONAME")));
        // INSTALL PLUGIN is refused while writes are blocked.
        observed
            .variables
            .insert("super_read_only".to_owned(), "ON".to_owned());
        let around =
            format!("SET GLOBAL super_read_only = OFF; {install}; SET GLOBAL super_read_only = ON");
        let findings = beside_the_version(&observed);
        assert_eq!(sql(&only(&findings).fix), around);
    }
}

#[test]
fn strangers_who_acknowledge_are_found() {
    let stranger = Uuid::from_u128(0xbad);
    let mut observed = perfect(NEW);
    observed.semi_sync_replicas = Some(vec![
        SemiSyncReplica {
            connection_id: 9,
            uuid: Some(OURS),
        },
        SemiSyncReplica {
            connection_id: 10,
            uuid: Some(stranger),
        },
    ]);
    let findings = preflight(&observed, &requirements());
    assert!(only(&findings).found.contains(&stranger.to_string()));
    // A foreign replica is also found if the member's own replica is missing.
    observed.semi_sync_replicas = Some(vec![SemiSyncReplica {
        connection_id: 10,
        uuid: None,
    }]);
    assert_eq!(
        only(&preflight(&observed, &requirements())).check,
        Check::ForeignAcker
    );
    // If the identities of replicas are unknown, their number decides.
    observed.semi_sync_replicas = None;
    assert_eq!(preflight(&observed, &requirements()), []);
    observed
        .status
        .insert("rpl_semi_sync_source_clients".to_owned(), "3".to_owned());
    assert_eq!(
        only(&preflight(&observed, &requirements())).check,
        Check::ForeignAcker
    );
}

#[test]
fn missing_privileges_are_named_with_their_grant() {
    let mut observed = perfect(NEW);
    observed.grants = Some(Grants::parse(
        "w@10.0.0.%",
        ["GRANT USAGE ON *.* TO `w`@`10.0.0.%`"],
    ));
    let findings = preflight(&observed, &requirements());
    let blocking: Vec<_> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Blocks)
        .collect();
    assert_eq!(blocking.len(), 2);
    assert_eq!(
        sql(&blocking[0].fix),
        "GRANT REPLICATION SLAVE ON *.* TO 'w'@'10.0.0.%'"
    );
    assert!(
        findings
            .iter()
            .all(|finding| finding.check == Check::Grants)
    );
    assert!(
        findings.is_sorted_by_key(|finding| std::cmp::Reverse(finding.severity)),
        "the worst comes first"
    );
}

#[test]
fn replica_threads_need_the_listed_rights_and_applying_rows_is_not_asked_for_them() {
    let attached = [
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `w`@`%`",
        "GRANT SYSTEM_VARIABLES_ADMIN,CONNECTION_ADMIN ON *.* TO `w`@`%`",
        "GRANT SELECT ON `performance_schema`.* TO `w`@`%`",
    ];
    let native = Requirements {
        native: true,
        ..requirements()
    };
    let mut observed = perfect(NEW);
    observed.grants = Some(Grants::parse("w@%", attached));
    assert_eq!(preflight(&observed, &requirements()), []);
    let missing = preflight(&observed, &native);
    let fixes: Vec<String> = missing.iter().map(|finding| sql(&finding.fix)).collect();
    assert!(
        fixes.contains(&"GRANT BACKUP_ADMIN ON *.* TO 'w'@'%' WITH GRANT OPTION".to_owned()),
        "{fixes:?}"
    );
    assert_eq!(fixes.len() + 5, NATIVE_RIGHTS.len(), "{fixes:?}");
    let lines = native_grants("`w`@`%`");
    let lines: Vec<String> = lines
        .iter()
        .map(|line| line.replace("/*!80200 ,", ",").replace("*/", ""))
        .collect();
    observed.grants = Some(Grants::parse("w@%", lines.iter().map(String::as_str)));
    assert_eq!(preflight(&observed, &native), []);
}

#[test]
fn who_applies_the_log_itself_is_told_to_have_proxy_at_each_server() {
    let all = "GRANT ALL PRIVILEGES ON *.* TO `w`@`%` WITH GRANT OPTION";
    let mut observed = perfect(NEW);
    observed.grants = Some(Grants::parse("w@%", [all]));
    let findings = preflight(&observed, &requirements());
    let found = only(&findings);
    assert_eq!(
        (found.check, found.severity),
        (Check::Grants, Severity::Advice)
    );
    // If the log contained this grant, members that lack the privilege would stop.
    assert_eq!(
        sql(&found.fix),
        "SET SESSION sql_log_bin = 0; GRANT PROXY ON ''@'' TO 'w'@'%' WITH GRANT OPTION"
    );
    let native = Requirements {
        native: true,
        ..requirements()
    };
    let of_proxy = |finding: &Finding| finding.found.contains("PROXY");
    assert!(!preflight(&observed, &native).iter().any(of_proxy));
    let rows = rows_grants("`w`@`%`");
    observed.grants = Some(Grants::parse("w@%", rows.iter().map(String::as_str)));
    assert_eq!(preflight(&observed, &requirements()), []);
}

fn statements(observed: &Observed, requirements: &Requirements, phase: Phase) -> Vec<String> {
    let text = |statement: Statement| match statement {
        Statement::Set(sql) | Statement::InstallPlugin(sql) => sql,
        Statement::EndStatementLogging => "close sessions that log statements".to_owned(),
    };
    Plan::make(observed, requirements, phase)
        .statements
        .into_iter()
        .map(text)
        .collect()
}

#[test]
fn commits_are_made_to_wait_only_once_somebody_is_there() {
    let mut observed = perfect(NEW);
    observed
        .variables
        .insert("rpl_semi_sync_source_enabled".to_owned(), "OFF".to_owned());
    observed.variables.insert(
        "rpl_semi_sync_source_timeout".to_owned(),
        "10000".to_owned(),
    );
    let before = statements(&observed, &requirements(), Phase::BeforeAttach);
    assert_eq!(
        before,
        ["SET GLOBAL rpl_semi_sync_source_timeout = 1000000000000000000"]
    );
    let attached = statements(&observed, &requirements(), Phase::Attached);
    assert_eq!(
        attached.last().map(String::as_str),
        Some("SET GLOBAL rpl_semi_sync_source_enabled = ON")
    );
    let plan = |phase| Plan::make(&observed, &requirements(), phase);
    let left = plan(Phase::Attached).after(&plan(Phase::BeforeAttach));
    assert_eq!(
        left.statements,
        [Statement::Set(
            "SET GLOBAL rpl_semi_sync_source_enabled = ON".to_owned()
        )]
    );
}

/// A session keeps the binlog format with which it began.
#[test]
fn sessions_that_log_statements_are_closed_behind_the_change_of_the_format() {
    let mut observed = perfect(NEW);
    let plan = |observed: &Observed| statements(observed, &requirements(), Phase::BeforeAttach);
    assert!(plan(&observed).is_empty());
    observed
        .variables
        .insert("binlog_format".to_owned(), "MIXED".to_owned());
    let expected = [
        "SET GLOBAL binlog_format = 'ROW'",
        "close sessions that log statements",
    ];
    assert_eq!(plan(&observed), expected);
}

#[test]
fn a_missing_plugin_is_installed_and_set_up() {
    let mut observed = perfect(NEW);
    observed
        .variables
        .retain(|name, _| !name.starts_with("rpl_semi_sync"));
    let plan = statements(&observed, &requirements(), Phase::BeforeAttach);
    assert_eq!(
        plan[0],
        "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'"
    );
    assert!(
        plan.contains(&"SET GLOBAL rpl_semi_sync_source_timeout = 1000000000000000000".to_owned())
    );
    assert!(plan.contains(&"SET GLOBAL rpl_semi_sync_source_wait_point = 'AFTER_SYNC'".to_owned()));
    assert!(!plan.iter().any(|sql| sql.contains("_enabled")));
    let forbidden = Requirements {
        manage_settings: false,
        ..requirements()
    };
    assert!(statements(&observed, &forbidden, Phase::BeforeAttach).is_empty());
}

#[test]
fn nothing_is_set_where_settings_are_not_managed() {
    let mut observed = perfect(NEW);
    observed
        .variables
        .insert("sync_binlog".to_owned(), "0".to_owned());
    let reporting = Requirements {
        manage_settings: false,
        ..requirements()
    };
    for phase in [Phase::BeforeAttach, Phase::Attached] {
        assert!(statements(&observed, &reporting, phase).is_empty());
        assert_eq!(
            statements(&observed, &requirements(), phase),
            ["SET GLOBAL sync_binlog = 1"]
        );
    }
}

#[test]
fn who_may_shut_the_server_down_is_named() {
    let mut observed = perfect(NEW);
    observed.may_shut_down = Some(vec![
        "'root'@'localhost'".to_owned(),
        "'ops'@'%'".to_owned(),
    ]);
    let findings = preflight(&observed, &requirements());
    let finding = only(&findings);
    assert_eq!(
        (finding.check, finding.severity),
        (Check::ShutdownPrivilege, Severity::Advice)
    );
    assert!(
        finding
            .to_string()
            .contains("'root'@'localhost', 'ops'@'%' may run SHUTDOWN")
    );
}

#[test]
fn a_followers_redo_log_is_forced_and_nothing_else_is_set_there() {
    let mut observed = perfect(NEW);
    observed
        .variables
        .insert("sync_binlog".to_owned(), "0".to_owned());
    assert!(
        Plan::of_a_follower(&observed, &requirements())
            .statements
            .is_empty()
    );
    for value in ["0", "2"] {
        let name = "innodb_flush_log_at_trx_commit";
        observed.variables.insert(name.to_owned(), value.to_owned());
        let plan = Plan::of_a_follower(&observed, &requirements());
        let set = format!("SET GLOBAL {name} = 1");
        assert_eq!(plan.statements, [Statement::Set(set)]);
        let not_ours = Requirements {
            manage_settings: false,
            ..requirements()
        };
        assert!(
            Plan::of_a_follower(&observed, &not_ours)
                .statements
                .is_empty()
        );
    }
}

#[test]
fn what_is_persisted_against_the_ring_is_told_and_nothing_is_closed_for_it() {
    let mut observed = perfect(NEW);
    let off = ("super_read_only".to_owned(), "OFF".to_owned());
    observed.persisted = Some([off].into());
    let findings = preflight(&observed, &requirements());
    let finding = only(&findings);
    assert_eq!(
        (finding.check, finding.severity),
        (Check::Persisted, Severity::Advice)
    );
    assert_eq!(finding.found, "super_read_only is persisted as OFF");
    assert_eq!(sql(&finding.fix), "RESET PERSIST IF EXISTS super_read_only");
}

#[test]
fn an_account_whose_password_expires_is_told_with_what_keeps_it() {
    let mut observed = perfect(NEW);
    observed.account_expires = Some(180);
    let findings = preflight(&observed, &requirements());
    let finding = only(&findings);
    assert_eq!(
        (finding.check, finding.severity),
        (Check::AccountExpires, Severity::Advice)
    );
    assert_eq!(
        sql(&finding.fix),
        "ALTER USER 'w'@'%' PASSWORD EXPIRE NEVER"
    );
}

#[test]
fn a_binlog_that_is_elsewhere_is_told_with_the_key_that_finds_it() {
    let folder = std::path::Path::new("/var/lib/mysql");
    let mut observed = perfect(NEW);
    observed.binlog_elsewhere = Some(folder.join("mysql-bin.index"));
    let requirements = Requirements {
        binlog: BinlogPlace::of_options([], folder, "host"),
        ..requirements()
    };
    let findings = preflight(&observed, &requirements);
    let finding = only(&findings);
    assert_eq!(
        (finding.check, finding.severity),
        (Check::BinlogPlace, Severity::Advice)
    );
    let Fix::Manual(words) = &finding.fix else {
        panic!("{finding:?}");
    };
    assert!(
        words.contains("mysql.log_bin = \"/var/lib/mysql/mysql-bin\""),
        "{words}"
    );
}
