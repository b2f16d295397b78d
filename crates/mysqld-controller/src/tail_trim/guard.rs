//! The guard of mysqld's starts: it asks the ring, reads the file, cuts it, and records that a start follows.
//! It asks the ring only when there may be something to cut, so that a cleanly stopped server
//! starts without a quorum.

use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use binlog_format::gtid::{GtidSet, SourceId};
use futures::FutureExt;
use futures::future::BoxFuture;
use mysql_link::{ConnectOptions, Connection, LinkError};
use raft_types::MAX_TRANSACTION_BYTES;
use spilling_bytes::long_work;
use thiserror::Error;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::binlog_place::BinlogPlace;
use crate::ingest::{IngestState, IngestStatus};
use crate::provision::other_engines::OF_THE_SYSTEM;
use crate::provision::{NoteStep, ProvisionNote};
use crate::ring::{Ring, RingError};
use crate::supervisor::{GuardError, ServerCommand, StartGuard, SupervisorError};
use crate::tail_trim::cut::{Carrier, STEPS, TrimmedTail, lock_data};
use crate::tail_trim::history::{EncryptedInUse, StartRecord, is_ours};
use crate::tail_trim::last_file::{Beginning, FileHeader, LastFile, encrypted_flags};
use crate::tail_trim::plan::{FileOffset, Keep, Plan, Refusal};
use crate::tail_trim::restore::{CutNote, check_start, restore};

/// Options of the guard.
#[derive(Debug, Clone)]
pub struct TailTrimOptions {
    /// The member's data directory: cut tails are kept in its `trimmed/mysqld/`.
    pub member_dir: PathBuf,
    /// How mysqld is run, which determines the place of its binlog.
    pub server: ServerCommand,
    /// Limit for the decompressed bytes of one transaction.
    pub max_transaction_bytes: u64,
    /// How long one attempt waits for the ring's answer.
    pub ring_limit: Duration,
}

impl TailTrimOptions {
    /// The defaults: transactions of up to the usual bound, five seconds for the ring.
    pub fn new(member_dir: PathBuf, server: ServerCommand) -> Self {
        Self {
            member_dir,
            server,
            max_transaction_bytes: MAX_TRANSACTION_BYTES,
            ring_limit: Duration::from_secs(5),
        }
    }

    /// The place of the server's binlog; `None` where it has none.
    ///
    /// # Errors
    /// When it does not print the options of its option files.
    pub(super) async fn place(&self) -> Result<Option<BinlogPlace>, SupervisorError> {
        let words = self.server.options_in_force().await?;
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let words = words.iter().map(String::as_str);
        Ok(BinlogPlace::of_options(words, &self.server.data_dir, &host))
    }
}

/// Why a binlog could not be made ready for a start, or for its first crash.
#[derive(Debug, Error)]
pub enum TailTrimError {
    /// The place of the binlog is unknown.
    #[error(transparent)]
    Place(#[from] SupervisorError),
    /// The binlog of this index cannot be read or changed.
    #[error("mysqld's binlog, as {} lists it, cannot be made ready for a start: {}", .0.display(), .1)]
    Disk(PathBuf, io::Error),
    /// It must not be cut, and mysqld must not start.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The ring does not report what it has committed.
    #[error("{}: {}", WAITS, .0)]
    Ring(RingError),
    /// The ring has not answered in time.
    #[error("{}", WAITS)]
    NoAnswer,
    /// The running server cannot be queried, or refuses a statement.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The record of a start cannot be read or stored.
    #[error("{0}")]
    Record(#[from] io::Error),
}

/// The start guard that cuts transactions the ring has not committed off mysqld's last binlog file.
pub struct TailTrim<R: Ring> {
    ring: Arc<R>,
    ingest: Option<watch::Receiver<IngestStatus>>,
    options: TailTrimOptions,
    /// A dropped attempt may still be accessing the disk.
    at_work: Arc<Mutex<()>>,
    /// Transactions cut off since the member started.
    trimmed: Arc<AtomicU64>,
}

const WAITS: &str = "waiting for the ring to say which transactions are committed";

impl<R: Ring> TailTrim<R> {
    /// A guard. `ingest`, where there is one, must have released the server that ended before the ring
    /// is asked: the answer would lack its later proposals.
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
            trimmed: Arc::default(),
        }
    }

    /// The counter of transactions cut off.
    pub fn trimmed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.trimmed)
    }

    async fn trim(&self) -> Result<(), TailTrimError> {
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
            // The copy may fail, and the server be used again. A server that cannot be cut is started anyway.
            Some((NoteStep::Starting, donor)) => {
                if let Err(why) = self.cut(&place).await {
                    info!(%donor, "mysqld's binlog stays as it is, since its data are about to be replaced: {why}");
                }
            }
            // It is not used before it has a copy, for which it must run.
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
        let limit = self.options.max_transaction_bytes;
        let work = move |place: &BinlogPlace, member_dir: &Path| restore(place, member_dir, limit);
        if let Some(gtids) = self.on_disk(place.clone(), work).await? {
            warn!(%gtids, "transactions that mysqld had committed without the ring are in its binlog again");
        }
        Ok(())
    }

    /// Cuts off transactions that the ring has not committed, if any; or returns why that is impossible.
    async fn cut(&self, place: &BinlogPlace) -> Result<(), TailTrimError> {
        let place = &self.on_disk(place.clone(), last_written).await?;
        let survey = self.on_disk(place.clone(), survey).await?;
        let done = match survey {
            Survey::Settled(keep) => Done::Kept(keep),
            Survey::Refused(refusal) => return Err(refusal.into()),
            Survey::Ask => {
                let committed = self.settled().await?;
                let limit = self.options.max_transaction_bytes;
                let work = move |place: &BinlogPlace, member_dir: &Path| {
                    trim_last(place, member_dir, &committed, limit)
                };
                self.on_disk(place.clone(), work).await?
            }
        };
        match done {
            Done::Kept(keep) => info!("mysqld's binlog stays as it is: {keep}"),
            Done::Cut(tail) => {
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
            Done::Refused(refusal) => return Err(refusal.into()),
        }
        Ok(())
    }

    /// The transactions that the ring has committed.
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

    /// If the member leads, waits until every transaction received from the ended server is committed: otherwise it would be
    /// cut and return through the ring.
    async fn nothing_comes_in(&self) -> Result<(), RingError> {
        if let Some(ingest) = &self.ingest {
            let reads = |state: &IngestState| {
                matches!(state, IngestState::CatchingUp | IngestState::Attached)
            };
            // An error means that it has ended.
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
        !matches!(ProvisionNote::load(&self.options.member_dir), Ok(None))
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

impl<R: Ring> std::fmt::Debug for TailTrim<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TailTrim")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Result of a check before the ring is asked.
enum Survey {
    /// The ring need not be asked.
    Settled(Keep),
    /// It must not start, whatever the ring answers.
    Refused(Refusal),
    /// There may be something to cut.
    Ask,
}

enum Done {
    Kept(Keep),
    Cut(TrimmedTail),
    Refused(Refusal),
}

/// The place of the server's last writes: the one it reported when it was prepared for a crash, if its options name a place
/// without files.
fn last_written(place: &BinlogPlace, member_dir: &Path) -> io::Result<BinlogPlace> {
    let record = StartRecord::load(member_dir)?;
    let recorded = record.filter(|record| !place.index().exists() && record.index.exists());
    let Some(record) = recorded else {
        return Ok(place.clone());
    };
    warn!(
        "mysqld has its binlog by {}, and by its options it would be {}: in mode external, set mysql.log_bin",
        record.index.display(),
        place.index().display()
    );
    let data_dir = place.data_dir().to_owned();
    Ok(BinlogPlace::of_index(data_dir, &record.index))
}

fn survey(place: &BinlogPlace, member_dir: &Path) -> io::Result<Survey> {
    let files = place.files()?;
    let Some(path) = files.last() else {
        return Ok(Survey::Settled(match place.index().exists() {
            true => Keep::NoTransactions,
            false => Keep::NoIndex,
        }));
    };
    let record = StartRecord::load(member_dir)?;
    if !is_ours(record.as_ref(), place, &files)? {
        return Ok(Survey::Settled(Keep::NotOurStart));
    }
    let file = path.display().to_string();
    Ok(match LastFile::open(path)?.beginning()? {
        Beginning::Header(header) if header.in_use => Survey::Ask,
        Beginning::Header(_) => Survey::Settled(Keep::ClosedInOrder),
        Beginning::Torn => Survey::Settled(Keep::NoTransactions),
        Beginning::Encrypted => {
            let flags = encrypted_flags(path)?;
            let encrypted = record.as_ref().and_then(|record| record.encrypted.as_ref());
            match encrypted.is_some_and(|in_use| in_use.was_closed(path, flags)) {
                true => Survey::Settled(Keep::ClosedInOrder),
                false => Survey::Refused(Refusal::Encrypted { file }),
            }
        }
        Beginning::Damaged(at, reason) => Survey::Refused(Refusal::Damaged { file, at, reason }),
    })
}

/// Trims the last file, after a survey has shown that the ring must be asked.
fn trim_last(
    place: &BinlogPlace,
    member_dir: &Path,
    committed: &GtidSet,
    limit: u64,
) -> io::Result<Done> {
    if committed.is_empty() {
        return Ok(Done::Kept(Keep::RingIsEmpty));
    }
    let files = place.files()?;
    let Some(path) = files.last() else {
        return Ok(Done::Kept(Keep::NoTransactions));
    };
    let mut file = LastFile::open(path)?;
    let Beginning::Header(header) = file.beginning()? else {
        return Err(io::Error::other(
            "it has changed; is another mysqld started on it?",
        ));
    };
    let own = server_uuid(place.data_dir());
    let had = StartRecord::load(member_dir)?.is_none_or(|record| record.other_engines);
    let other_engines = had || may_have_other_engines(place.data_dir());
    match file.plan(&header, committed, own, other_engines, limit)? {
        Plan::Keep(keep) => Ok(Done::Kept(keep)),
        Plan::Refuse(refusal) => Ok(Done::Refused(refusal)),
        Plan::Cut { at, gtids } => {
            let _locked = lock_data(place.data_dir())?;
            cut(path, member_dir, &header, at, &gtids).map(Done::Cut)
        }
    }
}

fn cut(
    path: &Path,
    member_dir: &Path,
    header: &FileHeader,
    at: FileOffset,
    gtids: &GtidSet,
) -> io::Result<TrimmedTail> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let gtids = gtids.to_string().replace('\n', "");
    let carrier = Carrier::new(member_dir, path, header.end, at, gtids, now)?;
    CutNote::new(carrier.tail.clone()).store(member_dir)?;
    STEPS.iter().try_for_each(|step| carrier.perform(*step))?;
    Ok(carrier.tail)
}

fn record_start(place: &BinlogPlace, member_dir: &Path) -> io::Result<()> {
    let record = StartRecord {
        index: place.index().to_owned(),
        last_file: place.files()?.pop(),
        encrypted: None,
        other_engines: may_have_other_engines(place.data_dir()),
    };
    record.store(member_dir)
}

/// The state of its file in use, before a running mysqld is asked to stop. Recorded too late, the file is closed already,
/// and a clean close can then never be recognised.
fn record_in_use(place: &BinlogPlace, member_dir: &Path) -> io::Result<()> {
    let (Some(mut record), Some(file)) = (StartRecord::load(member_dir)?, place.files()?.pop())
    else {
        return Ok(());
    };
    if let Some(flags) = encrypted_flags(&file)? {
        record.encrypted = Some(EncryptedInUse { file, flags });
        record.store(member_dir)?;
    }
    Ok(())
}

/// Whether clients' schemas may have tables of another engine than InnoDB: each of these has an `.sdi` file, whatever files its
/// engine keeps its rows in. An unreadable directory may have one.
fn may_have_other_engines(data_dir: &Path) -> bool {
    let of_the_system = |schema: &DirEntry| {
        let name = schema.file_name();
        OF_THE_SYSTEM.iter().any(|system| name == *system)
    };
    let has_one = |schema: DirEntry| {
        let is_one = |file: io::Result<DirEntry>| {
            file.map_or(true, |file| {
                file.path().extension().is_some_and(|end| end == "sdi")
            })
        };
        let kind = schema.file_type();
        let is_schema = kind.map_or(true, |kind| kind.is_dir() || kind.is_symlink());
        is_schema
            && !of_the_system(&schema)
            && match std::fs::read_dir(schema.path()) {
                Ok(mut files) => files.any(is_one),
                Err(error) => error.kind() != io::ErrorKind::NotADirectory,
            }
    };
    std::fs::read_dir(data_dir).map_or(true, |mut entries| {
        entries.any(|entry| entry.map_or(true, has_one))
    })
}

/// The server's UUID, as far as it can be read.
fn server_uuid(data_dir: &Path) -> Option<SourceId> {
    server_uuid_in(&std::fs::read_to_string(data_dir.join("auto.cnf")).ok()?)
}

/// The UUID in the server's file for it.
pub(super) fn server_uuid_in(text: &str) -> Option<SourceId> {
    let uuid = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("server-uuid"))?;
    uuid.trim_start_matches([' ', '='])
        .trim()
        .parse()
        .ok()
        .map(SourceId)
}

// The first file of a server that ran before its member: commits from before the ring did not wait for it, so
// a file with such transactions is never cut. Before the primary is opened for the first time, a new file is begun
// in which all commits wait, and that is recorded as a start would be.

/// Begins a new binlog file on a server that ran before its member, so that its first crash can be trimmed.
#[derive(Debug, Clone)]
pub struct ProtectionStart {
    options: TailTrimOptions,
}

impl ProtectionStart {
    /// For the server that the guard with these options guards.
    pub fn new(options: TailTrimOptions) -> Self {
        Self { options }
    }

    /// Ensures that the current file contains only transactions that wait for the ring, on a server that is
    /// closed for writes and whose commits are sure to wait from here on. Does nothing where that already holds.
    ///
    /// Further files begun by others in the meantime do not matter: the record names the file that was the last before
    /// ours, and no commit happens between closing and the opening that follows.
    ///
    /// # Errors
    /// [`TailTrimError`]; the only consequence is that the first crash may not be trimmed.
    pub async fn ensure(&self, connect: &ConnectOptions) -> Result<(), TailTrimError> {
        let Some(place) = self.options.place().await? else {
            return Ok(());
        };
        let mut connection = Connection::open_with_own_settings(connect).await?;
        let index = connection.query("SELECT @@GLOBAL.log_bin_index").await?;
        let index = index
            .first()
            .and_then(|row| row.text_at(0))
            .map(PathBuf::from);
        let place = match index {
            // The server's answer overrides its member's configuration.
            Some(index) => place.elsewhere(&index).unwrap_or(place),
            None => place,
        };
        let Some(record) = on_disk(place.clone(), self.options.clone(), begin).await? else {
            connection.close().await;
            return Ok(());
        };
        connection.execute("FLUSH BINARY LOGS").await?;
        connection.close().await;
        let file = record.last_file.clone();
        let store = move |_: &BinlogPlace, member_dir: &Path| record.store(member_dir);
        on_disk(place, self.options.clone(), store).await?;
        info!(behind = ?file, "after a crash mysqld's binlog can be trimmed from here on");
        Ok(())
    }
}

/// The record for after the rotation; `None` where the file may already be cut.
fn begin(place: &BinlogPlace, member_dir: &Path) -> std::io::Result<Option<StartRecord>> {
    let mut files = place.files()?;
    if is_ours(StartRecord::load(member_dir)?.as_ref(), place, &files)? {
        return Ok(None);
    }
    Ok(files.pop().map(|last| StartRecord {
        index: place.index().to_owned(),
        last_file: Some(last),
        encrypted: None,
        other_engines: may_have_other_engines(place.data_dir()),
    }))
}

async fn on_disk<T: Send + 'static>(
    place: BinlogPlace,
    options: TailTrimOptions,
    work: impl FnOnce(&BinlogPlace, &Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    long_work::on_disk(move || work(&place, &options.member_dir)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a 9.7.4 with `component_keyring_file`, before and after a clean stop.
    #[test]
    fn an_encrypted_file_is_closed_in_order_when_its_flag_has_changed() {
        let (server, member) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = BinlogPlace::of_options(["--log-bin=b"], server.path(), "h").unwrap();
        let file = server.path().join("b.000002");
        let write = |flags: u8, length: usize| {
            let mut bytes = vec![0x55; length];
            bytes[..4].copy_from_slice(&[0xfd, b'b', b'i', b'n']);
            bytes[533] = flags;
            std::fs::write(&file, bytes).unwrap();
        };
        let closed = || {
            matches!(
                survey(&place, member.path()).unwrap(),
                Survey::Settled(Keep::ClosedInOrder)
            )
        };
        std::fs::write(place.index(), "").unwrap();
        record_start(&place, member.path()).unwrap();
        std::fs::write(place.index(), "./b.000002\n").unwrap();
        write(0x3b, 710);
        assert!(!closed(), "it crashed before anybody asked it to stop");
        record_in_use(&place, member.path()).unwrap();
        assert!(!closed(), "it crashed while it was asked to stop");
        write(0x3a, 733);
        assert!(closed());
        // No other change of the byte proves that.
        write(0x39, 733);
        assert!(!closed());
        write(0x3a, 733);
        record_start(&place, member.path()).unwrap();
        std::fs::write(place.index(), "./b.000002\n./b.000003\n").unwrap();
        std::fs::rename(&file, server.path().join("b.000003")).unwrap();
        assert!(!closed(), "another start has written another file");
    }
}
