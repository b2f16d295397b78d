//! Members with false evidence of the leader's exit. Only one member at a time gets false evidence about a leadership, because two members
//! would confirm each other. If a majority had such evidence, the leader would be replaced while it still serves. Decision 76 documents
//! this limit.

use consensus::Term;
use raft_types::MemberId;

/// The members that have or had false evidence.
#[derive(Debug, Default)]
pub(super) struct FalseAlarms {
    now: Option<MemberId>,
    /// The member that had false evidence last, and the latest term that the evidence may concern.
    last: Option<(MemberId, Option<Term>)>,
}

impl FalseAlarms {
    /// Returns whether this member may get false evidence. `latest` is the latest term with a leader.
    pub(super) fn may_come(&mut self, to: MemberId, latest: Option<Term>) -> bool {
        let told_to_another = match (self.now, self.last) {
            (Some(alarmed), _) => alarmed != to,
            (None, Some((before, of))) => before != to && latest <= of,
            (None, None) => false,
        };
        if !told_to_another {
            self.now = Some(to);
        }
        !told_to_another
    }

    /// Ends the false evidence at a member.
    pub(super) fn ends(&mut self, to: MemberId, latest: Option<Term>) {
        if self.now == Some(to) {
            self.now = None;
            let before = self.last.and_then(|(_, of)| of);
            self.last = Some((to, latest.max(before)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leadership_is_lied_about_to_one_member_alone() {
        let (first, second) = (MemberId(1), MemberId(2));
        let mut alarms = FalseAlarms::default();
        assert!(alarms.may_come(first, Some(Term(2))));
        assert!(alarms.may_come(first, Some(Term(2))));
        assert!(!alarms.may_come(second, Some(Term(2))), "at one time");
        // The evidence may also concern the leader of term 3.
        alarms.ends(first, Some(Term(3)));
        assert!(!alarms.may_come(second, Some(Term(3))), "its signs stay");
        assert!(
            !alarms.may_come(second, None),
            "no member leads or reports to lead"
        );
        assert!(alarms.may_come(first, Some(Term(3))));
        alarms.ends(first, None);
        assert!(!alarms.may_come(second, Some(Term(3))));
        assert!(alarms.may_come(second, Some(Term(4))));
    }
}
