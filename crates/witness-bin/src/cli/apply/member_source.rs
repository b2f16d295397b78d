//! A member's log as the applier reads it. A connection that breaks is opened again where the log was left.

use std::time::Duration;

use applier::source::{Source, SourceError, framed, reopening};
use binlog_format::framing::FramedTransaction;
use binlog_format::gtid::GtidSet;
use transport::{AdminClient, AdminError, LogPiece, LogPieces};

/// See the module.
pub(super) struct MemberSource {
    client: AdminClient,
    /// What the target had, and what was given out since.
    have: GtidSet,
    /// How long the member may be away before it is given up.
    patience: Duration,
    max_transaction_bytes: u64,
    pieces: Option<LogPieces>,
    drained: bool,
}

impl MemberSource {
    pub(super) fn new(
        client: AdminClient,
        have: GtidSet,
        patience: Duration,
        max_transaction_bytes: u64,
    ) -> Self {
        Self {
            client,
            have,
            patience,
            max_transaction_bytes,
            pieces: None,
            drained: false,
        }
    }

    async fn open(&self) -> Result<LogPieces, SourceError> {
        let may_pass = |error: &AdminError| matches!(error, AdminError::Unreachable { .. });
        let have = self.have.to_string();
        let open = || {
            self.client
                .read_log(have.clone(), self.max_transaction_bytes)
        };
        let opening = reopening(self.patience);
        let opened = opening.ask("the member's log cannot be read", may_pass, open);
        opened.await.map_err(|error| match may_pass(&error) {
            true => SourceError::Unreachable(error.to_string()),
            false => SourceError::Refused(error.to_string()),
        })
    }
}

impl Source for MemberSource {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        loop {
            let pieces = match &mut self.pieces {
                Some(pieces) => pieces,
                None => {
                    let opened = self.open().await?;
                    self.drained = false;
                    self.pieces.insert(opened)
                }
            };
            match pieces.next().await {
                Ok(Some(LogPiece::Transaction(payload))) => {
                    let transaction = framed(payload, self.max_transaction_bytes)?;
                    self.have.add(transaction.gtid);
                    self.drained = false;
                    return Ok(Some(transaction));
                }
                Ok(Some(LogPiece::CaughtUp)) => self.drained = true,
                Ok(None) => {
                    tracing::warn!("the member stops; opening its log again");
                    self.pieces = None;
                }
                Err(error @ AdminError::Unreachable { .. }) => {
                    tracing::warn!(%error, "the member's log broke off; opening it again");
                    self.pieces = None;
                }
                Err(error) => return Err(SourceError::Refused(error.to_string())),
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.drained
    }
}
