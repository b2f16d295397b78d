//! Reconstructs a member's log from events: appends, truncations, and the contents after a restart.

use raft_types::OpId;

use crate::event::Seen;

/// Consecutive entries from an index on.
#[derive(Debug, Default)]
pub(super) struct MemberLog {
    /// The last entry before the first one in `entries`.
    floor: Option<OpId>,
    entries: Vec<Seen>,
}

impl MemberLog {
    /// Returns the position of the entry with this index.
    fn at(&self, index: u64) -> Option<usize> {
        let first = self.entries.first()?.op_id.index;
        usize::try_from(index.checked_sub(first)?).ok()
    }

    pub(super) fn get(&self, index: u64) -> Option<&Seen> {
        self.entries.get(self.at(index)?)
    }

    pub(super) fn last(&self) -> Option<OpId> {
        self.entries.last().map(|last| last.op_id).or(self.floor)
    }

    pub(super) fn push(&mut self, entry: Seen) {
        self.entries.push(entry);
    }

    /// Removes the entries after `keep`.
    pub(super) fn truncate(&mut self, keep: Option<OpId>) {
        let kept = keep.map_or(0, |keep| self.at(keep.index).map_or(0, |at| at + 1));
        self.entries.truncate(kept);
    }

    /// Makes the log start after the entry `before`. If the log has this entry, the later entries stay. Otherwise the log becomes empty.
    pub(super) fn begin(&mut self, before: OpId) {
        let has_it = self
            .get(before.index)
            .is_some_and(|entry| entry.op_id == before);
        let forgotten = match self.at(before.index) {
            Some(at) if has_it => at + 1,
            _ => self.entries.len(),
        };
        self.entries.drain(..forgotten);
        self.floor = Some(before);
    }

    /// Replaces the log by the contents found at a restart.
    pub(super) fn replace(&mut self, floor: Option<OpId>, entries: Vec<Seen>) {
        self.floor = floor;
        self.entries = entries;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Seen> {
        self.entries.iter()
    }
}
