//! A leadership: the leader's log, and how much of that log each member has appended.

use std::collections::BTreeMap;

use crate::ring::{Count, Id, Leader, Member, Members, Role, Term, common};
use crate::rules::Rules;

/// A leadership whose messages may still arrive after its end.
#[derive(Debug)]
pub(super) struct Leadership {
    pub(super) leader: Id,
    /// The leader's state while it led: its log and its commit index.
    pub(super) member: Member,
    /// For each member, how many entries of the leader's log it has appended.
    taken: BTreeMap<Id, usize>,
    /// For each member, how many of the appended entries are on its disk.
    durable: BTreeMap<Id, Count>,
}

impl Leadership {
    /// Begins the leadership of a newly elected member.
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

    /// Records that a follower's log now has a common prefix with the leader's log.
    pub(super) fn taken_by(&mut self, id: Id, member: &Member) {
        self.taken.insert(id, common(&self.member.log, &member.log));
    }

    /// Records that a member truncated its log to `kept` entries. Some of the truncated entries may not have been on disk.
    pub(super) fn taken_back_by(&mut self, id: Id, kept: usize) {
        if let Some(taken) = self.taken.get_mut(&id) {
            *taken = kept.min(*taken);
        }
    }

    /// Records that a member has `durable` entries on disk, some of them from this leader. Returns whether the leader's commit index rose.
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
