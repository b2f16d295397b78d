//! The task that reads ahead: takes transactions from the feed, numbers them, and hands them to the driver as far as there is
//! room in the window.
//!
//! It reads on over a barrier, since what is behind one is mostly about tables that the barrier leaves alone. Two rules keep that
//! right. What a barrier changes is forgotten as soon as it is handed over, so that nothing behind it is read with what was known
//! of a table before; what is left of the shapes is true before the barrier and behind it alike (`shapes`). And the target is
//! asked about a table only when every barrier that was handed over is committed, so that an answer is never of before one:
//! barriers run alone and in the log's order (`scheduler`), so that the last one's commit is that of all. Rows behind the barrier
//! that is being asked about are not handed over before the answer, so that no answer is of behind a later barrier either.

use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::run::error::ApplyError;
use crate::run::feed::Feed;
use crate::run::progress::{Progress, StageName, rows_of};
use crate::run::window::{Place, Window};
use crate::transaction::{Body, Seq, Transaction};

/// A feed that gives nothing for so long is asked whether it has anything.
const IDLE: Duration = Duration::from_millis(100);

/// What the reader hands over.
#[derive(Debug)]
pub(super) enum Item {
    /// The next transaction of the log.
    Transaction {
        transaction: Arc<Transaction>,
        place: Place,
        /// To be told when it is committed, if the reader may wait for that.
        done: Option<oneshot::Sender<()>>,
    },
    /// The feed has nothing more at the moment.
    Drained,
    /// Nothing more comes, or not without another run.
    End(Result<(), ApplyError>),
}

pub(super) struct Reader<F> {
    pub(super) feed: F,
    /// What the target has, and what was read since.
    pub(super) seen: GtidSet,
    pub(super) next: Seq,
    pub(super) window: Window,
    pub(super) progress: Arc<Progress>,
    pub(super) items: mpsc::Sender<Item>,
    pub(super) drained: bool,
    /// Told when the last barrier that was handed over is committed.
    pub(super) barrier: Option<oneshot::Receiver<()>>,
}

impl<F: Feed> Reader<F> {
    /// Reads until the feed or the driver ends.
    pub(super) async fn read(mut self) {
        let end = self.read_all().await;
        // The driver is gone when it takes nothing any more.
        let _ = self.items.send(Item::End(end)).await;
    }

    async fn read_all(&mut self) -> Result<(), ApplyError> {
        loop {
            let Ok(found) = timeout(IDLE, self.feed.wait(&self.seen)).await else {
                self.look_whether_drained().await;
                continue;
            };
            if !found? {
                break;
            }
            if self.feed.has_to_ask()
                && let Some(committed) = self.barrier.take()
                && committed.await.is_err()
            {
                return Ok(());
            }
            let Some(mut transaction) = self.feed.take().await? else {
                break;
            };
            self.seen.add(transaction.gtid);
            transaction.seq = self.next;
            self.next = self.next.next();
            self.progress.pass(StageName::Received, &transaction);
            self.drained = false;
            if !self.hand_over(transaction).await {
                return Ok(());
            }
            self.look_whether_drained().await;
        }
        self.progress.set_drained(true);
        Ok(())
    }

    /// Tells when the feed has nothing more; the driver has everything before, then.
    async fn look_whether_drained(&mut self) {
        let before = std::mem::replace(&mut self.drained, self.feed.is_drained());
        self.progress.set_drained(self.drained);
        if self.drained && !before {
            // A driver that is gone wants to know nothing.
            let _ = self.items.send(Item::Drained).await;
        }
    }

    /// False when the driver is gone.
    async fn hand_over(&mut self, transaction: Transaction) -> bool {
        let (rows, bytes) = (rows_of(&transaction), transaction.bytes);
        if self.window.is_full_for(rows, bytes) {
            self.progress.wait_for_window();
        }
        let Ok(place) = self.window.enter(rows, bytes).await else {
            return false;
        };
        let change = match &transaction.body {
            Body::Rows(_) => None,
            Body::Barrier(barrier) => Some(barrier.changes.clone()),
        };
        let (done, committed) = oneshot::channel();
        let item = Item::Transaction {
            transaction: Arc::new(transaction),
            place,
            done: change.is_some().then_some(done),
        };
        if self.items.send(item).await.is_err() {
            return false;
        }
        if let Some(change) = change {
            self.feed.schema_changed(&change);
            self.barrier = Some(committed);
        }
        true
    }
}
