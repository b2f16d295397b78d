//! A log that is read up to a point only.

use std::time::SystemTime;

use binlog_format::framing::FramedTransaction;
use binlog_format::gtid::GtidSet;

use super::{Source, SourceError};

/// Where to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    /// When all of these are applied; those between them in the log are applied, too.
    Gtids(GtidSet),
    /// Before the first transaction that was committed after this time (the log's timestamps).
    Time(SystemTime),
}

/// Ends a source early.
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

    /// The source itself.
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

    fn is_drained(&self) -> bool {
        self.ended || self.source.is_drained()
    }
}
