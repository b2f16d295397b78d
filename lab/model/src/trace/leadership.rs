//! A leadership: its leader's log, and how much of it each member has appended.

use std::collections::BTreeMap;

use crate::ring::{Count, Id, Leader, Member, Members, Role, Term, common};
use crate::rules::Rules;

/// A leadership whose messages may still arrive after its end.
#[derive(Debug)]
pub(super) struct Leadership {
    pub(super) leader: Id,
    /// The leader's state while it led: its log, and the committed part.
    pub(super) member: Member,
    /// The last entry that each member appended from its log.
    taken: BTreeMap<Id, usize>,
    /// The last of those entries on each member's disk.
    durable: BTreeMap<Id, Count>,
}

impl Leadership {
    /// The leadership of a newly elected member.
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

    /// A member follows, or appended entries: it has appended the common prefix of both logs.
    pub(super) fn taken_by(&mut self, id: Id, member: &Member) {
        self.taken.insert(id, common(&self.member.log, &member.log));
    }

    /// A member truncated its log to `kept` entries; not all later ones were on disk.
    pub(super) fn taken_back_by(&mut self, id: Id, kept: usize) {
        if let Some(taken) = self.taken.get_mut(&id) {
            *taken = kept.min(*taken);
        }
    }

    /// A member has `durable` entries on disk, some of them from this leader. Returns whether more is committed now.
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
