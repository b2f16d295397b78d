//! The origin of the log: transactions in the log's order.

mod dump;
mod files;

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
use mysql_link::{ServerVersion, cannot_apply};
use spilling_bytes::long_work;
use thiserror::Error;

use crate::persistence::Persistence;
pub use crate::source::dump::DumpSource;
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

/// Whether a source has returned everything it has. Clones share the state.
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

/// How to reopen a source that is away, for at most `patience`.
pub fn reopening(patience: Duration) -> Persistence {
    Persistence {
        within: patience,
        first_pause: Duration::from_millis(100),
        longest_pause: Duration::from_secs(5),
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

// A log that is read only up to a point.

/// The end point of a continuing source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// When all of these are applied; those between them in the log are applied, too.
    Gtids(GtidSet),
    /// Before the first transaction that was committed after this time (the log's timestamps).
    Time(SystemTime),
}

/// A source that ends at an [`Until`], if the log goes that far.
#[derive(Debug)]
pub struct UntilSource<S> {
    source: S,
    until: Option<Until>,
    /// Of [`Until::Gtids`]: those not received yet.
    missing: GtidSet,
    ended: bool,
}

impl<S> UntilSource<S> {
    /// Reads `source` up to `until`, for a target that has the transactions of `executed`; without it, to the end.
    pub fn new(source: S, until: Option<Until>, executed: &GtidSet) -> Self {
        let missing = match &until {
            Some(Until::Gtids(wanted)) => wanted.difference(executed),
            _ => GtidSet::new(),
        };
        let ended = matches!(until, Some(Until::Gtids(_))) && missing.is_empty();
        Self {
            source,
            until,
            missing,
            ended,
        }
    }

    /// The wrapped source.
    pub fn inner(&self) -> &S {
        &self.source
    }

    /// Of a set of GTIDs to end at, those that were not received.
    pub fn missing(&self) -> &GtidSet {
        &self.missing
    }
}

/// When a transaction was committed, by its log.
fn committed_at(transaction: &FramedTransaction) -> SystemTime {
    let precise = transaction.immediate_commit.map(|at| at.0);
    let micros = precise.unwrap_or(u64::from(transaction.timestamp) * 1_000_000);
    SystemTime::UNIX_EPOCH + std::time::Duration::from_micros(micros)
}

impl<S: Source> Source for UntilSource<S> {
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

// A log that a target can understand: read until a server newer than the target has written to it.

/// Refuses a log at the first transaction of a server newer than the target, which is at its start unless the
/// source was upgraded in between: every transaction of such a server may contain something unknown to the target.
#[derive(Debug)]
pub struct VersionSource<S> {
    source: S,
    target: ServerVersion,
    /// The last accepted version, so that each is checked once.
    fits: Option<u32>,
}

impl<S> VersionSource<S> {
    /// Reads `source` for a target of this version.
    pub fn new(source: S, target: ServerVersion) -> Self {
        Self {
            source,
            target,
            fits: None,
        }
    }

    fn judge(&mut self, transaction: &FramedTransaction) -> Result<(), SourceError> {
        let Some(written_by) = written_by(transaction) else {
            return Ok(());
        };
        if self.fits == Some(written_by) {
            return Ok(());
        }
        match cannot_apply(ServerVersion::from_number(written_by), self.target) {
            Some(why) => Err(SourceError::Refused(format!(
                "{why}; transaction {} is the first such one. Upgrade the target first",
                transaction.gtid
            ))),
            None => {
                self.fits = Some(written_by);
                Ok(())
            }
        }
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

impl<S: Source> Source for VersionSource<S> {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        let next = self.source.next().await?;
        if let Some(transaction) = &next {
            self.judge(transaction)?;
        }
        Ok(next)
    }

    fn drained(&self) -> Drained {
        self.source.drained()
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
    // Every event is parsed.
    long_work::run(payload.len(), || frame(payload, max_transaction_bytes))
}

fn frame(payload: Bytes, max_transaction_bytes: u64) -> Result<FramedTransaction, SourceError> {
    let no_meaning = |error: &dyn std::fmt::Display| {
        SourceError::Refused(format!(
            "the member's log has a transaction without a meaning: {error}"
        ))
    };
    let framer = TransactionFramer::new(ChecksumAlgorithm::None, max_transaction_bytes);
    let mut framer = framer.without_payloads();
    let mut last = None;
    for event in CanonicalEvents::new(payload.clone()) {
        let event = event.map_err(|error| no_meaning(&error))?;
        last = framer.push(&event).map_err(|error| no_meaning(&error))?;
    }
    match last {
        // Canonical events are their own canonical form.
        Some(StreamItem::Transaction(transaction)) => Ok(FramedTransaction {
            payload,
            ..transaction
        }),
        _ => Err(no_meaning(&"it has no end")),
    }
}
