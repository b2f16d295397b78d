//! Members that see a living leader as dead. Each leadership gets false evidence at one member only: two would confirm each other. A leader
//! that a majority sees as dead is replaced while it still serves, a limit stated by decision 76.

use consensus::Term;
use raft_types::MemberId;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct FalseAlarms {
    now: Option<MemberId>,
    /// The last affected member, and the latest term that it can have been about.
    last: Option<(MemberId, Option<Term>)>,
}

impl FalseAlarms {
    /// Whether this member may be affected, if the latest led term is `latest`.
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

    /// It ends.
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
        // The leader of term 3 was affected as well.
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
