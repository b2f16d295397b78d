//! A member's log as reconstructed from events: appends, truncations, and reopened contents.

use raft_types::OpId;

use crate::event::Seen;

/// Entries from some index on, without a gap.
#[derive(Debug, Default)]
pub(super) struct MemberLog {
    /// The entry before the first one.
    floor: Option<OpId>,
    entries: Vec<Seen>,
}

impl MemberLog {
    /// The position of an index among the entries.
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

    /// Keeps entries up to `keep`.
    pub(super) fn truncate(&mut self, keep: Option<OpId>) {
        let kept = keep.map_or(0, |keep| self.at(keep.index).map_or(0, |at| at + 1));
        self.entries.truncate(kept);
    }

    /// The log begins after `before`: it continues after that entry if it has it, otherwise it is empty.
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

    /// Replaces the log by the reopened contents.
    pub(super) fn replace(&mut self, floor: Option<OpId>, entries: Vec<Seen>) {
        self.floor = floor;
        self.entries = entries;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Seen> {
        self.entries.iter()
    }
}
