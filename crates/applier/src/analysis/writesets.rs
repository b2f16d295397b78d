//! What the policies `transactions` and `rows` find in a log.

use super::groups::GroupCounts;
use super::last_uses::{LastUses, Moment};
use crate::transaction::{Body, RowChanges, Transaction};

/// The transactions so far.
#[derive(Debug)]
pub(super) struct Writesets {
    uses: LastUses,
    /// How many transactions are of each level, from level 1 on.
    levels: Vec<u64>,
    /// When everything is done.
    end: Moment,
    /// When the last barrier is done.
    barrier: Moment,
}

impl Writesets {
    /// Remembers so many keys.
    pub(super) fn new(remembered_keys: usize) -> Self {
        Self {
            uses: LastUses::new(remembered_keys),
            levels: Vec::new(),
            end: Moment::default(),
            barrier: Moment::default(),
        }
    }

    /// Takes the next transaction.
    pub(super) fn add(&mut self, transaction: &Transaction) {
        let done = match &transaction.body {
            Body::Rows(changes) => self.rows(changes),
            Body::Barrier(_) => {
                let done = Moment {
                    level: self.end.level + 1,
                    transaction_end: self.end.transaction_end + 1,
                    row_end: self.end.row_end + 1,
                };
                self.uses.clear();
                self.barrier = done;
                done
            }
        };
        self.end = self.end.max(done);
        let place = done.level.saturating_sub(1) as usize;
        if place >= self.levels.len() {
            self.levels.resize(place + 1, 0);
        }
        if let Some(count) = self.levels.get_mut(place) {
            *count += 1;
        }
    }

    fn rows(&mut self, changes: &RowChanges) -> Moment {
        // One without rows waits for barriers, too.
        let mut start = self.barrier;
        let mut row_end = start.row_end;
        let mut ends = Vec::with_capacity(changes.rows.len());
        for row in 0..changes.rows.len() {
            let before = changes
                .keys_of(row)
                .iter()
                .map(|key| self.uses.before(*key))
                .fold(Moment::default(), Moment::max);
            start = start.max(before);
            // One worker writes the rows of a transaction in their order.
            row_end = row_end.max(before.row_end) + 1;
            ends.push(row_end);
        }
        let done = Moment {
            level: start.level + 1,
            transaction_end: start.transaction_end + changes.rows.len() as u64,
            row_end,
        };
        for (row, row_end) in ends.into_iter().enumerate() {
            for key in changes.keys_of(row) {
                self.uses.note(*key, Moment { row_end, ..done });
            }
        }
        done
    }

    /// Levels as groups: the transactions of one could go on at the same moment.
    pub(super) fn groups(&self) -> GroupCounts {
        let mut counts = GroupCounts::default();
        for size in &self.levels {
            counts.add(*size);
        }
        counts
    }

    /// When everything is done.
    pub(super) fn end(&self) -> Moment {
        self.end
    }

    /// How many keys were forgotten for want of room.
    pub(super) fn forgotten_keys(&self) -> u64 {
        self.uses.forgotten()
    }
}
