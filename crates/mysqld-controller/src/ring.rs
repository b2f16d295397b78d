//! The ring, as this crate uses it. The crate `member` implements the trait over the member's Raft and its log; tests implement it with a
//! log in memory.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use applier::source::Source;
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use futures::stream::{self, Stream};
use futures::{FutureExt, StreamExt};
use raft_types::{AppEntry, MemberId, OpId, ProposalSequence, Term, Ticket};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

/// The member's log at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RingLog {
    /// The transactions in the log, committed or not.
    pub gtids: GtidSet,
    /// The op id of the log's last entry. If that entry is committed, so are all of `gtids`.
    pub end: Option<OpId>,
    /// The sequence number of the last transaction in the log's last file; 0 if that transaction has none.
    pub sequence_number: i64,
}

/// The file that the log is being written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentFile {
    /// Bytes written to the file so far.
    pub size: u64,
    /// The file's creation time, by the clock of the leader at that time, in seconds since 1970.
    pub begun: u32,
    /// The file's canonical format description event.
    pub format_description: Bytes,
}

/// Why the ring failed a request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RingError(pub String);

/// Notifies one dependent task that the ring may have changed.
pub struct RingChanges(Pin<Box<dyn Stream<Item = ()> + Send + Sync>>);

impl RingChanges {
    /// Creates notifications for changes of a published value.
    pub fn of<T: Send + Sync + 'static>(published: watch::Receiver<T>) -> Self {
        let changes = stream::unfold(published, async |mut published| {
            let changed = published.changed().await;
            changed.ok().map(|()| ((), published))
        });
        // No change follows after the member has ended.
        Self(Box::pin(changes.chain(stream::pending())))
    }

    /// Waits for a change that this value has not reported yet. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        self.0.next().await;
    }
}

/// The ring, as the controller of a member's mysqld uses it.
pub trait Ring: Send + Sync + 'static {
    /// The type that [`Ring::propose`] returns for each proposal.
    type Ticket: Ticket;

    /// Returns the term in which this member serves as the leader, if it does: an entry of that term is committed, and a quorum has
    /// answered within the lease.
    fn serving_term(&self) -> Option<Term>;

    /// Returns when this member's lease ends if no more heartbeats are answered. `None` if the member serves without a lease, or does not
    /// serve.
    fn lease_end(&self) -> Option<Instant>;

    /// Waits until this member serves as the leader. Cancel safe.
    fn serves(&self) -> impl Future<Output = Term> + Send;

    /// Waits until the leadership of `term` has ended or is being transferred. A quorum that is silent for some time does not end the
    /// leadership. Cancel safe.
    fn leadership_over(&self, term: Term) -> impl Future<Output = ()> + Send;

    /// Returns the other database member that leads, as far as this member has been informed. The primary is that member's mysqld. `None`
    /// if a witness leads, because it transfers the leadership.
    fn primary_elsewhere(&self) -> Option<MemberId>;

    /// True if the ring has another member whose mysqld could become the primary.
    fn others_may_be_primary(&self) -> bool;

    /// Returns notifications for changes of [`Ring::serving_term`], [`Ring::leadership_over`], [`Ring::primary_elsewhere`] and
    /// [`Ring::others_may_be_primary`]. These methods always return the current state; a notification may be slightly later.
    fn changes(&self) -> RingChanges;

    /// The log's transactions and its end, read at one moment.
    fn log(&self) -> impl Future<Output = Result<RingLog, RingError>> + Send;

    /// Returns the current file. Cheap, because it is called before each transaction.
    fn current_file(&self) -> CurrentFile;

    /// Returns up to which entry the log is committed; the value only advances.
    fn committed(&self) -> watch::Receiver<Option<OpId>>;

    /// Waits until this member has learned from a serving leader what is committed, and returns those transactions. No other transaction
    /// can have been acknowledged before the call. Cancel safe.
    fn settled(&self) -> impl Future<Output = Result<GtidSet, RingError>> + Send;

    /// Proposes an entry in the leadership of `term`, and returns without waiting for its commit. Successive calls append their entries to
    /// the log in call order. If an entry is rejected, the later entries of its sequence are rejected too. Cancel safe: a call that is
    /// dropped before it returns has proposed nothing.
    fn propose(
        &self,
        entry: AppEntry,
        term: Term,
        sequence: &ProposalSequence,
    ) -> impl Future<Output = Result<Self::Ticket, RingError>> + Send;
}

/// The committed part of the ring's log, for a mysqld that follows.
pub trait CommittedLog: Send + Sync + 'static {
    /// The log, in the form that the applier reads.
    type Source: Source + 'static;

    /// Returns the committed transactions that are not in `have`, in the log's order, followed by later commits. A transaction larger than
    /// `max_transaction_bytes` ends the stream with an error.
    fn committed_log(&self, have: GtidSet, max_transaction_bytes: u64) -> Self::Source;
}

// This member's role in its ring, and how long it has had that role.

/// This member's role, as it matters to its mysqld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leading {
    /// The member serves as the leader.
    Serving(Term),
    /// The member leads, but no quorum has answered for this long.
    Silent(Duration),
    /// The member has not led for this long.
    No(Duration),
    /// Another database member leads, as far as this member has been informed.
    Elsewhere(MemberId),
}

impl Leading {
    /// Returns the time until this member has not served for `patience`. `None` if it serves, another member leads, or that time has
    /// passed.
    pub(crate) fn patience_left(self, patience: Duration) -> Option<Duration> {
        match self {
            Self::Silent(so_far) | Self::No(so_far) => {
                patience.checked_sub(so_far).filter(|left| !left.is_zero())
            }
            Self::Serving(_) | Self::Elsewhere(_) => None,
        }
    }
}

/// State of the ring's observer between two observations. The time without a lease counts from the lease's end, or from the first
/// observation if there was no lease.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RingMemory {
    /// The last leadership that was observed to serve; `None` after its end.
    last_served: Option<Term>,
    /// The lease's end when this member was last observed to serve.
    lease_end: Option<Instant>,
    /// When this member stopped serving; `None` while it serves.
    unserved_since: Option<Instant>,
}

impl RingMemory {
    /// Returns this member's present role. Queries the ring, so that a process that was suspended does not act on an old state.
    pub(crate) fn look<R: Ring>(&mut self, ring: &R, now: Instant) -> Leading {
        if let Some(term) = ring.serving_term() {
            self.last_served = Some(term);
            self.lease_end = ring.lease_end();
            self.unserved_since = None;
            return Leading::Serving(term);
        }
        // This process may have been suspended since the lease ended.
        let began = self.lease_end.map_or(now, |end| end.min(now));
        let so_far = now.saturating_duration_since(*self.unserved_since.get_or_insert(began));
        let over = |term: Term| ring.leadership_over(term).now_or_never().is_some();
        self.last_served = self.last_served.filter(|&term| !over(term));
        match (self.last_served, ring.primary_elsewhere()) {
            (Some(_), _) => Leading::Silent(so_far),
            (None, Some(member)) => Leading::Elsewhere(member),
            (None, None) => Leading::No(so_far),
        }
    }
}

/// Waits until the deadline, but at most one second. Cancel safe.
pub(crate) async fn due(at: Option<Instant>) {
    const LONGEST: Duration = Duration::from_secs(1);
    let longest = Instant::now() + LONGEST;
    tokio::time::sleep_until(at.map_or(longest, |at| at.min(longest))).await;
}

/// Waits for a change; indefinitely if the sender was dropped. Cancel safe.
pub(crate) async fn changed<T>(told: &mut watch::Receiver<T>) {
    if told.changed().await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patience_ends_once() {
        let seconds = Duration::from_secs;
        let table = [
            (Leading::Silent(seconds(0)), Some(10)),
            (Leading::No(seconds(9)), Some(1)),
            (Leading::No(seconds(10)), None),
            (Leading::Silent(seconds(99)), None),
            (Leading::Serving(Term(3)), None),
            (Leading::Elsewhere(MemberId(4)), None),
        ];
        for (leading, expected) in table {
            let left = leading.patience_left(seconds(10));
            assert_eq!(left, expected.map(seconds), "{leading:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_wakes_and_so_does_a_second_without_anything() {
        let now = Instant::now();
        let at = |millis| Some(now + Duration::from_millis(millis));
        for (deadline, woken) in [
            (at(0), 0),
            (at(300), 300),
            (None, 1300),
            (at(3_600_000), 2300),
        ] {
            due(deadline).await;
            let late = now.elapsed() - Duration::from_millis(woken);
            assert!(late < Duration::from_millis(50), "{deadline:?} {late:?}");
        }
    }
}
