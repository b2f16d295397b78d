//! A log that a target can understand: read from, until a newer server than the target has written to it.

use binlog_format::canonical::CanonicalEvents;
use binlog_format::events::GtidEvent;
use binlog_format::framing::FramedTransaction;
use mysql_link::{ServerVersion, cannot_apply};

use super::{Source, SourceError};

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

    fn is_drained(&self) -> bool {
        self.source.is_drained()
    }
}
