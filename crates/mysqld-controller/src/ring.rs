//! The ring as this crate needs it. `member` implements it over the member's Raft and its log;
//! tests implement it with a log in memory.

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
    /// The transactions in it, committed or not.
    pub gtids: GtidSet,
    /// The op id of its last entry. Once that is committed, so are all of `gtids`.
    pub end: Option<OpId>,
    /// The sequence number of the last transaction of its last file; 0 where that has none.
    pub sequence_number: i64,
}

/// The file that the log is being written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentFile {
    /// Bytes written to it so far.
    pub size: u64,
    /// Its creation time by the clock of the leader of that moment, in seconds since 1970.
    pub begun: u32,
    /// Its canonical format description event.
    pub format_description: Bytes,
}

/// Why the ring failed a request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RingError(pub String);

/// Notifies one dependent task that the ring may have changed.
pub struct RingChanges(Pin<Box<dyn Stream<Item = ()> + Send + Sync>>);

impl RingChanges {
    /// Changes of a published value.
    pub fn of<T: Send + Sync + 'static>(published: watch::Receiver<T>) -> Self {
        let changes = stream::unfold(published, async |mut published| {
            let changed = published.changed().await;
            changed.ok().map(|()| ((), published))
        });
        // After the member has ended, nothing changes.
        Self(Box::pin(changes.chain(stream::pending())))
    }

    /// Waits for a change that was not reported here yet. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        self.0.next().await;
    }
}

/// The ring, as the controller of a member's mysqld uses it.
pub trait Ring: Send + Sync + 'static {
    /// The type of what [`Ring::propose`] returns for each proposal.
    type Ticket: Ticket;

    /// The term in which this member serves as the leader, if it does: an entry of its own term is
    /// committed and a quorum has answered recently.
    fn serving_term(&self) -> Option<Term>;

    /// When this member's lease ends if no more heartbeats are answered; none where it serves without one, or does not serve.
    fn lease_end(&self) -> Option<Instant>;

    /// Waits until this member serves as the leader. Cancel safe.
    fn serves(&self) -> impl Future<Output = Term> + Send;

    /// Waits until the leadership of `term` is over or being transferred. A quorum that is
    /// silent for a while does not end it. Cancel safe.
    fn leadership_over(&self, term: Term) -> impl Future<Output = ()> + Send;

    /// The other database member that leads, as far as this one knows: the primary is next to that one then.
    /// A leading witness transfers the leadership, so it is none.
    fn primary_elsewhere(&self) -> Option<MemberId>;

    /// True if the ring has another member whose mysqld could become the primary.
    fn others_may_be_primary(&self) -> bool;

    /// Notifies of each change of [`Ring::serving_term`], [`Ring::leadership_over`], [`Ring::primary_elsewhere`] and
    /// [`Ring::others_may_be_primary`]. Their own answers are always current; the notification may be slightly later.
    fn changes(&self) -> RingChanges;

    /// The log's transactions and its end, read at one moment.
    fn log(&self) -> impl Future<Output = Result<RingLog, RingError>> + Send;

    /// The current file. Cheap: called before each transaction.
    fn current_file(&self) -> CurrentFile;

    /// Up to where the log is committed; only ever advances.
    fn committed(&self) -> watch::Receiver<Option<OpId>>;

    /// Waits until this member knows what is committed under a leader that serves now, and returns those transactions: no
    /// others can have been acknowledged before the call. Cancel safe.
    fn settled(&self) -> impl Future<Output = Result<GtidSet, RingError>> + Send;

    /// Proposes an entry in the leadership of `term` and returns without waiting for its commit. Successive calls
    /// append their entries to the log in that order; after a rejected entry, the entries that follow it in its sequence
    /// are rejected too. Cancel safe: a call that is dropped before it returns has proposed nothing.
    fn propose(
        &self,
        entry: AppEntry,
        term: Term,
        sequence: &ProposalSequence,
    ) -> impl Future<Output = Result<Self::Ticket, RingError>> + Send;
}

/// The committed part of the ring's log, for a mysqld that follows.
pub trait CommittedLog: Send + Sync + 'static {
    /// The log as the applier reads it.
    type Source: Source + 'static;

    /// The committed transactions that are not in `have`, in the log's order, followed by later commits. A transaction larger
    /// than `max_transaction_bytes` ends it with an error.
    fn committed_log(&self, have: GtidSet, max_transaction_bytes: u64) -> Self::Source;
}

// This member's role in its ring, with its age.

/// This member's role, as far as its mysqld is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leading {
    /// It serves as the leader.
    Serving(Term),
    /// It leads, but no quorum has answered for this long.
    Silent(Duration),
    /// It has not led for this long.
    No(Duration),
    /// Another database member leads, as far as this one has been informed.
    Elsewhere(MemberId),
}

impl Leading {
    /// Time until this member has not served for `patience`; none where it serves or another one leads, and after that moment.
    pub(crate) fn patience_left(self, patience: Duration) -> Option<Duration> {
        match self {
            Self::Silent(so_far) | Self::No(so_far) => {
                patience.checked_sub(so_far).filter(|left| !left.is_zero())
            }
            Self::Serving(_) | Self::Elsewhere(_) => None,
        }
    }
}

/// Memory of the ring's observer. Time without a lease counts from the lease's end, or from the first observation if there was no lease.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RingMemory {
    /// The last leadership observed to serve, while it is not over.
    last_served: Option<Term>,
    /// The lease's end when this member was last observed to serve.
    lease_end: Option<Instant>,
    /// When this member stopped serving; none while it serves.
    unserved_since: Option<Instant>,
}

impl RingMemory {
    /// This member's present role. Queried from the ring, so that a process that was suspended does not act on stale state.
    pub(crate) fn look<R: Ring>(&mut self, ring: &R, now: Instant) -> Leading {
        if let Some(term) = ring.serving_term() {
            self.last_served = Some(term);
            self.lease_end = ring.lease_end();
            self.unserved_since = None;
            return Leading::Serving(term);
        }
        // This process may have been suspended since then.
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

/// Waits until the deadline, at most one second. Cancel safe.
pub(crate) async fn due(at: Option<Instant>) {
    const LONGEST: Duration = Duration::from_secs(1);
    let longest = Instant::now() + LONGEST;
    tokio::time::sleep_until(at.map_or(longest, |at| at.min(longest))).await;
}

/// Waits for a change; indefinitely after the sender is gone. Cancel safe.
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
