//! What repairs of a lost quorum took from the ring, with an operator's consent: entries behind the end of the log that went on.
//! Where a plan said that nothing is lost, nothing is excused, but what another repair had made of the ring, of which the plan knew
//! nothing: its survivor has nothing of it.

use raft_types::OpId;

use crate::event::{Event, Repair};

/// The repairs of a run.
#[derive(Debug, Default)]
pub(super) struct Repairs(Vec<Repair>);

impl Repairs {
    pub(super) fn saw(&mut self, event: &Event) {
        if let Event::Repaired(repair) = event {
            self.0.push(*repair);
        }
    }

    /// Whether an operator gave this entry up, if it was ever committed.
    pub(super) fn gave_up(&self, entry: OpId) -> bool {
        let mut repairs = self.0.iter();
        repairs.any(|repair| self.takes(repair, entry))
    }

    /// Whether `newer` may stand where `older` was committed.
    pub(super) fn replaced(&self, older: OpId, newer: OpId) -> bool {
        let mut repairs = self.0.iter();
        repairs.any(|repair| self.takes(repair, older) && newer.term >= repair.term)
    }

    /// Whether what a member has at the place of this entry may go: it was given up, or the ring that went on has put this one
    /// there since.
    pub(super) fn frees(&self, entry: OpId) -> bool {
        let mut repairs = self.0.iter();
        let since = repairs.any(|repair| {
            let loses = repair.loss || self.unknown_to(repair).next().is_some();
            loses && entry.term >= repair.term
        });
        since || self.gave_up(entry)
    }

    /// Whether a membership of this term is one that a repair imposed.
    pub(super) fn imposed(&self, entry: OpId) -> bool {
        self.0.iter().any(|repair| repair.term == entry.term)
    }

    /// Earlier repairs of which the log that went on by this one has nothing.
    fn unknown_to(&self, repair: &Repair) -> impl Iterator<Item = &Repair> {
        let known = repair.after.map_or(0, |after| after.term);
        let before = repair.term;
        let repairs = self.0.iter();
        repairs.filter(move |other| known < other.term && other.term < before)
    }

    fn takes(&self, repair: &Repair, entry: OpId) -> bool {
        // By term, then by index: a later leader may have replaced what the survivor has, unseen.
        let is_behind = Some(entry) > repair.after && entry.term < repair.term;
        let mut unknown = self.unknown_to(repair);
        is_behind && (repair.loss || unknown.any(|other| entry.term >= other.term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_excused_and_nothing_else() {
        let id = OpId::new;
        let repair = |loss| {
            let mut repairs = Repairs::default();
            let after = Some(id(4, 20));
            let term = 1004;
            repairs.saw(&Event::Repaired(Repair { after, term, loss }));
            repairs
        };
        let lossy = repair(true);
        assert!(lossy.replaced(id(4, 21), id(1004, 21)));
        assert!(!lossy.replaced(id(4, 21), id(5, 21)), "nobody ordered that");
        assert!(
            !lossy.replaced(id(4, 20), id(1004, 20)),
            "the survivor has it"
        );
        assert!(
            !lossy.replaced(id(1005, 22), id(1006, 22)),
            "after the repair"
        );
        assert!(lossy.gave_up(id(4, 21)) && !lossy.gave_up(id(4, 20)));
        assert!(
            lossy.gave_up(id(5, 19)),
            "in place of what the survivor has"
        );
        assert!(lossy.frees(id(4, 21)) && lossy.frees(id(1005, 21)) && !lossy.frees(id(4, 20)));
        assert!(lossy.imposed(id(1004, 21)) && !lossy.imposed(id(1005, 22)));
        let mut lossless = repair(false);
        assert!(!lossless.replaced(id(4, 21), id(1004, 21)));
        assert!(!lossless.gave_up(id(4, 21)) && !lossless.frees(id(4, 21)));
        assert!(lossless.imposed(id(1004, 21)));
        // One more, without the survivor of the first.
        let (after, term, loss) = (Some(id(4, 19)), 9004, false);
        lossless.saw(&Event::Repaired(Repair { after, term, loss }));
        assert!(lossless.replaced(id(1005, 21), id(9004, 20)));
        assert!(lossless.gave_up(id(1004, 20)) && lossless.frees(id(9005, 21)));
        assert!(!lossless.gave_up(id(4, 20)), "that was said not to be lost");
    }
}
