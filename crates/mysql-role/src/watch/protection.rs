//! From a look to a verdict, pure.

use std::time::{Duration, Instant};

use serde::Serialize;
use uuid::Uuid;

use crate::settings::{Check, Finding, Observed, Requirements, Severity, preflight};

/// Whether commits are sure to wait for the ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Protection {
    /// All settings are as they must be.
    Protected,
    /// Some are not.
    Unprotected {
        /// Which, why that matters, and what mends it.
        findings: Vec<Finding>,
    },
    /// The server could not be looked at.
    Unknown {
        /// Why not, and what to check.
        cause: String,
    },
}

impl Protection {
    /// Whether they are sure to wait.
    pub fn is_protected(&self) -> bool {
        matches!(self, Self::Protected)
    }

    /// The same verdict for the same reasons, whatever the words.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unprotected { findings: ours }, Self::Unprotected { findings: theirs }) => {
                let checks = |findings: &[Finding]| {
                    findings
                        .iter()
                        .map(|finding| finding.check)
                        .collect::<Vec<Check>>()
                };
                checks(ours) == checks(theirs)
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// Who may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadOnly {
    /// Everybody may.
    Off,
    /// Only administrators may.
    Clients,
    /// Nobody may.
    Everybody,
}

impl ReadOnly {
    fn of(observed: &Observed) -> Self {
        if observed.is_super_read_only() {
            Self::Everybody
        } else if observed.is_writable() {
            Self::Off
        } else {
            Self::Clients
        }
    }
}

/// What the last look that succeeded saw beside the settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerFacts {
    /// The server's version.
    pub version: String,
    /// Its UUID.
    pub server_uuid: Option<Uuid>,
    /// Counts the starts of mysqld that this watcher has seen, from 1. What was set before is lost.
    pub incarnation: u64,
    /// Who may write.
    pub read_only: ReadOnly,
    /// Sessions that wait for an ACK.
    pub waiting_sessions: u64,
}

/// What the watcher tells.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchReport {
    /// The verdict.
    pub protection: Protection,
    /// Since when it has been this verdict, for these reasons.
    pub since: Instant,
    /// When the last look began.
    pub looked_at: Instant,
    /// What the last look that succeeded saw; `None` before the first one.
    pub server: Option<ServerFacts>,
}

impl WatchReport {
    /// Nothing was seen yet.
    pub fn unknown(now: Instant) -> Self {
        let protection = Protection::Unknown {
            cause: "mysqld has not been looked at yet".to_owned(),
        };
        Self {
            protection,
            since: now,
            looked_at: now,
            server: None,
        }
    }

    /// The report that follows a look. `since` stays while verdict and reasons do. What was seen of the
    /// server stays when a look fails.
    pub(crate) fn after(
        &self,
        protection: Protection,
        server: Option<ServerFacts>,
        now: Instant,
    ) -> Self {
        let since = if self.protection.is_like(&protection) {
            self.since
        } else {
            now
        };
        Self {
            protection,
            since,
            looked_at: now,
            server: server.or_else(|| self.server.clone()),
        }
    }
}

/// The verdict on a server.
pub fn judge(observed: &Observed, requirements: &Requirements) -> Protection {
    let findings: Vec<_> = preflight(observed, requirements)
        .into_iter()
        .filter(|finding| finding.severity >= Severity::Unprotected)
        .collect();
    if findings.is_empty() {
        Protection::Protected
    } else {
        Protection::Unprotected { findings }
    }
}

/// Tells starts of mysqld apart. The same connection is the same start. For a new one, mysqld's
/// uptime and its numbering of connections tell. Shortly after a start they do only where it has been up for longer
/// than the last look is past; it is taken for another start otherwise.
#[derive(Debug, Default)]
pub(crate) struct Incarnations {
    last: Option<Sighting>,
    count: u64,
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    uuid: Option<Uuid>,
    connection_id: u32,
    started: Instant,
    /// When the look began.
    at: Instant,
}

/// Uptime is in whole seconds, and a look takes a moment.
const SAME_START: Duration = Duration::from_millis(2500);
/// Uptime is the difference of two times in whole seconds, and so up to this much too long.
const TOO_LONG: Duration = Duration::from_secs(1);
/// A younger server may be one that was restarted within that tolerance.
const YOUNG: Duration = Duration::from_secs(10);

impl Incarnations {
    /// The number of the incarnation that a look saw which began at `began` and is at its end `now`.
    fn see(
        &mut self,
        observed: &Observed,
        connection_id: u32,
        began: Instant,
        now: Instant,
    ) -> u64 {
        let uptime = Duration::from_secs(observed.uptime_seconds().unwrap_or(0));
        let started = now.checked_sub(uptime).unwrap_or(now);
        let seen = Sighting {
            uuid: observed.server_uuid(),
            connection_id,
            started,
            at: began,
        };
        let same = self.last.is_some_and(|last| {
            let apart = seen
                .started
                .max(last.started)
                .duration_since(seen.started.min(last.started));
            let same_connection = seen.connection_id == last.connection_id;
            let later_connection = seen.connection_id > last.connection_id;
            let up_since_before = uptime >= now.saturating_duration_since(last.at) + TOO_LONG;
            seen.uuid == last.uuid
                && apart < SAME_START
                && (same_connection || (later_connection && (up_since_before || uptime >= YOUNG)))
        });
        if !same {
            self.count += 1;
        }
        self.last = Some(seen);
        self.count
    }

    pub(crate) fn facts(
        &mut self,
        observed: &Observed,
        connection_id: u32,
        began: Instant,
        now: Instant,
    ) -> ServerFacts {
        ServerFacts {
            version: observed.version.to_string(),
            server_uuid: observed.server_uuid(),
            incarnation: self.see(observed, connection_id, began, now),
            read_only: ReadOnly::of(observed),
            waiting_sessions: observed.waiting_sessions(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mysql_link::ServerVersion;

    use super::*;
    use crate::settings::Fix;

    fn with_uptime(seconds: u64) -> Observed {
        Observed {
            version: ServerVersion::new(9, 7, 4),
            variables: BTreeMap::new(),
            status: [("uptime".to_owned(), seconds.to_string())].into(),
            semi_sync_replicas: None,
            grants: None,
            binlog_filters: None,
        }
    }

    #[test]
    fn restarts_are_told_from_reconnects() {
        let began = Instant::now() + Duration::from_secs(10_000);
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut incarnations = Incarnations::default();
        let mut see =
            |uptime, id, now| incarnations.see(&with_uptime(uptime), id, at(now), at(now));
        assert_eq!(see(100, 9, 0), 1);
        assert_eq!(see(101, 9, 1), 1);
        // The clock of mysqld has whole seconds.
        assert_eq!(see(103, 9, 2), 1);
        // A new connection to the same server.
        assert_eq!(see(110, 12, 10), 1);
        // It was restarted.
        assert_eq!(see(3, 8, 30), 2);
        assert_eq!(see(4, 8, 31), 2);
        // And again, so soon that uptime does not tell.
        assert_eq!(see(1, 9, 32), 3);
        // A number that is not higher is another server's.
        assert_eq!(see(71, 10, 102), 3);
        assert_eq!(see(72, 10, 103), 3);
        assert_eq!(see(73, 9, 104), 4);
    }

    #[test]
    fn a_young_server_that_is_looked_at_by_new_connections_is_one_start() {
        let began = Instant::now() + Duration::from_secs(10_000);
        let mut incarnations = Incarnations::default();
        let mut see = |uptime, id, at: Duration| {
            let took = Duration::from_millis(20);
            incarnations.see(&with_uptime(uptime), id, began + at, began + at + took)
        };
        let tenths = |tenths: u64| Duration::from_millis(100 * tenths);
        assert_eq!(see(2, 8, tenths(0)), 1);
        assert_eq!(see(3, 9, tenths(10)), 1);
        assert_eq!(see(4, 10, tenths(20)), 1);
        // What may be a start since the last look is taken for one.
        assert_eq!(see(2, 11, tenths(41)), 2);
        assert_eq!(see(3, 12, tenths(50)), 2);
    }

    #[test]
    fn the_age_of_a_verdict_grows_while_its_reasons_stay() {
        let finding = |check, found: &str| Finding {
            check,
            severity: Severity::Unprotected,
            found: found.to_owned(),
            why: String::new(),
            fix: Fix::Manual(String::new()),
        };
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let drift = |check, found| Protection::Unprotected {
            findings: vec![finding(check, found)],
        };
        let report = WatchReport::unknown(at(0));
        let report = report.after(drift(Check::SemiSyncTimeout, "10 s"), None, at(1));
        assert_eq!(report.since, at(1));
        let report = report.after(drift(Check::SemiSyncTimeout, "20 s"), None, at(2));
        assert_eq!((report.since, report.looked_at), (at(1), at(2)));
        let report = report.after(drift(Check::SyncBinlog, "0"), None, at(3));
        assert_eq!(report.since, at(3));
        let report = report.after(Protection::Protected, None, at(4));
        assert_eq!(report.since, at(4));
        let report = report.after(Protection::Protected, None, at(9));
        assert_eq!((report.since, report.looked_at), (at(4), at(9)));
    }
}
