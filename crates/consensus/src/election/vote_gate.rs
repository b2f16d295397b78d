//! For which candidates this member may vote; checked where vote requests arrive (`inbound`). While the end of its log is in doubt
//! (`doubted_tail`), it does not campaign (`campaign`). It votes only for members with all that it may have acknowledged. It may
//! also rejoin a ring that has committed more than its log has (`returning`).
//!
//! # What others have committed
//!
//! A member receives it when it rejoins and asks (`returning`). The first call of a later term also gives it, if only a repair leaps
//! to that term: then a log must have the entry of the repair.
//!
//! In a ring without a repair this blocks no election: a log that lacks committed entries wins none.
//! After the repair of a lost quorum it does. The lost members are a quorum of the membership in their own logs. Two of them could
//! return, receive how far the ring has come, and lose contact before they get its entries. They would elect one of
//! themselves and split the ring.

use std::sync::Mutex;

use raft_types::{DoubtedTail, OpId, lock};
use thiserror::Error;
use tokio::sync::Notify;

/// For which candidates this member may vote at the moment.
#[derive(Debug)]
pub(crate) struct ElectionGate {
    /// A log that ends here or later is known to have all that this member may have acknowledged; `None`: its own has.
    needed: Mutex<Option<OpId>>,
    /// The end committed elsewhere that was not here when it was reported; `None`: nothing.
    committed: Mutex<Option<OpId>>,
    /// Notified by [`Self::told`]: the own log may lack something. One task waits.
    pub(crate) told: Notify,
}

/// Why a vote is not granted, or why this member does not campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Withheld {
    /// The own log's end is in doubt, up to the end that a log must have.
    #[error(
        "the end of its log may lack acknowledged entries, which were damaged and cut off, not synced when its host stopped, or gone with \
         a data directory that was put back to an earlier state: it neither votes nor campaigns until it has every entry that the leader, or all other members, report (now up to {0})"
    )]
    DoubtedTail(OpId),
    /// The candidate has acknowledged more than its log has, at least up to here.
    #[error(
        "the candidate's log has had {0}, and lacks it now: its data directory was put back to an earlier state"
    )]
    PutBack(OpId),
    /// Others have committed entries that the log lacks, up to here.
    #[error(
        "the ring has gone on to {0} without it, and it votes for no member whose log does not go that far"
    )]
    RingGoesOn(OpId),
}

impl ElectionGate {
    /// For a member with a log that has this doubt about its end.
    pub(crate) fn new(doubt: Option<&DoubtedTail>) -> Self {
        Self {
            needed: Mutex::new(doubt.map(DoubtedTail::settled_from)),
            committed: Mutex::new(None),
            told: Notify::new(),
        }
    }

    /// Why a candidate with a log that ends there gets no vote; `None`: ask the engine.
    pub(crate) fn withholds(&self, candidate: Option<OpId>) -> Option<Withheld> {
        let lacks = |end: &OpId| candidate < Some(*end);
        let doubt = self.needed().filter(lacks).map(Withheld::DoubtedTail);
        doubt.or(self.committed().filter(lacks).map(Withheld::RingGoesOn))
    }

    /// Why this member must not campaign, even when ordered to.
    pub(crate) fn stays_out(&self) -> Option<Withheld> {
        self.withholds(None)
    }

    /// Why a leader of this term is not followed: an entry of a later term is committed elsewhere, so it was deposed, possibly without
    /// its knowledge. `None`: ask the engine.
    pub(crate) fn passes_over(&self, term: u64) -> Option<OpId> {
        self.committed().filter(|told| term < told.term)
    }

    /// Another member reports that the ring has committed up to here: candidates that lack it get no vote.
    pub(crate) fn told(&self, committed: OpId) {
        let mut told = lock(&self.committed);
        *told = (*told).max(Some(committed));
        self.told.notify_one();
    }

    /// The own log ends here.
    pub(crate) fn goes_to(&self, end: Option<OpId>) {
        let mut told = lock(&self.committed);
        *told = told.filter(|committed| end < Some(*committed));
    }

    /// The end committed elsewhere that was not here when it was reported.
    pub(crate) fn committed(&self) -> Option<OpId> {
        *lock(&self.committed)
    }

    /// A log that ends here or later has all that may be lost here. Each such end is enough by itself, so the lowest counts.
    pub(crate) fn enough(&self, end: OpId) {
        let mut needed = lock(&self.needed);
        *needed = needed.map(|needed| needed.min(end));
    }

    /// The own log's end is in doubt from now on, if it was not before.
    pub(crate) fn doubt(&self, doubt: &DoubtedTail) {
        let mut needed = lock(&self.needed);
        *needed = (*needed).max(Some(doubt.settled_from()));
    }

    /// The end that a log must have; `None` when nothing is in doubt.
    pub(crate) fn needed(&self) -> Option<OpId> {
        *lock(&self.needed)
    }

    /// The own log has all that was in doubt.
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
        // Nothing is known yet: only an entry of a later term shows that a log has everything.
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
