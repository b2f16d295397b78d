//! Finds the conflicts in a log that the policies `transactions` and `rows` would find.

use std::collections::{BTreeMap, HashMap};

use binlog_format::DecodeError;
use binlog_format::event::EventRef;
use binlog_format::events::TableMap;
use binlog_format::row_image::{Columns, TableMetadata};
use serde::Serialize;

use crate::decode::LoggedTable;
use crate::keys::{Access, Fold, KeyAccess, KeyHash};
use crate::schema::{ColumnShape, KeyShape, TableShape};
use crate::transaction::{Body, RowChanges, Transaction};

/// The levels of all transactions added so far. A transaction's level is one more than the highest level for which it waits.
#[derive(Debug)]
pub(super) struct Writesets {
    pub(super) uses: LastUses,
    /// The number of transactions of each level, from level 1 on.
    levels: Vec<u64>,
    pub(super) end: Moment,
    /// When the last barrier is finished.
    barrier: Moment,
}

impl Writesets {
    /// Creates the state for an empty log; at most this many keys are remembered.
    pub(super) fn new(remembered_keys: usize) -> Self {
        Self {
            uses: LastUses::new(remembered_keys),
            levels: Vec::new(),
            end: Moment::default(),
            barrier: Moment::default(),
        }
    }

    /// Adds the next transaction of the log.
    pub(super) fn add(&mut self, transaction: &Transaction) {
        let done = match &transaction.body {
            Body::Rows(changes) => self.rows(changes),
            Body::Barrier(_) => {
                self.barrier = Moment {
                    level: self.end.level + 1,
                    transaction_end: self.end.transaction_end + 1,
                    row_end: self.end.row_end + 1,
                };
                // Later uses no longer wait for earlier ones.
                self.uses.uses.clear();
                self.uses.floor = Moment::default();
                self.barrier
            }
        };
        self.end = self.end.max(done);
        let place = done.level.saturating_sub(1) as usize;
        if place >= self.levels.len() {
            self.levels.resize(place + 1, 0);
        }
        self.levels[place] += 1;
    }

    fn rows(&mut self, changes: &RowChanges) -> Moment {
        // A transaction without rows waits for barriers, too.
        let mut start = self.barrier;
        let mut row_end = start.row_end;
        let mut ends = Vec::with_capacity(changes.rows.len());
        for row in 0..changes.rows.len() {
            let keys = changes.keys_of(row).iter();
            let before = keys.map(|key| self.uses.before(*key));
            let before = before.fold(Moment::default(), Moment::max);
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

    /// Returns the levels as groups: the transactions of one level could run at the same time.
    pub(super) fn groups(&self) -> GroupCounts {
        let mut counts = GroupCounts::default();
        self.levels.iter().for_each(|size| counts.add(*size));
        counts
    }
}

// The last uses of each key.

/// When a transaction or a row write is finished, by three measures. Along a chain of conflicts each measure only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moment {
    /// The transaction's level: one more than the highest level for which it waits.
    pub(super) level: u64,
    /// Row writes up to the end of the transaction, if transactions wait for whole transactions.
    pub(super) transaction_end: u64,
    /// Row writes up to the end of this row's write, if rows wait for rows.
    pub(super) row_end: u64,
}

impl Moment {
    /// Returns the later moment, by each measure separately.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            level: self.level.max(other.level),
            transaction_end: self.transaction_end.max(other.transaction_end),
            row_end: self.row_end.max(other.row_end),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Use {
    exclusive: Moment,
    shared: Moment,
}

/// The last uses of the remembered keys. Above the limit the older half is forgotten. A use of a forgotten key counts as waiting for
/// all forgotten keys.
#[derive(Debug)]
pub(super) struct LastUses {
    uses: HashMap<KeyHash, Use>,
    limit: usize,
    /// When all uses of forgotten keys are finished.
    floor: Moment,
    /// The number of keys forgotten because of the memory limit.
    pub(super) forgotten: u64,
}

impl LastUses {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            uses: HashMap::new(),
            limit: limit.max(2),
            floor: Moment::default(),
            forgotten: 0,
        }
    }

    /// Returns when everything is finished for which a use of this key waits.
    pub(super) fn before(&self, key: KeyAccess) -> Moment {
        let Some(last) = self.uses.get(&key.key) else {
            return self.floor;
        };
        let before = match key.access {
            Access::Shared => last.exclusive,
            Access::Exclusive => last.exclusive.max(last.shared),
        };
        before.max(self.floor)
    }

    pub(super) fn note(&mut self, key: KeyAccess, at: Moment) {
        let last = self.uses.entry(key.key).or_default();
        let place = match key.access {
            Access::Shared => &mut last.shared,
            Access::Exclusive => &mut last.exclusive,
        };
        *place = place.max(at);
        if self.uses.len() > self.limit {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let mut levels: Vec<u64> = self.uses.values().map(Use::level).collect();
        let middle = levels.len() / 2;
        let median = *levels.select_nth_unstable(middle).1;
        let mut floor = self.floor;
        let before = self.uses.len();
        self.uses.retain(|_, last| {
            let stays = last.level() > median;
            if !stays {
                floor = floor.max(last.exclusive).max(last.shared);
            }
            stays
        });
        self.floor = floor;
        self.forgotten += (before - self.uses.len()) as u64;
    }
}

impl Use {
    fn level(&self) -> u64 {
        self.exclusive.level.max(self.shared.level)
    }
}

// A table's shape, as far as the log shows it.

/// Returns the shape of a table by its table map, and whether the table map would contain a primary key if there were one. The log
/// does not contain unique and foreign keys.
pub(super) fn shape_of(table: &LoggedTable) -> Result<(TableShape, bool), DecodeError> {
    let map = TableMap::decode(EventRef::new(&table.map)?)?;
    let columns = Columns::of(&map)?;
    let metadata = TableMetadata::decode(&map, &columns)?;
    let parts = metadata.primary_key.clone();
    let column_shapes = columns.iter().enumerate().map(|(at, column)| ColumnShape {
        name: match metadata.name(at) {
            Some(name) => String::from_utf8_lossy(name).into(),
            None => format!("@{}", at + 1).into(),
        },
        fold: Fold::of_logged(column, metadata.collation(at)),
    });
    let shape = TableShape {
        primary_key: (!parts.is_empty()).then_some(KeyShape { parts }),
        ..TableShape::new(table.name.clone(), column_shapes.collect())
    };
    Ok((shape, metadata.is_full()))
}

// The sizes of transaction groups.

/// The number of groups of each size.
#[derive(Debug, Default)]
pub(super) struct GroupCounts(BTreeMap<u64, u64>);

/// Groups of transactions that could proceed at the same moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Groups {
    /// The number of transactions in all groups.
    pub transactions: u64,
    /// The number of groups.
    pub groups: u64,
    /// The average number of transactions in a group; 0 if there is no group.
    pub average_size: f64,
    /// The groups by size, the smallest size first.
    pub sizes: Vec<GroupSize>,
}

/// The groups of one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupSize {
    /// The number of transactions in each of these groups.
    pub size: u64,
    /// The number of transactions in all of these groups.
    pub transactions: u64,
    /// The percentage of all transactions that are in these groups.
    pub percent_of_transactions: f64,
    /// The number of these groups.
    pub groups: u64,
    /// The percentage of all groups that have this size.
    pub percent_of_groups: f64,
}

impl GroupCounts {
    /// Counts a group of this size; an empty group is not counted.
    pub(super) fn add(&mut self, size: u64) {
        if size > 0 {
            *self.0.entry(size).or_default() += 1;
        }
    }

    /// The groups by size, for a report.
    pub(super) fn table(&self) -> Groups {
        let groups: u64 = self.0.values().sum();
        let transactions: u64 = self.0.iter().map(|(size, groups)| size * groups).sum();
        let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole as f64;
        let sizes = self.0.iter().map(|(size, of_size)| GroupSize {
            size: *size,
            transactions: size * of_size,
            percent_of_transactions: percent(size * of_size, transactions),
            groups: *of_size,
            percent_of_groups: percent(*of_size, groups),
        });
        Groups {
            transactions,
            groups,
            average_size: transactions as f64 / groups.max(1) as f64,
            sizes: sizes.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64, access: Access) -> KeyAccess {
        KeyAccess {
            key: KeyHash(number),
            access,
        }
    }

    fn at(level: u64) -> Moment {
        Moment {
            level,
            transaction_end: level * 2,
            row_end: level,
        }
    }

    #[test]
    fn shared_uses_wait_for_exclusive_ones_only() {
        let mut uses = LastUses::new(10);
        uses.note(key(1, Access::Shared), at(5));
        assert_eq!(uses.before(key(1, Access::Shared)), Moment::default());
        assert_eq!(uses.before(key(1, Access::Exclusive)), at(5));
        uses.note(key(1, Access::Exclusive), at(3));
        assert_eq!(uses.before(key(1, Access::Shared)), at(3));
        assert_eq!(uses.before(key(1, Access::Exclusive)), at(5));
    }

    #[test]
    fn uses_of_forgotten_keys_wait_for_all_of_them() {
        let mut uses = LastUses::new(100);
        for number in 1..=1000 {
            uses.note(key(number, Access::Exclusive), at(number));
            assert!(uses.uses.len() <= 100);
            for earlier in 1..=number {
                let before = uses.before(key(earlier, Access::Exclusive));
                assert!(before.level >= earlier && before.level <= number);
            }
        }
        assert!(uses.forgotten > 800);
    }
}
