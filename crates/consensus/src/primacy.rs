//! The effects of a pause on the primary, as pure functions. A pause reserves the primary's place for one member. If another member leads,
//! its mysqld is not treated as the leader's.

use raft_types::{MemberId, MemberKind, MemberRecord, Pause};
use serde::{Deserialize, Serialize};

use crate::lease::leadership::Leadership;
use crate::ring_view::RingView;

/// A pause, and the member for which it reserves the primary's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingPause {
    /// The member of the mysqld that is the primary, or will be again.
    pub primary: MemberId,
    /// Start, end, initiator and reason of the pause.
    #[serde(flatten)]
    pub pause: Pause,
}

impl RingView {
    /// The current pause, if any.
    pub fn pause(&self) -> Option<RingPause> {
        standing_pause(self.members.iter().map(|peer| (peer.id, &peer.record)))
    }

    /// Whether a pause reserves the primary's place for a member other than this one.
    pub fn pins_another_primary_than(&self, other_than: MemberId) -> bool {
        self.pause()
            .is_some_and(|paused| paused.primary != other_than)
    }
}

/// The pause among these records.
pub(crate) fn standing_pause<'a>(
    mut records: impl Iterator<Item = (MemberId, &'a MemberRecord)>,
) -> Option<RingPause> {
    records.find_map(|(primary, record)| {
        let pause = record.pause.as_deref()?.clone();
        Some(RingPause { primary, pause })
    })
}

/// The location of the ring's primary, as reported to a member's mysqld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Primacy {
    /// The member's role. For its own mysqld, a leader does not count as the leader while the primary's place is reserved for another
    /// member. Neither does an interim leader.
    pub leadership: Leadership,
    /// The other database member that is known to lead with the primary mysqld. `None` if a witness leads, because it will transfer the
    /// leadership, or if the primary's place is reserved for another member than the leader.
    pub elsewhere: Option<MemberId>,
    /// Whether another member's mysqld could become the primary.
    pub others: bool,
    /// True if failover is paused, so that one member stays the primary.
    pub paused: bool,
}

impl Primacy {
    /// The initial state, before the member has any information.
    pub(crate) const NONE: Self = Self {
        leadership: Leadership::Follower { leader: None },
        elsewhere: None,
        others: false,
        paused: false,
    };
}

/// Returns the state for the mysqld of `own`, from its leadership and the records of the ring's members. If `is_interim` and `own` leads,
/// it leads only until a voter has its entries.
pub(crate) fn primacy(
    own: MemberId,
    leadership: Leadership,
    is_interim: bool,
    records: &[(MemberId, &MemberRecord)],
) -> Primacy {
    let pause = standing_pause(records.iter().copied());
    let leads_for_good = |leader: MemberId| {
        pause.as_ref().is_none_or(|paused| paused.primary == leader)
            && records
                .iter()
                .any(|(id, record)| *id == leader && record.kind == MemberKind::Database)
    };
    Primacy {
        leadership: match leadership {
            Leadership::Serving { .. } | Leadership::LeaderNotServing { .. }
                if is_interim || pause.as_ref().is_some_and(|paused| paused.primary != own) =>
            {
                Leadership::Follower { leader: None }
            }
            leadership => leadership,
        },
        elsewhere: match leadership {
            Leadership::Follower { leader } => leader.filter(|leader| leads_for_good(*leader)),
            _ => None,
        },
        others: records
            .iter()
            .any(|(id, record)| *id != own && record.kind == MemberKind::Database && record.votes),
        paused: pause.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use raft_types::{Term, UnixSeconds};

    use super::*;
    use crate::lease::leadership::NotServing;
    use crate::ring_view::tests::Ring;

    const OWN: MemberId = MemberId(1);

    /// The state of member 1 in this ring, where a pause may reserve the primary's place.
    fn seen(ring: &str, place_of: Option<u64>, leadership: Leadership) -> Primacy {
        seen_by(ring, place_of, leadership, false)
    }

    /// The state of member 1 in this ring, where member 1 may be an interim leader too.
    fn seen_by(
        ring: &str,
        place_of: Option<u64>,
        leadership: Leadership,
        is_interim: bool,
    ) -> Primacy {
        let pause = Pause {
            since: UnixSeconds(1_000),
            until: None,
            by: "anna".to_owned(),
            reason: String::new(),
        };
        let mut view = Ring::new(ring).view();
        for peer in &mut view.members {
            if Some(peer.id.0) == place_of {
                peer.record.pause = Some(Box::new(pause.clone()));
            }
        }
        let members = view.members.iter();
        let records: Vec<_> = members.map(|of| (of.id, &of.record)).collect();
        primacy(OWN, leadership, is_interim, &records)
    }

    fn following(leader: Option<u64>) -> Leadership {
        Leadership::Follower {
            leader: leader.map(MemberId),
        }
    }

    #[test]
    fn a_caretaker_leader_is_none_to_its_database() {
        let term = Term(3);
        let serving = Leadership::Serving { term };
        let silent = Leadership::LeaderNotServing {
            term,
            why: NotServing::QuorumSilent,
        };
        let none = following(None);
        let table = [
            (serving, none),
            (silent, none),
            (following(Some(2)), following(Some(2))),
            (Leadership::Candidate, Leadership::Candidate),
        ];
        for (leadership, expected) in table {
            let ring = "a: 1d 2d 3w";
            let kept = seen(ring, Some(2), leadership);
            assert_eq!((kept.leadership, kept.paused), (expected, true));
            let own = seen(ring, Some(1), leadership);
            assert_eq!((own.leadership, own.paused), (leadership, true));
            let free = seen(ring, None, leadership);
            assert_eq!((free.leadership, free.paused), (leadership, false));
            let is_interim = seen_by(ring, None, leadership, true);
            assert_eq!(
                (is_interim.leadership, is_interim.paused),
                (expected, false)
            );
        }
    }

    #[test]
    fn the_primary_is_the_mysqld_of_a_leading_database_member() {
        let serving = Leadership::Serving { term: Term(3) };
        // The ring, the reserved place, the role of member 1, and the member with the primary mysqld.
        let table = [
            ("a: 1d 2d 3w", None, following(Some(2)), Some(2)),
            ("a: 1d 2d 3w", None, following(Some(3)), None),
            ("a: 1d 2d 3w", None, following(Some(9)), None),
            ("a: 1d 2d 3w", None, following(None), None),
            ("a: 1d 2d 3w", None, Leadership::Candidate, None),
            ("a: 1d 2d 3w", None, serving, None),
            ("a: 1d 2d 3w", Some(1), following(Some(2)), None),
            ("a: 1d 2d 3w", Some(2), following(Some(2)), Some(2)),
            ("a: 1d 2d 3w", Some(2), serving, None),
        ];
        for (ring, place_of, leadership, expected) in table {
            let seen = seen(ring, place_of, leadership);
            assert_eq!(
                seen.elsewhere,
                expected.map(MemberId),
                "{place_of:?} {leadership:?}"
            );
        }
        for (ring, others) in [
            ("a: 1d 2d", true),
            ("a: 1d 2w 3w 4n", false),
            ("a: 1d", false),
        ] {
            assert_eq!(seen(ring, None, serving).others, others, "{ring}");
        }
    }
}
