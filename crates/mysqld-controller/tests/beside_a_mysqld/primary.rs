//! A real mysqld as a primary, an in-memory ring, and the tasks between them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Endpoint};
use mysqld_controller::ingest::{Ingest, IngestFigures, IngestOptions, IngestState, IngestStatus};
use mysqld_controller::plan::facts::LockoutPatience;
use mysqld_controller::plan::same_uuid::OtherMysqlds;
use mysqld_controller::status::Readiness;
use mysqld_controller::watch::WatchReport;
use mysqld_controller::write_fence::WriteFenceOptions;
use mysqld_controller::{Controller, ControllerInputs, ControllerOptions, ControllerStatus};
use mysqld_server::settings::Requirements;
use mysqld_server::standing::StandingFile;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions, PendingSql};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::ring_in_memory::MemoryRing;

pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// Long enough for a commit that waits for no ACK to complete.
pub(crate) const A_WHILE: Duration = Duration::from_millis(300);

pub(crate) const OUR_UUID: Uuid = Uuid::from_u128(0x4001);

/// Starts a server with a table `d.t` and the semi-sync plugin, which is loaded and not enabled.
pub(crate) fn launch(arguments: &[&str]) -> Result<Mysqld> {
    let all = ["--plugin-load-add=semisync_source.so"]
        .iter()
        .chain(arguments)
        .copied();
    let options = MysqldOptions::default().with_arguments(all);
    let server = Mysqld::launch_with(&MysqlTree::require(), options)?;
    server
        .client()
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGBLOB)")?;
    Ok(server)
}

pub(crate) fn connect(socket: &Path) -> ConnectOptions {
    ConnectOptions::new(Endpoint::unix(socket), "root", "")
}

pub(crate) fn requirements() -> Requirements {
    Requirements::new(4001, OUR_UUID)
}

pub(crate) fn ingest_options(server: &Mysqld) -> IngestOptions {
    let mut options = IngestOptions::new(connect(&server.socket()), requirements());
    options.heartbeat = Duration::from_millis(200);
    options.silence_limit = Duration::from_secs(2);
    options.retry = (Duration::from_millis(20), Duration::from_millis(200));
    options
}

/// A running ingest.
pub(crate) struct Running {
    pub(crate) status: watch::Receiver<IngestStatus>,
    pub(crate) figures: Arc<IngestFigures>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    readiness: watch::Sender<Readiness>,
}

impl Running {
    pub(crate) fn start(ring: &Arc<MemoryRing>, options: IngestOptions) -> Self {
        let (readiness, always) = watch::channel(Readiness::Always);
        let ingest = Ingest::new(Arc::clone(ring), options, always);
        let (status, figures, stop) = (ingest.status(), ingest.figures(), CancellationToken::new());
        let task = tokio::spawn(ingest.run(stop.clone()));
        Self {
            status,
            figures,
            stop,
            task,
            readiness,
        }
    }

    pub(crate) async fn reaches(
        &mut self,
        what: impl Fn(&IngestState) -> bool,
    ) -> Result<IngestState> {
        let mut watched = self.status.clone();
        let reached =
            tokio::time::timeout(LIMIT, watched.wait_for(|status| what(&status.state))).await;
        match reached {
            Ok(status) => Ok(status?.state.clone()),
            Err(_) => anyhow::bail!("ingest is {:?}", *self.status.borrow()),
        }
    }

    /// Returns the readiness of a server that may be the primary whenever this member leads.
    pub(crate) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    pub(crate) async fn attached(&mut self) -> Result<()> {
        self.reaches(|state| *state == IngestState::Attached)
            .await
            .map(|_| ())
    }

    pub(crate) async fn failed(&mut self) -> Result<String> {
        match self
            .reaches(|state| matches!(state, IngestState::Failed { .. }))
            .await?
        {
            IngestState::Failed { cause } => Ok(cause),
            other => anyhow::bail!("{other:?}"),
        }
    }

    /// Ends ingest as a kill does: the connection breaks without notice.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(tokio::time::timeout(LIMIT, self.task).await??)
    }
}

/// Options for a server to which nothing is applied, with this account.
pub(crate) fn controller_options(account: ConnectOptions) -> ControllerOptions {
    let mut write_fence = WriteFenceOptions::new(account.clone());
    write_fence.retry = Duration::from_millis(200);
    ControllerOptions {
        connect: account,
        write_fence,
        apply: None,
        origin: GtidSet::default(),
        fence_after: Duration::from_millis(500),
        lockout: LockoutPatience::new(None),
        attached: false,
        standing: StandingFile::of(Path::new("/nowhere")),
    }
}

/// A controller that does not run yet.
pub(crate) struct Controlled {
    pub(crate) controller: Controller<MemoryRing>,
    pub(crate) status: ControllerStatus,
    pub(crate) transferring: watch::Sender<bool>,
}

impl Controlled {
    pub(crate) fn new(
        ring: &Arc<MemoryRing>,
        options: ControllerOptions,
        reports: &watch::Receiver<WatchReport>,
        ingest: &Running,
    ) -> Self {
        let (transferring, handed_over) = watch::channel(false);
        let inputs = ControllerInputs {
            reports: reports.clone(),
            ingest: ingest.status.clone(),
            figures: Arc::clone(&ingest.figures),
            supervisor: None,
            hold: watch::channel(None).1,
            others: watch::channel(OtherMysqlds::default()).1,
            transferring: handed_over,
        };
        let ring = Arc::clone(ring);
        let (controller, status) = Controller::new(ring, options, inputs, &ingest.readiness);
        Self {
            controller,
            status,
            transferring,
        }
    }
}

pub(crate) async fn still_waits(pending: &mut PendingSql) -> Result<()> {
    tokio::time::sleep(A_WHILE).await;
    ensure!(!pending.is_finished()?, "the commit did not wait");
    Ok(())
}

pub(crate) async fn finish(pending: PendingSql) -> Result<()> {
    tokio::task::spawn_blocking(move || pending.finish(LIMIT).map(|_| ())).await?
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !so()? {
        ensure!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

pub(crate) fn visible(server: &Mysqld, id: u32) -> Result<bool> {
    let count = server
        .client()
        .value(&format!("SELECT COUNT(*) FROM d.t WHERE id = {id}"))?;
    Ok(count == "1")
}
