//! What this member is to its ring, with its age: pure but for the questions to the ring.

use std::time::{Duration, Instant};

use futures::FutureExt;
use raft_types::MemberId;

use crate::ring::{LeaderTerm, Ring};

/// What this member is, as far as its mysqld cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leading {
    /// It serves as the leader.
    Serving(LeaderTerm),
    /// It leads, but no quorum has answered for this long.
    Silent(Duration),
    /// It has not led for this long.
    No(Duration),
    /// Another database member leads.
    Elsewhere(MemberId),
}

/// Remembers what is needed to tell [`Leading`].
#[derive(Debug, Default)]
pub(crate) struct LeadingMemory {
    /// The leadership that was last seen to serve, while it is not over.
    last_served: Option<LeaderTerm>,
    /// Since when this member has not served; none while it does.
    unserved_since: Option<Instant>,
}

impl LeadingMemory {
    pub(crate) fn look<R: Ring>(&mut self, ring: &R, now: Instant) -> Leading {
        if let Some(term) = ring.serving_term() {
            self.last_served = Some(term);
            self.unserved_since = None;
            return Leading::Serving(term);
        }
        let so_far = now.saturating_duration_since(*self.unserved_since.get_or_insert(now));
        let over = |term: LeaderTerm| ring.leadership_over(term).now_or_never().is_some();
        self.last_served = self.last_served.filter(|&term| !over(term));
        match (self.last_served, ring.primary_elsewhere()) {
            (Some(_), _) => Leading::Silent(so_far),
            (None, Some(member)) => Leading::Elsewhere(member),
            (None, None) => Leading::No(so_far),
        }
    }
}

/// Waits until this member's leadership begins or is over. Cancel safe.
pub(crate) async fn leadership_changes<R: Ring>(ring: &R) {
    match ring.serving_term() {
        Some(term) => ring.leadership_over(term).await,
        None => {
            ring.serves().await;
        }
    }
}
