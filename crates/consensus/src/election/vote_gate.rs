//! Decides for which candidates this member may vote. Incoming vote requests are checked here (`calls::inbound`). While the end of the log
//! is in doubt (`doubted_tail`), the member does not campaign (`campaign`). It then votes only for members that have all entries that it
//! may have acknowledged. The gate also covers a member that rejoins a ring which has committed more than its log has.
//!
//! # What others have committed
//!
//! A member that rejoins asks the other members for the end that the ring has committed. The first call of a later term reports that end
//! too, if only a quorum repair can reach that term. A log must then have the entry of the repair.
//!
//! In a ring without a repair, this rule blocks no election, because a log that lacks committed entries wins none. After a quorum repair,
//! the rule is needed: the lost members are a quorum of the membership in their own logs. Two of them could return, receive the ring's
//! committed end, and lose contact before they get its entries. They would elect one of themselves and split the ring.

use std::sync::Mutex;

use raft_types::{DoubtedTail, OpId, lock};
use thiserror::Error;
use tokio::sync::Notify;

/// For which candidates this member may vote at the moment.
#[derive(Debug)]
pub(crate) struct ElectionGate {
    /// A log that ends here or later has all entries that this member may have acknowledged; `None` if the own log has them.
    needed: Mutex<Option<OpId>>,
    /// The end that other members have committed, and that the own log lacked when it was reported; `None` if it lacks nothing.
    committed: Mutex<Option<OpId>>,
    /// Notified by [`Self::told`], because the own log may lack entries. Only one task may wait.
    pub(crate) told: Notify,
}

/// Why a vote is not granted, or why this member does not campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Withheld {
    /// The own log's end is in doubt. A log must have the entries up to this one.
    #[error(
        "acknowledged entries may be missing at the end of its log: damaged and cut off, not synced when its host stopped, or absent from a \
         data directory that was restored to an earlier state. It neither votes nor campaigns until it has every entry that the leader, or \
         all other members, report (now up to {0})"
    )]
    DoubtedTail(OpId),
    /// The candidate has acknowledged more than its log has now, at least up to this entry.
    #[error("the candidate's log lost {0}: its data directory was restored")]
    RestoredDirectory(OpId),
    /// Other members have committed entries up to this one, and the log lacks them.
    #[error(
        "the ring has gone on to {0} without it, and it votes for no member whose log does not go that far"
    )]
    RingGoesOn(OpId),
}

impl ElectionGate {
    /// Creates the gate of a member with this doubt about the end of its log.
    pub(crate) fn new(doubt: Option<&DoubtedTail>) -> Self {
        Self {
            needed: Mutex::new(doubt.map(DoubtedTail::settled_from)),
            committed: Mutex::new(None),
            told: Notify::new(),
        }
    }

    /// Returns why a candidate gets no vote if its log ends at `candidate`; `None` if the engine decides.
    pub(crate) fn withholds(&self, candidate: Option<OpId>) -> Option<Withheld> {
        let lacks = |end: &OpId| candidate < Some(*end);
        let doubt = self.needed().filter(lacks).map(Withheld::DoubtedTail);
        doubt.or(self.committed().filter(lacks).map(Withheld::RingGoesOn))
    }

    /// Returns why this member must not campaign, even on an order; `None` if it may.
    pub(crate) fn stays_out(&self) -> Option<Withheld> {
        self.withholds(None)
    }

    /// Returns why this member does not follow a leader of this term; `None` if the engine decides. The reason is an entry of a later term
    /// that other members have committed: the leader was replaced, possibly without its knowledge.
    pub(crate) fn passes_over(&self, term: u64) -> Option<OpId> {
        self.committed().filter(|told| term < told.term)
    }

    /// Records that the ring has committed up to `committed`, as another member reports. Candidates without this entry get no vote.
    pub(crate) fn told(&self, committed: OpId) {
        let mut told = lock(&self.committed);
        *told = (*told).max(Some(committed));
        self.told.notify_one();
    }

    /// Records that the own log ends at `end`.
    pub(crate) fn goes_to(&self, end: Option<OpId>) {
        let mut told = lock(&self.committed);
        *told = told.filter(|committed| end < Some(*committed));
    }

    /// Returns the end that other members have committed, and that the own log lacked when it was reported.
    pub(crate) fn committed(&self) -> Option<OpId> {
        *lock(&self.committed)
    }

    /// Records that a log which ends at `end` or later has all entries that may be lost here. Each such end is sufficient alone, so the
    /// lowest one counts.
    pub(crate) fn enough(&self, end: OpId) {
        let mut needed = lock(&self.needed);
        *needed = needed.map(|needed| needed.min(end));
    }

    /// Records that the own log's end is in doubt from now on.
    pub(crate) fn doubt(&self, doubt: &DoubtedTail) {
        let mut needed = lock(&self.needed);
        *needed = (*needed).max(Some(doubt.settled_from()));
    }

    /// Returns the end that a log must have; `None` if nothing is in doubt.
    pub(crate) fn needed(&self) -> Option<OpId> {
        *lock(&self.needed)
    }

    /// Records that the own log has all entries that were in doubt.
    pub(crate) fn settled(&self) {
        *lock(&self.needed) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_in_doubt_votes_for_those_that_have_enough_and_campaigns_when_it_has_it_itself() {
        let gate = ElectionGate::new(Some(&DoubtedTail::of_term(3)));
        let id = OpId::new;
        let withheld = |needed| Some(Withheld::DoubtedTail(needed));
        // No answers have arrived yet: only an entry of a later term shows that a log has everything.
        assert_eq!(gate.withholds(None), withheld(id(4, 0)));
        assert_eq!(gate.withholds(Some(id(3, 900))), withheld(id(4, 0)));
        assert_eq!(gate.withholds(Some(id(4, 7))), None);
        gate.enough(id(3, 20));
        gate.enough(id(3, 25));
        assert_eq!(gate.withholds(Some(id(3, 19))), withheld(id(3, 20)));
        assert_eq!(gate.withholds(Some(id(3, 20))), None);
        assert_eq!(gate.stays_out(), withheld(id(3, 20)));
        gate.settled();
        assert_eq!((gate.withholds(None), gate.stays_out()), (None, None));
        gate.enough(id(3, 20));
        assert_eq!(gate.withholds(None), None, "an answer that comes late");
    }

    #[test]
    fn a_rejoined_member_votes_for_logs_with_all_committed_entries() {
        let gate = ElectionGate::new(None);
        let id = OpId::new;
        gate.told(id(1003, 41));
        gate.told(id(1003, 40));
        let goes_on = Some(Withheld::RingGoesOn(id(1003, 41)));
        assert_eq!(
            gate.withholds(Some(id(4, 900))),
            goes_on,
            "another that came back"
        );
        assert_eq!(gate.withholds(Some(id(1003, 41))), None);
        assert_eq!(gate.stays_out(), goes_on);
        gate.goes_to(Some(id(1003, 40)));
        assert_eq!(gate.stays_out(), goes_on);
        gate.goes_to(Some(id(1004, 30)));
        assert_eq!((gate.withholds(None), gate.stays_out()), (None, None));
    }

    #[test]
    fn a_rejoined_member_follows_no_deposed_leader() {
        let gate = ElectionGate::new(None);
        let told = OpId::new(1003, 41);
        assert_eq!(gate.passes_over(4), None);
        gate.told(told);
        assert_eq!(gate.passes_over(4), Some(told));
        assert_eq!(gate.passes_over(1002), Some(told));
        assert_eq!(
            (gate.passes_over(1003), gate.passes_over(1004)),
            (None, None)
        );
        gate.goes_to(Some(told));
        assert_eq!(
            gate.passes_over(4),
            None,
            "the engine knows the later term by then"
        );
    }

    #[test]
    fn a_member_without_a_doubt_is_not_kept_from_anything() {
        let gate = ElectionGate::new(None);
        assert_eq!((gate.withholds(None), gate.stays_out()), (None, None));
    }
}
