//! Manages a database member's mysqld: runs it as a child if configured, receives its transactions, watches its settings, opens and closes
//! it for writes. A mysqld that is unreachable or wrongly configured appears in the status and does not end the member.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use consensus::{DatabaseState, Member};
use mysql_link::ConnectOptions;
use mysqld_controller::apply::{FollowOptions, StandingFile};
use mysqld_controller::events::EventScheduler;
use mysqld_controller::ingest::{
    CommitObserver, FileLimits, Ingest, IngestFigures, IngestOptions, IngestState, IngestStatus,
};
use mysqld_controller::plan::facts::LockoutPatience;
use mysqld_controller::read_fence;
use mysqld_controller::settings::{OwnAccount, Requirements};
use mysqld_controller::status::{
    ReadFenceReason, Readiness, RoleState, RoleStatus, WriteFenceState, WriteFenceStatus,
};
use mysqld_controller::supervisor::{
    ExternalServer, Supervisor, SupervisorHandle, SupervisorState, SupervisorStatus,
};
use mysqld_controller::tail_trim::{ProtectionStart, TailTrim, TailTrimOptions};
use mysqld_controller::watch::{Protection, WatchOptions, WatchReport, Watcher};
use mysqld_controller::write_fence::WriteFenceOptions;
use mysqld_controller::{
    Controller, ControllerInputs, ControllerOptions, ControllerStatus, ReplicationSource,
    RingObserver, ToGuard,
};
use spilling_bytes::SpillFolder;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::account_watch;
use super::candidacy::Candidacy;
use super::connection::supervisor_options;
use super::guard_line::{GuardCommand, GuardLine};
use super::lacks_of_the_ring;
use super::managed_process::ManagedProcess;
use super::other_mysqlds::OtherMysqlds;
use super::primary_health::{Look, PrimaryHealth, not_received};
use super::same_uuid;
use super::same_uuid::Verdict;
use super::takeover::TakenOverFirst;
use super::writer::{LogRoom, PrimaryWriter};
use crate::mysqld::lag::lag_ms;
use crate::provisioning::{CopiedMysqld, Provisioner, hold_at_start};
use crate::ring_handle::RingHandle;
use crate::settings::{MysqlMode, MysqlSettings, Settings};
use crate::status::{ErrantTransactions, MysqlView, MysqldRole, MysqldState, WriteFenceView};

pub(crate) struct MysqldTasks {
    parts: Parts,
    member: Member,
    controller: Running,
    guard: Option<Arc<GuardLine>>,
    ingest: Running,
    watcher: Running,
    supervisor: Option<Supervised>,
    /// Records a managed mysqld that another program owns.
    managed: Option<(ManagedProcess, Running)>,
    provisioner: Arc<Provisioner>,
    /// Finishes provisioning that an operator began.
    provisioning: Running,
    /// The only sender of the readiness where nothing is applied.
    _readiness: watch::Sender<Readiness>,
    transferring: Arc<watch::Sender<bool>>,
    /// Longest wait of a planned switchover for long statements.
    statements: Duration,
    connect: ConnectOptions,
    candidacy: Arc<Candidacy>,
    /// Periodically queries the cost of a promotion.
    costing: Running,
    /// Periodically checks whether the ring gets all of the primary's transactions.
    comparing: Running,
    /// Periodically checks whether the member can still log in.
    logging_in: Running,
    /// Checks whether another member's mysqld has its UUID.
    identifying: Running,
}

/// Input about mysqld and its ring.
#[derive(Clone)]
pub(crate) struct Known {
    /// Configured state of mysqld's events.
    pub(crate) events: EventScheduler,
    /// Transactions before the ring's log.
    pub(crate) origin: GtidSet,
    /// How a guard is started, if any.
    pub(crate) guard: Option<GuardCommand>,
    /// Where the service manager finds the managed process, if any.
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Observes how long commits wait.
    pub(crate) commits: Option<Arc<dyn CommitObserver>>,
    /// Folder for large incoming transactions.
    pub(crate) spill: SpillFolder,
    /// Owner of mysqld, instead of the configured commands.
    pub(crate) owner: Option<Arc<dyn ExternalServer>>,
    /// Reports of the other members about their mysqlds.
    pub(crate) others: watch::Receiver<OtherMysqlds>,
}

/// A mysqld run as the member's child.
struct Supervised {
    handle: Arc<SupervisorHandle>,
    task: JoinHandle<()>,
}

/// What happens to a child when its member ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Child {
    /// It is stopped, once no commit waits.
    Stops,
    /// It continues without its member; its commits wait for the member's return, and readers are excluded.
    Stays,
    /// It continues, and the member leaves it alone from now on.
    IsReleased,
}

/// Input of a view.
#[derive(Clone)]
struct Parts {
    mode: MysqlMode,
    member: Member,
    ingest: watch::Receiver<IngestStatus>,
    figures: Arc<IngestFigures>,
    reports: watch::Receiver<WatchReport>,
    controller: ControllerStatus,
    supervisor: Option<watch::Receiver<SupervisorStatus>>,
    promotion: watch::Receiver<Option<DatabaseState>>,
    /// The primary's transactions that the ring never gets, as text.
    never_sent: watch::Receiver<Option<String>>,
    /// The fault of the member's account, as text.
    account: watch::Receiver<Option<String>>,
    /// Result of the UUID comparison with the other members' servers.
    same_uuid: watch::Receiver<Verdict>,
    /// Transactions trimmed from mysqld's binlog before its starts.
    trimmed: Arc<AtomicU64>,
}

/// A task and its stop signal.
struct Running {
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

    /// The same for a task without which the member ends.
    fn essential<F: Future<Output = ()> + Send + 'static>(
        member: &Member,
        what: &'static str,
        run: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        Self::start(|stop| member.essential(what, run(stop)))
    }

    async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a task beside mysqld ended badly");
        }
    }
}

impl MysqldTasks {
    /// Begins to manage mysqld, which applies with its own replica threads from `native`, if given.
    pub(crate) fn start(
        config: &Settings,
        settings: &MysqlSettings,
        connect: ConnectOptions,
        requirements: Requirements,
        native: Option<ReplicationSource>,
        known: Known,
        ring: RingHandle,
    ) -> Self {
        let mut supervisor = supervisor_options(config, settings, &connect);
        if let (Some(options), Some(owner)) = (&mut supervisor, known.owner.clone()) {
            options.external = Some(owner);
        }
        let data_dir = supervisor
            .as_ref()
            .map(|options| options.server.data_dir.clone());
        let (member, ring) = (ring.member.clone(), Arc::new(ring));
        let options = IngestOptions {
            file_limits: FileLimits {
                bytes: config.log.max_file_bytes,
                age: config
                    .archive
                    .as_ref()
                    .and_then(|archive| archive.max_file_age),
            },
            in_flight_bytes: u64::from(config.raft.proposals_bytes),
            report_host: config.own.name.clone(),
            observer: known.commits,
            spill: known.spill,
            ..IngestOptions::new(connect.clone(), requirements.clone())
        };
        let (readiness, may_lead) = watch::channel(Readiness::Always);
        let (transferring, transferred) = watch::channel(false);
        let ingest = Ingest::new(ring.clone(), options, may_lead.clone());
        let (ingest_status, figures) = (ingest.status(), ingest.figures());
        let observer = RingObserver::new(ring.clone());
        // A mysqld started by the member has passed the start guard.
        let protection_start = supervisor
            .as_ref()
            .filter(|options| options.external.is_some())
            .map(|options| {
                let (member_dir, server) = (config.data_dir.clone(), options.server.clone());
                ProtectionStart::new(TailTrimOptions::new(member_dir, server))
            });
        let managed = known
            .runtime_dir
            .as_deref()
            .filter(|_| protection_start.is_some())
            .map(|runtime_dir| ManagedProcess::new(runtime_dir, &config.data_dir));
        let mut trimmed = Arc::default();
        let supervisor = supervisor.map(|options| {
            let trim = TailTrimOptions::new(config.data_dir.clone(), options.server.clone());
            let guard = TailTrim::new(ring.clone(), Some(ingest_status.clone()), trim);
            trimmed = guard.trimmed();
            let (supervisor, handle) = Supervisor::new(options);
            let supervisor = supervisor
                .guarded_by(Arc::new(TakenOverFirst::new(&config.data_dir, guard)))
                .with_figures(Arc::clone(&figures));
            let running = member.essential("keeping mysqld running", supervisor.run());
            let task = tokio::spawn(running);
            let handle = Arc::new(handle);
            Supervised { handle, task }
        });
        let managed = managed
            .zip(supervisor.as_ref())
            .map(|(record, supervised)| {
                let keeping = record.clone().keep(supervised.handle.status());
                let keeping = Running::start(|stop| async move {
                    tokio::select! {
                        () = keeping => {}
                        () = stop.cancelled() => {}
                    }
                });
                (record, keeping)
            });
        let Known {
            events,
            origin,
            guard,
            ..
        } = known;
        let guard = guard.map(|command| Arc::new(GuardLine::new(command)));
        let events = Some(events).filter(|_| manages_events(settings));
        let known_of_account = OwnAccount::new(
            requirements.native,
            settings
                .apply_workers
                .filter(|_| !settings.native)
                .unwrap_or(0),
        );
        let watching = WatchOptions {
            events: events.clone(),
            figures: Some(Arc::clone(&figures)),
            data_dir,
            ..WatchOptions::new(connect.clone(), requirements)
        };
        let (watcher, reports) = Watcher::new(watching, ingest_status.clone(), may_lead.clone());
        let (hold, provisioned) = watch::channel(hold_at_start(&config.data_dir));
        let (held_by_either, held) = watch::channel(provisioned.borrow().clone());
        let verdict = same_uuid::at_first(settings.mode, &known.others.borrow());
        let off = verdict.hands_off && provisioned.borrow().is_none();
        let (hands, hands_off) = watch::channel(off);
        let (verdicts, same_uuid) = watch::channel(verdict);
        let merged = same_uuid::merge(provisioned, same_uuid.clone(), held_by_either, hands);
        let identified = same_uuid::look(
            ring.clone(),
            StandingFile::of(&config.data_dir),
            settings.mode,
            reports.clone(),
            known.others.clone(),
            verdicts,
        );
        let options = ControllerOptions {
            connect: connect.clone(),
            write_fence: WriteFenceOptions {
                statement_patience: settings.kill_statements_after,
                events,
                protection_start,
                ..WriteFenceOptions::new(connect.clone())
            },
            apply: settings.apply_workers.map(|workers| {
                let mut options = FollowOptions::new(connect.clone(), &config.data_dir);
                options.run.workers = workers;
                options.native = native;
                options.kill_after = settings.kill_statements_after;
                options
            }),
            origin,
            fence_after: settings.fence_after,
            lockout: LockoutPatience::new(settings.demote_after),
        };
        let inputs = ControllerInputs {
            reports: reports.clone(),
            ingest: ingest_status.clone(),
            figures: Arc::clone(&figures),
            supervisor: supervisor
                .as_ref()
                .map(|supervised| supervised.handle.clone()),
            hold: held,
            hands_off,
            transferring: transferred,
        };
        let (controller, told) = Controller::new(observer, options, inputs, &readiness);
        let to_guard = guard
            .clone()
            .map(|guard| -> ToGuard { Box::new(move |guards| guard.says(guards)) });
        let controller = controller.guarded_by(to_guard);
        let (loses, own_account) = watch::channel(None);
        let logged_in = account_watch::look(connect.clone(), known_of_account, loses);
        let account = connect.clone();
        let candidacy = Arc::new(Candidacy {
            ring: ring.clone(),
            connect: ConnectOptions {
                program_name: "witness-candidacy".to_owned(),
                ..connect.clone()
            },
            reports: reports.clone(),
            readiness: may_lead,
            ingest: ingest_status.clone(),
            role: told.role.clone(),
            supervisor: supervisor
                .as_ref()
                .map(|supervised| supervised.handle.status()),
        });
        let (costs, promotion) = watch::channel(None);
        let (lacks, never_sent) = watch::channel(None);
        let compared = lacks_of_the_ring::look(
            ring.clone(),
            ConnectOptions {
                program_name: "witness-comparison".to_owned(),
                ..connect.clone()
            },
            ingest_status.clone(),
            lacks,
        );
        let provisioner = Arc::new(Provisioner {
            own: config.own.id,
            member_dir: config.data_dir.clone(),
            mysqld: CopiedMysqld {
                connect,
                role: told.role.clone(),
                applies_rows: !settings.native,
                supervisor: supervisor
                    .as_ref()
                    .map(|supervised| Arc::clone(&supervised.handle)),
            },
            ring,
            write_fence: told.write_fence.clone(),
            reports: reports.clone(),
            hold,
            busy: tokio::sync::Mutex::new(()),
            command: tokio::sync::Mutex::new(()),
            copied_at: watch::Sender::new(None),
        });
        Self {
            parts: Parts {
                mode: settings.mode,
                member: member.clone(),
                ingest: ingest_status,
                figures,
                reports,
                controller: told,
                supervisor: supervisor
                    .as_ref()
                    .map(|supervised| supervised.handle.status()),
                promotion,
                never_sent,
                account: own_account,
                same_uuid,
                trimmed,
            },
            supervisor,
            managed,
            ingest: Running::essential(&member, "receiving from mysqld", |stop| ingest.run(stop)),
            watcher: Running::essential(&member, "watching mysqld", |stop| watcher.run(stop)),
            controller: Running::essential(&member, "acting on mysqld", |stop| {
                controller.run(stop)
            }),
            guard,
            provisioning: Running::start(|stop| {
                let finishing = Arc::clone(&provisioner).look_after();
                async move {
                    tokio::select! {
                        () = finishing => {}
                        () = stop.cancelled() => {}
                    }
                }
            }),
            provisioner,
            _readiness: readiness,
            transferring: Arc::new(transferring),
            statements: settings.longest_wait_for_statements(),
            connect: account,
            costing: Running::start(|stop| {
                let candidacy = Arc::clone(&candidacy);
                async move {
                    loop {
                        tokio::select! {
                            () = stop.cancelled() => return,
                            state = candidacy.state(None) => drop(costs.send_replace(Some(state))),
                        }
                        tokio::select! {
                            () = stop.cancelled() => return,
                            () = tokio::time::sleep(COSTS_EVERY) => {}
                        }
                    }
                }
            }),
            candidacy,
            identifying: Running::essential(&member, "comparing UUIDs", |stop| async move {
                tokio::select! {
                    ((), ()) = async move { tokio::join!(identified, merged) } => {}
                    () = stop.cancelled() => {}
                }
            }),
            logging_in: Running::start(|stop| async move {
                tokio::select! {
                    () = logged_in => {}
                    () = stop.cancelled() => {}
                }
            }),
            comparing: Running::start(|stop| async move {
                tokio::select! {
                    () = compared => {}
                    () = stop.cancelled() => {}
                }
            }),
            member,
        }
    }

    /// Returns a source of mysqld's current view.
    pub(crate) fn viewer(&self) -> impl Fn() -> MysqlView + Send + Sync + 'static {
        let parts = self.parts.clone();
        move || parts.view(Instant::now())
    }

    /// Makes the guard reload the configuration.
    pub(crate) fn renew_guard(&self) {
        if let Some(guard) = &self.guard {
            guard.reload();
        }
    }

    /// Starts and stops it, where this member does.
    pub(crate) fn supervisor(&self) -> Option<Arc<SupervisorHandle>> {
        let supervised = self.supervisor.as_ref();
        supervised.map(|supervised| Arc::clone(&supervised.handle))
    }

    /// Replaces its data on order.
    pub(crate) fn provisioner(&self) -> Arc<Provisioner> {
        Arc::clone(&self.provisioner)
    }

    /// Returns a source of mysqld's current health.
    pub(crate) fn health(&self) -> impl Fn() -> PrimaryHealth + Send + Sync + 'static {
        let parts = self.parts.clone();
        move || {
            let role = parts.controller.role.as_ref();
            let role = role.map(|status| status.borrow().clone());
            let supervisor = parts.supervisor.as_ref();
            let supervisor = supervisor.map(|status| status.borrow().state.clone());
            let report = parts.reports.borrow().clone();
            let ingest = parts.ingest.borrow();
            let look = Look {
                supervisor: supervisor.as_ref(),
                report: &report,
                role: role.as_ref(),
                lacks_the_log: ingest.lacks_the_log(),
                failing: ingest.failing(Instant::now()),
            };
            look.of_a_leaders()
        }
    }

    /// Computes the cost of a promotion.
    pub(crate) fn candidacy(&self) -> Arc<Candidacy> {
        Arc::clone(&self.candidacy)
    }

    /// Paused before a leadership transfer.
    pub(crate) fn writer(&self) -> Arc<PrimaryWriter> {
        Arc::new(PrimaryWriter {
            transferring: Arc::clone(&self.transferring),
            write_fence: self.parts.controller.write_fence.clone(),
            statements: self.statements,
            reports: self.parts.reports.clone(),
            ingest: self.parts.ingest.clone(),
            supervisor: self
                .supervisor
                .as_ref()
                .map(|supervised| supervised.handle.clone()),
            room: LogRoom::new({
                let member = self.member.clone();
                move || member.is_full_alone()
            }),
        })
    }

    /// Ends: first closes the primary for writes, so that running commits can still be acknowledged while mysqld stops.
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
        self.comparing.end().await;
        self.logging_in.end().await;
        self.controller.end().await;
        self.identifying.end().await;
        if let Some(guard) = self.guard {
            // A mysqld that another program stops may run for long without its member.
            let released = match child {
                Child::Stops => self.supervisor.is_some(),
                Child::IsReleased => true,
                Child::Stays => false,
            };
            guard.end(released).await;
        }
        let guards = self.parts.controller.read_fence.borrow().guards;
        let fenced = match child {
            // No other process would close its sessions while another member's mysqld is the primary.
            Child::Stays if guards => read_fence::raise(&self.connect).await.map(drop),
            Child::IsReleased => read_fence::lower(&self.connect).await.map(drop),
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
        let supervisor = self.supervisor.as_ref();
        let at_start = supervisor.and_then(|status| status.borrow().warning.clone());
        let same_uuid = self.same_uuid.borrow().warning.clone();
        let never_sent = self.never_sent.borrow().clone();
        let role = self.controller.role.as_ref();
        let role = role.map(|role| role.borrow().clone());
        let for_good = role
            .as_ref()
            .and_then(|role| written_for_good(&role.without_transactions));
        let held_up_by = role.map(|role| role.held_up_by);
        let account = self.account.borrow().clone();
        let seen = self.reports.borrow().server.clone();
        let advice = seen.into_iter().flat_map(|server| server.advice);
        let all = at_start.into_iter().chain(same_uuid).chain(never_sent);
        let all = all.chain(account).chain(for_good).chain(advice);
        all.chain(held_up_by.into_iter().flatten()).collect()
    }

    fn view(&self, now: Instant) -> MysqlView {
        let ingest = self.ingest.borrow().clone();
        let report = self.reports.borrow().clone();
        let write_fence = self.controller.write_fence.borrow().clone();
        let supervisor = self
            .supervisor
            .as_ref()
            .map(|status| status.borrow().state.clone());
        let role = self.controller.role.as_ref();
        let role = role.map(|status| status.borrow().clone());
        let figures = self.figures.view(now);
        let stale = now.saturating_duration_since(report.looked_at) > LOOKED_AT_RECENTLY;
        MysqlView {
            mode: mode_words(self.mode).to_owned(),
            state: state_of(supervisor.as_ref(), &report),
            version: report.server.as_ref().map(|server| server.version.clone()),
            ddl_settings: (report.server.as_ref())
                .map(|server| server.ddl_settings.clone())
                .unwrap_or_default(),
            ingesting: ingest.is_attached(),
            examined_ms: u64::try_from(now.saturating_duration_since(report.looked_at).as_millis())
                .ok(),
            protected: report.protection.is_protected() && !stale,
            unprotected_because: unprotected_because(&report, stale),
            writable: write_fence.state == WriteFenceState::Open,
            released: false,
            write_fence: write_fence_view(&write_fence.state),
            offline: offline_words(self.controller.read_fence.borrow().because, &report),
            role: role_of(role.as_ref()),
            applies: role.is_some(),
            following: role
                .as_ref()
                .is_some_and(|role| role.state == RoleState::Following),
            lag_ms: role
                .as_ref()
                .and_then(|role| lag_ms(role.lag_ms, self.member.lacks_commits_for())),
            applied_total: role.as_ref().map_or(0, |role| role.applied_total),
            errant: role
                .as_ref()
                .and_then(|role| not_the_rings(&role.not_the_rings)),
            started_open: report
                .server
                .as_ref()
                .and_then(|server| server.started_open),
            exposed: None,
            not_in_ring_total: figures.not_in_ring_total,
            oldest_unacked_seconds: figures.oldest_unacknowledged.map(|age| age.as_secs_f64()),
            acknowledged_total: figures.committed_total,
            acks_total: figures.acks_total,
            trimmed_total: self.trimmed.load(Ordering::Relaxed),
            demotion: None,
            warnings: self.warnings(),
            server_uuid: same_uuid::uuid_of(&report),
            promotion: self.promotion.borrow().clone(),
            trouble: trouble(
                supervisor.as_ref(),
                &ingest,
                &report,
                &write_fence,
                role.as_ref(),
            ),
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

/// Whether the member switches mysqld's events: where it starts mysqld with them off, and where mysqld may follow.
pub(crate) fn manages_events(settings: &MysqlSettings) -> bool {
    settings.mode == MysqlMode::Child || settings.apply_workers.is_some()
}

/// The mode's name in the configuration.
pub(crate) fn mode_words(mode: MysqlMode) -> &'static str {
    match mode {
        MysqlMode::Child => "child",
        MysqlMode::External => "external",
        MysqlMode::Attach => "attach",
    }
}

/// Interval between queries of a promotion's cost, for the status.
const COSTS_EVERY: Duration = Duration::from_secs(2);

/// The watch checks every second; an older result is outdated.
const LOOKED_AT_RECENTLY: Duration = Duration::from_secs(6);

/// Most tables named in one message.
const TABLES_NAMED: usize = 5;

/// The warning about tables whose rows cannot be rolled back.
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
        Protection::Protected if stale => vec!["it was not looked at for some seconds".to_owned()],
        Protection::Protected => Vec::new(),
        Protection::Unprotected { findings } => findings.iter().map(ToString::to_string).collect(),
        Protection::Unknown { cause } => vec![cause.clone()],
    }
}

fn write_fence_view(state: &WriteFenceState) -> WriteFenceView {
    match state.clone() {
        WriteFenceState::Open => WriteFenceView::Open,
        WriteFenceState::Closed { why } => WriteFenceView::Closed { why },
        WriteFenceState::NotClosed { why, cause, .. } => WriteFenceView::NotClosed { why, cause },
        WriteFenceState::Opening => WriteFenceView::Opening,
        WriteFenceState::NotOpened { cause } => WriteFenceView::NotOpened { cause },
        WriteFenceState::Unknown => WriteFenceView::Unknown,
    }
}

/// Why ordinary accounts are excluded, if they are.
fn offline_words(fenced: Option<ReadFenceReason>, report: &WatchReport) -> Option<String> {
    let offline = report.server.as_ref().is_some_and(|server| server.offline);
    match fenced {
        Some(reason) => Some(reason.to_string()),
        None => offline.then(|| {
            "offline_mode is on: set by an operator, or before this member started".to_owned()
        }),
    }
}

fn role_of(role: Option<&RoleStatus>) -> MysqldRole {
    let Some(role) = role else {
        return MysqldRole::NotApplied;
    };
    match role.state.clone() {
        RoleState::Unknown => MysqldRole::Unknown,
        RoleState::Primary => MysqldRole::Primary,
        RoleState::Following => MysqldRole::Following,
        RoleState::CatchingUp { behind } => MysqldRole::CatchingUp { behind },
        RoleState::Waiting { what } => MysqldRole::Waiting { what },
        RoleState::Stopped { cause } => MysqldRole::Stopped { cause },
        RoleState::Restarting { why } => MysqldRole::Restarting { why },
    }
}

/// State of mysqld, from its process and the last check.
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
    // While attaching is retried, the last failure is the trouble.
    if let (IngestState::Attaching, Some(cause)) = (&ingest.state, &ingest.last_failure) {
        return Some(not_received(cause));
    }
    if let Protection::Unknown { cause } = &report.protection {
        return Some(format!("it could not be examined: {cause}"));
    }
    match &write_fence.state {
        state @ (WriteFenceState::NotClosed { .. } | WriteFenceState::NotOpened { .. }) => {
            Some(format!("for writes it {}", write_fence_view(state)))
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
