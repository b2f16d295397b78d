//! The candidate order: which voter goes first where several could succeed a leader. Database members come first, then those that the
//! operator prefers. All members have the same membership, and so the same order.

use raft_types::{MemberId, MemberKind, Membership};

/// A position in the candidate order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// How many go before it.
    pub(crate) place: u32,
    /// How many there are.
    pub(crate) of: u32,
}

/// All voters in candidate order.
pub(crate) fn heirs(membership: &Membership) -> Vec<MemberId> {
    let mut voters: Vec<_> = membership
        .voter_ids()
        .map(|id| {
            let record = membership.get_node(&id);
            let is_database = record.is_some_and(|record| record.kind == MemberKind::Database);
            let priority = record.map_or(0, |record| record.priority);
            (!is_database, u32::MAX - priority, id)
        })
        .collect();
    voters.sort_unstable();
    voters.into_iter().map(|(_, _, id)| id).collect()
}

/// The turn of `own` among these; `None`: it has none.
pub(crate) fn turn(heirs: &[MemberId], own: MemberId) -> Option<Turn> {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let place = heirs.iter().position(|id| *id == own)?;
    Some(Turn {
        place: count(place),
        of: count(heirs.len()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use raft_types::MemberRecord;

    use super::*;

    #[test]
    fn databases_go_first_and_then_those_that_are_preferred() {
        let of = |kind, priority| MemberRecord {
            kind,
            priority,
            ..MemberRecord::default()
        };
        let records = [
            of(MemberKind::Witness, 900),
            of(MemberKind::Database, 100),
            of(MemberKind::Witness, 100),
            of(MemberKind::Database, 200),
            of(MemberKind::Database, 100),
            of(MemberKind::Database, 900),
        ];
        let records: BTreeMap<_, _> = (1..).map(MemberId).zip(records).collect();
        let voters: BTreeSet<_> = records.keys().copied().filter(|id| id.0 != 6).collect();
        let heirs = heirs(&Membership::new(vec![voters], records).unwrap());
        assert_eq!(heirs, [4, 2, 5, 1, 3].map(MemberId));
        let place = |id| turn(&heirs, MemberId(id));
        assert_eq!(place(5), Some(Turn { place: 2, of: 5 }));
        assert_eq!(place(6), None, "a learner");
    }
}
