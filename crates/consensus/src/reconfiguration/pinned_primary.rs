//! What a pause means while it stands: the primary's place is kept for one member, and a leader that is another one is none
//! to the database beside it. Pure.

use raft_types::{MemberId, MemberRecord, Pause};
use serde::{Deserialize, Serialize};

use crate::lease::leadership::Leadership;
use crate::ring_view::RingView;

/// A pause, and whose place is kept meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingPause {
    /// The member whose mysqld is the primary, and will be it again.
    pub primary: MemberId,
    /// Since when, until when, by whom and why.
    #[serde(flatten)]
    pub pause: Pause,
}

impl RingView {
    /// The pause that stands, if one does.
    pub fn pause(&self) -> Option<RingPause> {
        standing_pause(
            self.members
                .iter()
                .map(|standing| (standing.id, &standing.record)),
        )
    }

    /// Whether a pause keeps the place of the primary for another member than this one.
    pub fn keeps_a_place(&self, other_than: MemberId) -> bool {
        self.pause()
            .is_some_and(|paused| paused.primary != other_than)
    }
}

/// The pause among these records.
pub(crate) fn standing_pause<'a>(
    mut records: impl Iterator<Item = (MemberId, &'a MemberRecord)>,
) -> Option<RingPause> {
    records.find_map(|(primary, record)| {
        let pause = record.pause.0.as_deref()?.clone();
        Some(RingPause { primary, pause })
    })
}

/// What the member's leadership is worth to the database beside it: none while the primary's place is kept for another.
pub(crate) fn primacy(leadership: Leadership, keeps_a_place: bool) -> Leadership {
    match leadership {
        _ if !keeps_a_place => leadership,
        Leadership::Serving { .. } | Leadership::LeaderNotServing { .. } => {
            Leadership::Follower { leader: None }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::leadership::NotServing;
    use crate::lease::leadership::Term;

    #[test]
    fn a_leader_that_keeps_a_place_is_none_to_its_database() {
        let term = Term(3);
        let serving = Leadership::Serving { term };
        let silent = Leadership::LeaderNotServing {
            term,
            why: NotServing::QuorumSilent,
        };
        let leader = Some(MemberId(2));
        let following = Leadership::Follower { leader };
        let none = Leadership::Follower { leader: None };
        let table = [
            (serving, none),
            (silent, none),
            (following, following),
            (Leadership::Candidate, Leadership::Candidate),
        ];
        for (leadership, expected) in table {
            assert_eq!(primacy(leadership, true), expected);
            assert_eq!(primacy(leadership, false), leadership);
        }
    }
}
