//! The storage engine with its committed and prepared transactions. It survives the process.

use std::collections::BTreeMap;

use binlog_format::gtid::{Gtid, GtidSet};

use crate::lists::{ListRow, Lists};

/// The data, and the transactions that are not durably committed.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    /// True if a clone has dropped the lists' schema and has not completed.
    dropped: bool,
    lists: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// The GTIDs of committed transactions.
    pub(crate) executed: GtidSet,
    /// Transactions that are prepared, and whose GTIDs are in the binlog.
    prepared: BTreeMap<Gtid, Vec<ListRow>>,
    /// Transactions committed since the last sync of the redo log. A power loss turns them into prepared transactions.
    unforced: Vec<(Gtid, Vec<ListRow>)>,
}

impl Engine {
    /// Returns the engine after a clone has dropped the data.
    pub(crate) fn without_data() -> Self {
        Self {
            dropped: true,
            ..Self::default()
        }
    }

    /// Returns a copy of all committed data for a clone. `executed` is the GTID set of the running server.
    pub(crate) fn committed(&self, executed: GtidSet) -> Self {
        Self {
            dropped: self.dropped,
            lists: self.lists.clone(),
            executed,
            ..Self::default()
        }
    }

    pub(crate) fn has_table(&self) -> bool {
        !self.dropped
    }

    pub(crate) fn lists(&self) -> Lists {
        let values = |list: &BTreeMap<u64, u64>| list.values().copied().collect();
        self.lists
            .iter()
            .map(|(list, rows)| (*list, values(rows)))
            .collect()
    }

    pub(crate) fn list(&self, list: u64) -> Vec<u64> {
        self.lists
            .get(&list)
            .map(|rows| rows.values().copied().collect())
            .unwrap_or_default()
    }

    pub(crate) fn length(&self, list: u64) -> u64 {
        self.lists.get(&list).map_or(0, |rows| rows.len() as u64)
    }

    pub(crate) fn holds(&self, row: &ListRow) -> bool {
        let rows = self.lists.get(&row.list);
        rows.is_some_and(|rows| rows.contains_key(&row.position))
    }

    /// Prepares a transaction. This syncs the redo log, including earlier commits.
    pub(crate) fn prepare(&mut self, gtid: Gtid, rows: Vec<ListRow>) {
        self.unforced.clear();
        self.prepared.insert(gtid, rows);
    }

    /// Commits a prepared transaction. Returns false if it is not prepared.
    pub(crate) fn commit(&mut self, gtid: Gtid) -> bool {
        let Some(rows) = self.prepared.remove(&gtid) else {
            return false;
        };
        for row in &rows {
            self.lists
                .entry(row.list)
                .or_default()
                .insert(row.position, row.value);
        }
        self.executed.add(gtid);
        self.unforced.push((gtid, rows));
        true
    }

    /// Syncs the redo log, so that all commits are durable. A rotation needs this, because recovery reads only the last binlog file.
    pub(crate) fn force(&mut self) {
        self.unforced.clear();
    }

    /// Rolls back the prepared transactions. Called after recovery has committed those that are in the binlog.
    pub(crate) fn roll_back_prepared(&mut self) {
        self.prepared.clear();
        self.unforced.clear();
    }

    /// Simulates a power loss: up to `count` of the last commits that are not synced become prepared transactions.
    pub(crate) fn lose_commits(&mut self, count: usize) {
        for _ in 0..count {
            let Some((gtid, rows)) = self.unforced.pop() else {
                return;
            };
            for row in &rows {
                if let Some(list) = self.lists.get_mut(&row.list) {
                    list.remove(&row.position);
                }
            }
            // A list without rows does not exist.
            self.lists.retain(|_, rows| !rows.is_empty());
            self.executed.remove(&gtid);
            self.prepared.insert(gtid, rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_loss_removes_lists_of_lost_commits() {
        let mut engine = Engine::default();
        let source = binlog_format::gtid::SourceId(uuid::Uuid::from_u128(1));
        let gtid = |number| Gtid {
            source,
            tag: binlog_format::gtid::Tag::NONE,
            gno: binlog_format::gtid::Gno::new(number).unwrap(),
        };
        let row = |list, value| ListRow {
            list,
            position: 1,
            value,
        };
        engine.prepare(gtid(1), vec![row(1, 10)]);
        engine.commit(gtid(1));
        // The sync of this PREPARE includes the previous commit. The commit that follows is not synced.
        engine.prepare(gtid(2), vec![row(2, 20)]);
        engine.commit(gtid(2));
        engine.lose_commits(2);
        engine.roll_back_prepared();
        assert_eq!(engine.lists(), Lists::from([(1, vec![10])]));
        assert!(engine.executed.contains(&gtid(1)) && !engine.executed.contains(&gtid(2)));
    }
}
