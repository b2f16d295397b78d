//! Connects the member's Raft and log to the ingest and the applier.

use std::time::Duration;

use applier::source::{Drained, Source, SourceError, framed};
use binlog_format::framing::FramedTransaction;
use binlog_format::gtid::GtidSet;
use consensus::{Leadership, NotServing, Primacy, ProposalTicket, Term};
use futures::StreamExt;
use futures::stream::BoxStream;
use mysqld_controller::{CommittedLog, CurrentFile, Ring, RingChanges, RingError, RingLog};
use raft_types::{AppEntry, MemberId, OpId, ProposalSequence};
use tokio::sync::watch;
use tokio::time::Instant;
use transport::LogPiece;

use crate::ring_handle::RingHandle;
use crate::ring_handle::log_reading::ReadError;

impl Ring for RingHandle {
    type Ticket = ProposalTicket;

    fn serving_term(&self) -> Option<Term> {
        self.member.primacy_now().leadership.serving_term()
    }

    fn lease_end(&self) -> Option<Instant> {
        self.member.lease_end()
    }

    async fn serves(&self) -> Term {
        let mut leadership = self.member.primacy();
        let serves = |now: &Primacy| now.leadership.serving_term().is_some();
        let serving = leadership.wait_for(serves).await;
        match serving.ok().and_then(|now| now.leadership.serving_term()) {
            Some(term) => term,
            // The member has ended, and will never serve again.
            None => std::future::pending().await,
        }
    }

    async fn leadership_over(&self, term: Term) {
        let over = |now: &Primacy| is_over(&now.leadership, term);
        // The channel also ends with the member, and the leadership with it.
        let _ = self.member.primacy().wait_for(over).await;
    }

    fn primary_elsewhere(&self) -> Option<MemberId> {
        self.member.primacy_now().elsewhere
    }

    fn others_may_be_primary(&self) -> bool {
        self.member.primacy_now().others
    }

    fn changes(&self) -> RingChanges {
        RingChanges::of(self.member.primacy())
    }

    async fn log(&self) -> Result<RingLog, RingError> {
        loop {
            let before = self.end();
            let gtids = self.log.gtid_set();
            let sequence_number = self.log.sequence_number();
            let end = self.end();
            // Op ids are never used twice. So if the end is the same, the log is the same.
            if before == end {
                return match self.log.failure() {
                    Some(error) => Err(RingError(error.to_string())),
                    None => Ok(RingLog {
                        gtids,
                        end,
                        sequence_number,
                    }),
                };
            }
            tokio::task::yield_now().await;
        }
    }

    fn current_file(&self) -> CurrentFile {
        let file = self.log.current_file();
        CurrentFile {
            size: file.size,
            begun: file.begun,
            format_description: self.log.format_description(),
        }
    }

    fn committed(&self) -> watch::Receiver<Option<OpId>> {
        self.member.committed()
    }

    async fn settled(&self) -> Result<GtidSet, RingError> {
        let mut leadership = self.member.leadership();
        let mut pause = FIRST_PAUSE;
        let committed = loop {
            leadership.mark_unchanged();
            match self.member.committed_in_ring().await {
                Ok(committed) => break committed,
                // No member serves at present, or a call was lost.
                Err(error) => {
                    tracing::debug!(%error, "the ring does not say yet what is committed");
                    let changed = tokio::time::timeout(pause, leadership.changed()).await;
                    // The member is ending.
                    if matches!(changed, Ok(Err(_))) {
                        tokio::time::sleep(pause).await;
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        };
        let mut own = self.member.committed();
        let known = own.wait_for(|own| *own >= committed).await;
        let mark = *known.map_err(|_| RingError("the member stops".to_owned()))?;
        // The result includes entries that are not on this member's disk yet: other members have them, and clients may have seen them.
        Ok(self.log.gtids_committed_in_ring(mark))
    }

    async fn propose(
        &self,
        entry: AppEntry,
        term: Term,
        sequence: &ProposalSequence,
    ) -> Result<ProposalTicket, RingError> {
        let proposed = self.member.propose_behind(entry, term, sequence);
        proposed.await.map_err(|error| RingError(error.to_string()))
    }
}

/// The pause between two requests to a ring that does not answer, if the leadership does not change.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl RingHandle {
    fn end(&self) -> Option<OpId> {
        self.log.bounds().map(|(_, last)| last)
    }
}

/// Returns true if a term has ended, or the leadership is being transferred. A quorum that does not answer does not end it.
fn is_over(now: &Leadership, term: Term) -> bool {
    let transfers = matches!(
        now,
        Leadership::LeaderNotServing {
            why: NotServing::TransferringTo(_),
            ..
        }
    );
    transfers || now.leading_term() != Some(term)
}

/// The member's own committed log, for the applier.
pub struct CommittedSource {
    pieces: BoxStream<'static, Result<LogPiece, ReadError>>,
    max_transaction_bytes: u64,
    drained: Drained,
}

impl CommittedLog for RingHandle {
    type Source = CommittedSource;

    fn committed_log(&self, have: GtidSet, max_transaction_bytes: u64) -> CommittedSource {
        CommittedSource {
            pieces: self.beyond(have),
            max_transaction_bytes,
            drained: Drained::default(),
        }
    }
}

impl Source for CommittedSource {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        loop {
            match self.pieces.next().await {
                Some(Ok(LogPiece::Transaction(payload))) => {
                    self.drained.set(false);
                    return framed(payload, self.max_transaction_bytes).map(Some);
                }
                Some(Ok(LogPiece::CaughtUp)) => self.drained.set(true),
                Some(Err(error)) => return Err(SourceError::Refused(error.to_string())),
                // The member stops.
                None => return Ok(None),
            }
        }
    }

    fn drained(&self) -> Drained {
        self.drained.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_does_not_end_a_leadership_and_everything_else_does() {
        let not_serving = |why| Leadership::LeaderNotServing { term: Term(3), why };
        let table = [
            (Leadership::Serving { term: Term(3) }, false),
            (not_serving(NotServing::QuorumSilent), false),
            (not_serving(NotServing::OwnEntryNotCommitted), false),
            (not_serving(NotServing::TransferringTo(MemberId(2))), true),
            (Leadership::Serving { term: Term(4) }, true),
            (Leadership::Candidate, true),
            (Leadership::Follower { leader: None }, true),
        ];
        for (now, expected) in table {
            assert_eq!(is_over(&now, Term(3)), expected, "{now:?}");
        }
    }
}
