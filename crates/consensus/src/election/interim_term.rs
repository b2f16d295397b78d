//! The term of the interim leader ([`super::stand_in`]).
//!
//! The engine lets a non-voter campaign only in a leadership transfer, and its vote requests then declare leases over. Here no leader has
//! ended its lease. So the vote requests of this term lose that flag ([`super::counted_votes`]), and this member's mysqld is no primary
//! in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use raft_types::Term;

/// The term in which this member is the interim leader; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct InterimTerm(Arc<AtomicU64>);

impl InterimTerm {
    /// It is about to campaign in this term.
    pub(crate) fn campaigns_in(&self, term: Term) {
        self.0.store(term.0, Ordering::Release);
    }

    /// Whether it campaigned in this term as the interim leader.
    pub(crate) fn asks_in(&self, term: Term) -> bool {
        // No election is held in the first term, which is 0.
        term.0 > 0 && self.0.load(Ordering::Acquire) == term.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_asked_term_alone_are_the_interim_leaders() {
        let interim = InterimTerm::default();
        assert!(!interim.asks_in(Term(0)));
        interim.campaigns_in(Term(5));
        let terms = [4, 5, 6].map(|term| interim.asks_in(Term(term)));
        assert_eq!(terms, [false, true, false]);
    }
}
