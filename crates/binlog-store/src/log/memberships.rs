//! The memberships of the log: few, so all since the purge floor are kept.

use raft_types::{OpId, StoredMembership};

use crate::format::LoggedMembership;

/// Memberships in log order; the first one may be of before the first entry that is still there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memberships {
    logged: Vec<LoggedMembership>,
}

impl Memberships {
    pub(crate) fn push(&mut self, membership: LoggedMembership) {
        self.logged.push(membership);
    }

    pub(crate) fn last(&self) -> Option<&LoggedMembership> {
        self.logged.last()
    }

    /// The last one up to an index.
    pub(crate) fn at(&self, index: u64) -> Option<&LoggedMembership> {
        self.logged
            .iter()
            .rev()
            .find(|logged| logged.op_id.index <= index)
    }

    /// The one in effect at an entry, as the engine takes it; the default one before all.
    pub(crate) fn stored_at(&self, op_id: Option<OpId>) -> StoredMembership {
        let logged = op_id.and_then(|op_id| self.at(op_id.index));
        logged.map(LoggedMembership::stored).unwrap_or_default()
    }

    /// Drops those with an index of `from` or more.
    pub(crate) fn truncate(&mut self, from: u64) {
        self.logged.retain(|logged| logged.op_id.index < from);
    }

    /// Drops those up to `index` but for the last of them, which is in effect there.
    pub(crate) fn purge(&mut self, index: u64) {
        let up_to = self
            .logged
            .iter()
            .filter(|logged| logged.op_id.index <= index)
            .count();
        self.logged.drain(..up_to.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raft_types::{Membership, MembershipPayload};

    #[test]
    fn the_one_in_effect_is_found() {
        let mut memberships = Memberships::default();
        for index in [3, 7, 9] {
            memberships.push(LoggedMembership {
                op_id: OpId::new(1, index),
                payload: MembershipPayload::seal(Membership::default()),
            });
        }
        let index_at = |memberships: &Memberships, index| {
            memberships.at(index).map(|logged| logged.op_id.index)
        };
        assert_eq!(
            (index_at(&memberships, 2), index_at(&memberships, 8)),
            (None, Some(7))
        );
        memberships.purge(8);
        assert_eq!(
            (index_at(&memberships, 6), index_at(&memberships, 8)),
            (None, Some(7))
        );
        memberships.truncate(9);
        assert_eq!(memberships.last().map(|logged| logged.op_id.index), Some(7));
    }
}
