//! How many ACKs commits wait for while the member is attached: its own two while the ring serves. While no quorum answers, more than
//! replicas can send, so that other replicas' ACKs release nothing that the ring lacks.

use std::time::Duration;

use mysqld_server::settings::{MEMBER_ACKS, UNREACHABLE_ACKS};
use raft_types::Term;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::ingest::status::IngestFigures;
use crate::ring::{Ring, RingChanges};

/// Interval between checks of unacknowledged transactions, once a quorum answers again.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The current number, and the required one.
pub(super) struct AwaitedAcks<'a, R> {
    ring: &'a R,
    term: Term,
    figures: &'a IngestFigures,
    changes: RingChanges,
    /// Reports the number of ACKs once the member has made commits wait.
    made_to_wait: oneshot::Receiver<u32>,
    /// The reported number, or the one set since.
    awaited: Option<u32>,
}

impl<'a, R: Ring> AwaitedAcks<'a, R> {
    pub(super) fn new(
        ring: &'a R,
        term: Term,
        figures: &'a IngestFigures,
        made_to_wait: oneshot::Receiver<u32>,
    ) -> Self {
        Self {
            ring,
            term,
            figures,
            changes: ring.changes(),
            made_to_wait,
            awaited: None,
        }
    }

    /// Waits until another number is required, and returns it. Cancel safe.
    ///
    /// Returns to the member's number only once the ring has all waiting transactions: other replicas' ACKs have arrived in the meantime
    /// and count towards it.
    ///
    /// `may_raise`: a waiting statement about accounts does not prevent lowering the number again.
    pub(super) async fn due(&mut self, may_raise: bool) -> u32 {
        loop {
            let Some(awaited) = self.awaited else {
                match (&mut self.made_to_wait).await {
                    Ok(acks) => self.awaited = Some(acks),
                    // The attachment ends.
                    Err(_) => std::future::pending().await,
                }
                continue;
            };
            let serves = self.ring.serving_term() == Some(self.term);
            match serves {
                false if may_raise && awaited != UNREACHABLE_ACKS => return UNREACHABLE_ACKS,
                true if awaited != MEMBER_ACKS => {
                    let figures = self.figures.view(Instant::now());
                    if figures.oldest_unacknowledged.is_none() {
                        return MEMBER_ACKS;
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                _ => self.changes.changed().await,
            }
        }
    }

    pub(super) fn set(&mut self, acks: u32) {
        self.awaited = Some(acks);
    }
}
