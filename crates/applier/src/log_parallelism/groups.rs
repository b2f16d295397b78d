//! The sizes of transaction groups, as a table.

use std::collections::BTreeMap;

use serde::Serialize;

/// The number of groups of each size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GroupCounts(BTreeMap<u64, u64>);

/// Groups of transactions that could proceed at the same moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Groups {
    /// Transactions in all of them.
    pub transactions: u64,
    /// The number of groups of any size.
    pub groups: u64,
    /// Transactions in a group, on average; 0 without any.
    pub average_size: f64,
    /// By size, the smallest first.
    pub sizes: Vec<GroupSize>,
}

/// The groups of one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupSize {
    /// The number of transactions in each of them.
    pub size: u64,
    /// Transactions in all of them.
    pub transactions: u64,
    /// Share of all transactions that are in such groups.
    pub percent_of_transactions: f64,
    /// The number of such groups.
    pub groups: u64,
    /// Share of such groups among all groups.
    pub percent_of_groups: f64,
}

impl GroupCounts {
    /// Counts a group; an empty one does not count.
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
