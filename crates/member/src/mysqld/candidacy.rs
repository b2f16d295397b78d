//! Cost of a promotion of this member because of its mysqld: for a leader that is to transfer the leadership, and in the status.

use std::sync::Arc;
use std::time::Duration;

use binlog_store::StoreStats;
use consensus::DatabaseState;
use mysql_link::{ConnectOptions, ServerVersion, may_take_over};
use mysqld_controller::apply::{CompareError, executed_gtids};
use mysqld_controller::primary_health::{HealthObserver, NEVER};
use mysqld_controller::status::Readiness;
use mysqld_server::sessions::backup_lock::backup_under_way;
use tokio::sync::watch;

use crate::ring_handle::RingHandle;
use crate::status::DISK_HANGS;

/// How long mysqld may take to report its executed set. The requester waits for it to decide about the primary.
const LIMIT: Duration = Duration::from_millis(300);

pub(crate) struct Candidacy {
    pub(crate) ring: Arc<RingHandle>,
    pub(crate) connect: ConnectOptions,
    pub(crate) health: HealthObserver,
    pub(crate) readiness: watch::Receiver<Readiness>,
}

impl Candidacy {
    /// The server's last known version.
    pub(crate) fn version(&self) -> Option<String> {
        let report = self.health.reports.borrow();
        report.server.as_ref().map(|server| server.version.clone())
    }

    /// The current cost after a primary of this version.
    pub(crate) async fn state(&self, primary: Option<String>) -> DatabaseState {
        let version = self.version();
        let too_old = primary
            .zip(version.as_deref())
            .and_then(|(from, to)| too_old(&from, to));
        let readiness = *self.readiness.borrow();
        let unfit = too_old
            .or_else(|| log_hangs(&self.ring.log.stats()))
            .or_else(|| {
                let lacks = self.ring.member.lacks_commits_for();
                self.health.unfit(readiness, lacks)
            });
        let (unfit, lacks) = match unfit {
            Some(why) => (Some(why), None),
            None => match tokio::time::timeout(LIMIT, self.ask()).await {
                Ok(Ok((None, lacks))) if lacks > 0 && self.gets_nothing() => {
                    (Some(NEVER.to_owned()), None)
                }
                Ok(Ok((None, lacks))) => (None, Some(lacks)),
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
            lag: lacks,
            version,
        }
    }

    /// Whether mysqld's missing transactions never arrive. A primary's missing ones only wait for its ACK.
    fn gets_nothing(&self) -> bool {
        self.health.role.is_none() && !self.health.ingest.borrow().is_attached()
    }

    /// The backup that a promotion would abort, and mysqld's lag in transactions.
    async fn ask(&self) -> Result<(Option<String>, u64), CompareError> {
        let lacks = self.lacks().await?;
        let readiness = *self.readiness.borrow();
        let backup = match readiness {
            // Its role does not change.
            Readiness::In(_) => None,
            _ => backup_under_way(&self.connect).await?,
        };
        Ok((backup, lacks))
    }

    /// Committed transactions known to this member that mysqld has not executed.
    async fn lacks(&self) -> Result<u64, CompareError> {
        // In this order: transactions applied in between count as executed.
        let mark = *self.ring.member.committed().borrow();
        let committed = self.ring.log.gtids_committed_in_ring(mark);
        let executed = executed_gtids(&self.connect).await?;
        let lacks = committed.difference(&executed).count();
        Ok(u64::try_from(lacks).unwrap_or(u64::MAX))
    }
}

/// Why this member's log waits for its disk, if so. Other members confirm its proposals until the log's queue is full; then every commit
/// waits.
pub(super) fn log_hangs(stats: &StoreStats) -> Option<String> {
    // A write that waits for room is not written either.
    let hangs = stats.busy_for >= DISK_HANGS && !stats.disk_refuses;
    hangs.then(|| {
        format!(
            "the disk of this member's log has not finished a write or an fsync for {} s",
            stats.busy_for.as_secs()
        )
    })
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

    #[test]
    fn a_log_hangs_on_an_unfinished_write_and_not_on_a_full_disk() {
        let stats = |seconds, disk_refuses| StoreStats {
            busy_for: Duration::from_secs(seconds),
            disk_refuses,
            ..StoreStats::default()
        };
        assert_eq!(log_hangs(&stats(4, false)), None);
        assert_eq!(log_hangs(&stats(60, true)), None);
        let why = log_hangs(&stats(60, false)).unwrap();
        assert!(
            why.contains("this member's log") && why.contains("60 s"),
            "{why}"
        );
    }
}
