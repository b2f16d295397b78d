//! Where the log comes from: transactions in the log's order.

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
use thiserror::Error;

use crate::persistence::Persistence;
pub use crate::source::dump::DumpSource;
pub use crate::source::files::{FileSource, ReadBytes};

/// A log that is read from front to back.
pub trait Source: Send {
    /// The next transaction; `None` when the log has ended for good, or was to be read up to here only. Waits while there is
    /// nothing new. A call that is dropped loses no transaction, but may begin anew what takes long, as to open a
    /// connection: whoever drops call by call may never get anything.
    ///
    /// # Errors
    /// [`SourceError`]; the source is over then.
    fn next(
        &mut self,
    ) -> impl Future<Output = Result<Option<FramedTransaction>, SourceError>> + Send;

    /// Whether nothing more is there to be read at the moment, to be asked while the source is waited for, too.
    fn drained(&self) -> Drained;
}

/// Whether everything that a source has was given out. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Drained(Arc<AtomicBool>);

impl Drained {
    /// Says whether it is so.
    pub fn set(&self, drained: bool) {
        self.0.store(drained, Relaxed);
    }

    /// Whether it is so.
    pub fn get(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// How a source that is away is opened again, for at most `patience`.
pub fn reopening(patience: Duration) -> Persistence {
    Persistence {
        within: patience,
        first_pause: Duration::from_millis(100),
        longest_pause: Duration::from_secs(5),
    }
}

/// Why a source gives no more transactions.
#[derive(Debug, Clone, Error)]
pub enum SourceError {
    /// It cannot be reached, or broke off; opening it again at the target's executed GTIDs may help.
    #[error("{0}")]
    Unreachable(String),
    /// It is damaged, or cannot be applied from: the words say what to do.
    #[error("{0}")]
    Refused(String),
}

// A log that is read up to a point only.

/// Where a source that goes on is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// When all of these are applied; those between them in the log are applied, too.
    Gtids(GtidSet),
    /// Before the first transaction that was committed after this time (the log's timestamps).
    Time(SystemTime),
}

/// A source that ends where an [`Until`] says, if the log goes so far.
#[derive(Debug)]
pub struct UntilSource<S> {
    source: S,
    until: Option<Until>,
    /// Of [`Until::Gtids`]: what has not come yet.
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

    /// The source without its end.
    pub fn inner(&self) -> &S {
        &self.source
    }

    /// Of a set of GTIDs to end at, those that did not come.
    pub fn missing(&self) -> &GtidSet {
        &self.missing
    }
}

/// When a transaction was committed, as far as its log says.
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

// A log that a target can understand: read from, until a newer server than the target has written to it.

/// Refuses a log at the first transaction that a newer server than the target has written, which is at its start unless the
/// source was upgraded in between: what such a server writes for every transaction may be what an older one does not know.
#[derive(Debug)]
pub struct VersionSource<S> {
    source: S,
    target: ServerVersion,
    /// The last version that was found to be right, so that each is judged once.
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

/// The version of the server where a transaction originated, as far as its log says: from 8.0.14 on.
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

// A transaction as a member's log keeps it: the events of one payload, without checksums.

/// The transaction of a member's canonical payload.
///
/// # Errors
/// [`SourceError::Refused`] when it has no meaning, or is larger than the bound.
pub fn framed(
    payload: Bytes,
    max_transaction_bytes: u64,
) -> Result<FramedTransaction, SourceError> {
    // Every event is looked at.
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
        // The canonical form of canonical events is what they are.
        Some(StreamItem::Transaction(transaction)) => Ok(FramedTransaction {
            payload,
            ..transaction
        }),
        _ => Err(no_meaning(&"it has no end")),
    }
}
