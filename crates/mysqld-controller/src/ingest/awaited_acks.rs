//! For how many ACKs commits wait while the member is attached: for its own two while the ring serves, and for more than any
//! replicas send while no quorum answers. Nothing that the ring lacks is released then, whoever else acknowledges.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::ingest::status::IngestFigures;
use crate::ring::{LeaderTerm, Ring, RingChanges};
use crate::settings::{MEMBER_ACKS, UNREACHABLE_ACKS};

/// From one look at what is not acknowledged to the next, once a quorum answers again.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The number that is set, and the one that should be.
pub(super) struct AwaitedAcks<'a, R> {
    ring: &'a R,
    term: LeaderTerm,
    figures: &'a IngestFigures,
    changes: RingChanges,
    /// Tells for how many ACKs commits wait once the member has made them wait.
    made_to_wait: oneshot::Receiver<u32>,
    /// What it told, or what was set since.
    awaited: Option<u32>,
}

impl<'a, R: Ring> AwaitedAcks<'a, R> {
    pub(super) fn new(
        ring: &'a R,
        term: LeaderTerm,
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

    /// Waits until another number should be set, and returns it. Cancel safe.
    ///
    /// The member's number comes back once the ring has all that waits: ACKs of other replicas have come meanwhile, and are
    /// counted by it.
    ///
    /// `may_raise`: a statement about accounts that waits meanwhile does not keep the number from being lowered again.
    pub(super) async fn due(&mut self, may_raise: bool) -> u32 {
        loop {
            let Some(awaited) = self.awaited else {
                match (&mut self.made_to_wait).await {
                    Ok(acks) => self.awaited = Some(acks),
                    // The attachment is at its end.
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
