//! The acknowledging side of an attachment. Sends one ACK for the highest position that a commit in the ring covers. Only this task's
//! wake-up delays the ACK. [`mysql_link::Acker`] builds and sends it.

use std::sync::atomic::Ordering;

use mysql_link::Acker;
use mysqld_server::settings::{MEMBER_ACKS, UNREACHABLE_ACKS};
use raft_types::{OpId, Term, Ticket};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::ingest::ack_ledger::{AckLedger, LedgerEntry, Wait, covers};
use crate::ingest::reading::Shared;
use crate::ingest::status::{IngestError, IngestFigures};
use crate::ring::{Ring, RingChanges};

/// The number of dumps. mysqld counts one ACK for each server id, and each dump has its own server id.
pub(super) const DUMPS: usize = MEMBER_ACKS as usize;

/// The waiting entries and their queue. They outlive the attachment, so no ticket is lost.
pub(super) struct Waiting<T> {
    pub(super) ledger: AckLedger<T>,
    pub(super) inbox: mpsc::Receiver<LedgerEntry<T>>,
}

impl<T: Ticket> Waiting<T> {
    /// Acknowledges committed entries until something fails.
    pub(super) async fn run(
        &mut self,
        mut ackers: [Acker; DUMPS],
        mut committed: watch::Receiver<Option<OpId>>,
        shared: &Shared<'_>,
    ) -> Result<std::convert::Infallible, IngestError> {
        let mut more = true;
        loop {
            let Self { ledger, inbox } = self;
            tokio::select! {
                biased;
                entry = inbox.recv(), if more => match entry {
                    Some(entry) => {
                        ledger.push(entry);
                        while let Ok(entry) = inbox.try_recv() {
                            ledger.push(entry);
                        }
                    }
                    None => more = false,
                },
                () = front_is_due(ledger, &mut committed) => {}
            }
            let release = self.ledger.release(*committed.borrow())?;
            let front = self.ledger.entries.front();
            shared.figures.oldest(front.map(|entry| entry.since));
            if release.is_empty() {
                continue;
            }
            let awaits = shared.awaits.load(Ordering::Acquire);
            if let Some(position) = release.acknowledge.as_ref().filter(|_| !awaits) {
                for acker in &mut ackers {
                    acker.ack(position).await?;
                }
                shared.figures.acknowledged();
                if let Some(observer) = shared.observer {
                    let now = Instant::now();
                    let waits = release.came.iter();
                    waits.for_each(|came| observer.acknowledged(now.duration_since(*came)));
                }
            }
            shared.rotating.fetch_sub(release.own, Ordering::AcqRel);
            shared.figures.count(|figures| {
                figures.committed_total += release.committed;
                figures.known_total += release.known;
            });
            shared
                .in_flight
                .add_permits(usize::try_from(release.permits).unwrap_or_default());
        }
    }

    /// Returns the tickets with an unknown outcome.
    pub(super) fn into_tickets(mut self) -> Vec<T> {
        self.inbox.close();
        let mut tickets: Vec<T> = self.ledger.into_tickets().collect();
        while let Ok(entry) = self.inbox.try_recv() {
            tickets.extend(entry.into_ticket());
        }
        tickets
    }
}

/// Waits until the first entry can be released or has failed. Cancel safe.
async fn front_is_due<T: Ticket>(
    ledger: &mut AckLedger<T>,
    committed: &mut watch::Receiver<Option<OpId>>,
) {
    match ledger.entries.front_mut().map(|front| &mut front.wait) {
        None => std::future::pending().await,
        Some(Wait::Nothing) => {}
        Some(Wait::Proposed(ticket)) => {
            ticket.outcome().await;
        }
        Some(Wait::Committed(op_id)) => {
            let op_id = *op_id;
            // An error means that the ring has stopped. The tickets report that too, and the leadership has ended.
            if committed
                .wait_for(|committed| covers(*committed, op_id))
                .await
                .is_err()
            {
                std::future::pending().await
            }
        }
    }
}

// The number of ACKs that commits wait for while the member is attached. While the ring serves, it is the member's own two. While no quorum
// answers, it is more than replicas can send, so that ACKs of other replicas release no commit that the ring lacks.

/// The current number of ACKs, and the required number.
pub(super) struct AwaitedAcks<'a, R> {
    pub(super) ring: &'a R,
    pub(super) term: Term,
    pub(super) figures: &'a IngestFigures,
    pub(super) changes: RingChanges,
    /// Reports the number of ACKs once the member has made commits wait.
    pub(super) made_to_wait: oneshot::Receiver<u32>,
    /// The current number: the reported one, or the number set since then.
    pub(super) awaited: Option<u32>,
}

impl<R: Ring> AwaitedAcks<'_, R> {
    /// Waits until another number is required, and returns it. Cancel safe.
    ///
    /// Lowers the number to the member's own two only after the ring has all waiting transactions, because ACKs of other replicas may have
    /// arrived and count.
    ///
    /// If `may_raise` is false, the number is not raised; a waiting statement about accounts does not prevent lowering it again.
    pub(super) async fn due(&mut self, may_raise: bool) -> u32 {
        loop {
            let Some(awaited) = self.awaited else {
                match (&mut self.made_to_wait).await {
                    Ok(acks) => self.awaited = Some(acks),
                    // The attachment is ending.
                    Err(_) => std::future::pending().await,
                }
                continue;
            };
            let serves = self.ring.serving_term() == Some(self.term);
            match serves {
                false if may_raise && awaited != UNREACHABLE_ACKS => return UNREACHABLE_ACKS,
                true if awaited != MEMBER_ACKS => {
                    let progress = self.figures.progress.notified();
                    let figures = self.figures.view(Instant::now());
                    if figures.oldest_unacknowledged.is_none() {
                        return MEMBER_ACKS;
                    }
                    tokio::select! {
                        () = progress => {}
                        () = self.changes.changed() => {}
                    }
                }
                _ => self.changes.changed().await,
            }
        }
    }
}
