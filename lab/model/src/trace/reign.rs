//! A leadership: what its leader's log was, and who has taken how much of it.

use std::collections::BTreeMap;

use crate::ring::{Count, Id, Leader, Member, Members, Role, Term, common};
use crate::rules::Rules;

/// A leadership, as others may still hear of it when it is over.
#[derive(Debug)]
pub(super) struct Reign {
    pub(super) leader: Id,
    /// The leader as it was while it led: its log, and how much of that is committed.
    pub(super) member: Member,
    /// Up to where each member has taken its log.
    taken: BTreeMap<Id, usize>,
    /// Up to where each member has had that on disk.
    durable: BTreeMap<Id, Count>,
}

impl Reign {
    /// Of a member that was elected.
    pub(super) fn of(leader: Id, member: &Member, term: Term) -> Self {
        Self {
            leader,
            member: Member {
                term,
                role: Role::Leader(Leader::elected(0, 0)),
                ..member.clone()
            },
            taken: BTreeMap::new(),
            durable: BTreeMap::new(),
        }
    }

    /// A member follows, or took entries: what both logs have in common it has taken.
    pub(super) fn taken_by(&mut self, id: Id, member: &Member) {
        self.taken.insert(id, common(&self.member.log, &member.log));
    }

    /// A member took back what lies behind so many entries, of which not all were on disk.
    pub(super) fn taken_back_by(&mut self, id: Id, kept: usize) {
        if let Some(taken) = self.taken.get_mut(&id) {
            *taken = kept.min(*taken);
        }
    }

    /// A member has so many entries on disk, of which it took some from this leader. Whether more is committed now.
    pub(super) fn stored_by(&mut self, rules: Rules, id: Id, durable: usize) -> bool {
        let taken = self.taken.get(&id).copied().unwrap_or(0);
        let stored = self.durable.entry(id).or_default();
        *stored = (*stored).max(taken.min(durable) as Count);
        let has = |index: Count| -> Members {
            let members = self.durable.iter().filter(|(_, stored)| **stored >= index);
            members.map(|(id, _)| *id).collect()
        };
        let committed = rules.committed_by(&self.member, has);
        std::mem::replace(&mut self.member.commit, committed) < committed
    }
}
