//! The statements that give a server the required settings. Pure. `SET GLOBAL` is lost when mysqld restarts, so the plan is made and run at
//! every attach. (`SET PERSIST` would outlive the ring.)

use crate::settings::finding::{Check, Requirements, TIMEOUT_MS, quoted};
use crate::settings::observed::{Observed, SemiSyncNames};
use crate::settings::preflight::preflight;

const REDO_FLUSH: &str = "innodb_flush_log_at_trx_commit";
/// Makes each commit durable in InnoDB.
pub const FORCE_REDO_LOG: &str = "SET GLOBAL innodb_flush_log_at_trx_commit = 1";

/// When the statements of a plan may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before the member's dump runs: all statements except those that make commits wait.
    BeforeAttach,
    /// While the member's dump runs: commits may wait now, because the member can acknowledge.
    Attached,
}

/// One statement of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// A `SET GLOBAL`, which may run at any moment of its phase.
    Set(String),
    /// `INSTALL PLUGIN`, which `super_read_only` forbids: the variable must be off for that moment (`read_only` stays ON).
    InstallPlugin(String),
    /// Close the sessions that log statements: they began before `binlog_format` was set.
    EndStatementLogging,
}

/// Statements that give a mysqld the required settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The statements in the order in which they have to run.
    pub statements: Vec<Statement>,
}

impl Plan {
    /// Creates the plan for all fixes that need no restart. Empty if the member does not manage settings.
    pub fn make(observed: &Observed, requirements: &Requirements, phase: Phase) -> Self {
        if !requirements.manage_settings {
            return Self::default();
        }
        let mut statements = Vec::new();
        let findings = preflight(observed, requirements);
        let wrong = |check: Check| findings.iter().any(|finding| finding.check == check);
        let loaded = observed.semi_sync();
        let names = loaded.unwrap_or_else(|| SemiSyncNames::of_version(observed.version));
        if loaded.is_none() {
            if phase == Phase::Attached {
                // A dump that began without the plugin is not semi-sync, so the dump must restart.
                return Self::default();
            }
            statements.push(Statement::InstallPlugin(names.install()));
        }
        let cache = requirements.max_cache_bytes().to_string();
        let timeout = TIMEOUT_MS.to_string();
        for (check, name, value) in [
            (Check::SyncBinlog, "sync_binlog", "1"),
            (Check::RedoFlush, REDO_FLUSH, "1"),
            (
                Check::BinlogErrorAction,
                "binlog_error_action",
                "ABORT_SERVER",
            ),
            (Check::BinlogFormat, "binlog_format", "ROW"),
            (Check::TransactionCache, "max_binlog_cache_size", &cache),
            (Check::StatementCache, "max_binlog_stmt_cache_size", &cache),
            (Check::SemiSyncTimeout, &names.timeout(), &timeout),
            (Check::SemiSyncWaitNoReplica, &names.wait_no_replica(), "ON"),
            (Check::SemiSyncWaitPoint, &names.wait_point(), "AFTER_SYNC"),
        ] {
            // A newly installed plugin has default settings, so all its variables are set.
            let of_semi_sync = name.starts_with(names.plugin());
            if wrong(check) || (of_semi_sync && loaded.is_none()) {
                let value = quoted(value);
                statements.push(Statement::Set(format!("SET GLOBAL {name} = {value}")));
                if check == Check::BinlogFormat {
                    statements.push(Statement::EndStatementLogging);
                }
            }
        }
        if phase == Phase::Attached && wrong(Check::SemiSyncEnabled) {
            let on = format!("SET GLOBAL {} = ON", names.enabled());
            statements.push(Statement::Set(on));
        }
        Self { statements }
    }

    /// Creates the plan for a follower. Its applied rows are in InnoDB alone, while a new binlog file names every executed GTID, and mysqld
    /// writes that file at any time. Without a forced redo log, GTIDs could outlive their rows.
    pub fn of_a_follower(observed: &Observed, requirements: &Requirements) -> Self {
        let forced = observed.variable(REDO_FLUSH).is_none_or(|now| now == "1");
        let statements = match requirements.manage_settings && !forced {
            true => vec![Statement::Set(FORCE_REDO_LOG.to_owned())],
            false => Vec::new(),
        };
        Self { statements }
    }

    /// Returns the statements of this plan that are not in `done`.
    #[must_use]
    pub fn after(mut self, done: &Self) -> Self {
        self.statements
            .retain(|statement| !done.statements.contains(statement));
        self
    }
}
