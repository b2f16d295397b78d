//! For whom this member may vote. The end of its log may be in doubt (`doubted_tail`): until its log is known to have all that
//! it may have acknowledged, it votes for members only that have that, and does not campaign (`campaigning`). Asked where votes
//! come in (`inbound`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use raft_types::{DoubtedTail, OpId};
use thiserror::Error;

/// See the module.
#[derive(Debug)]
pub(crate) struct ElectionGate {
    /// From this end on a log is known to have all that this member may have acknowledged; `None`: its own has.
    needed: Mutex<Option<OpId>>,
}

/// Why a vote is not granted, or why this member does not campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Withheld {
    /// The own log's end is in doubt.
    #[error(
        "the end of its log was damaged and cut off, and may have been acknowledged: it elects nobody before a leader, or all \
         other members, have told how far their logs go and it has what they have (now needed: {needed})"
    )]
    DoubtedTail {
        /// The end that a log must have.
        needed: OpId,
    },
}

impl ElectionGate {
    /// The gate of a member whose log has this doubt about its end.
    pub(crate) fn new(doubt: Option<&DoubtedTail>) -> Self {
        Self {
            needed: Mutex::new(doubt.map(DoubtedTail::settled_from)),
        }
    }

    /// Why a candidate whose log ends there gets no vote; `None`: ask the engine.
    pub(crate) fn withholds(&self, candidate: Option<OpId>) -> Option<Withheld> {
        let needed = self.needed()?;
        (candidate < Some(needed)).then_some(Withheld::DoubtedTail { needed })
    }

    /// Why this member must not campaign, whoever asks it to.
    pub(crate) fn stays_out(&self) -> Option<Withheld> {
        self.needed().map(|needed| Withheld::DoubtedTail { needed })
    }

    /// From this end on a log has all that may be lost here. Each such end is enough by itself, so the lowest counts.
    pub(crate) fn enough(&self, end: OpId) {
        let mut needed = self.lock();
        *needed = needed.map(|needed| needed.min(end));
    }

    /// The end that a log must have; `None` when nothing is in doubt.
    pub(crate) fn needed(&self) -> Option<OpId> {
        *self.lock()
    }

    /// The own log has all that was in doubt.
    pub(crate) fn settled(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<OpId>> {
        // The value is replaced as a whole, so a panic elsewhere cannot have left half of one.
        self.needed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_in_doubt_votes_for_those_that_have_enough_and_campaigns_when_it_has_it_itself() {
        let gate = ElectionGate::new(Some(&DoubtedTail { term: 3 }));
        let id = OpId::new;
        let withheld = |needed| Some(Withheld::DoubtedTail { needed });
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
    fn a_member_without_a_doubt_is_not_kept_from_anything() {
        let gate = ElectionGate::new(None);
        assert_eq!((gate.withholds(None), gate.stays_out()), (None, None));
    }
}
