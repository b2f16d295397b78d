//! Starts the tasks that manage a mysqld.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use binlog_format::gtid::GtidSet;
use mysql_link::ConnectOptions;
use mysqld_controller::apply::FollowOptions;
use mysqld_controller::checks::Checks;
use mysqld_controller::ingest::{
    CommitObserver, FileLimits, Ingest, IngestFigures, IngestOptions, IngestStatus,
};
use mysqld_controller::plan::facts::LockoutPatience;
use mysqld_controller::plan::same_uuid::OtherMysqlds;
use mysqld_controller::primary_health::HealthObserver;
use mysqld_controller::primary_writer::{LogRoom, PrimaryWriter};
use mysqld_controller::status::{Hold, Readiness};
use mysqld_controller::watch::{WatchOptions, WatchReport, Watcher};
use mysqld_controller::write_fence::WriteFenceOptions;
use mysqld_controller::{
    Controller, ControllerInputs, ControllerOptions, ControllerStatus, ProtectionStart, TailTrim,
    ToGuard,
};
use mysqld_server::ReplicationSource;
use mysqld_server::events::EventScheduler;
use mysqld_server::settings::{OwnAccount, Requirements};
use mysqld_server::standing::StandingFile;
use mysqld_server::supervisor::{ExternalServer, Supervisor, SupervisorHandle, SupervisorOptions};
use mysqld_server::tail_trim::TailTrimOptions;
use spilling_bytes::SpillFolder;
use tokio::sync::watch;
use tokio::time::Instant;

use super::candidacy::Candidacy;
use super::connection::supervisor_options;
use super::guard_line::{GuardCommand, GuardLine};
use super::managed_process::ManagedProcess;
use super::tasks::{MysqldTasks, Parts, Running, Supervised};
use crate::data_directory::UnmanagedNote;
use crate::provisioning::{CopiedMysqld, Provisioner, hold_at_start};
use crate::ring_handle::RingHandle;
use crate::settings::{MysqlMode, MysqlSettings, Settings};

/// The parts that stay the same each time the tasks are started.
pub(crate) struct Setup {
    pub(crate) config: Arc<Settings>,
    pub(crate) settings: MysqlSettings,
    pub(crate) connect: ConnectOptions,
    pub(crate) requirements: Requirements,
    /// The configured scheduler of mysqld's events.
    pub(crate) events: EventScheduler,
    pub(crate) ring: RingHandle,
    /// The source of mysqld's own replica threads, if these threads apply the log.
    pub(crate) native: Option<ReplicationSource>,
    /// Transactions before the ring's log.
    pub(crate) origin: GtidSet,
    /// How a guard is started; `None` without a guard.
    pub(crate) guard: Option<GuardCommand>,
    /// The directory where the service manager finds the record of the managed process, if any.
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Observes how long commits wait.
    pub(crate) commits: Option<Arc<dyn CommitObserver>>,
    /// Folder for large incoming transactions.
    pub(crate) spill: SpillFolder,
    /// Replaces the configured commands that start and stop mysqld.
    pub(crate) owner: Option<Arc<dyn ExternalServer>>,
    /// The other members' reports about their mysqlds.
    pub(crate) others: watch::Receiver<OtherMysqlds>,
}

impl Setup {
    /// Begins to manage mysqld.
    pub(super) fn start(&self) -> MysqldTasks {
        let (member, ring) = (self.ring.member.clone(), Arc::new(self.ring.clone()));
        let mut options = supervisor_options(&self.config, &self.settings, &self.connect);
        if let (Some(options), Some(owner)) = (&mut options, &self.owner) {
            options.external = Some(owner.clone());
        }
        let started = options.as_ref();
        let data_dir = started.map(|options| options.server.data_dir.clone());
        // If the member itself starts mysqld, the start guard has checked it.
        let external = started.filter(|options| options.external.is_some());
        let protection_start = external.map(|options| ProtectionStart(self.trim_options(options)));
        let (readiness, may_lead) = watch::channel(Readiness::Always);
        let (transferring, transferred) = watch::channel(false);
        let ingest = Ingest::new(ring.clone(), self.ingest_options(), may_lead.clone());
        let (ingest_status, figures) = (ingest.status(), ingest.figures());
        let (supervisor, trimmed) = options
            .map(|options| self.supervise(options, &ring, &ingest_status, &figures))
            .unzip();
        let supervised = supervisor.as_ref();
        let handle = supervised.map(|supervised| supervised.handle.clone());
        let managed = self.record_process(protection_start.is_some(), supervised);
        let guard = self.guard.clone();
        let guard = guard.map(|command| Arc::new(GuardLine::new(command)));
        let watching = WatchOptions {
            events: self.managed_events(),
            figures: Some(Arc::clone(&figures)),
            data_dir,
            ..WatchOptions::new(self.connect.clone(), self.requirements.clone())
        };
        let (watcher, reports) = Watcher::new(watching, ingest_status.clone(), may_lead.clone());
        let (hold, provisioned) = watch::channel(hold_at_start(&self.config.data_dir));
        let inputs = ControllerInputs {
            reports: reports.clone(),
            ingest: ingest_status.clone(),
            figures: Arc::clone(&figures),
            supervisor: handle.clone(),
            hold: provisioned,
            others: self.others.clone(),
            transferring: transferred,
        };
        let options = self.controller_options(protection_start);
        let (mut controller, told) = Controller::new(ring.clone(), options, inputs, &readiness);
        controller.guard = guard
            .clone()
            .map(|guard| -> ToGuard { Box::new(move |guards| guard.says(guards)) });
        let (checks, checked) = self.checks(&ring, &ingest_status, &reports).start();
        let health = HealthObserver {
            supervisor: handle.as_ref().map(|handle| handle.status()),
            reports,
            ingest: ingest_status,
            role: told.role.clone(),
        };
        let candidacy = Arc::new(Candidacy {
            ring: ring.clone(),
            connect: self.connect.clone(),
            health: health.clone(),
            readiness: may_lead,
        });
        let leader = member.clone();
        let writer = PrimaryWriter {
            transferring,
            write_fence: told.write_fence.clone(),
            statements: self.settings.longest_wait_for_statements(),
            health: health.clone(),
            supervisor: handle.clone(),
            room: LogRoom::new(move || leader.is_full_alone()),
        };
        let provisioner = Arc::new(self.provisioner(ring, &told, &health, handle, hold));
        let (costs, promotion) = watch::channel(None);
        MysqldTasks {
            parts: Parts {
                mode: self.settings.mode,
                member: member.clone(),
                health,
                figures,
                controller: told,
                promotion,
                checked,
                trimmed: trimmed.unwrap_or_default(),
            },
            supervisor,
            managed,
            ingest: Running::essential(&member, "receiving from mysqld", |stop| ingest.run(stop)),
            watcher: Running::essential(&member, "watching mysqld", |stop| watcher.run(stop)),
            controller: Running::essential(&member, "acting on mysqld", |stop| {
                controller.run(stop)
            }),
            guard,
            provisioning: Running::until_stopped(Arc::clone(&provisioner).look_after()),
            provisioner,
            _readiness: readiness,
            writer: Arc::new(writer),
            connect: self.connect.clone(),
            costing: Running::until_stopped(Arc::clone(&candidacy).tell(costs)),
            candidacy,
            checking: Running::until_stopped(checks),
        }
    }

    fn provisioner(
        &self,
        ring: Arc<RingHandle>,
        told: &ControllerStatus,
        health: &HealthObserver,
        supervisor: Option<Arc<SupervisorHandle>>,
        hold: watch::Sender<Option<Hold>>,
    ) -> Provisioner {
        Provisioner {
            own: self.config.own.id,
            member_dir: self.config.data_dir.clone(),
            mysqld: CopiedMysqld {
                connect: self.connect.clone(),
                role: told.role.clone(),
                applies_rows: !self.settings.native,
                supervisor,
            },
            ring,
            write_fence: told.write_fence.clone(),
            reports: health.reports.clone(),
            hold,
            busy: tokio::sync::Mutex::new(()),
            command: tokio::sync::Mutex::new(()),
            copied_at: watch::Sender::new(None),
        }
    }

    fn trim_options(&self, options: &SupervisorOptions) -> TailTrimOptions {
        TailTrimOptions::new(self.config.data_dir.clone(), options.server.clone())
    }

    fn ingest_options(&self) -> IngestOptions {
        let archive = self.config.archive.as_ref();
        IngestOptions {
            file_limits: FileLimits {
                bytes: self.config.log.max_file_bytes,
                age: archive.and_then(|archive| archive.max_file_age),
            },
            in_flight_bytes: u64::from(self.config.raft.proposals_bytes),
            report_host: self.config.own.name.clone(),
            observer: self.commits.clone(),
            spill: self.spill.clone(),
            ..IngestOptions::new(self.connect.clone(), self.requirements.clone())
        }
    }

    /// Runs mysqld, which the start guard checks before each start. Also returns the counter of transactions that the guard trims.
    fn supervise(
        &self,
        options: SupervisorOptions,
        ring: &Arc<RingHandle>,
        ingest: &watch::Receiver<IngestStatus>,
        figures: &Arc<IngestFigures>,
    ) -> (Supervised, Arc<AtomicU64>) {
        let note = UnmanagedNote::of(&self.config.data_dir);
        let trim = self.trim_options(&options);
        let mut guard = TailTrim::new(ring.clone(), Some(ingest.clone()), trim);
        guard.taking_over = Box::new(move || note.is_set());
        let trimmed = Arc::clone(&guard.trimmed);
        let figures = Arc::clone(figures);
        let commits_wait = move || {
            let figures = figures.view(Instant::now());
            figures.oldest_unacknowledged.is_some()
        };
        let (mut supervisor, handle) = Supervisor::new(options);
        supervisor.guard = Some(Arc::new(guard));
        supervisor.commits_wait = Some(Box::new(commits_wait));
        let member = &self.ring.member;
        let running = member.essential("keeping mysqld running", supervisor.run());
        let supervised = Supervised {
            handle: Arc::new(handle),
            task: tokio::spawn(running),
        };
        (supervised, trimmed)
    }

    /// Records the process of a mysqld that another program starts.
    fn record_process(
        &self,
        is_external: bool,
        supervisor: Option<&Supervised>,
    ) -> Option<(ManagedProcess, Running)> {
        let runtime_dir = self.runtime_dir.as_deref().filter(|_| is_external)?;
        let record = ManagedProcess::new(runtime_dir, &self.config.data_dir);
        let keeping = record.clone().keep(supervisor?.handle.status());
        Some((record, Running::until_stopped(keeping)))
    }

    /// Returns the scheduler of mysqld's events, if the member switches it.
    fn managed_events(&self) -> Option<EventScheduler> {
        Some(self.events.clone()).filter(|_| manages_events(&self.settings))
    }

    fn controller_options(&self, protection_start: Option<ProtectionStart>) -> ControllerOptions {
        let (settings, connect) = (&self.settings, &self.connect);
        ControllerOptions {
            connect: connect.clone(),
            write_fence: WriteFenceOptions {
                statement_patience: settings.kill_statements_after,
                events: self.managed_events(),
                protection_start,
                ..WriteFenceOptions::new(connect.clone())
            },
            apply: settings.apply_workers.map(|workers| {
                let mut options = FollowOptions::new(connect.clone(), &self.config.data_dir);
                options.run.workers = workers;
                options.native = self.native.clone();
                options.kill_after = settings.kill_statements_after;
                options
            }),
            origin: self.origin.clone(),
            fence_after: settings.fence_after,
            lockout: LockoutPatience::new(settings.demote_after),
            attached: settings.mode == MysqlMode::Attach,
            standing: StandingFile::of(&self.config.data_dir),
        }
    }

    fn checks(
        &self,
        ring: &Arc<RingHandle>,
        ingest: &watch::Receiver<IngestStatus>,
        reports: &watch::Receiver<WatchReport>,
    ) -> Checks<RingHandle> {
        let workers = self.settings.apply_workers;
        let workers = workers.filter(|_| !self.settings.native).unwrap_or(0);
        Checks {
            ring: ring.clone(),
            connect: self.connect.clone(),
            account: OwnAccount::new(self.requirements.native, workers),
            ingest: ingest.clone(),
            reports: reports.clone(),
        }
    }
}

/// Returns the scheduler of the events of the member's mysqld.
///
/// # Errors
/// If the configured state of the scheduler cannot be read.
pub(crate) fn event_scheduler(
    config: &Settings,
    settings: &MysqlSettings,
    connect: &ConnectOptions,
) -> io::Result<EventScheduler> {
    let options = supervisor_options(config, settings, connect);
    let own = options.filter(|options| options.external.is_none());
    let command = own.map(|options| options.server);
    EventScheduler::new(&config.data_dir, settings.events, command)
}

/// Returns true if the member switches mysqld's events: it starts mysqld with events off, or mysqld may be a follower.
pub(super) fn manages_events(settings: &MysqlSettings) -> bool {
    settings.mode == MysqlMode::Child || settings.apply_workers.is_some()
}
