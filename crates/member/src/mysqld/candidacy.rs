//! The cost of a promotion of this member, which depends on its mysqld. It is used in the status, and by a leader that wants to transfer
//! the leadership.

use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use binlog_store::StoreStats;
use consensus::DatabaseState;
use mysql_link::{ConnectOptions, Connection, ServerVersion, may_take_over};
use mysqld_controller::apply::{CompareError, executed_by};
use mysqld_controller::primary_health::{HealthObserver, NEVER};
use mysqld_controller::status::Readiness;
use mysqld_server::sessions::backup_lock::backup_under_way;
use tokio::sync::watch;

use crate::ring_handle::RingHandle;
use crate::status::DISK_HANGS;

/// How long mysqld may take to report its executed set. The leader that asked waits for the answer before it chooses a target.
const LIMIT: Duration = Duration::from_millis(300);

pub(crate) struct Candidacy {
    pub(crate) ring: Arc<RingHandle>,
    pub(crate) connect: ConnectOptions,
    pub(crate) health: HealthObserver,
    pub(crate) readiness: watch::Receiver<Readiness>,
}

impl Candidacy {
    /// Returns the server's last known version.
    pub(crate) fn version(&self) -> Option<String> {
        let report = self.health.reports.borrow();
        report.server.as_ref().map(|server| server.version.clone())
    }

    /// Returns the current cost of a promotion after a primary of version `primary`; queries mysqld.
    pub(crate) async fn state(&self, primary: Option<String>) -> DatabaseState {
        if let Some(why) = self.unfit(primary) {
            return self.cost(Some(why), 0);
        }
        let why = match tokio::time::timeout(LIMIT, self.ask()).await {
            Ok(Ok((backup, lacks))) => return self.cost(backup, lacks),
            Ok(Err(cause)) => format!("mysqld cannot be asked: {cause}"),
            Err(_) => format!("mysqld does not answer within {LIMIT:?}"),
        };
        self.cost(Some(why), 0)
    }

    /// Returns the cost from the last observation of mysqld, for the status. `committed` was read before that observation.
    fn observed(&self, committed: &GtidSet) -> DatabaseState {
        let server = self.health.reports.borrow().server.clone();
        let Some(server) = server.filter(|_| self.unfit(None).is_none()) else {
            return self.cost(self.unfit(None), 0);
        };
        let role = self.health.role.as_ref();
        let backup = role.and_then(|role| role.borrow().held_up.backup.clone());
        self.cost(backup, lacks(committed, &server.executed))
    }

    /// Sends the cost to `costs` after each observation of mysqld.
    pub(crate) async fn tell(self: Arc<Self>, costs: watch::Sender<Option<DatabaseState>>) {
        let mut reports = self.health.reports.clone();
        loop {
            let committed = self.committed();
            if reports.changed().await.is_err() {
                return;
            }
            costs.send_replace(Some(self.observed(&committed)));
        }
    }

    fn cost(&self, unfit: Option<String>, lacks: u64) -> DatabaseState {
        // If mysqld gets no transactions, missing ones never arrive. At a primary, missing transactions only wait for the ACK.
        let gets_none = self.health.role.is_none() && !self.health.ingest.borrow().is_attached();
        let never = (lacks > 0 && gets_none).then(|| NEVER.to_owned());
        let unfit = unfit.or(never);
        DatabaseState {
            lag: unfit.is_none().then_some(lacks),
            unfit,
            version: self.version(),
        }
    }

    /// Returns why this member cannot be promoted, as far as this is known without a query; `None` if it can be.
    fn unfit(&self, primary: Option<String>) -> Option<String> {
        let versions = primary.zip(self.version());
        let too_old = versions.and_then(|(from, to)| too_old(&from, &to));
        let hangs = || log_hangs(&self.ring.log.stats());
        too_old.or_else(hangs).or_else(|| {
            let lacks = self.ring.member.lacks_commits_for();
            self.health.unfit(*self.readiness.borrow(), lacks)
        })
    }

    /// Returns the backup that a promotion would abort, and how many transactions mysqld has not executed although they are known to be
    /// committed.
    async fn ask(&self) -> Result<(Option<String>, u64), CompareError> {
        // The committed set is read first. Transactions that are applied in between then count as executed.
        let committed = self.committed();
        let connect = ConnectOptions {
            program_name: "witness-candidacy".to_owned(),
            ..self.connect.clone()
        };
        let mut session = Connection::open_with_own_settings(&connect).await?;
        let executed = executed_by(&mut session).await?;
        let readiness = *self.readiness.borrow();
        let backup = match readiness {
            // If mysqld already has its role, a promotion does not abort a backup.
            Readiness::In(_) => None,
            _ => backup_under_way(&mut session).await,
        };
        session.close().await;
        Ok((backup, lacks(&committed, &executed)))
    }

    fn committed(&self) -> GtidSet {
        let mark = *self.ring.member.committed().borrow();
        self.ring.log.gtids_committed_in_ring(mark)
    }
}

fn lacks(committed: &GtidSet, executed: &GtidSet) -> u64 {
    u64::try_from(committed.difference(executed).count()).unwrap_or(u64::MAX)
}

/// Returns why this member's log waits for its disk, if it does. Until the log's queue is full, other members can confirm its proposals.
/// After that, every commit waits.
pub(super) fn log_hangs(stats: &StoreStats) -> Option<String> {
    // A log that waits for room on the disk does not hang.
    let hangs = stats.busy_for >= DISK_HANGS && !stats.disk_refuses;
    hangs.then(|| {
        format!(
            "the disk of this member's log has not finished a write or an fsync for {} s",
            stats.busy_for.as_secs()
        )
    })
}

/// Returns why a server of version `to` must not become the primary after a server of version `from`. If a version cannot be parsed, it is
/// allowed.
fn too_old(from: &str, to: &str) -> Option<String> {
    let (older, newer): (ServerVersion, ServerVersion) = (from.parse().ok()?, to.parse().ok()?);
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
