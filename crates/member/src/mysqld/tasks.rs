//! The tasks that manage a database member's mysqld. They run it as a child process if configured, receive its transactions, check its
//! settings, and open and close it for writes. If mysqld is unreachable or has wrong settings, the status shows this, and the member
//! continues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use consensus::DatabaseState;
use mysql_link::ConnectOptions;
use mysqld_controller::ControllerStatus;
use mysqld_controller::checks::Warnings;
use mysqld_controller::ingest::{IngestFigures, IngestState, IngestStatus};
use mysqld_controller::plan::same_uuid::uuid_of;
use mysqld_controller::primary_health::{HealthObserver, lag_ms, not_received};
use mysqld_controller::primary_writer::PrimaryWriter;
use mysqld_controller::status::{
    ReadFenceReason, Readiness, RoleState, RoleStatus, WriteFenceState, WriteFenceStatus,
};
use mysqld_controller::watch::{Protection, WatchReport};
use mysqld_server::offline_mode;
use mysqld_server::supervisor::{SupervisorHandle, SupervisorState};
use ring_admin::Member;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::candidacy::Candidacy;
use super::guard_line::GuardLine;
use super::managed_process::ManagedProcess;
use crate::provisioning::Provisioner;
use crate::settings::MysqlMode;
use crate::status::{ErrantTransactions, MysqlView, MysqldState};

pub(crate) struct MysqldTasks {
    pub(super) parts: Parts,
    pub(super) controller: Running,
    pub(super) guard: Option<Arc<GuardLine>>,
    pub(super) ingest: Running,
    pub(super) watcher: Running,
    pub(super) supervisor: Option<Supervised>,
    /// Records the process of a managed mysqld that another program starts.
    pub(super) managed: Option<(ManagedProcess, Running)>,
    pub(super) provisioner: Arc<Provisioner>,
    /// Finishes a provisioning that an operator began.
    pub(super) provisioning: Running,
    /// Keeps the channel of the readiness open if nothing is applied, because there is no other sender.
    pub(super) _readiness: watch::Sender<Readiness>,
    pub(super) writer: Arc<PrimaryWriter>,
    pub(super) connect: ConnectOptions,
    pub(super) candidacy: Arc<Candidacy>,
    /// Sends the cost of a promotion.
    pub(super) costing: Running,
    /// Runs slow checks, which give warnings.
    pub(super) checking: Running,
}

/// A mysqld that the member starts and stops.
pub(super) struct Supervised {
    pub(super) handle: Arc<SupervisorHandle>,
    pub(super) task: JoinHandle<()>,
}

/// What happens to mysqld when its member ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Child {
    /// mysqld is stopped after its last waiting commit.
    Stops,
    /// mysqld continues without its member. Its commits wait until the member returns, and readers are excluded.
    Stays,
    /// mysqld continues, and the member no longer manages it.
    IsReleased,
}

/// The input of a view.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) mode: MysqlMode,
    pub(super) member: Member,
    pub(super) health: HealthObserver,
    pub(super) figures: Arc<IngestFigures>,
    pub(super) controller: ControllerStatus,
    pub(super) promotion: watch::Receiver<Option<DatabaseState>>,
    /// The warnings of the slow checks.
    pub(super) checked: Warnings,
    /// Number of transactions that were trimmed from mysqld's binlog before its starts.
    pub(super) trimmed: Arc<AtomicU64>,
}

/// A task and its stop signal.
pub(super) struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(stop.clone()));
        Self { stop, task }
    }

    /// Starts an essential task: if it ends with a panic, the member ends.
    pub(super) fn essential<F: Future<Output = ()> + Send + 'static>(
        member: &Member,
        what: &'static str,
        run: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        Self::start(|stop| member.essential(what, run(stop)))
    }

    /// Starts work that may be dropped at any point.
    pub(super) fn until_stopped(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::start(|stop| async move {
            stop.run_until_cancelled(work).await;
        })
    }

    async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a task for mysqld failed");
        }
    }
}

impl MysqldTasks {
    /// Ends the tasks. First, the primary is closed for writes, so that running commits can still be acknowledged while mysqld stops.
    pub(crate) async fn end(self, child: Child) {
        let record = match self.managed {
            Some((record, keeping)) => {
                keeping.end().await;
                Some(record)
            }
            None => None,
        };
        if let (Some(record), Child::IsReleased) = (&record, child) {
            record.remove();
        }
        self.provisioning.end().await;
        self.costing.end().await;
        self.checking.end().await;
        self.controller.end().await;
        if let Some(guard) = self.guard {
            // If another program stops mysqld, it may run for long without its member, so the guard continues.
            let released = match child {
                Child::Stops => self.supervisor.is_some(),
                Child::IsReleased => true,
                Child::Stays => false,
            };
            guard.end(released).await;
        }
        let guards = self.parts.controller.read_fence.borrow().guards;
        let fenced = match child {
            // Without this member, no process would close mysqld's sessions while another member's mysqld is the primary.
            Child::Stays if guards => offline_mode::raise(&self.connect).await.map(drop),
            Child::IsReleased => offline_mode::lower(&self.connect).await.map(drop),
            Child::Stays | Child::Stops => Ok(()),
        };
        if let Err(error) = fenced {
            tracing::warn!(%error, "whether ordinary accounts are let in could not be changed");
        }
        if let Some(Supervised { handle, task }) = self.supervisor {
            match child {
                Child::Stops => handle.stop().await,
                Child::Stays | Child::IsReleased => handle.leave().await,
            }
            if let Err(error) = task.await {
                tracing::error!(%error, "supervising mysqld ended badly");
            }
        }
        if let (Some(record), Child::Stops) = (&record, child) {
            record.remove();
        }
        self.ingest.end().await;
        self.watcher.end().await;
    }
}

impl Parts {
    fn warnings(&self) -> Vec<String> {
        let supervisor = self.health.supervisor.as_ref();
        let at_start = supervisor.and_then(|status| status.borrow().warning.clone());
        let same_uuid = self.controller.same_uuid.borrow().warning.clone();
        let never_sent = self.checked.never_sent.borrow().clone();
        let role = self.controller.role.as_ref();
        let role = role.map(|role| role.borrow().clone());
        let tables = role.as_ref().map(|role| &role.without_transactions[..]);
        let for_good = tables.and_then(written_for_good);
        let held_up_by = role.map(|role| role.held_up.by);
        let account = self.checked.account.borrow().clone();
        let seen = self.health.reports.borrow().server.clone();
        let advice = seen.into_iter().flat_map(|server| server.advice);
        let all = at_start.into_iter().chain(same_uuid).chain(never_sent);
        let all = all.chain(account).chain(for_good).chain(advice);
        all.chain(held_up_by.into_iter().flatten()).collect()
    }

    /// Returns the current view of mysqld.
    pub(super) fn view(&self, now: Instant) -> MysqlView {
        let ingest = self.health.ingest.borrow().clone();
        let report = self.health.reports.borrow().clone();
        let write_fence = self.controller.write_fence.borrow().clone();
        let supervisor = self.health.supervisor.as_ref();
        let supervisor = supervisor.map(|status| status.borrow().state.clone());
        let role = self.controller.role.as_ref();
        let role = role.map(|status| status.borrow().clone());
        let role = role.as_ref();
        let server = report.server.as_ref();
        let figures = self.figures.view(now);
        let stale = now.saturating_duration_since(report.looked_at) > LOOKED_AT_RECENTLY;
        MysqlView {
            mode: mode_words(self.mode).to_owned(),
            state: state_of(supervisor.as_ref(), &report),
            version: server.map(|server| server.version.clone()),
            ddl_settings: server.map_or_else(BTreeMap::new, |server| server.ddl_settings.clone()),
            ingesting: ingest.is_attached(),
            examined_ms: u64::try_from(now.saturating_duration_since(report.looked_at).as_millis())
                .ok(),
            protected: report.protection.is_protected() && !stale,
            unprotected_because: unprotected_because(&report, stale),
            writable: write_fence.state == WriteFenceState::Open,
            released: false,
            write_fence: write_fence.state.clone(),
            offline: offline_words(self.controller.read_fence.borrow().because, &report),
            role: role.map_or(RoleState::NotApplied, |role| role.state.clone()),
            applies: role.is_some(),
            following: role.is_some_and(|role| role.state == RoleState::Following),
            lag_ms: role.and_then(|role| lag_ms(role.lag_ms, self.member.lacks_commits_for())),
            applied_total: role.map_or(0, |role| role.applied_total),
            errant: role.and_then(|role| not_the_rings(&role.not_the_rings)),
            started_open: server.and_then(|server| server.started_open),
            exposed: None,
            not_in_ring_total: figures.not_in_ring_total,
            oldest_unacked_seconds: figures.oldest_unacknowledged.map(|age| age.as_secs_f64()),
            acknowledged_total: figures.committed_total,
            acks_total: figures.acks_total,
            trimmed_total: self.trimmed.load(Ordering::Relaxed),
            demotion: None,
            warnings: self.warnings(),
            server_uuid: uuid_of(&report),
            promotion: self.promotion.borrow().clone(),
            trouble: trouble(supervisor.as_ref(), &ingest, &report, &write_fence, role),
        }
    }
}

fn not_the_rings(gtids: &GtidSet) -> Option<ErrantTransactions> {
    let transactions = u64::try_from(gtids.count()).unwrap_or(u64::MAX);
    (transactions > 0).then(|| ErrantTransactions {
        transactions,
        gtids: gtids.to_string().replace('\n', ""),
    })
}

/// Returns the mode's name in the configuration.
pub(crate) fn mode_words(mode: MysqlMode) -> &'static str {
    match mode {
        MysqlMode::Child => "child",
        MysqlMode::External => "external",
        MysqlMode::Attach => "attach",
    }
}

/// The result of a check is used up to this age. A check runs every second.
const LOOKED_AT_RECENTLY: Duration = Duration::from_secs(6);

/// Maximum number of tables that are named in one message.
const TABLES_NAMED: usize = 5;

/// Returns the warning about tables whose rows cannot be rolled back.
fn written_for_good(tables: &[String]) -> Option<String> {
    let (named, more) = tables.split_at(tables.len().min(TABLES_NAMED));
    let more = match more.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = named.join(", ");
    (!tables.is_empty()).then(|| {
        format!(
            "the ring's log writes to {named}{more}, whose engine has no transactions: rows cannot be taken back there, and a follower \
             whose applier is ended in the middle of them stops; ALTER TABLE … ENGINE = InnoDB at the primary"
        )
    })
}

fn unprotected_because(report: &WatchReport, stale: bool) -> Vec<String> {
    match &report.protection {
        Protection::Protected if stale => vec!["it was not observed for some seconds".to_owned()],
        Protection::Protected => Vec::new(),
        Protection::Unprotected { findings } => findings.iter().map(ToString::to_string).collect(),
        Protection::Unknown { cause } => vec![cause.clone()],
    }
}

/// Returns why ordinary accounts are excluded, if they are.
fn offline_words(fenced: Option<ReadFenceReason>, report: &WatchReport) -> Option<String> {
    let offline = report.server.as_ref().is_some_and(|server| server.offline);
    match fenced {
        Some(reason) => Some(reason.to_string()),
        None => offline.then(|| {
            "offline_mode is on: set by an operator, or before this member started".to_owned()
        }),
    }
}

/// Returns the state of mysqld, from its process and the last check.
fn state_of(supervisor: Option<&SupervisorState>, report: &WatchReport) -> MysqldState {
    match supervisor {
        Some(SupervisorState::Beginning) => MysqldState::Starting,
        Some(SupervisorState::Initialising) => MysqldState::Initialising,
        Some(SupervisorState::Failed { .. }) => MysqldState::Failed,
        Some(SupervisorState::Held { .. }) => MysqldState::Held,
        Some(SupervisorState::Draining { .. }) => MysqldState::Draining,
        Some(SupervisorState::Stopping { .. }) => MysqldState::Stopping,
        Some(SupervisorState::Ended) => MysqldState::Stopped,
        Some(SupervisorState::Running { .. }) | None => {
            match (&report.protection, &report.server) {
                (Protection::Unknown { .. }, _) if supervisor.is_some() => MysqldState::Starting,
                (Protection::Unknown { .. }, _) => MysqldState::Unreachable,
                (_, Some(_)) => MysqldState::Running,
                (_, None) => MysqldState::Unknown,
            }
        }
    }
}

fn trouble(
    supervisor: Option<&SupervisorState>,
    ingest: &IngestStatus,
    report: &WatchReport,
    write_fence: &WriteFenceStatus,
    role: Option<&RoleStatus>,
) -> Option<String> {
    if let Some(SupervisorState::Failed { cause } | SupervisorState::Held { cause }) = supervisor {
        return Some(cause.clone());
    }
    if let Some(RoleState::Stopped { cause }) = role.map(|role| &role.state) {
        return Some(cause.clone());
    }
    if let IngestState::Failed { cause } = &ingest.state {
        return Some(not_received(cause));
    }
    // While attaching is retried, the last failure is reported.
    if let (IngestState::Attaching, Some(cause)) = (&ingest.state, &ingest.last_failure) {
        return Some(not_received(cause));
    }
    if let Protection::Unknown { cause } = &report.protection {
        return Some(format!("it could not be examined: {cause}"));
    }
    match &write_fence.state {
        state @ (WriteFenceState::NotClosed { .. } | WriteFenceState::NotOpened { .. }) => {
            Some(format!("for writes it {state}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_without_transactions_are_named_up_to_a_bound() {
        let tables: Vec<String> = (1..=7).map(|n| format!("d.t{n}")).collect();
        assert_eq!(written_for_good(&[]), None);
        for (count, named) in [
            (1, "writes to d.t1, whose"),
            (5, "d.t4, d.t5, whose"),
            (7, "d.t4, d.t5 and 2 more, whose"),
        ] {
            let words = written_for_good(&tables[..count]).unwrap();
            assert!(words.contains(named), "{words}");
        }
    }
}
