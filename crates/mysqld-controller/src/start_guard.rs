//! The guard of mysqld's starts: asks the ring which transactions are committed, reads the last binlog file, cuts it, and records that a
//! start follows. It asks the ring only if something may have to be cut, so a server that was stopped cleanly starts without a quorum.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use binlog_format::gtid::GtidSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use mysql_link::{ConnectOptions, Connection, LinkError};
use mysqld_server::BinlogPlace;
use mysqld_server::provision::{NoteStep, ProvisionNote};
use mysqld_server::supervisor::{GuardError, StartGuard, SupervisorError};
use mysqld_server::tail_trim::{
    Refusal, TailTrimOptions, Trimmed, check_start, last_written, record_after_rotation,
    record_in_use, record_start, restore, survey, trim_last,
};
use spilling_bytes::long_work;
use thiserror::Error;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::ingest::{IngestState, IngestStatus};
use crate::ring::{Ring, RingError};

/// Why a binlog could not be prepared for a start, or for the first crash of a server.
#[derive(Debug, Error)]
pub enum TailTrimError {
    /// The location of the binlog is unknown.
    #[error(transparent)]
    Place(#[from] SupervisorError),
    /// The binlog of this index cannot be read or changed.
    #[error("mysqld's binlog, as {} lists it, cannot be made ready for a start: {}", .0.display(), .1)]
    Disk(PathBuf, io::Error),
    /// The binlog must not be cut, and mysqld must not start.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The ring does not report which transactions are committed.
    #[error("{}: {}", WAITS, .0)]
    Ring(RingError),
    /// The ring has not answered in time.
    #[error("{}", WAITS)]
    NoAnswer,
    /// The running server cannot be queried, or refuses a statement.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The takeover of a primary is not complete: the ring does not have all its transactions.
    #[error("its takeover is not complete")]
    TakingOver,
    /// It is unknown whether the takeover of a primary is complete.
    #[error("the note `hands-off` cannot be read: {0}")]
    TakeoverUnknown(io::Error),
    /// The record of a start cannot be read or stored.
    #[error("{0}")]
    Record(#[from] io::Error),
}

/// The start guard that cuts transactions the ring has not committed off mysqld's last binlog file.
pub struct TailTrim<R: Ring> {
    ring: Arc<R>,
    ingest: Option<watch::Receiver<IngestStatus>>,
    options: TailTrimOptions,
    /// Held during disk operations: a dropped attempt may still access the disk.
    at_work: Arc<Mutex<()>>,
    /// True if the takeover of a primary is not complete. No start is allowed then: earlier commits did not wait for the ring, and must not
    /// be cut.
    pub taking_over: Box<dyn Fn() -> io::Result<bool> + Send + Sync>,
    /// How many transactions were cut off since the member started.
    pub trimmed: Arc<AtomicU64>,
}

const WAITS: &str = "waiting for the ring to say which transactions are committed";

impl<R: Ring> TailTrim<R> {
    /// Creates a guard. With `ingest`, the guard asks the ring only after ingest has released the ended server; an earlier answer would
    /// lack later proposals.
    pub fn new(
        ring: Arc<R>,
        ingest: Option<watch::Receiver<IngestStatus>>,
        options: TailTrimOptions,
    ) -> Self {
        Self {
            ring,
            ingest,
            options,
            at_work: Arc::default(),
            taking_over: Box::new(|| Ok(false)),
            trimmed: Arc::default(),
        }
    }

    async fn trim(&self) -> Result<(), TailTrimError> {
        if (self.taking_over)().map_err(TailTrimError::TakeoverUnknown)? {
            return Err(TailTrimError::TakingOver);
        }
        let Some(place) = self.options.place().await? else {
            return Ok(());
        };
        let provisioned = |_: &BinlogPlace, member_dir: &Path| ProvisionNote::load(member_dir);
        let note = self.on_disk(place.clone(), provisioned).await?;
        match note.map(|note| (note.step, note.donor)) {
            None => {
                self.restore(&place).await?;
                self.cut(&place).await?;
            }
            // The copy may fail, and the server be used again, so a cut is tried. If the binlog cannot be cut, the server is started
            // anyway.
            Some((NoteStep::Starting, donor)) => {
                if let Err(why) = self.cut(&place).await {
                    info!(%donor, "mysqld's binlog stays as it is, since its data are about to be replaced: {why}");
                }
            }
            // The server is not used before it has a copy, and it must run for the copy.
            Some((NoteStep::Needed { why }, _)) => {
                info!(
                    "mysqld's binlog stays as it is, since it needs a copy of another one's data: {why}"
                );
            }
            Some((NoteStep::Copying { .. } | NoteStep::Copied, donor)) => {
                info!(%donor, "mysqld's binlog stays as it is: its data are being replaced");
            }
        }
        self.on_disk(place, record_start).await
    }

    async fn restore(&self, place: &BinlogPlace) -> Result<(), TailTrimError> {
        if let Some(gtids) = self.on_disk(place.clone(), restore).await? {
            warn!(%gtids, "transactions that mysqld had committed without the ring are in its binlog again");
        }
        Ok(())
    }

    /// Cuts off transactions that the ring has not committed, if there are any; or returns why that is impossible.
    async fn cut(&self, place: &BinlogPlace) -> Result<(), TailTrimError> {
        let place = &self.on_disk(place.clone(), last_written).await?;
        let done = match self.on_disk(place.clone(), survey).await? {
            Some(settled) => settled,
            None => {
                let committed = self.settled().await?;
                let work = move |place: &BinlogPlace, member_dir: &Path| {
                    trim_last(place, member_dir, &committed)
                };
                self.on_disk(place.clone(), work).await?
            }
        };
        match done {
            Trimmed::Kept(keep) => info!("mysqld's binlog stays as it is: {keep}"),
            Trimmed::Cut(tail) => {
                self.trimmed
                    .fetch_add(tail.transactions(), Ordering::Relaxed);
                warn!(
                    file = %tail.from.display(),
                    offset = %tail.offset,
                    bytes = tail.bytes,
                    gtids = %tail.gtids,
                    "transactions that the ring has not committed were cut off mysqld's binlog, and are kept; see `witness log trimmed`"
                );
            }
            Trimmed::Refused(refusal) => return Err(refusal.into()),
        }
        Ok(())
    }

    /// Returns the transactions that the ring has committed.
    async fn settled(&self) -> Result<GtidSet, TailTrimError> {
        let answer = async {
            self.nothing_comes_in().await?;
            self.ring.settled().await
        };
        match tokio::time::timeout(self.options.ring_limit, answer).await {
            Ok(Ok(committed)) => Ok(committed),
            Ok(Err(error)) => Err(TailTrimError::Ring(error)),
            Err(_) => Err(TailTrimError::NoAnswer),
        }
    }

    /// If the member leads, waits until every transaction received from the ended server is committed. Otherwise such a transaction would
    /// be cut off, and return through the ring.
    async fn nothing_comes_in(&self) -> Result<(), RingError> {
        if let Some(ingest) = &self.ingest {
            let reads = |state: &IngestState| {
                matches!(state, IngestState::CatchingUp | IngestState::Attached)
            };
            // An error means that ingest has ended.
            let _ = ingest
                .clone()
                .wait_for(|status| !reads(&status.state))
                .await;
        }
        let Some(term) = self.ring.serving_term() else {
            return Ok(());
        };
        let end = self.ring.log().await?.end;
        let mut committed = self.ring.committed();
        tokio::select! {
            _ = committed.wait_for(|mark| *mark >= end) => {}
            () = self.ring.leadership_over(term) => {}
        }
        Ok(())
    }

    /// Runs disk operations one at a time.
    async fn on_disk<T: Send + 'static>(
        &self,
        place: BinlogPlace,
        work: impl FnOnce(&BinlogPlace, &Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, TailTrimError> {
        let at_work = self.at_work.clone();
        let member_dir = self.options.member_dir.clone();
        let index = place.index().to_owned();
        let done = long_work::on_disk(move || {
            let _alone = at_work.lock().unwrap_or_else(PoisonError::into_inner);
            work(&place, &member_dir)
        });
        done.await
            .map_err(|error| TailTrimError::Disk(index, error))
    }
}

impl<R: Ring> StartGuard for TailTrim<R> {
    fn what(&self) -> &str {
        WAITS
    }

    fn before_start(&self) -> BoxFuture<'_, Result<(), GuardError>> {
        async { self.trim().await.map_err(GuardError::from) }.boxed()
    }

    fn after_start<'a>(
        &'a self,
        account: &'a ConnectOptions,
    ) -> BoxFuture<'a, Result<(), GuardError>> {
        let checked = check_start(&self.options.member_dir, account);
        async { checked.await.map_err(GuardError::from) }.boxed()
    }

    fn may_start_itself(&self) -> bool {
        !matches!((self.taking_over)(), Ok(false))
            || !matches!(ProvisionNote::load(&self.options.member_dir), Ok(None))
    }

    fn before_stop(&self) -> BoxFuture<'_, ()> {
        let recorded = async {
            let Some(place) = self.options.place().await? else {
                return Ok(());
            };
            self.on_disk(place, record_in_use).await
        };
        recorded
            .map(|recorded: Result<(), TailTrimError>| {
                if let Err(cause) = recorded {
                    warn!("the state of mysqld's binlog in use could not be written down: {cause}");
                }
            })
            .boxed()
    }
}

// The first file of a server that ran before its member. Commits from before the ring did not wait for it, so a file with such transactions
// is never cut. Before the primary is opened for the first time, a new file is begun in which all commits wait for the ring. That file is
// recorded as after a start.

/// Begins a new binlog file on a server that ran before its member, so that its first crash can be trimmed.
#[derive(Debug, Clone)]
pub struct ProtectionStart(
    /// The options of the same server's guard.
    pub TailTrimOptions,
);

impl ProtectionStart {
    /// Ensures that the current file contains only transactions that wait for the ring. The server must be closed for writes, and commits
    /// must be sure to wait from now on. Does nothing if the current file already qualifies.
    ///
    /// If another session begins further files in the meantime, that does not matter: the record names the file before the new one, and no
    /// commit happens between the close and the opening that follows.
    ///
    /// # Errors
    /// [`TailTrimError`]; the only consequence is that the first crash may not be trimmed.
    pub async fn ensure(&self, connect: &ConnectOptions) -> Result<(), TailTrimError> {
        let Some(place) = self.0.place().await? else {
            return Ok(());
        };
        let mut connection = Connection::open_with_own_settings(connect).await?;
        let index = connection.query("SELECT @@GLOBAL.log_bin_index").await?;
        let index = index.value().map(PathBuf::from);
        let place = match index {
            // The location that the server reports overrides the member's configuration.
            Some(index) => place.elsewhere(&index).unwrap_or(place),
            None => place,
        };
        let member_dir = self.0.member_dir.clone();
        let record = long_work::on_disk(move || record_after_rotation(&place, &member_dir));
        let Some(record) = record.await? else {
            connection.close().await;
            return Ok(());
        };
        connection.execute("FLUSH BINARY LOGS").await?;
        connection.close().await;
        let file = record.last_file.clone();
        let member_dir = self.0.member_dir.clone();
        long_work::on_disk(move || record.store(&member_dir)).await?;
        info!(after = ?file, "after a crash mysqld's binlog can be trimmed from here on");
        Ok(())
    }
}
