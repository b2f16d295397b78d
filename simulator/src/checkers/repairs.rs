//! What repairs of a lost quorum took from the ring, with an operator's consent: entries behind the end of the log that went on.
//! Where a plan said that nothing is lost, nothing is excused.

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
        repairs.any(|repair| takes(repair, entry))
    }

    /// Whether `newer` may stand where `older` was committed.
    pub(super) fn replaced(&self, older: OpId, newer: OpId) -> bool {
        let mut repairs = self.0.iter();
        repairs.any(|repair| takes(repair, older) && newer.term >= repair.term)
    }

    /// Whether what a member has at the place of this entry may go: it was given up, or the ring that went on has put this one
    /// there since.
    pub(super) fn frees(&self, entry: OpId) -> bool {
        let mut repairs = self.0.iter();
        let since = repairs.any(|repair| repair.loss && entry.term >= repair.term);
        since || self.gave_up(entry)
    }

    /// Whether a membership of this term is one that a repair imposed.
    pub(super) fn imposed(&self, entry: OpId) -> bool {
        self.0.iter().any(|repair| repair.term == entry.term)
    }
}

fn takes(repair: &Repair, entry: OpId) -> bool {
    // By term, then by index: a later leader may have replaced what the survivor has, unseen.
    repair.loss && Some(entry) > repair.after && entry.term < repair.term
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
        let lossless = repair(false);
        assert!(!lossless.replaced(id(4, 21), id(1004, 21)));
        assert!(!lossless.gave_up(id(4, 21)) && !lossless.frees(id(4, 21)));
        assert!(lossless.imposed(id(1004, 21)));
    }
}
