//! The row by which sessions pass on the turn to commit.
//!
//! InnoDB shows a transaction and lets its row locks go before it forces its log. So each transaction writes its number into
//! one row as the last thing before its COMMIT, in the same packet. The one behind it is sent when that write was answered:
//! its own write of the row waits until the commit before it is done in memory, finds that number, and goes on to a COMMIT
//! that shares a force of the log. Where it finds another number, the one before it was rolled back: the statement fails, and
//! with it the packet, in front of the COMMIT.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::backend::Turn;
use crate::transaction::Seq;

/// The table; one row, whose `id` is 1.
pub(super) const TABLE: &str = "witness_applier.turn";
/// What an account needs on its schema; CREATE only where it is not there.
pub(super) const RIGHTS: &str = "CREATE, SELECT, INSERT, UPDATE";
/// `BIGINT UNSIGNED value is out of range`: how a turn fails that follows another transaction than the one before.
pub(super) const OUT_OF_RANGE: u16 = 1690;

/// The statements that make the table where it is not.
pub(super) const MAKE: [&str; 3] = [
    "CREATE DATABASE IF NOT EXISTS witness_applier",
    "CREATE TABLE IF NOT EXISTS witness_applier.turn (id TINYINT UNSIGNED NOT NULL PRIMARY KEY, n BIGINT UNSIGNED NOT NULL) \
     ENGINE = InnoDB STATS_PERSISTENT = 0 COMMENT = 'the order of commits of witness apply; dropped without harm'",
    "INSERT IGNORE INTO witness_applier.turn VALUES (1, 1)",
];

/// The row, as the sessions of one applier use it.
#[derive(Debug)]
pub(super) struct TurnRow {
    /// Numbers begin here, so that those of another run or another applier are never taken for ours.
    start: u64,
    given_up: AtomicBool,
}

impl TurnRow {
    pub(super) fn new() -> Self {
        // Hashers are seeded at random.
        let random = RandomState::new().build_hasher().finish();
        Self {
            start: (random >> 2) + 1,
            given_up: AtomicBool::new(false),
        }
    }

    /// The statement that tries whether the row can be written. It changes the row.
    pub(super) fn try_statement(&self) -> String {
        format!("UPDATE {TABLE} SET n = {} WHERE id = 1", self.start)
    }

    /// The statement that takes a turn.
    pub(super) fn statement(&self, seq: Seq, turn: Turn) -> String {
        let own = self.number(seq.0);
        match turn {
            Turn::First => format!("UPDATE {TABLE} SET n={own} WHERE id=1"),
            // A wrong predecessor makes the sum larger than the column's type.
            Turn::Next => {
                let before = self.number(seq.0.saturating_sub(1));
                format!(
                    "UPDATE {TABLE} SET n={own}+(n<>{before})*{} WHERE id=1",
                    u64::MAX
                )
            }
        }
    }

    fn number(&self, seq: u64) -> u64 {
        // Below a half of what the type takes, for every log that there can be.
        self.start + (seq & (u64::MAX >> 2))
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Relaxed)
    }

    /// Turns are not passed on any more, and it is said why.
    pub(super) fn give_up(&self, why: &str) {
        if !self.given_up.swap(true, Relaxed) {
            tracing::warn!(
                why,
                table = TABLE,
                "commits do not pass on their turn any more, and wait for one another's answers: start the applier again \
                 when the cause is gone"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_takes_the_row_as_it_is_and_the_next_one_after_its_predecessor_only() {
        let row = TurnRow {
            start: 1_000,
            given_up: AtomicBool::new(false),
        };
        assert_eq!(
            row.statement(Seq(7), Turn::First),
            "UPDATE witness_applier.turn SET n=1007 WHERE id=1"
        );
        assert_eq!(
            row.statement(Seq(8), Turn::Next),
            "UPDATE witness_applier.turn SET n=1008+(n<>1007)*18446744073709551615 WHERE id=1"
        );
    }

    #[test]
    fn numbers_of_two_appliers_differ_and_none_is_zero() {
        let (one, other) = (TurnRow::new(), TurnRow::new());
        assert_ne!(one.number(5), other.number(5));
        assert!(one.number(0) > 0 && one.number(u64::MAX) > 0);
    }
}
