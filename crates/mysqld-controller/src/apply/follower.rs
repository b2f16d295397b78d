//! A follower: prepares mysqld for the applier, and starts, watches and ends the applier.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use applier::mysql::{MysqlBackend, MysqlOptions, complete_gtid_executed};
use applier::run::{
    Control, Ended, LagStart, Options, Progress, RunHandle, StageName, TableRemarks, apply,
};
use binlog_format::events::CommitTimestamp;
use binlog_format::gtid::GtidSet;
use futures::FutureExt;
use mysql_link::{ConnectOptions, Connection};
use mysqld_server::ReplicationSource;
use mysqld_server::channels::{drop_channel, stop_foreign_channels};
use mysqld_server::events::stop_events;
use mysqld_server::follower_binlog::{Emptied, drop_earlier_files, end_dumps, rotate_if_written};
use mysqld_server::offline_mode::close_sessions;
use mysqld_server::sessions::end_statement_logging;
use mysqld_server::sessions::lock_holders::{self, HeldUp, Holders};
use mysqld_server::settings::{FORCE_REDO_LOG, stop_waiting_for_acks};
use mysqld_server::standing::{Standing, StandingFile};
use raft_types::Term;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::apply::arrivals::Arrivals;
use crate::apply::catching_up::{errant, executed_by, executed_gtids};
use crate::apply::errant::Errant;
use crate::apply::error::RoleError;
use crate::apply::native::replicate;
use crate::plan::facts::{Applier, Incarnation};
use crate::ring::{CommittedLog, Ring};
use crate::watch::WatchReport;

/// How long sessions may take to end after they were killed for logging statements.
const OLD_SESSIONS_END: Duration = Duration::from_secs(1);

/// Interval between checks of a follower's binlog for other readers and for content.
const DUMPS_EVERY: Duration = Duration::from_secs(1);
/// Minimum interval between drops of binlog files while transactions are logged continuously. Otherwise a file with content is dropped at
/// the next check. A replica that reads the binlog later then lacks those transactions.
const BETWEEN_DROPS: Duration = Duration::from_secs(5);

/// How the ring's log is applied to a mysqld.
#[derive(Debug, Clone)]
pub struct FollowOptions {
    /// The server, and an account with the privileges to apply.
    pub connect: ConnectOptions,
    /// Options of the applier.
    pub run: Options,
    /// The source of the server's own replica threads, if they apply the log instead of the member's applier.
    pub native: Option<ReplicationSource>,
    /// The file that records that the server follows.
    pub standing: StandingFile,
    /// The pause after a failure.
    pub retry: Duration,
    /// Interval between checks for errant transactions, even if the follower's binlog does not grow.
    pub tidy_every: Duration,
    /// How long sessions may block a promotion before they are killed. Sessions with backup locks are killed immediately. `None`: no
    /// session is killed.
    pub kill_after: Option<Duration>,
    /// How long one of the member's own sessions may hold the applier's checkpoint row before it is reported.
    pub own_after: Duration,
}

impl FollowOptions {
    /// The defaults for this connection and data directory of a member.
    pub fn new(mut connect: ConnectOptions, member_dir: &Path) -> Self {
        connect.program_name = "witness-follower".to_owned();
        Self {
            connect,
            run: Options::default(),
            native: None,
            standing: StandingFile::of(member_dir),
            retry: Duration::from_secs(5),
            tidy_every: Duration::from_secs(20),
            kill_after: Some(Duration::from_secs(10)),
            own_after: Duration::from_secs(60),
        }
    }
}

/// The conditions under which an applier was started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    /// The start of mysqld.
    pub(super) on: Incarnation,
    /// The leadership whose comparison found missing transactions; `None` if another member led.
    pub(super) for_term: Option<Term>,
    /// True if the server was the primary of this member's leadership until then.
    pub(super) was_primary: bool,
}

/// A running applier.
pub(super) struct Follower {
    started: Started,
    cancel: CancellationToken,
    task: JoinHandle<Result<(), RoleError>>,
    /// False while the applier waits for the ring to report the committed transactions.
    pub(super) applies: watch::Receiver<bool>,
    pub(super) progress: Arc<Progress>,
    pub(super) lag: Lag,
    /// True if the server will be the primary once everything is applied. Clients wait for that, so no session may block the applier
    /// indefinitely.
    pub(super) promoting: watch::Sender<bool>,
    pub(super) held_up: watch::Receiver<HeldUp>,
}

impl Follower {
    /// Starts the applier on a closed server in which no commit waits. On a former primary, client sessions are closed first, because they
    /// would read stale data. Closed sessions make clients look for the new primary.
    pub(super) fn start<R: Ring + CommittedLog>(
        ring: Arc<R>,
        options: FollowOptions,
        started: Started,
        reports: watch::Receiver<WatchReport>,
        remarks: &Arc<TableRemarks>,
        holders: &Arc<Mutex<Holders>>,
        arrivals: &Arrivals,
    ) -> Self {
        let cancel = CancellationToken::new();
        let progress = Arc::new(Progress::with_remarks(Arc::clone(remarks)));
        let (begins, applies) = watch::channel(false);
        let (stop, shown) = (cancel.clone(), Arc::clone(&progress));
        let (threads, native) = watch::channel(None);
        let (promoting, promoted) = watch::channel(false);
        let (tells, held_up) = watch::channel(HeldUp::default());
        let lag = Lag {
            progress: Arc::clone(&progress),
            native,
            arrivals: arrivals.clone(),
        };
        let by_threads = options.native.is_some();
        let known = Arc::clone(holders);
        let known_lag = lag.clone();
        let task = tokio::spawn(async move {
            if started.was_primary {
                // If this fails, clients get an error at their next write instead.
                if let Err(error) = close_sessions(&options.connect).await {
                    tracing::warn!(%error, "the sessions of the former primary's clients were not closed");
                }
            }
            let following = async {
                if by_threads {
                    let arrivals = &known_lag.arrivals;
                    let seen = (reports, started.on);
                    follow_natively(&*ring, &options, stop, arrivals, &threads, begins, seen).await
                } else {
                    follow(&*ring, &options, stop, shown, begins).await
                }
            };
            // Before the applier starts, the lag is unknown, and the checkpoint row may already be locked.
            let lags = || known_lag.ms().is_none_or(lock_holders::is_far);
            let limits = lock_holders::Limits {
                kill_after: options.kill_after,
                own_after: options.own_after,
            };
            let log = || {
                let ring = Arc::clone(&ring);
                async move { ring.log().await.ok().map(|log| log.gtids) }.boxed()
            };
            tokio::select! {
                ended = following => ended,
                never = lock_holders::watch(log, &options.connect, limits, &known, lags, promoted, tells) => match never {},
            }
        });
        Self {
            started,
            cancel,
            task,
            applies,
            progress,
            lag,
            promoting,
            held_up,
        }
    }

    pub(super) fn applier(&mut self) -> Applier {
        let Started { on, for_term, .. } = self.started;
        match *self.applies.borrow_and_update() {
            false => Applier::Asking { on, for_term },
            true => Applier::Applying(on),
        }
    }

    /// Waits until the applier ends unexpectedly, and returns the reason. Cancel safe.
    pub(super) async fn ended(&mut self) -> RoleError {
        match (&mut self.task).await {
            Ok(Err(error)) => error,
            Ok(Ok(())) => RoleError::LogEnded,
            Err(error) => RoleError::ApplierBroke(error),
        }
    }

    /// Waits until the applier differs from the last [`Follower::applier`], or ends unexpectedly. Returns the reason of an end. Cancel
    /// safe.
    pub(super) async fn changes(&mut self) -> Option<RoleError> {
        let mut applies = self.applies.clone();
        tokio::select! {
            failure = self.ended() => Some(failure),
            Ok(()) = applies.changed() => None,
        }
    }

    /// Ends the applier and rolls back the open transaction. Afterwards the applier writes nothing.
    pub(super) async fn end(self) {
        self.cancel.cancel();
        match self.task.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the applier had ended"),
            Err(error) => tracing::warn!(%error, "the applier broke"),
        }
    }
}

/// Lag of the server relative to the member's log.
#[derive(Clone)]
pub(super) struct Lag {
    /// The progress of the member's applier.
    progress: Arc<Progress>,
    /// The lag of the server's own replica threads, in milliseconds.
    native: watch::Receiver<Option<u64>>,
    arrivals: Arrivals,
}

impl Lag {
    /// How many milliseconds the server is behind this member's copy of the ring's log; `None` if unknown.
    pub(super) fn ms(&self) -> Option<u64> {
        let threads = *self.native.borrow();
        threads.or_else(|| match self.progress.lag_start(StageName::Committed) {
            LagStart::Nothing => Some(0),
            LagStart::Unknown => None,
            LagStart::From(first) => {
                let by_timestamp = first.age(CommitTimestamp::now());
                let age = self.arrivals.age(&first.gtid, by_timestamp)?;
                Some(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
            }
        })
    }
}

async fn follow<R: Ring + CommittedLog>(
    ring: &R,
    options: &FollowOptions,
    cancel: CancellationToken,
    progress: Arc<Progress>,
    begins: watch::Sender<bool>,
) -> Result<(), RoleError> {
    let begun = async {
        let (executed, committed) = nothing_errant(ring, options).await?;
        // The record must exist before the server loses the settings of a primary.
        options.standing.store(Standing::Following).await?;
        begins.send_replace(true);
        open_to_the_applier(&options.connect).await?;
        let connect = ConnectOptions {
            program_name: "witness-applier".to_owned(),
            ..options.connect.clone()
        };
        let target = MysqlOptions {
            log_has: Some(committed),
            ..MysqlOptions::new(connect)
        };
        let backend = MysqlBackend::connect(target).await?;
        Ok::<_, RoleError>((backend, executed))
    };
    let (backend, executed) = tokio::select! {
        () = cancel.cancelled() => return Ok(()),
        begun = begun => begun?,
    };
    let handle = RunHandle {
        control: watch::channel(Control::default()).1,
        cancel: cancel.clone(),
        progress,
    };
    let source = ring.committed_log(executed, options.run.max_transaction_bytes as u64);
    let applying = apply(source, Arc::new(backend), &options.run, handle);
    tokio::pin!(applying);
    let errant = tokio::select! {
        ended = &mut applying => return match ended {
            Ok(Ended::Cancelled | Ended::WithTheLog) => Ok(()),
            Err(error) => Err(RoleError::Applier(error)),
        },
        errant = tidy(ring, options) => errant,
    };
    cancel.cancel();
    // The task's own result is not needed.
    drop(applying.await);
    Err(found(errant, options).await)
}

/// Follows with the server's own replica threads instead of the applier.
async fn follow_natively<R: Ring>(
    ring: &R,
    options: &FollowOptions,
    cancel: CancellationToken,
    arrivals: &Arrivals,
    progress: &watch::Sender<Option<u64>>,
    begins: watch::Sender<bool>,
    (reports, on): (watch::Receiver<WatchReport>, Incarnation),
) -> Result<(), RoleError> {
    let Some(source) = &options.native else {
        return Ok(());
    };
    let (_, committed) = tokio::select! {
        () = cancel.cancelled() => return Ok(()),
        nothing = nothing_errant(ring, options) => nothing?,
    };
    // The record must exist before anything is applied to the server.
    options.standing.store(Standing::Following).await?;
    // The replica threads rely on `gtid_executed`, which an earlier applier on this server may have left incomplete.
    complete_gtid_executed(&options.connect, Some(&committed)).await?;
    begins.send_replace(true);
    let replicating = replicate(&options.connect, source, &cancel, arrivals, progress);
    tokio::pin!(replicating);
    let errant = tokio::select! {
        ended = &mut replicating => return ended,
        errant = find_errant(ring, options, reports, on) => errant,
    };
    cancel.cancel();
    drop(replicating.await);
    Err(found(errant, options).await)
}

/// Returns the server's transactions, if the ring has all of them, and the ring's, which were read earlier. The server is closed, so it
/// adds no transaction of its own.
async fn nothing_errant<R: Ring>(
    ring: &R,
    options: &FollowOptions,
) -> Result<(GtidSet, GtidSet), RoleError> {
    keep_still(&options.connect).await?;
    let committed = ring.settled().await?;
    let executed = executed_gtids(&options.connect).await?;
    let errant = errant(&executed, &committed);
    match errant.is_empty() {
        true => Ok((executed, committed)),
        false => Err(found(errant, options).await),
    }
}

async fn found(errant: GtidSet, options: &FollowOptions) -> RoleError {
    RoleError::Errant(Errant::look_into(errant, &options.connect).await)
}

/// Checks for errant transactions while the server follows, using the watcher's reports on this start of mysqld. Returns when some are
/// found.
async fn find_errant<R: Ring>(
    ring: &R,
    options: &FollowOptions,
    reports: watch::Receiver<WatchReport>,
    on: Incarnation,
) -> GtidSet {
    loop {
        tokio::time::sleep(options.tidy_every).await;
        let server = reports.borrow().server.clone();
        let Some(server) = server.filter(|server| server.incarnation == on) else {
            continue;
        };
        // The ring is queried later than the server, so transactions applied in between are included.
        match ring.settled().await {
            Ok(committed) => {
                let errant = errant(&server.executed, &committed);
                if !errant.is_empty() {
                    return errant;
                }
            }
            Err(cause) => {
                tracing::debug!(%cause, "a follower's transactions are not compared for now")
            }
        }
    }
}

/// Makes the server writable for the applier and not for clients. The ring already has the applied transactions, so their commits must not
/// wait for it. No client commit waits, because the server is closed.
async fn open_to_the_applier(connect: &ConnectOptions) -> Result<(), RoleError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    stop_waiting_for_acks(&mut connection).await?;
    // InnoDB stores applied transactions together with their GTIDs. The binlog has only the GTIDs, and may lose them. It must not keep
    // GTIDs of rows that InnoDB has lost.
    for statement in [
        FORCE_REDO_LOG,
        "SET GLOBAL read_only = ON, GLOBAL super_read_only = OFF, GLOBAL sync_binlog = 0",
    ] {
        connection.execute(statement).await?;
    }
    connection.close().await;
    Ok(())
}

/// Stops the server's own writes while the applier writes to it: no event runs, and no other channel replicates. Temporary tables of
/// readers are not logged, which the statement formats would do. Replica threads from an earlier run of the member, or from a copied
/// server, are ended, because a server with errant transactions must not follow.
async fn keep_still(connect: &ConnectOptions) -> Result<(), RoleError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    stop_events(&mut connection).await?;
    stop_foreign_channels(&mut connection).await?;
    drop_channel(&mut connection).await?;
    // The variable is deprecated, so a later server may lack it.
    let format = "SHOW GLOBAL VARIABLES LIKE 'binlog_format'";
    let format = connection.query(format).await?;
    let format = format.first().and_then(|row| row.text_at(1));
    if format.is_some_and(|format| format != "ROW") {
        let row = "SET GLOBAL binlog_format = 'ROW'";
        connection.execute(row).await?;
    }
    // Connected readers can write when this server becomes the primary.
    if let Err(why) = end_statement_logging(&mut connection, OLD_SESSIONS_END).await {
        tracing::warn!("should this mysqld become the primary, servers may come to differ: {why}");
    }
    connection.close().await;
    Ok(())
}

/// Ends dumps of a follower's binlog by other readers, and drops its content. Stops at the first errant transaction; that transaction and
/// earlier ones are kept. A failed attempt is repeated at the next check.
async fn tidy<R: Ring>(ring: &R, options: &FollowOptions) -> GtidSet {
    let mut emptied = Emptied::default();
    let mut compared = Instant::now();
    let mut dropped_at: Option<Instant> = None;
    loop {
        tokio::time::sleep(DUMPS_EVERY.min(options.tidy_every)).await;
        let due = compared.elapsed() >= options.tidy_every;
        let dropped = async {
            let mut connection = Connection::open_with_own_settings(&options.connect).await?;
            end_dumps(&mut connection, &options.connect).await;
            // A server without a binlog refuses the statement. Transactions after the comparison are kept.
            let rests = dropped_at.is_some_and(|at| at.elapsed() < BETWEEN_DROPS);
            let drops = !rests
                && rotate_if_written(&mut connection, &mut emptied)
                    .await
                    .unwrap_or(false);
            let mut errant = GtidSet::new();
            if drops {
                dropped_at = Some(Instant::now());
            }
            if drops || due {
                compared = Instant::now();
                // The server is queried before the ring, so transactions applied in between are included in the ring's answer.
                let executed = executed_by(&mut connection).await?;
                errant = executed.difference(&ring.settled().await?);
            }
            if drops && errant.is_empty() {
                drop_earlier_files(&mut connection, &options.connect).await?;
            }
            connection.close().await;
            Ok::<GtidSet, RoleError>(errant)
        };
        match dropped.await {
            Ok(errant) if errant.is_empty() => {}
            Ok(errant) => return errant,
            Err(cause) => tracing::debug!(%cause, "a follower's binlog files stay for now"),
        }
    }
}
