//! The acknowledging side of an attachment: from a commit of the ring to one ACK for the highest
//! position that it covers, with nothing in between but this task's wake-up. The bytes of the ACK are made and sent by
//! [`mysql_link::Acker`].

use std::sync::atomic::Ordering;

use mysql_link::Acker;
use raft_types::OpId;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::ingest::ack_ledger::{AckLedger, LedgerEntry, Wait, covers};
use crate::ingest::error::IngestError;
use crate::ingest::reading::Shared;
use crate::ingest::session::DUMPS;
use crate::ring::Ticket;

/// What waits, and where more of it comes from. Outlives the attachment, so that no ticket is lost.
pub(super) struct Waiting<T> {
    pub(super) ledger: AckLedger<T>,
    pub(super) inbox: mpsc::Receiver<LedgerEntry<T>>,
}

impl<T: Ticket> Waiting<T> {
    /// Acknowledges what is committed until something fails.
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
            let release = self.ledger.release(*committed.borrow(), Instant::now())?;
            shared.figures.oldest(self.ledger.oldest());
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
            shared.figures.released(&release);
            shared
                .in_flight
                .add_permits(usize::try_from(release.permits).unwrap_or_default());
        }
    }

    /// The tickets whose outcome is not known yet.
    pub(super) fn into_tickets(mut self) -> Vec<T> {
        self.inbox.close();
        let mut tickets: Vec<T> = self.ledger.into_tickets().collect();
        while let Ok(entry) = self.inbox.try_recv() {
            tickets.extend(entry.into_ticket());
        }
        tickets
    }
}

/// Waits until the front of the ledger can be released, or has failed. Cancel safe.
async fn front_is_due<T: Ticket>(
    ledger: &mut AckLedger<T>,
    committed: &mut watch::Receiver<Option<OpId>>,
) {
    match ledger.front_wait() {
        None => std::future::pending().await,
        Some(Wait::Nothing) => {}
        Some(Wait::Proposed(ticket)) => {
            ticket.outcome().await;
        }
        Some(Wait::Committed(op_id)) => {
            let op_id = *op_id;
            // An error means that the ring is gone: the tickets say so too, and leadership is over.
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
