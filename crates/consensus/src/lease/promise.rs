//! This member's promise: after each heartbeat that it answers, it elects no other leader for its lease (`raft.lease`). A leader may serve
//! for no longer than that. So the leader counts a voter's answers for the shorter of its own lease and the voter's lease
//! ([`super::contacts`]). It counts no answers before it has received the voter's lease in its term. Voters announce their lease in
//! greetings (`election::greetings`).
//!
//! After a restart with a shorter lease, the leader may still use the longer lease of the member's previous process. So the longest
//! promised lease is stored with the vote. After its start, the member keeps that promise once (`election::campaign`). In the term in which
//! it was stopped, it answers no heartbeat before that term's leader has received the new lease.

use std::sync::Mutex;
use std::time::Duration;

use raft_types::{ElectionNotes, MemberId, Term, lock};
use serde::{Deserialize, Serialize};

/// The lease that a member promises to the leader of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromisedLease {
    /// The term of the member's vote.
    pub term: Term,
    /// How long the member elects no other leader after it has answered a heartbeat.
    pub lease: Duration,
}

/// The promises of one member.
#[derive(Debug)]
pub(crate) struct Promise {
    lease: Duration,
    /// The longest lease on which a leader may rely at the start. It is stored before the first heartbeat is answered.
    pub(crate) longest: Duration,
    /// The term in which the member's previous process may have promised more, and the leader that has received this process's lease since.
    lowered: Mutex<Option<(Term, Option<MemberId>)>>,
}

impl Promise {
    /// Creates the state of a member that starts with this lease in this term, with its stored `notes`. `is_new` is true if the member has
    /// promised nothing yet.
    pub(crate) fn new(lease: Duration, notes: &ElectionNotes, term: Term, is_new: bool) -> Self {
        let is_lowered = notes.promised.is_none_or(|promised| promised > lease);
        Self {
            lease,
            longest: lease.max(notes.promised.unwrap_or_default()),
            lowered: Mutex::new((is_lowered && !is_new).then_some((term, None))),
        }
    }

    /// Returns the lease to announce in this term.
    pub(crate) fn of(&self, term: Term) -> PromisedLease {
        PromisedLease {
            term,
            lease: self.lease,
        }
    }

    /// Returns true if a heartbeat of this leader may be answered.
    pub(crate) fn may_answer(&self, leader: MemberId, term: Term) -> bool {
        match *lock(&self.lowered) {
            Some((lowered_in, received_by)) => term > lowered_in || received_by == Some(leader),
            None => true,
        }
    }

    /// Records that another member has received the announcement.
    pub(crate) fn received(&self, by: MemberId, announced: PromisedLease) {
        if let Some((term, received_by)) = &mut *lock(&self.lowered)
            && *term == announced.term
        {
            *received_by = Some(by);
        }
    }

    /// Returns the lease that must be stored from now on, if it is shorter than the stored one. `leader` is the leader of `term`.
    pub(crate) fn lowered_to(&self, leader: Option<MemberId>, term: Term) -> Option<Duration> {
        let counts = leader.is_some_and(|leader| self.may_answer(leader, term));
        (counts && self.longest > self.lease).then_some(self.lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(5);
    const SHORT: Duration = Duration::from_secs(1);
    const LEADER: MemberId = MemberId(1);
    const TERM: Term = Term(7);
    const NEXT: Term = Term(8);

    fn started(lease: Duration, promised: Option<Duration>) -> Promise {
        let notes = ElectionNotes {
            promised,
            ..ElectionNotes::default()
        };
        Promise::new(lease, &notes, TERM, false)
    }

    #[test]
    fn a_shorter_lease_counts_once_the_leader_of_the_term_has_received_it() {
        let promise = started(SHORT, Some(LONG));
        assert_eq!((promise.longest, promise.of(TERM).lease), (LONG, SHORT));
        assert!(!promise.may_answer(LEADER, TERM));
        promise.received(MemberId(2), promise.of(TERM));
        assert!(!promise.may_answer(LEADER, TERM), "it is not the leader");
        promise.received(LEADER, promise.of(TERM));
        assert!(promise.may_answer(LEADER, TERM));
        assert_eq!(promise.lowered_to(Some(LEADER), TERM), Some(SHORT));
    }

    #[test]
    fn a_leader_of_a_later_term_has_no_earlier_lease() {
        let promise = started(SHORT, Some(LONG));
        assert_eq!(promise.lowered_to(Some(LEADER), TERM), None);
        assert!(promise.may_answer(LEADER, NEXT));
        assert_eq!(promise.lowered_to(Some(LEADER), NEXT), Some(SHORT));
        assert_eq!(
            promise.lowered_to(None, NEXT),
            None,
            "no leader of that term yet"
        );
    }

    #[test]
    fn the_same_lease_or_a_longer_one_is_answered_for_from_the_start() {
        for promised in [SHORT, LONG] {
            let promise = started(LONG, Some(promised));
            assert!(promise.may_answer(LEADER, TERM));
            assert_eq!(promise.longest, LONG);
            assert_eq!(promise.lowered_to(Some(LEADER), TERM), None);
        }
        // An earlier version may have promised any lease.
        assert!(!started(LONG, None).may_answer(LEADER, TERM));
        let new = Promise::new(LONG, &ElectionNotes::default(), TERM, true);
        assert!(new.may_answer(LEADER, TERM));
    }
}
