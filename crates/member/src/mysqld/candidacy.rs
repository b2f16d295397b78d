//! Cost of a promotion of this member because of its mysqld: for a leader that is to transfer the leadership, and in the status.

use std::sync::Arc;
use std::time::Duration;

use consensus::DatabaseState;
use mysql_link::{ConnectOptions, ServerVersion, may_take_over};
use mysqld_controller::apply::{CompareError, executed_gtids};
use mysqld_controller::ingest::IngestStatus;
use mysqld_controller::status::{Readiness, RoleStatus};
use mysqld_controller::watch::WatchReport;
use mysqld_server::sessions::backup_lock::backup_under_way;
use mysqld_server::supervisor::SupervisorStatus;
use tokio::sync::watch;

use super::primary_health::{Look, NEVER, PrimaryHealth};
use crate::mysqld::lag::lag_ms;
use crate::ring_handle::RingHandle;

/// How long mysqld may take to report its executed set. The requester waits for it to decide about the primary.
const LIMIT: Duration = Duration::from_millis(300);

pub(crate) struct Candidacy {
    pub(crate) ring: Arc<RingHandle>,
    pub(crate) connect: ConnectOptions,
    pub(crate) reports: watch::Receiver<WatchReport>,
    pub(crate) readiness: watch::Receiver<Readiness>,
    pub(crate) ingest: watch::Receiver<IngestStatus>,
    pub(crate) role: Option<watch::Receiver<RoleStatus>>,
    pub(crate) supervisor: Option<watch::Receiver<SupervisorStatus>>,
}

impl Candidacy {
    /// The server's last known version.
    pub(crate) fn version(&self) -> Option<String> {
        let report = self.reports.borrow();
        report.server.as_ref().map(|server| server.version.clone())
    }

    /// The current cost after a primary of this version.
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
            let look = Look {
                supervisor: supervisor.as_ref(),
                report: &report,
                role: role.as_ref(),
                lacks_the_log: false,
                failing: None,
            };
            let log = PrimaryHealth::of_the_log(&self.ring.log.stats());
            let log_hangs = log.and_then(|health| health.why());
            too_old.or(log_hangs).or_else(|| look.unfit(readiness))
        };
        let (unfit, behind) = match unfit {
            Some(why) => (Some(why), None),
            None => match tokio::time::timeout(LIMIT, self.ask()).await {
                Ok(Ok((None, behind))) if behind > 0 && self.gets_nothing() => {
                    (Some(NEVER.to_owned()), None)
                }
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

    /// Whether mysqld's missing transactions never arrive. A primary's missing ones only wait for its ACK.
    fn gets_nothing(&self) -> bool {
        self.role.is_none() && !self.ingest.borrow().is_attached()
    }

    /// The backup that a promotion would abort, and mysqld's lag in transactions.
    async fn ask(&self) -> Result<(Option<String>, u64), CompareError> {
        let behind = self.behind().await?;
        let readiness = *self.readiness.borrow();
        let backup = match readiness {
            // Its role does not change.
            Readiness::In(_) => None,
            _ => backup_under_way(&self.connect).await?,
        };
        Ok((backup, behind))
    }

    /// Committed transactions known to this member that mysqld has not executed.
    async fn behind(&self) -> Result<u64, CompareError> {
        // In this order: transactions applied in between count as executed.
        let mark = *self.ring.member.committed().borrow();
        let committed = self.ring.log.gtids_committed_in_ring(mark);
        let executed = executed_gtids(&self.connect).await?;
        let lacks = committed.difference(&executed).count();
        Ok(u64::try_from(lacks).unwrap_or(u64::MAX))
    }
}

/// Why a server of version `to` must not follow a primary of version `from`. Unreadable versions allow it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_never_moves_to_an_older_version() {
        assert!(too_old("9.7.4", "8.4.9").is_some_and(|why| why.contains("never moves back")));
        assert!(too_old("8.4.9", "9.7.4").is_none() && too_old("9.7.4", "unknown").is_none());
    }
}
