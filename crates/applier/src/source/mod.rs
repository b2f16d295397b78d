//! Sources of the log: transactions in the log's order.

mod files;

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use binlog_format::canonical::CanonicalEvents;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::events::GtidEvent;
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use mysql_link::{
    ConnectOptions, Connection, DumpError, DumpOptions, DumpRefusal, LinkError, ReplicationStream,
    ServerVersion, cannot_apply,
};
use spilling_bytes::long_work;
use thiserror::Error;
use tokio::time::{Instant, sleep};

pub use crate::source::files::{FileSource, ReadBytes};

/// A log, read sequentially.
pub trait Source: Send {
    /// Returns the next transaction; waits while there is nothing new. `None` at the end of the log, or at the configured end point.
    /// A dropped call loses no transaction, but the next call may have to repeat slow operations, such as opening a connection. A
    /// caller that drops every call may therefore never receive a transaction.
    ///
    /// # Errors
    /// [`SourceError`]; the source then returns nothing more.
    fn next(
        &mut self,
    ) -> impl Future<Output = Result<Option<FramedTransaction>, SourceError>> + Send;

    /// True if the source has nothing more at the moment. May be called while a call of [`Self::next`] is in progress.
    fn drained(&self) -> Drained;
}

/// A shared flag: true if a source has returned everything it has. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Drained(Arc<AtomicBool>);

impl Drained {
    /// Sets the state.
    pub fn set(&self, drained: bool) {
        self.0.store(drained, Relaxed);
    }

    /// Returns the state.
    pub fn get(&self) -> bool {
        self.0.load(Relaxed)
    }
}

// Repeated requests to a server that may be unreachable for some time, with growing pauses.

/// The first pause; each further pause is twice the previous one, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Calls `ask` until it succeeds, or fails with an error for which `may_pass` is false. No attempt begins later than `within`.
/// `trouble` is logged with each failed attempt.
///
/// # Errors
/// The error of the last attempt.
pub async fn persist<T, E, A>(
    within: Duration,
    trouble: &str,
    may_pass: impl Fn(&E) -> bool,
    mut ask: impl FnMut() -> A,
) -> Result<T, E>
where
    E: Display,
    A: Future<Output = Result<T, E>>,
{
    let until = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    loop {
        match ask().await {
            Err(error) if may_pass(&error) && Instant::now() + pause <= until => {
                tracing::warn!(%error, ?pause, "{trouble}; trying again");
            }
            answer => return answer,
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Why a source returns no more transactions.
#[derive(Debug, Clone, Error)]
pub enum SourceError {
    /// The source is unreachable, or the connection broke. Opening it again at the target's executed GTIDs may help.
    #[error("{0}")]
    Unreachable(String),
    /// The source is damaged, or cannot be applied; the message names the remedy.
    #[error("{0}")]
    Refused(String),
}

// Ends a log at a given point, and checks that the target's version can apply it.

/// The point at which a run ends although the source continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// After all of these transactions are applied. Other transactions before the last of them in the log are applied, too.
    Gtids(GtidSet),
    /// Before the first transaction that was committed after this time, by the timestamps in the log.
    Time(SystemTime),
}

/// Ends a source at an [`Until`], if the log has that point. Refuses transactions of a server newer than the target, since they may
/// contain something that the target does not support. Usually the first transaction is refused; a later one only if the source was
/// upgraded in between.
#[derive(Debug)]
pub struct LimitedSource<S> {
    source: S,
    until: Option<Until>,
    /// The transactions of [`Until::Gtids`] that were not received yet.
    missing: GtidSet,
    ended: bool,
    target: Option<ServerVersion>,
    /// The last accepted server version, so that each version is checked once.
    accepted: Option<u32>,
}

impl<S> LimitedSource<S> {
    /// Reads `source` up to `until`, or to its end if that is `None`. `executed` are the target's transactions. If `target` is
    /// `None`, the servers' versions are not checked.
    pub fn new(
        source: S,
        until: Option<Until>,
        executed: &GtidSet,
        target: Option<ServerVersion>,
    ) -> Self {
        let missing = match &until {
            Some(Until::Gtids(wanted)) => wanted.difference(executed),
            _ => GtidSet::new(),
        };
        Self {
            source,
            ended: matches!(until, Some(Until::Gtids(_))) && missing.is_empty(),
            until,
            missing,
            target,
            accepted: None,
        }
    }

    fn check_version(&mut self, transaction: &FramedTransaction) -> Result<(), SourceError> {
        let (Some(target), Some(version)) = (self.target, written_by(transaction)) else {
            return Ok(());
        };
        if self.accepted != Some(version)
            && let Some(reason) = cannot_apply(ServerVersion::from_number(version), target)
        {
            return Err(SourceError::Refused(format!(
                "{reason}; transaction {} is the first such one. Upgrade the target first",
                transaction.gtid
            )));
        }
        self.accepted = Some(version);
        Ok(())
    }
}

/// Returns the version of the server where a transaction originated. Servers log it from 8.0.14 on.
fn written_by(transaction: &FramedTransaction) -> Option<u32> {
    let mut events = CanonicalEvents::new(transaction.payload.clone());
    let first = events.next()?.ok()?;
    let gtid = GtidEvent::decode(first.canonical()).ok()?;
    let version = gtid.original_version.or(gtid.immediate_version)?;
    Some(version.0)
}

/// Returns when a transaction was committed, by the timestamps in the log.
fn committed_at(transaction: &FramedTransaction) -> SystemTime {
    let precise = transaction.immediate_commit.map(|at| at.0);
    let micros = precise.unwrap_or(u64::from(transaction.timestamp) * 1_000_000);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

impl<S: Source> Source for LimitedSource<S> {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        if self.ended {
            return Ok(None);
        }
        let Some(transaction) = self.source.next().await? else {
            self.ended = true;
            if self.missing.is_empty() {
                return Ok(None);
            }
            return Err(SourceError::Refused(format!(
                "the log ends before it has {}; give a log that has them, or end earlier",
                self.missing
            )));
        };
        self.check_version(&transaction)?;
        match &self.until {
            Some(Until::Time(end)) if committed_at(&transaction) > *end => {
                self.ended = true;
                return Ok(None);
            }
            Some(Until::Gtids(_)) => {
                self.missing.remove(&transaction.gtid);
                self.ended = self.missing.is_empty();
            }
            _ => {}
        }
        Ok(Some(transaction))
    }

    fn drained(&self) -> Drained {
        self.source.drained()
    }
}

// Reads the log of a mysqld, or of another server with the dump protocol, as a replica does. After a broken connection it continues
// at the same position.

/// Reads a log over the dump protocol.
#[derive(Debug)]
pub struct DumpSource {
    connect: ConnectOptions,
    dump: DumpOptions,
    /// How long to retry while the source is unreachable.
    patience: Duration,
    stream: Option<ReplicationStream>,
    framer: TransactionFramer,
    /// True if the source has reported that there is nothing more at the moment.
    drained: Drained,
}

impl DumpSource {
    /// Creates a source of all transactions that `dump.have` lacks. It ignores `dump.semi_sync`: no commit should wait for an
    /// applier.
    pub fn new(
        connect: ConnectOptions,
        dump: DumpOptions,
        patience: Duration,
        max_transaction_bytes: u64,
    ) -> Self {
        Self {
            connect,
            dump: DumpOptions {
                semi_sync: false,
                ..dump
            },
            patience,
            stream: None,
            framer: TransactionFramer::new(ChecksumAlgorithm::Crc32, max_transaction_bytes),
            drained: Drained::default(),
        }
    }

    async fn open(&self) -> Result<ReplicationStream, SourceError> {
        let trouble = "the source cannot be read";
        let opened = persist(self.patience, trouble, may_pass, || async {
            let connection = Connection::open(&self.connect).await?;
            ReplicationStream::start(connection, &self.dump).await
        });
        opened.await.map_err(|error| match may_pass(&error) {
            true => SourceError::Unreachable(error.to_string()),
            false => refused(&error),
        })
    }
}

/// Translates a refused dump into an error with a remedy for an applier.
fn refused(error: &DumpError) -> SourceError {
    let (refusal, told) = match error {
        DumpError::Refused { refusal, error, .. } => (Some(refusal), error.to_string()),
        _ => (None, error.to_string()),
    };
    SourceError::Refused(match refusal {
        Some(DumpRefusal::PurgedGtids) => format!(
            "the source has purged transactions that the target lacks: {told}. Provision the target with a copy that has \
             them, or apply from a source that still has them"
        ),
        Some(DumpRefusal::SourceBehind) => format!(
            "the target has transactions that the source lacks: {told}. Look which they are (GTID_SUBTRACT of the two \
             gtid_executed), and apply from a source that has them"
        ),
        _ => error.to_string(),
    })
}

/// Whether the same call may succeed later.
fn may_pass(error: &DumpError) -> bool {
    match error {
        DumpError::Link(error) => matches!(
            error,
            LinkError::Unreachable { .. } | LinkError::Timeout { .. } | LinkError::Closed { .. }
        ),
        DumpError::Refused { refusal, .. } => *refusal == DumpRefusal::DuplicateUuid,
        DumpError::Silent { .. } | DumpError::Ended { .. } => true,
        _ => false,
    }
}

impl Source for DumpSource {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        loop {
            let stream = match &mut self.stream {
                Some(stream) => stream,
                None => {
                    let opened = self.open().await?;
                    self.framer.reset(ChecksumAlgorithm::Crc32);
                    self.drained.set(false);
                    self.stream.insert(opened)
                }
            };
            let event = match stream.next().await {
                Ok(event) => event.event,
                Err(error) => {
                    self.stream = None;
                    if !may_pass(&error) {
                        return Err(refused(&error));
                    }
                    tracing::warn!(%error, "the source was interrupted; opening it again");
                    continue;
                }
            };
            let framed = long_work::run(event.bytes().len(), || self.framer.push(&event));
            match framed.map_err(|error| SourceError::Refused(error.to_string()))? {
                Some(StreamItem::Transaction(transaction)) => {
                    self.dump.have.add(transaction.gtid);
                    self.drained.set(false);
                    return Ok(Some(transaction));
                }
                Some(StreamItem::Heartbeat(_)) => self.drained.set(true),
                _ => {}
            }
        }
    }

    fn drained(&self) -> Drained {
        self.drained.clone()
    }
}

// Transactions in a member's log: canonical payloads, which have no checksums.

/// Converts a canonical payload of a member's log into a transaction.
///
/// # Errors
/// [`SourceError::Refused`] if the payload is invalid, or larger than `max_transaction_bytes`.
pub fn framed(
    payload: Bytes,
    max_transaction_bytes: u64,
) -> Result<FramedTransaction, SourceError> {
    let no_meaning = |error: &dyn Display| {
        SourceError::Refused(format!(
            "the member's log has a transaction without a meaning: {error}"
        ))
    };
    let framer = TransactionFramer::new(ChecksumAlgorithm::None, max_transaction_bytes);
    let mut framer = framer.without_payloads();
    let mut last = None;
    // In `long_work`, because every event is parsed.
    long_work::run(payload.len(), || {
        for event in CanonicalEvents::new(payload.clone()) {
            let event = event.map_err(|error| no_meaning(&error))?;
            last = framer.push(&event).map_err(|error| no_meaning(&error))?;
        }
        Ok::<(), SourceError>(())
    })?;
    match last {
        // The payload is canonical already.
        Some(StreamItem::Transaction(transaction)) => Ok(FramedTransaction {
            payload,
            ..transaction
        }),
        _ => Err(no_meaning(&"it has no end")),
    }
}
