//! What a promotion of this member would cost, as far as its mysqld goes: told to a leader that is to give the leadership away, and
//! in the status.

use std::sync::Arc;
use std::time::Duration;

use consensus::DatabaseState;
use mysql_link::{ConnectOptions, ServerVersion, may_take_over};
use mysqld_controller::apply::{backup_under_way, executed_gtids};
use mysqld_controller::status::{Readiness, RoleState, RoleStatus};
use mysqld_controller::supervisor::{SupervisorState, SupervisorStatus};
use mysqld_controller::watch::{Protection, WatchReport};
use tokio::sync::watch;

use crate::mysqld::lag::lag_ms;
use crate::ring_handle::RingHandle;

/// A mysqld that is this far behind keeps clients waiting for about as long.
pub(crate) const MOST_BEHIND: Duration = Duration::from_secs(5);
/// How long mysqld may take to say what it has executed. Who asks decides about the primary, and waits.
const LIMIT: Duration = Duration::from_millis(300);

pub(crate) struct Candidacy {
    pub(crate) ring: Arc<RingHandle>,
    pub(crate) connect: ConnectOptions,
    pub(crate) reports: watch::Receiver<WatchReport>,
    pub(crate) readiness: watch::Receiver<Readiness>,
    pub(crate) role: Option<watch::Receiver<RoleStatus>>,
    pub(crate) supervisor: Option<watch::Receiver<SupervisorStatus>>,
}

impl Candidacy {
    /// The server's version, as it was seen last.
    pub(crate) fn version(&self) -> Option<String> {
        let report = self.reports.borrow();
        report.server.as_ref().map(|server| server.version.clone())
    }

    /// What it would cost now, behind a primary of this version.
    pub(crate) async fn state(&self, primary: Option<String>) -> DatabaseState {
        let report = self.reports.borrow().clone();
        let version = self.version();
        let too_old = primary
            .zip(version.as_deref())
            .and_then(|(from, to)| too_old(&from, to));
        let unfit = {
            let supervisor = self.supervisor.as_ref();
            let supervisor = supervisor.map(|status| status.borrow().state.clone());
            let role = self.role.as_ref().map(|role| {
                let mut role = role.borrow().clone();
                role.lag_ms = lag_ms(role.lag_ms, self.ring.member.lacks_commits_for());
                role
            });
            let readiness = *self.readiness.borrow();
            too_old.or_else(|| unfit(supervisor.as_ref(), &report, role.as_ref(), readiness))
        };
        let (unfit, behind) = match unfit {
            Some(why) => (Some(why), None),
            None => match tokio::time::timeout(LIMIT, self.ask()).await {
                Ok(Ok((None, behind))) => (None, Some(behind)),
                Ok(Ok((backup, _))) => (backup, None),
                Ok(Err(cause)) => (Some(format!("mysqld cannot be asked: {cause}")), None),
                Err(_) => (
                    Some(format!("mysqld does not answer within {LIMIT:?}")),
                    None,
                ),
            },
        };
        DatabaseState {
            unfit,
            behind,
            version,
        }
    }

    /// The backup that a promotion would break off, and how far mysqld is behind.
    async fn ask(&self) -> Result<(Option<String>, u64), String> {
        let behind = self.behind().await?;
        let readiness = *self.readiness.borrow();
        let backup = match readiness {
            // It takes no steps to the primary's place.
            Readiness::In(_) => None,
            _ => backup_under_way(&self.connect).await?,
        };
        Ok((backup, behind))
    }

    /// Committed transactions, as far as this member knows, that mysqld has not executed.
    async fn behind(&self) -> Result<u64, String> {
        // In this order: what is applied in between counts as executed.
        let mark = *self.ring.member.committed().borrow();
        let committed = self.ring.log.gtids_committed_in_ring(mark);
        let executed = executed_gtids(&self.connect).await?;
        let lacks = committed.difference(&executed).count();
        Ok(u64::try_from(lacks).unwrap_or(u64::MAX))
    }
}

/// Why a server of version `to` must not follow a primary of version `from` in its place. Versions that cannot be read decide
/// nothing.
fn too_old(from: &str, to: &str) -> Option<String> {
    let versions = from
        .parse::<ServerVersion>()
        .ok()
        .zip(to.parse::<ServerVersion>().ok());
    let (older, newer) = versions?;
    (!may_take_over(older, newer)).then(|| {
        format!(
            "its mysqld is {to}, older than the primary's {from}, and the primary never moves back"
        )
    })
}

/// Why the mysqld could not be the primary soon. One that was the primary a moment ago could be it again.
fn unfit(
    supervisor: Option<&SupervisorState>,
    report: &WatchReport,
    role: Option<&RoleStatus>,
    readiness: Readiness,
) -> Option<String> {
    if let Some(SupervisorState::Failed { cause } | SupervisorState::Held { cause }) = supervisor {
        return Some(cause.clone());
    }
    if let Protection::Unknown { cause } = &report.protection {
        return Some(format!("mysqld does not answer: {cause}"));
    }
    if let Some(standing) = &report.commits {
        return Some(standing.why.clone());
    }
    if matches!(readiness, Readiness::In(_)) {
        return None;
    }
    let Some(role) = role else {
        return Some("nothing is applied to its mysqld".to_owned());
    };
    match &role.state {
        RoleState::Following => {
            let lag = role.lag_ms.map(Duration::from_millis);
            let lag = lag.filter(|lag| *lag > MOST_BEHIND);
            lag.map(|lag| format!("mysqld is {} ms behind", lag.as_millis()))
        }
        RoleState::Primary | RoleState::CatchingUp { .. } => None,
        RoleState::Unknown => Some("nothing is known of mysqld yet".to_owned()),
        RoleState::Waiting { what } => Some(format!("it waits: {what}")),
        RoleState::Stopped { cause } => Some(cause.clone()),
        RoleState::Restarting { why } => Some(format!("it is restarted: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use binlog_format::gtid::GtidSet;
    use mysqld_controller::LeaderTerm;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn who_could_be_the_primary_soon() {
        let now = Instant::now();
        let unseen = WatchReport::unknown(now);
        let seen = WatchReport {
            protection: Protection::Protected,
            ..unseen.clone()
        };
        let status = |state, lag_ms| RoleStatus {
            state,
            since: now,
            lag_ms,
            applied_total: 0,
            not_the_rings: GtidSet::default(),
            held_up_by: Vec::new(),
        };
        let following = status(RoleState::Following, Some(5_000));
        let late = status(RoleState::Following, Some(5_001));
        let stopped = status(
            RoleState::Stopped {
                cause: "table d.t is not there".to_owned(),
            },
            None,
        );
        let waiting = status(
            RoleState::Waiting {
                what: "clients can still write".to_owned(),
            },
            None,
        );
        let failed = SupervisorState::Failed {
            cause: "killed".to_owned(),
        };
        let running = SupervisorState::Beginning;
        let (applying, was_primary) = (Readiness::Applying, Readiness::In(LeaderTerm(3)));
        let table = [
            (&running, &seen, Some(&following), applying, None),
            (
                &running,
                &seen,
                Some(&late),
                applying,
                Some("5001 ms behind"),
            ),
            (
                &running,
                &seen,
                Some(&stopped),
                Readiness::Lacks,
                Some("d.t is not there"),
            ),
            (
                &running,
                &seen,
                Some(&waiting),
                Readiness::Unknown,
                Some("can still write"),
            ),
            (&running, &seen, Some(&waiting), was_primary, None),
            (
                &running,
                &unseen,
                Some(&waiting),
                was_primary,
                Some("does not answer"),
            ),
            (&failed, &unseen, Some(&following), applying, Some("killed")),
            (
                &running,
                &seen,
                None,
                Readiness::Always,
                Some("nothing is applied"),
            ),
        ];
        assert!(too_old("9.7.4", "8.4.9").is_some_and(|why| why.contains("never moves back")));
        assert!(too_old("8.4.9", "9.7.4").is_none() && too_old("9.7.4", "unknown").is_none());
        for (supervisor, report, role, readiness, expected) in table {
            let found = unfit(Some(supervisor), report, role, readiness);
            match expected {
                None => assert_eq!(found, None, "{role:?}"),
                Some(words) => assert!(
                    found.as_ref().is_some_and(|found| found.contains(words)),
                    "{found:?}"
                ),
            }
        }
    }
}
