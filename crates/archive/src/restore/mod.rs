//! Point-in-time recovery: creates a new data directory for mysqld from a base backup and the log after it, both from the archive.
//!
//! ```text
//!  target ► point ► plan ► base backup into the directory ► log next to it ► mysqld, to which the log is applied ► verified
//!  └ pure, over manifests; one piece of the log is read   └ everything that is read is verified
//! ```
//!
//! A *target* is the operator's request: a time, transactions, or the whole archive. The *point* is the target's position in the log. It
//! defines exactly which transactions the restored server has at the end.

pub mod plan;
pub mod point;
pub mod scratch_server;

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use applier::backend::{Backend, BackendError};
use applier::mysql::{MysqlBackend, MysqlOptions};
use applier::run::{ApplyError, Control, Ended, Options, Progress, RunHandle, StageName, apply};
use applier::source::{FileSource, LimitedSource, SourceError, Until};
use binlog_format::gtid::GtidSet;
use raft_types::RingId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::plan::{NoBase, RestorePlan, plan};
use self::point::{
    NoPoint, Place, Point, PointFinder, Target, Unread, at_the_end, place, unread_before,
};
use self::scratch_server::{ScratchServer, ServerError, ServerProgram};
use crate::base_backup::{self, BaseError, BaseManifest, BaseName, make_empty};
use crate::contents::ContentsReader;
use crate::encryption::Identities;
use crate::manifest::Manifest;
use crate::name::PieceName;
use crate::reading::{ArchivedLog, PieceFault};
use crate::storage::{Storage, StorageError};

/// Maximum size of a transaction to restore in bytes: the limit of a binlog.
const MAX_TRANSACTION_BYTES: u64 = 4 << 30;
/// Maximum number of listings of an archive that is pruned at the same time.
const LOOKS: usize = 10;
/// The applier's own schema, which the applier creates if missing.
const APPLIERS_SCHEMA: &str = "witness_applier";

/// The settings of a restore.
#[derive(Debug, Clone)]
pub struct Restore {
    /// The data directory to create; it must be absent or empty.
    pub data_dir: PathBuf,
    /// Temporary directory for the log and mysqld's error log; it must be absent or empty as well.
    pub work_dir: PathBuf,
    /// The mysqld to which the log is applied.
    pub program: ServerProgram,
    /// The number of applier sessions.
    pub workers: usize,
    /// Whether to check every table at the end.
    pub check_tables: bool,
}

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// `gtid_executed` of the server.
    pub executed: GtidSet,
    /// The number of transactions that were applied from the log.
    pub applied: u64,
}

/// Why a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The storage failed to list its objects.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The target has no point.
    #[error(transparent)]
    NoPoint(#[from] NoPoint),
    /// No base backup reaches the point.
    #[error(transparent)]
    NoBase(#[from] NoBase),
    /// The manifest of a required piece of the log is damaged or missing.
    #[error("{} of the log is needed, and its manifest cannot be used: {}", .0.piece, .0.why)]
    Unread(Unread),
    /// A piece of the log is damaged or missing.
    #[error("{0} of the log cannot be used: {1}")]
    Piece(String, PieceFault),
    /// A base backup is damaged or missing, or cannot be written.
    #[error("base backup {0} cannot be used: {1}")]
    Base(BaseName, BaseError),
    /// A directory on this host is unsuitable.
    #[error(transparent)]
    Directory(BaseError),
    /// The restored server failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] SourceError),
    /// The log cannot be applied.
    #[error("the log cannot be applied: {0}")]
    Apply(#[from] ApplyError),
    /// The restored server refuses the applier.
    #[error("the log cannot be applied: {0}")]
    Backend(#[from] BackendError),
    /// The restore was cancelled.
    #[error("it was ended before it was done")]
    Cancelled,
    /// The server has other transactions than the point.
    #[error("the restored server lacks [{missing}] and has [{more}] too many; do not use it")]
    OtherTransactions {
        /// Missing transactions.
        missing: GtidSet,
        /// Extra transactions.
        more: GtidSet,
    },
    /// Tables are damaged.
    #[error("tables are damaged: {}; do not use it", .0.join(", "))]
    Tables(Vec<String>),
}

/// The contents of an archive, from its manifests.
pub struct Archive {
    storage: Storage,
    log: ArchivedLog,
    identities: Identities,
    pieces: Vec<Manifest>,
    unread: Vec<Unread>,
    bases: Vec<BaseManifest>,
}

impl Archive {
    /// Reads the manifests of the log's newest history, and of all base backups. A damaged manifest fails only a restore that needs it.
    ///
    /// # Errors
    /// When the storage does not answer, or there is no log.
    pub async fn look(storage: Storage, identities: Identities) -> Result<Self, RestoreError> {
        let mut looks = 1..=LOOKS;
        let (log, read) = loop {
            let log = ArchivedLog::look(storage.clone(), None).await?;
            let mut log = log
                .ok_or(NoPoint::NoLog)?
                .with_identities(identities.clone());
            let read = Manifests::read(&mut log).await?;
            // A new listing has the objects that replaced the deleted pieces.
            if looks.next().is_none() || !read.was_pruned(&log).await? {
                break (log, read);
            }
        };
        let Manifests { pieces, unread, .. } = read;
        for Unread { piece, why } in &unread {
            tracing::warn!("the manifest of {piece} cannot be used: {why}");
        }
        let survey = base_backup::survey(&storage, log.ring()).await?;
        for damaged in &survey.damaged {
            tracing::warn!(
                "base backup {} cannot be used: {}",
                damaged.name,
                damaged.error
            );
        }
        Ok(Self {
            storage,
            log,
            identities,
            pieces,
            unread,
            bases: survey.bases,
        })
    }

    /// The archive's ring.
    pub fn ring(&self) -> Option<RingId> {
        self.log.ring()
    }

    /// The point at which the archived log ends.
    pub fn end(&self) -> Option<Point> {
        at_the_end(&self.pieces)
    }

    /// Finds the point of a target. Reads and verifies the piece that contains the point.
    ///
    /// # Errors
    /// When there is no point, or a piece that contains the point, or may contain it, cannot be used.
    pub async fn point(&self, target: &Target) -> Result<Point, RestoreError> {
        let placed = place(&self.pieces, target);
        let may_lie_before = match &placed {
            Ok(Place::AtTheEnd) => Some(self.pieces.len()),
            Ok(Place::AtTheBeginning) => Some(0),
            Ok(Place::Within(_)) => None,
            Err(none) => none.may_lie_before(&self.pieces),
        };
        self.assert_read(may_lie_before)?;
        let number = match placed? {
            Place::AtTheEnd => return Ok(at_the_end(&self.pieces).ok_or(NoPoint::NoLog)?),
            Place::AtTheBeginning => 0,
            Place::Within(number) => number,
        };
        let manifest = &self.pieces[number];
        let finder = PointFinder::new(target.clone(), &self.pieces, number);
        let finder = Arc::new(Mutex::new(finder));
        let finding = Finding::new(manifest.piece.start, &finder);
        let read = self.log.read(manifest, None, finding).await;
        read.map_err(|fault| damaged(manifest.piece, fault))?;
        for manifest in &self.pieces[number + 1..] {
            if !lock(&finder).must_read(manifest) {
                continue;
            }
            let finding = Finding::new(manifest.piece.start, &finder);
            // The restore does not need this piece; only the count of excluded transactions does.
            if let Err(fault) = self.log.read(manifest, None, finding).await {
                let piece = manifest.piece;
                tracing::warn!(
                    "transactions of {piece} may be missing from the number of excluded ones: the piece cannot be read: {fault}"
                );
            }
        }
        let point = lock(&finder).point();
        Ok(point)
    }

    /// Selects the objects to restore up to a point.
    ///
    /// # Errors
    /// When no base backup reaches the point, or the unreadable pieces might be needed.
    pub fn plan(
        &self,
        point: &Point,
        named: Option<&BaseName>,
    ) -> Result<RestorePlan, RestoreError> {
        let planned = plan(&self.bases, &self.pieces, point, named);
        if let Err(NoBase(unfit)) = &planned {
            for (_, why) in unfit {
                self.assert_read(why.lacks_before(&self.pieces))?;
            }
        }
        Ok(planned?)
    }

    /// Fails if there is an unreadable piece directly before the piece of this index.
    fn assert_read(&self, before: Option<usize>) -> Result<(), RestoreError> {
        let unread = before.and_then(|number| unread_before(&self.unread, &self.pieces, number));
        unread.map_or(Ok(()), |unread| Err(RestoreError::Unread(unread.clone())))
    }

    /// Lists the objects of a plan that the storage lacks, or has with another size.
    ///
    /// # Errors
    /// When the storage does not answer.
    pub async fn missing(&self, plan: &RestorePlan) -> Result<Vec<String>, StorageError> {
        let mut missing = Vec::new();
        for (name, bytes) in plan.objects() {
            match self.storage.size(name).await? {
                Some(size) if size == bytes => {}
                Some(size) => missing.push(format!("{name} has {size} bytes instead of {bytes}")),
                None => missing.push(format!("{name} is missing")),
            }
        }
        Ok(missing)
    }

    /// Executes a plan. After a failure, the directories contain unusable files. They must be removed before another attempt.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub async fn restore(
        &self,
        plan: &RestorePlan,
        restore: &Restore,
        watching: &Arc<dyn Watching>,
        stop: &CancellationToken,
    ) -> Result<Restored, RestoreError> {
        for directory in [&restore.data_dir, &restore.work_dir] {
            make_empty(directory, 0o700).map_err(RestoreError::Directory)?;
        }
        watching.begins(Stage::Base, plan.base.unpacked_bytes);
        let (heard, stopped) = (watching.clone(), stop.clone());
        let progress = move |at| {
            heard.reached(at);
            match stopped.is_cancelled() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let (base, into) = (&plan.base, &restore.data_dir);
        let base =
            base_backup::download(&self.storage, base, &self.identities, into, progress).await;
        if stop.is_cancelled() {
            return Err(RestoreError::Cancelled);
        }
        base.map_err(|error| RestoreError::Base(plan.base.name, error))?;
        let files = self
            .fetch_log(plan, &restore.work_dir, &**watching, stop)
            .await?;
        watching.begins(Stage::Start, 0);
        let error_log = restore.work_dir.join("mysqld.err");
        let starting = ScratchServer::start(&restore.program, &restore.data_dir, &error_log);
        let server = until_stopped(stop, starting).await??;
        let applied = apply_log(&server, files, plan, restore, &**watching, stop).await?;
        let executed = server.executed().await?;
        if executed != plan.point.gtids {
            return Err(RestoreError::OtherTransactions {
                missing: plan.point.gtids.difference(&executed),
                more: executed.difference(&plan.point.gtids),
            });
        }
        if restore.check_tables {
            watching.begins(Stage::Check, 0);
            let checking = server.check_tables(|number, of| {
                if number == 1 {
                    watching.begins(Stage::Check, of);
                }
                watching.reached(number);
            });
            let wrong = until_stopped(stop, checking).await??;
            if !wrong.is_empty() {
                return Err(RestoreError::Tables(wrong));
            }
        }
        watching.begins(Stage::Stop, 0);
        server.stop().await?;
        Ok(Restored { executed, applied })
    }

    /// Downloads and verifies the files of the log.
    async fn fetch_log(
        &self,
        plan: &RestorePlan,
        into: &Path,
        watching: &dyn Watching,
        stop: &CancellationToken,
    ) -> Result<Vec<PathBuf>, RestoreError> {
        let bytes = plan.log.iter().map(|one| one.piece.end - one.piece.start);
        watching.begins(Stage::Log, bytes.sum());
        let mut files: Vec<PathBuf> = Vec::new();
        let mut before: Option<&Manifest> = None;
        let mut read_bytes = 0;
        for manifest in &plan.log {
            let path = into.join(manifest.piece.file.name());
            let opened = (OpenOptions::new().create(true).append(true).mode(0o600)).open(&path);
            let opened = opened.map_err(BaseError::disk(&path));
            let file: File = opened.map_err(RestoreError::Directory)?;
            let reading = self.log.read(manifest, before, file);
            let read = until_stopped(stop, reading).await?;
            read.map_err(|fault| damaged(manifest.piece, fault))?;
            read_bytes += manifest.piece.end - manifest.piece.start;
            watching.reached(read_bytes);
            before = Some(manifest);
            if files.last() != Some(&path) {
                files.push(path);
            }
        }
        Ok(files)
    }
}

/// The manifests of a log.
struct Manifests {
    pieces: Vec<Manifest>,
    unread: Vec<Unread>,
    /// Pieces with a manifest that was listed, but is missing now.
    vanished: Vec<PieceName>,
}

impl Manifests {
    async fn read(log: &mut ArchivedLog) -> Result<Self, StorageError> {
        let mut manifests = Self {
            pieces: Vec::new(),
            unread: Vec::new(),
            vanished: Vec::new(),
        };
        for piece in log.pieces().collect::<Vec<_>>() {
            match log.manifest(piece).await {
                Ok(manifest) => manifests.pieces.push(manifest),
                Err(PieceFault::Storage(error))
                    if !matches!(
                        error,
                        StorageError::NotFound(_) | StorageError::TooLarge { .. }
                    ) =>
                {
                    return Err(error);
                }
                Err(fault) => {
                    if fault.is_missing() {
                        manifests.vanished.push(piece);
                    }
                    let why = fault.to_string();
                    manifests.unread.push(Unread { piece, why });
                }
            }
        }
        Ok(manifests)
    }

    /// Whether pruning deleted some of these pieces in the meantime.
    async fn was_pruned(&self, log: &ArchivedLog) -> Result<bool, StorageError> {
        for piece in &self.vanished {
            if log.was_pruned(*piece).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Applies the log up to the point; returns the number of its transactions.
async fn apply_log(
    server: &ScratchServer,
    files: Vec<PathBuf>,
    plan: &RestorePlan,
    restore: &Restore,
    watching: &dyn Watching,
    stop: &CancellationToken,
) -> Result<u64, RestoreError> {
    let schema = format!(
        "SELECT 1 FROM information_schema.schemata WHERE schema_name = '{APPLIERS_SCHEMA}'"
    );
    let had_schema = !server.ask(&schema).await?.is_empty();
    let backend = MysqlBackend::connect(MysqlOptions::new(server.connect.clone())).await?;
    // This set may exceed the server's own `gtid_executed`: if the server was a follower, its applier may not have recorded the last
    // transactions yet.
    let executed = backend.executed().await?;
    let to_come = plan.point.gtids.difference(&executed);
    watching.begins(
        Stage::Apply,
        u64::try_from(to_come.count()).unwrap_or(u64::MAX),
    );
    let source = FileSource::open(files, Some(executed.clone()), MAX_TRANSACTION_BYTES).await?;
    let until = Until::Gtids(plan.point.gtids.clone());
    let source = LimitedSource::new(source, Some(until), &executed, None);
    let progress = Arc::new(Progress::new());
    let (_control, control) = watch::channel(Control {
        paused: false,
        max_transactions_per_second: None,
    });
    let handle = RunHandle {
        control,
        cancel: stop.clone(),
        progress: progress.clone(),
    };
    let options = Options {
        workers: restore.workers,
        max_transaction_bytes: usize::try_from(MAX_TRANSACTION_BYTES).unwrap_or(usize::MAX),
        ..Options::default()
    };
    let applying = apply(source, Arc::new(backend), &options, handle);
    let ended = shown(&progress, watching, applying).await?;
    if ended == Ended::Cancelled {
        return Err(RestoreError::Cancelled);
    }
    if !had_schema {
        // The schema was not in the backup.
        server
            .ask(&format!("DROP SCHEMA IF EXISTS {APPLIERS_SCHEMA}"))
            .await?;
    }
    Ok(u64::try_from(to_come.count()).unwrap_or(u64::MAX))
}

/// Reports the number of committed transactions until `work` is done.
async fn shown<T>(
    progress: &Progress,
    watching: &dyn Watching,
    applying: impl Future<Output = T>,
) -> T {
    const PERIOD: Duration = Duration::from_millis(250);
    let mut applying = pin!(applying);
    let mut period = tokio::time::interval(PERIOD);
    loop {
        let ended = tokio::select! {
            ended = &mut applying => Some(ended),
            _ = period.tick() => None,
        };
        watching.reached(progress.passed(StageName::Committed).transactions);
        if let Some(ended) = ended {
            return ended;
        }
    }
}

/// Receives progress reports of a restore.
pub trait Watching: Send + Sync {
    /// A stage begins. `total` is the amount of its work; 0 if unknown.
    fn begins(&self, stage: Stage, total: u64);

    /// Reports how much of the stage is done.
    fn reached(&self, so_far: u64);
}

/// The stages of a restore, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The base backup is read and unpacked; counted in bytes.
    Base,
    /// The log is read; counted in bytes.
    Log,
    /// mysqld starts.
    Start,
    /// The log is applied; counted in transactions.
    Apply,
    /// The tables are checked, and counted.
    Check,
    /// mysqld stops.
    Stop,
}

impl Stage {
    /// The stage's display name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base backup",
            Self::Log => "log",
            Self::Start => "start",
            Self::Apply => "apply",
            Self::Check => "check",
            Self::Stop => "stop",
        }
    }
}

fn damaged(piece: PieceName, fault: PieceFault) -> RestoreError {
    RestoreError::Piece(piece.to_string(), fault)
}

async fn until_stopped<T>(
    stop: &CancellationToken,
    doing: impl Future<Output = T>,
) -> Result<T, RestoreError> {
    stop.run_until_cancelled(doing)
        .await
        .ok_or(RestoreError::Cancelled)
}

/// Passes the bytes of a piece to the search for the point.
struct Finding(ContentsReader);

impl Finding {
    fn new(start: u64, finder: &Arc<Mutex<PointFinder>>) -> Self {
        let finder = finder.clone();
        Self(ContentsReader::from(start).telling(move |gtid, committed| {
            lock(&finder).transaction(gtid, committed);
        }))
    }
}

fn lock(finder: &Mutex<PointFinder>) -> MutexGuard<'_, PointFinder> {
    finder.lock().unwrap_or_else(PoisonError::into_inner)
}

impl io::Write for Finding {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.take(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
