//! This member's role in its ring, with its age. One observer serves all deciders about one mysqld, so that they agree on the leader and
//! the duration. Changes of the ring and deadlines wake each of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use raft_types::{MemberId, Term};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ring::Ring;

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

/// Observes the ring for all deciders about one mysqld.
#[derive(Debug)]
pub struct RingObserver<R> {
    ring: Arc<R>,
    memory: Mutex<Memory>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    /// The last leadership observed to serve, while it is not over.
    last_served: Option<Term>,
    /// The lease's end when this member was last observed to serve.
    lease_end: Option<Instant>,
    /// When this member stopped serving; none while it serves.
    unserved_since: Option<Instant>,
}

impl<R: Ring> RingObserver<R> {
    /// An observer of this ring. Time without a lease counts from the lease's end, or from the first observation if there was no lease.
    pub fn new(ring: Arc<R>) -> Arc<Self> {
        let memory = Mutex::default();
        Arc::new(Self { ring, memory })
    }

    pub(crate) fn ring(&self) -> &Arc<R> {
        &self.ring
    }

    /// This member's present role. Queried from the ring, so that a process that was suspended does not act on stale state.
    pub(crate) fn look(&self) -> Leading {
        // The memory is replaced as a whole.
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.look(&*self.ring, Instant::now())
    }
}

impl Memory {
    fn look<R: Ring>(&mut self, ring: &R, now: Instant) -> Leading {
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

/// Reason for the next decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// A fact has changed, or a deadline has passed.
    Told,
    /// A long time without a wake. An action that is then due shows a missing wake.
    Unasked,
}

/// Waits until the deadline, at most one second. Cancel safe.
pub(crate) async fn due(at: Option<Instant>) -> Woken {
    const LONGEST: Duration = Duration::from_secs(1);
    let longest = Instant::now() + LONGEST;
    match at.filter(|at| *at < longest) {
        Some(at) => {
            tokio::time::sleep_until(at).await;
            Woken::Told
        }
        None => {
            tokio::time::sleep_until(longest).await;
            Woken::Unasked
        }
    }
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
        assert_eq!(due(at(0)).await, Woken::Told);
        assert_eq!(due(at(300)).await, Woken::Told);
        assert_eq!(due(None).await, Woken::Unasked);
        assert_eq!(
            due(Some(now + Duration::from_secs(3600))).await,
            Woken::Unasked
        );
    }
}
