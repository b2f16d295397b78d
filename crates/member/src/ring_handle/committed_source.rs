//! The member's own committed log, as the applier reads it.

use applier::source::{Source, SourceError, framed};
use binlog_format::framing::FramedTransaction;
use binlog_format::gtid::GtidSet;
use futures::StreamExt;
use futures::stream::BoxStream;
use mysqld_controller::CommittedLog;
use transport::LogPiece;

use super::log_reading::ReadableLog;
use crate::ring_handle::RingHandle;

/// See the module.
pub struct CommittedSource {
    pieces: BoxStream<'static, Result<LogPiece, String>>,
    max_transaction_bytes: u64,
    drained: bool,
}

impl CommittedLog for RingHandle {
    type Source = CommittedSource;

    fn committed_log(&self, have: GtidSet, max_transaction_bytes: u64) -> CommittedSource {
        CommittedSource {
            pieces: ReadableLog(self.clone()).beyond(have),
            max_transaction_bytes,
            drained: false,
        }
    }
}

impl Source for CommittedSource {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        loop {
            match self.pieces.next().await {
                Some(Ok(LogPiece::Transaction(payload))) => {
                    self.drained = false;
                    return framed(payload, self.max_transaction_bytes).map(Some);
                }
                Some(Ok(LogPiece::CaughtUp)) => self.drained = true,
                Some(Err(words)) => return Err(SourceError::Refused(words)),
                // The member stops.
                None => return Ok(None),
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.drained
    }
}
