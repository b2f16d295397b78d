//! Checks an observation for findings. Pure.

use mysql_link::VersionSupport;

use crate::settings::finding::{
    Check, Finding, Fix, LARGEST_CACHE, MEMBER_ACKS, Requirements, Severity, TIMEOUT_MS,
    is_effectively_infinite, keeps_replicas_from_releasing, quoted,
};
use crate::settings::grants::{NATIVE_RIGHTS, Privilege};
use crate::settings::observed::{Observed, REDO_LOG, SemiSyncNames, says_on};
use crate::settings::persisted;

/// Returns all findings, the worst first. Settings that were not observed are not checked.
pub fn preflight(observed: &Observed, requirements: &Requirements) -> Vec<Finding> {
    let mut findings = Findings {
        observed,
        list: Vec::new(),
    };
    findings.identity(requirements);
    findings.binlog();
    findings.binlog_place(requirements);
    findings.durability();
    findings.commit_order(requirements);
    findings.caches(requirements);
    match observed.semi_sync() {
        Some(names) => findings.semi_sync(names, requirements),
        None => findings.no_semi_sync(),
    }
    findings.grants(requirements);
    findings.shutdowns();
    findings.account_expires();
    findings.persisted();
    let mut list = findings.list;
    list.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    list
}

/// Collects findings.
struct Findings<'a> {
    observed: &'a Observed,
    list: Vec<Finding>,
}

/// The privileges that every member needs.
const NEEDED: [Privilege; 5] = [
    Privilege::ReplicationSlave,
    Privilege::SystemVariablesAdmin,
    Privilege::ReplicationClient,
    Privilege::ConnectionAdmin,
    Privilege::SelectPerformanceSchema,
];

impl Findings<'_> {
    fn version(&mut self, requirements: &Requirements) {
        let version = self.observed.version;
        let text = self.observed.variable("version").unwrap_or_default();
        let comment = self.observed.variable("version_comment");
        let found = format!("the server's version is {version}");
        let support = mysql_link::version_support(version, text, comment.unwrap_or_default());
        let (severity, why, fix) = match support {
            VersionSupport::Proven => return,
            VersionSupport::Unproven(why) => (
                match requirements.accept_unproven {
                    true => Severity::Advice,
                    false => Severity::Blocks,
                },
                why,
                "use a series that docs/versions.md names, or try it and set mysql.accept_unproven = true",
            ),
            VersionSupport::Refused(why) => (
                Severity::Blocks,
                why,
                "use MySQL, of a series that docs/versions.md names",
            ),
        };
        let fix = Fix::Manual(fix.to_owned());
        self.add(Check::Version, severity, found, &why, fix);
    }

    fn identity(&mut self, requirements: &Requirements) {
        self.version(requirements);
        let ours = requirements.replica_server_id.to_string();
        match self.observed.variable("server_id") {
            Some("0") => self.add(
                Check::ServerId,
                Severity::Blocks,
                "server_id is 0",
                "a server without an id refuses replicas",
                Fix::sql("SET PERSIST server_id = 1"),
            ),
            Some(theirs) if theirs == ours => self.add(
                Check::ServerId,
                Severity::Blocks,
                format!("server_id is {theirs}, the one under which this member attaches"),
                "a replica must have another id than its source",
                Fix::Manual("give the member another mysql.server_id".to_owned()),
            ),
            _ => {}
        }
    }

    fn binlog(&mut self) {
        let unprotected = Severity::Unprotected;
        self.expect_or(
            Check::BinlogEnabled,
            Severity::Blocks,
            "log_bin",
            "ON",
            "without a binlog there is nothing to replicate",
            Fix::Restart("--log-bin".to_owned()),
        );
        self.expect_or(
            Check::GtidMode,
            Severity::Blocks,
            "gtid_mode",
            "ON",
            "the ring finds its place in the binlog by GTIDs",
            Fix::Sql(
                [
                    "enforce_gtid_consistency = ON",
                    "gtid_mode = OFF_PERMISSIVE",
                    "gtid_mode = ON_PERMISSIVE",
                    "gtid_mode = ON",
                ]
                .map(|assignment| format!("SET PERSIST {assignment}"))
                .to_vec(),
            ),
        );
        self.expect(
            Check::GtidConsistency,
            Severity::Blocks,
            "enforce_gtid_consistency",
            "ON",
            "statements that cannot have one GTID would fail in the middle",
        );
        self.expect(
            Check::BinlogFormat,
            unprotected,
            "binlog_format",
            "ROW",
            "statements may do something else where they are applied again",
        );
        self.expect(
            Check::RowImage,
            Severity::Advice,
            "binlog_row_image",
            "FULL",
            "rows without all columns cannot be compared when they are applied",
        );
        self.expect(
            Check::BinlogErrorAction,
            unprotected,
            "binlog_error_action",
            "ABORT_SERVER",
            "after a failed write of the binlog, commits would complete without one",
        );
        self.expect(
            Check::BinlogEncryption,
            Severity::Advice,
            "binlog_encryption",
            "OFF",
            "after a crash it is unknown which transactions of an encrypted file the ring lacks: mysqld is held down, and needs a copy of another member's data",
        );
        self.expect_or(
            Check::ReplicaUpdates,
            Severity::Advice,
            "log_replica_updates",
            "ON",
            "a crash forgets the GTIDs of prepared XA transactions that its own replica threads have applied (mysql.apply = \"native\"), and they stop at them",
            Fix::Restart("--log-replica-updates=ON".to_owned()),
        );
        let filters = self.observed.binlog_filters.as_deref().unwrap_or_default();
        if !filters.is_empty() {
            let found = format!("the binlog is filtered by {}", filters.join(", "));
            self.add(
                Check::BinlogFilter,
                unprotected,
                found,
                "changes that are kept out of the binlog never reach the ring",
                Fix::Manual("restart mysqld without binlog-do-db and binlog-ignore-db".to_owned()),
            );
        }
    }

    /// The location matters only after the first crash.
    fn binlog_place(&mut self, requirements: &Requirements) {
        let (Some(found), Some(expected)) = (&self.observed.binlog_elsewhere, &requirements.binlog)
        else {
            return;
        };
        let base = found.with_extension("");
        self.add(
            Check::BinlogPlace,
            Severity::Advice,
            format!(
                "mysqld has its binlog by {}, and the member looks for it by {}",
                found.display(),
                expected.index().display()
            ),
            "after a crash the member would find no binlog to cut, and commits that were never acknowledged would stay",
            Fix::Manual(format!(
                "set mysql.log_bin = \"{}\" in the member's configuration, and start the member again",
                base.display()
            )),
        );
    }

    fn durability(&mut self) {
        let redo_log = self.observed.status(REDO_LOG);
        if redo_log.is_some_and(|enabled| !says_on(enabled)) {
            self.add(
                Check::RedoLog,
                Severity::Advice,
                "the InnoDB redo log is disabled".to_owned(),
                "mysqld cannot start again after a crash, and then needs a copy of another member's data",
                Fix::sql("ALTER INSTANCE ENABLE INNODB REDO_LOG"),
            );
        }
        for (check, name, why) in [
            (
                Check::SyncBinlog,
                "sync_binlog",
                "a crash of the machine may take transactions out of the binlog that the ring has",
            ),
            (
                Check::RedoFlush,
                "innodb_flush_log_at_trx_commit",
                "a crash of the machine may take committed transactions away",
            ),
        ] {
            self.expect(check, Severity::Unprotected, name, "1", why);
        }
    }

    /// The member sets these variables before its replica threads begin.
    fn commit_order(&mut self, requirements: &Requirements) {
        let observed = self.observed;
        let replica = [
            "replica_preserve_commit_order",
            "slave_preserve_commit_order",
        ];
        let replica = replica
            .into_iter()
            .find(|name| observed.variable(name).is_some());
        for name in replica.into_iter().chain(["binlog_order_commits"]) {
            if requirements.native {
                self.expect(
                    Check::CommitOrder,
                    Severity::Advice,
                    name,
                    "ON",
                    "as a follower (mysql.apply = \"native\"), its readers would see later transactions without earlier ones",
                );
            }
        }
    }

    fn caches(&mut self, requirements: &Requirements) {
        let wanted = requirements.max_cache_bytes();
        for (check, name) in [
            (Check::TransactionCache, "max_binlog_cache_size"),
            (Check::StatementCache, "max_binlog_stmt_cache_size"),
        ] {
            let Some(value) = self.observed.number(name) else {
                continue;
            };
            let (severity, why) = if value > LARGEST_CACHE {
                (
                    Severity::Unprotected,
                    "a transaction larger than the ring takes would hang instead of failing",
                )
            } else {
                (
                    Severity::Advice,
                    "a transaction larger than `mysql.max_transaction_bytes` would not be refused",
                )
            };
            if value > wanted {
                self.add(
                    check,
                    severity,
                    format!("{name} is {value}, more than {wanted}"),
                    why,
                    Fix::sql(format!("SET PERSIST {name} = {wanted}")),
                );
            }
        }
    }

    fn grants(&mut self, requirements: &Requirements) {
        let Some(grants) = &self.observed.grants else {
            return;
        };
        let installs = self.observed.semi_sync().is_none() && requirements.manage_settings;
        let further = NATIVE_RIGHTS.into_iter().filter(|right| match right {
            right if NEEDED.contains(right) => false,
            Privilege::InsertMysqlPlugin => requirements.native || installs,
            _ => requirements.native,
        });
        let account = quoted_account(&grants.account);
        let missing = NEEDED.into_iter().chain(further);
        for privilege in missing.filter(|privilege| !grants.has(*privilege)) {
            self.add(
                Check::Grants,
                match privilege {
                    Privilege::ReplicationSlave | Privilege::SystemVariablesAdmin => {
                        Severity::Blocks
                    }
                    _ => Severity::Advice,
                },
                format!("the account {account} lacks {privilege}"),
                privilege.without(),
                Fix::sql(privilege.grant(&account)),
            );
        }
        // An account that may not create accounts already fails at other statements about them.
        if !requirements.native
            && grants.has(Privilege::CreateUser)
            && !grants.has(Privilege::Proxy)
        {
            self.add(
                Check::Grants,
                Severity::Advice,
                format!("the account {account} lacks {}", Privilege::Proxy),
                Privilege::Proxy.without(),
                Fix::Sql(vec![
                    "SET SESSION sql_log_bin = 0".to_owned(),
                    Privilege::Proxy.grant(&account),
                ]),
            );
        }
    }

    fn shutdowns(&mut self) {
        let others = self.observed.may_shut_down.as_deref().unwrap_or_default();
        if others.is_empty() {
            return;
        }
        let found = format!("{} may run SHUTDOWN and RESTART", others.join(", "));
        self.add(
            Check::ShutdownPrivilege,
            Severity::Advice,
            found,
            "mysqld lets commits that wait for the ring through when it is shut down by SQL, and tells their clients that they \
             succeeded, unless the member kills it in time",
            Fix::Manual(
                "stop the member instead, and revoke SHUTDOWN from accounts that do not need it".to_owned(),
            ),
        );
    }

    fn account_expires(&mut self) {
        let (Some(days), Some(grants)) = (self.observed.account_expires, &self.observed.grants)
        else {
            return;
        };
        let account = quoted_account(&grants.account);
        self.add(
            Check::AccountExpires,
            Severity::Advice,
            format!("the password of the account {account} expires {days} days after it was set"),
            "then no member can log in at its mysqld, on all servers at once, and no commit is acknowledged any more",
            Fix::sql(format!("ALTER USER {account} PASSWORD EXPIRE NEVER")),
        );
    }

    /// Persisted values do not change the running server, so a primary stays protected until it restarts.
    fn persisted(&mut self) {
        for (name, value) in self.observed.persisted.iter().flatten() {
            self.add(
                Check::Persisted,
                Severity::Advice,
                format!("{name} is persisted as {value}"),
                persisted::WHY,
                Fix::sql(persisted::reset_statement(name)),
            );
        }
    }

    // Checks semi-sync: whether commits wait at all, for which replica, and for how long.

    fn no_semi_sync(&mut self) {
        let names = SemiSyncNames::of_version(self.observed.version);
        let mut fix = vec![names.install()];
        if self.observed.is_super_read_only() {
            fix.insert(0, "SET GLOBAL super_read_only = OFF".to_owned());
            fix.push("SET GLOBAL super_read_only = ON".to_owned());
        }
        self.add(
            Check::SemiSyncPlugin,
            Severity::Unprotected,
            "the semi-sync source plugin is not loaded",
            "commits do not wait for anybody",
            Fix::Sql(fix),
        );
    }

    fn semi_sync(&mut self, names: SemiSyncNames, requirements: &Requirements) {
        let unprotected = Severity::Unprotected;
        if let Some(milliseconds) = self.observed.number(&names.timeout())
            && !is_effectively_infinite(milliseconds)
        {
            self.add(
                Check::SemiSyncTimeout,
                unprotected,
                format!("{} is {milliseconds} ms", names.timeout()),
                "after that time a commit completes without the ring",
                Fix::sql(format!("SET PERSIST {} = {TIMEOUT_MS}", names.timeout())),
            );
        }
        let acks = names.replica_count();
        if let Some(found) = self.observed.variable(&acks)
            && !keeps_replicas_from_releasing(found)
        {
            self.add(
                Check::SemiSyncReplicaCount,
                unprotected,
                format!("{acks} is {found}, not {MEMBER_ACKS}"),
                "the member sends two ACKs; with one, any semi-sync replica releases commits, and with more, no commit ends",
                Fix::sql(format!("SET PERSIST {acks} = {MEMBER_ACKS}")),
            );
        }
        for (check, name, expected, why) in [
            (
                Check::SemiSyncWaitNoReplica,
                names.wait_no_replica(),
                "ON",
                "commits would complete without the ring while the member is not attached",
            ),
            (
                Check::SemiSyncWaitPoint,
                names.wait_point(),
                "AFTER_SYNC",
                "others would see a transaction before the ring has it",
            ),
            (
                Check::SemiSyncEnabled,
                names.enabled(),
                "ON",
                "commits do not wait for the ring",
            ),
        ] {
            self.expect(check, unprotected, &name, expected, why);
        }
        let status = self.observed.status(&names.status());
        let gave_up = status.is_some_and(|status| !says_on(status));
        if gave_up && self.observed.is_on(&names.enabled()) {
            self.add(
                Check::SemiSyncStatus,
                unprotected,
                format!("{} is OFF although semi-sync is enabled", names.status()),
                "it has given up waiting (a timeout), and commits complete without the ring until the member has caught up",
                Fix::Manual(
                    "let the member attach: its ACKs turn it on again; and check why the timeout was finite".to_owned(),
                ),
            );
        }
        self.foreign_ackers(names, requirements);
    }

    fn foreign_ackers(&mut self, names: SemiSyncNames, requirements: &Requirements) {
        let mut found = Vec::new();
        if let Some(replicas) = &self.observed.semi_sync_replicas {
            let foreign = replicas.iter();
            for replica in foreign.filter(|replica| !requirements.is_ours(replica)) {
                let who = replica.uuid.map(|uuid| uuid.to_string());
                found.push(format!(
                    "another semi-sync replica is attached: {}, connection {}",
                    who.unwrap_or_else(|| "without a UUID".to_owned()),
                    replica.connection_id
                ));
            }
        } else {
            // If the identities of replicas are unknown, only their number counts.
            let clients = self.observed.status(&names.clients());
            let clients = clients.and_then(|count| count.parse::<u64>().ok());
            let more = clients.filter(|count| *count > u64::from(MEMBER_ACKS));
            found.extend(more.map(|count| format!("{count} semi-sync replicas are attached")));
        }
        for found in found {
            self.add(
                Check::ForeignAcker,
                Severity::Unprotected,
                found,
                "its ACK counts too, so a commit may complete without the ring",
                Fix::Manual(
                    "on that replica: SET PERSIST rpl_semi_sync_replica_enabled = OFF; STOP REPLICA IO_THREAD; START \
                     REPLICA IO_THREAD"
                        .to_owned(),
                ),
            );
        }
    }

    // Collecting findings, and the check that most findings use.

    fn add(
        &mut self,
        check: Check,
        severity: Severity,
        found: impl Into<String>,
        why: &str,
        fix: Fix,
    ) {
        self.list.push(Finding {
            check,
            severity,
            found: found.into(),
            why: why.to_owned(),
            fix,
        });
    }

    /// Checks a variable that must have one value, which an administrator can set.
    fn expect(&mut self, check: Check, severity: Severity, name: &str, expected: &str, why: &str) {
        let fix = Fix::sql(format!("SET PERSIST {name} = {}", quoted(expected)));
        self.expect_or(check, severity, name, expected, why, fix);
    }

    /// Checks a variable as [`Findings::expect`] does, with another fix. A variable that the server does not have is not checked.
    fn expect_or(
        &mut self,
        check: Check,
        severity: Severity,
        name: &str,
        expected: &str,
        why: &str,
        fix: Fix,
    ) {
        if let Some(value) = self.observed.variable(name)
            && !same_value(value, expected)
        {
            self.add(
                check,
                severity,
                format!("{name} is {value}, not {expected}"),
                why,
                fix,
            );
        }
    }
}

/// `user@host` with both parts in quotes.
pub(super) fn quoted_account(account: &str) -> String {
    match account.rsplit_once('@') {
        Some((user, host)) => format!("'{user}'@'{host}'"),
        None => format!("'{account}'"),
    }
}

fn same_value(found: &str, expected: &str) -> bool {
    found.eq_ignore_ascii_case(expected) || (expected == "ON" && says_on(found))
}
