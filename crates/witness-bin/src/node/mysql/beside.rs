//! Looks after the mysqld beside a database member: runs it if it is the member's child, takes its
//! transactions in, watches its settings, opens and closes it for writes. A mysqld that cannot be
//! reached, or that is not set up as it must be, is a state that is shown, and no end of the member.

use std::sync::Arc;
use std::time::Instant;

use mysql_link::ConnectOptions;
use mysql_role::gate::{Gate, GateOptions, GateState, GateStatus};
use mysql_role::ingest::{Ingest, IngestFigures, IngestOptions, IngestState, IngestStatus};
use mysql_role::settings::Requirements;
use mysql_role::watch::{Protection, WatchOptions, WatchReport, Watcher};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, MysqlMode, MysqlSettings};
use crate::node::ring_handle::RingHandle;
use crate::status::MysqlView;

/// See the module.
pub(crate) struct Beside {
    parts: Parts,
    gate: Running,
    ingest: Running,
    watcher: Running,
}

/// What a view is made from.
#[derive(Clone)]
struct Parts {
    mode: MysqlMode,
    ingest: watch::Receiver<IngestStatus>,
    figures: Arc<IngestFigures>,
    reports: watch::Receiver<WatchReport>,
    gate: watch::Receiver<GateStatus>,
}

/// A task with its end.
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

    async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a task beside mysqld ended badly");
        }
    }
}

impl Beside {
    /// Begins to look after the mysqld.
    pub(crate) fn start(
        config: &Config,
        settings: &MysqlSettings,
        connect: ConnectOptions,
        requirements: Requirements,
        ring: RingHandle,
    ) -> Self {
        let ring = Arc::new(ring);
        let options = IngestOptions {
            max_file_bytes: config.log.max_file_bytes,
            in_flight_bytes: u64::from(config.raft.proposals_bytes),
            report_host: config.own.name.clone(),
            ..IngestOptions::new(connect.clone(), requirements.clone())
        };
        let ingest = Ingest::new(ring.clone(), options);
        let (ingest_status, figures) = (ingest.status(), ingest.figures());
        let watching = WatchOptions::new(connect.clone(), requirements);
        let (watcher, reports) = Watcher::new(watching, ingest_status.clone());
        let (gate, gate_status) = Gate::new(
            ring,
            GateOptions::new(connect),
            reports.clone(),
            ingest_status.clone(),
        );
        Self {
            parts: Parts {
                mode: settings.mode,
                ingest: ingest_status,
                figures,
                reports,
                gate: gate_status,
            },
            ingest: Running::start(|stop| ingest.run(stop)),
            watcher: Running::start(|stop| watcher.run(stop)),
            gate: Running::start(|stop| gate.run(stop)),
        }
    }

    /// Gives the mysqld's view at any moment.
    pub(crate) fn viewer(&self) -> impl Fn() -> MysqlView + Send + Sync + 'static {
        let parts = self.parts.clone();
        move || parts.view(Instant::now())
    }

    /// Stops: closes the primary for writes first, so that what is under way can still be
    /// acknowledged.
    pub(crate) async fn stop(self) {
        self.gate.end().await;
        self.ingest.end().await;
        self.watcher.end().await;
    }
}

impl Parts {
    fn view(&self, now: Instant) -> MysqlView {
        let ingest = self.ingest.borrow().clone();
        let report = self.reports.borrow().clone();
        let gate = self.gate.borrow().clone();
        let figures = self.figures.view(now);
        let stale = now.saturating_duration_since(report.looked_at) > LOOKED_AT_RECENTLY;
        MysqlView {
            mode: match self.mode {
                MysqlMode::Child => "child".to_owned(),
                MysqlMode::Attach => "attach".to_owned(),
            },
            state: match (&report.protection, &report.server) {
                (Protection::Unknown { .. }, _) => "unreachable".to_owned(),
                (_, Some(_)) => "running".to_owned(),
                (_, None) => "unknown".to_owned(),
            },
            version: report.server.as_ref().map(|server| server.version.clone()),
            ingesting: ingest.is_attached(),
            protected: report.protection.is_protected() && !stale,
            unprotected_because: unprotected_because(&report, stale),
            writable: gate.state == GateState::Open,
            gate: gate_words(&gate.state),
            oldest_unacked_seconds: figures.oldest_unacknowledged.map(|age| age.as_secs_f64()),
            acknowledged_total: figures.committed_total,
            acks_total: figures.acks_total,
            trouble: trouble(&ingest, &report, &gate),
        }
    }
}

/// The watch looks every second; a verdict that is older than this says nothing of now.
const LOOKED_AT_RECENTLY: std::time::Duration = std::time::Duration::from_secs(6);

fn unprotected_because(report: &WatchReport, stale: bool) -> Vec<String> {
    match &report.protection {
        Protection::Protected if stale => vec!["it was not looked at for some seconds".to_owned()],
        Protection::Protected => Vec::new(),
        Protection::Unprotected { findings } => findings.iter().map(ToString::to_string).collect(),
        Protection::Unknown { cause } => vec![cause.clone()],
    }
}

fn gate_words(state: &GateState) -> String {
    match state {
        GateState::Open => "open".to_owned(),
        GateState::Closed { why } => format!("closed: {why}"),
        GateState::NotClosed { why, cause } => {
            format!("should be closed ({why}), but could not be: {cause}")
        }
        GateState::NotOpened { cause } => format!("could not be opened: {cause}"),
        GateState::Unknown => "unknown".to_owned(),
    }
}

fn trouble(ingest: &IngestStatus, report: &WatchReport, gate: &GateStatus) -> Option<String> {
    if let IngestState::Failed { cause } = &ingest.state {
        return Some(format!("its transactions are not taken in: {cause}"));
    }
    // While an attachment is tried again and again, what the last try met is the trouble.
    if let (IngestState::Attaching, Some(cause)) = (&ingest.state, &ingest.last_failure) {
        return Some(format!("its transactions are not taken in: {cause}"));
    }
    if let Protection::Unknown { cause } = &report.protection {
        return Some(format!("it could not be looked at: {cause}"));
    }
    match &gate.state {
        state @ (GateState::NotClosed { .. } | GateState::NotOpened { .. }) => {
            Some(format!("for writes it {}", gate_words(state)))
        }
        _ => None,
    }
}
