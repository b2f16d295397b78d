//! The origin of the log: transactions in the log's order.

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
    /// The next transaction; `None` when the log has ended permanently, or should be read up to here only. Waits while there is
    /// nothing new. A dropped call loses no transaction, but may restart slow operations, such as opening a
    /// connection: a caller that drops every call may never receive one.
    ///
    /// # Errors
    /// [`SourceError`]; the source has then ended.
    fn next(
        &mut self,
    ) -> impl Future<Output = Result<Option<FramedTransaction>, SourceError>> + Send;

    /// Whether nothing more can be read at the moment; may also be called while the source is waited for.
    fn drained(&self) -> Drained;
}

/// True if a source has returned everything it has. Clones share the state.
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

// Repeated requests to a server that may be away for a while, with growing pauses.

/// Each pause is twice the previous one, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Asks again until there is an answer, or an error that `may_pass` rejects; no attempt begins later than `within`. `trouble` is the
/// log message in the meantime.
///
/// # Errors
/// The last one.
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
    /// It is unreachable, or broke off; reopening it at the target's executed GTIDs may help.
    #[error("{0}")]
    Unreachable(String),
    /// It is damaged, or unsuitable for applying: the message names the remedy.
    #[error("{0}")]
    Refused(String),
}

// A log that is read only up to a point, and as far as the target can apply it.

/// The end point of a continuing source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// When all of these are applied; those between them in the log are applied, too.
    Gtids(GtidSet),
    /// Before the first transaction that was committed after this time (the log's timestamps).
    Time(SystemTime),
}

/// A source that ends at an [`Until`], if the log goes that far, and refuses transactions of a server newer than the target: each may
/// contain something unknown to the target. The first one is at the log's start unless the source was upgraded in between.
#[derive(Debug)]
pub struct LimitedSource<S> {
    source: S,
    until: Option<Until>,
    /// Of [`Until::Gtids`]: those not received yet.
    missing: GtidSet,
    ended: bool,
    target: Option<ServerVersion>,
    /// The last accepted version, so that each is checked once.
    accepted: Option<u32>,
}

impl<S> LimitedSource<S> {
    /// Reads `source` up to `until`, for a target that has the transactions of `executed`; without it, to the end. Without `target`,
    /// the servers' versions are not checked.
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

/// The version of the server where a transaction originated, if logged: from 8.0.14 on.
fn written_by(transaction: &FramedTransaction) -> Option<u32> {
    let mut events = CanonicalEvents::new(transaction.payload.clone());
    let first = events.next()?.ok()?;
    let gtid = GtidEvent::decode(first.canonical()).ok()?;
    let version = gtid.original_version.or(gtid.immediate_version)?;
    Some(version.0)
}

/// When a transaction was committed, by its log.
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

// The log of a mysqld, or of another server with its dump protocol, read as a replica does. A broken connection is reopened at the
// same position.

/// Reads a log over the dump protocol.
#[derive(Debug)]
pub struct DumpSource {
    connect: ConnectOptions,
    dump: DumpOptions,
    /// How long to retry an unreachable source.
    patience: Duration,
    stream: Option<ReplicationStream>,
    framer: TransactionFramer,
    /// True if the source has reported that there is nothing more at the moment.
    drained: Drained,
}

impl DumpSource {
    /// A log of everything that `dump.have` lacks. `dump.semi_sync` is ignored: no commit should wait for an applier.
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

/// Its meaning for an applier.
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

// A transaction in a member's log: the events of one payload, without checksums.

/// The transaction of a member's canonical payload.
///
/// # Errors
/// [`SourceError::Refused`] when it is invalid, or larger than the bound.
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
    // Every event is parsed.
    long_work::run(payload.len(), || {
        for event in CanonicalEvents::new(payload.clone()) {
            let event = event.map_err(|error| no_meaning(&error))?;
            last = framer.push(&event).map_err(|error| no_meaning(&error))?;
        }
        Ok::<(), SourceError>(())
    })?;
    match last {
        // Canonical events are their own canonical form.
        Some(StreamItem::Transaction(transaction)) => Ok(FramedTransaction {
            payload,
            ..transaction
        }),
        _ => Err(no_meaning(&"it has no end")),
    }
}
