//! Evaluates an observation. Pure.

use std::collections::BTreeMap;

use binlog_format::gtid::GtidSet;
use mysqld_server::settings::{Check, Finding, Observed, Requirements, Severity, preflight};
use tokio::time::Instant;
use uuid::Uuid;

use crate::watch::commits::Standing;
use crate::watch::starts::HadGtids;

/// True if commits are sure to wait for the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// Yes: all settings are correct.
    Protected,
    /// No: some settings would let a commit complete without the ring.
    Unprotected {
        /// The settings, their consequences, and the fixes.
        findings: Vec<Finding>,
    },
    /// Unknown: the server could not be observed.
    Unknown {
        /// The cause, and what to check.
        cause: String,
    },
}

impl Protection {
    /// True if commits are sure to wait.
    pub fn is_protected(&self) -> bool {
        matches!(self, Self::Protected)
    }

    /// True if the other verdict is the same for the same reasons, whatever its text.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let checks = |verdict: &Self| match verdict {
            Self::Unprotected { findings } => findings.iter().map(|found| found.check).collect(),
            Self::Protected | Self::Unknown { .. } => Vec::<Check>::new(),
        };
        let same = std::mem::discriminant(self) == std::mem::discriminant(other);
        same && checks(self) == checks(other)
    }
}

/// Which accounts may write, by `read_only` and `super_read_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOnly {
    /// Every account with the privileges may write.
    Off,
    /// Only accounts with `CONNECTION_ADMIN` or `SUPER` may write (`read_only`).
    Clients,
    /// No account may write (`super_read_only`).
    Everybody,
}

impl ReadOnly {
    fn of(observed: &Observed) -> Self {
        match (observed.is_super_read_only(), observed.is_writable()) {
            (true, _) => Self::Everybody,
            (false, true) => Self::Off,
            (false, false) => Self::Clients,
        }
    }
}

/// Result of the last successful observation, in addition to the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// `@@version` of the server.
    pub version: String,
    /// `@@server_uuid`; `None` if the server did not return it.
    pub server_uuid: Option<Uuid>,
    /// Number of this start of mysqld among the starts that this watcher has observed, from 1. Settings that are not persistent are lost
    /// with a start.
    pub incarnation: u64,
    /// Number of the last start that booted open for writes. Never the first observed start.
    pub started_open: Option<u64>,
    /// Which accounts may write at that time.
    pub read_only: ReadOnly,
    /// Sessions that wait for an ACK.
    pub waiting_sessions: u64,
    /// True if ordinary accounts are blocked (`offline_mode`).
    pub offline: bool,
    /// Allowed settings that have a cost after a crash, with the fix.
    pub advice: Vec<String>,
    /// Settings that, together with its text, determine the effect of a statement about tables or accounts. Keys are lower-case names.
    pub ddl_settings: BTreeMap<String, String>,
    /// `gtid_executed`.
    pub executed: GtidSet,
    /// `gtid_purged`: executed, and in no binlog file.
    pub purged: GtidSet,
    /// GTIDs executed in this start that are no longer in `gtid_executed`.
    pub lost: GtidSet,
    /// When the observation began.
    pub seen_at: Instant,
}

impl ServerFacts {
    pub(super) fn of(
        observed: &Observed,
        advice: Vec<String>,
        incarnation: u64,
        had: &mut HadGtids,
        seen_at: Instant,
    ) -> Self {
        let gtids = |name| observed.variable(name)?.parse::<GtidSet>().ok();
        let executed = gtids("gtid_executed");
        let seen = |executed| had.see(incarnation, executed);
        Self {
            seen_at,
            advice,
            ddl_settings: observed.ddl_settings(),
            lost: executed.as_ref().map(seen).unwrap_or_default(),
            executed: executed.unwrap_or_default(),
            purged: gtids("gtid_purged").unwrap_or_default(),
            version: observed.version.to_string(),
            server_uuid: observed.server_uuid(),
            incarnation,
            started_open: None,
            read_only: ReadOnly::of(observed),
            waiting_sessions: observed.waiting_sessions(),
            offline: observed.is_on("offline_mode"),
        }
    }
}

/// The watcher's report after each observation.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchReport {
    /// True if commits are sure to wait for the ring.
    pub protection: Protection,
    /// When the last observation began.
    pub looked_at: Instant,
    /// Result of the last successful observation; `None` before the first.
    pub server: Option<ServerFacts>,
    /// Stalled commits, or a server that does not answer. `None` if commits complete, no commit runs, or the state is unknown.
    pub commits: Option<Standing>,
    /// Since when the server has closed its sessions and refused logins, as during a shutdown.
    pub ending: Option<Instant>,
    /// Since when the server sends its greeting but completes no login, for example while a statement about accounts waits for its ACK.
    pub locked_out: Option<Instant>,
}

impl WatchReport {
    /// The report before the first observation.
    pub fn unknown(now: Instant) -> Self {
        let protection = Protection::Unknown {
            cause: "mysqld has not been observed yet".to_owned(),
        };
        Self {
            protection,
            looked_at: now,
            server: None,
            commits: None,
            ending: None,
            locked_out: None,
        }
    }
}

/// Returns the verdict on a server, and advice about allowed settings that have a cost after a crash.
pub(super) fn judge(observed: &Observed, requirements: &Requirements) -> (Protection, Vec<String>) {
    let mut findings = preflight(observed, requirements);
    let of_a_crash = findings
        .iter()
        .filter(|finding| matches!(finding.check, Check::BinlogEncryption | Check::RedoLog));
    let advice = of_a_crash.map(ToString::to_string).collect();
    findings.retain(|finding| finding.severity >= Severity::Unprotected);
    let protection = match findings.is_empty() {
        true => Protection::Protected,
        false => Protection::Unprotected { findings },
    };
    (protection, advice)
}

#[cfg(test)]
mod tests {
    use mysqld_server::settings::Fix;

    use super::*;

    #[test]
    fn a_verdict_is_news_when_its_reasons_change() {
        let finding = |check, found: &str| Finding {
            check,
            severity: Severity::Unprotected,
            found: found.to_owned(),
            why: String::new(),
            fix: Fix::Manual(String::new()),
        };
        let drift = |check, found| Protection::Unprotected {
            findings: vec![finding(check, found)],
        };
        let timeout = drift(Check::SemiSyncTimeout, "10 s");
        assert!(timeout.is_like(&drift(Check::SemiSyncTimeout, "20 s")));
        assert!(!timeout.is_like(&drift(Check::SyncBinlog, "0")));
        assert!(!timeout.is_like(&Protection::Protected));
        assert!(Protection::Protected.is_like(&Protection::Protected));
    }
}
