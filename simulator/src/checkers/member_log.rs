//! One member's log as the events tell it: what was appended, taken back, and found again.

use raft_types::OpId;

use crate::seen::Seen;

/// Entries from some index on, without a gap.
#[derive(Debug, Default)]
pub(super) struct MemberLog {
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
        self.entries.last().map(|last| last.op_id)
    }

    pub(super) fn push(&mut self, entry: Seen) {
        self.entries.push(entry);
    }

    /// Keeps what lies up to `keep`.
    pub(super) fn truncate(&mut self, keep: Option<OpId>) {
        let kept = keep.map_or(0, |keep| self.at(keep.index).map_or(0, |at| at + 1));
        self.entries.truncate(kept);
    }

    /// The log is what was found.
    pub(super) fn replace(&mut self, entries: Vec<Seen>) {
        self.entries = entries;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Seen> {
        self.entries.iter()
    }
}
