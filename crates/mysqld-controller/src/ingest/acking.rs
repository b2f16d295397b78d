//! The acknowledging side of an attachment. Sends one ACK for the highest position that a commit of the ring covers; only this task's
//! wake-up is in between. [`mysql_link::Acker`] builds and sends the ACK.

use std::sync::atomic::Ordering;

use mysql_link::Acker;
use mysqld_server::settings::MEMBER_ACKS;
use raft_types::{OpId, Ticket};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::ingest::ack_ledger::{AckLedger, LedgerEntry, Wait, covers};
use crate::ingest::error::IngestError;
use crate::ingest::reading::Shared;

/// mysqld counts one ACK for each server id, and each dump has one.
pub(super) const DUMPS: usize = MEMBER_ACKS as usize;

/// The waiting entries and their inbox. Outlives the attachment, so that no ticket is lost.
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

    /// The tickets with an unknown outcome.
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
            // An error means that the ring has stopped: the tickets report that too, and leadership is over.
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
