//! The applier's own table in a target. Its first row, the checkpoint, records transactions that were committed as one.
//!
//! Transactions of the log that commit as one transaction of the target have no GTIDs of their own there. So each batch
//! updates the checkpoint in its own transaction, directly before its COMMIT. It replaces the previous batch's number by its
//! own. It also writes the GTIDs of its transactions, and those of earlier batches that are not in `gtid_executed` yet. They
//! are added to `gtid_executed` after the commit (module `publishing`).
//!
//! ```text
//! session of k      rows │ row: k, if it is k-1 │ COMMIT k: visible, locks go ···· force ·│ answer │ k is published
//!                                    └─ answer ─┐
//! session of k+1    rows                        row: k+1, if it is k │ COMMIT k+1 ···· force ·│ answer
//! ```
//!
//! What the row ensures:
//!
//! * **The order.** A batch finds its predecessor's number only if the predecessor is committed. If the update finds another
//!   number, it fails, and the server does not run the COMMIT that follows in the same packet. InnoDB makes a transaction
//!   visible and releases its locks before it syncs its log, so the next batch can proceed and shares the sync.
//! * **Once.** A call of a lost session, or of another applier, may still be in progress. After one of them commits, the other
//!   one finds an unexpected number.
//! * **After a crash,** the row contains the transactions that are in the tables and not in `gtid_executed`.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use binlog_format::gtid::{Gtid, GtidSet};
use tokio::sync::Notify;

use crate::backend::{Turn, WriteError};
use crate::batch::{Batch, BatchSeq};
use crate::locked;
use crate::mysql::outcome::refused_by_us;
use crate::schema::TableName;
use crate::transaction::{Barrier, SchemaChange};

/// The table. The row with `id` 1 is the checkpoint; the row with `id` 2 is for transactions that cannot be rolled back.
pub(super) const TABLE: &str = "witness_applier.checkpoint";
/// Privileges that an account needs on the table's schema. CREATE is needed only if the table is missing.
pub(super) const RIGHTS: &str = "CREATE, SELECT, INSERT, UPDATE";
/// `BIGINT UNSIGNED value is out of range`: the error of an update that does not find the predecessor's number.
pub(super) const OUT_OF_RANGE: u16 = 1690;

/// The statements that create the table if it is missing.
pub(super) const MAKE: [&str; 3] = [
    "CREATE DATABASE IF NOT EXISTS witness_applier",
    "CREATE TABLE IF NOT EXISTS witness_applier.checkpoint (id TINYINT UNSIGNED NOT NULL PRIMARY KEY, \
     n BIGINT UNSIGNED NOT NULL, gtids MEDIUMTEXT CHARACTER SET ascii NOT NULL) ENGINE = InnoDB STATS_PERSISTENT = 0 \
     COMMENT = 'what witness has applied to this server beyond gtid_executed; only dropped while none works'",
    "INSERT IGNORE INTO witness_applier.checkpoint VALUES (1, 1, '')",
];

/// The writer of the number in the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// This batch, which committed as one transaction.
    Batch(BatchSeq),
    /// A transaction of this run that committed separately, or the last answered batch.
    One,
    /// Another run, or another applier.
    Other,
}

/// What the sessions of one applier have recorded about the row.
#[derive(Debug)]
pub(super) struct Checkpoint {
    state: Mutex<State>,
    given_up: AtomicBool,
    /// Notifies that transactions must be published, or were published.
    pub(super) changed: Notify,
}

#[derive(Debug)]
struct State {
    /// The first number of this run, and the last number assigned.
    begun: u64,
    given: u64,
    /// The number in the row, according to the answers received.
    committed: u64,
    /// Transactions that are committed and not known to be in `gtid_executed`.
    unpublished: GtidSet,
    /// Batches with a requested commit that is not answered.
    under_way: BTreeMap<BatchSeq, UnderWay>,
}

#[derive(Debug, Clone)]
struct UnderWay {
    number: u64,
    gtids: GtidSet,
    /// The commit was requested before in a session that was then lost. That call may still commit.
    in_doubt: bool,
}

impl State {
    /// Records that everything before this batch is committed, even commits that were not answered.
    fn settle_before(&mut self, batch: BatchSeq) {
        let later = self.under_way.split_off(&batch);
        for UnderWay { number, gtids, .. } in mem::replace(&mut self.under_way, later).into_values()
        {
            self.committed = self.committed.max(number);
            self.unpublished.union_with(&gtids);
        }
    }
}

impl Checkpoint {
    pub(super) fn new() -> Self {
        // Numbers begin at random, so that numbers of another applier are not mistaken for those of this one. The hasher has a
        // random seed.
        let random = RandomState::new().build_hasher().finish();
        let start = (random >> 2) + 1;
        Self {
            state: Mutex::new(State {
                begun: start,
                given: start,
                committed: start,
                unpublished: GtidSet::new(),
                under_way: BTreeMap::new(),
            }),
            given_up: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Begins a run. Returns an unused number for the row.
    pub(super) fn begin(&self) -> u64 {
        let mut state = locked(&self.state);
        state.given += 1;
        state.begun = state.given;
        state.committed = state.given;
        state.under_way.clear();
        state.given
    }

    /// Returns the statement by which a batch takes its turn to commit as one. The caller must then call [`Self::committed`]
    /// or [`Self::failed`], unless the outcome is unknown.
    pub(super) fn take_turn(&self, batch: &Batch, turn: Turn) -> String {
        let mut state = locked(&self.state);
        if turn == Turn::First {
            state.settle_before(batch.seq);
            self.changed.notify_waiters();
        }
        let before = state.under_way.range(..batch.seq).next_back();
        let before = before.map_or(state.committed, |(_, one)| one.number);
        // If the batch was requested before and is not known to have failed, it keeps its number, which identifies it.
        let known = state.under_way.get(&batch.seq).map(|known| known.number);
        state.given += u64::from(known.is_none());
        let number = known.unwrap_or(state.given);
        let own = UnderWay {
            number,
            gtids: batch.gtids(),
            in_doubt: known.is_some(),
        };
        state.under_way.insert(batch.seq, own);
        let mut gtids = state.unpublished.clone();
        for one in state.under_way.range(..=batch.seq) {
            gtids.union_with(&one.1.gtids);
        }
        format!("{}, gtids='{gtids}' WHERE id=1", set_number(number, before))
    }

    /// Returns numbers and statements for transactions of a batch that commit one by one. The statement comes first in its
    /// transaction, and fails if another applier has committed. The caller must call [`Self::one_committed`] after each
    /// commit.
    pub(super) fn guards(&self, batch: BatchSeq, count: usize) -> Vec<(u64, String)> {
        let mut state = locked(&self.state);
        state.settle_before(batch);
        self.changed.notify_waiters();
        let mut before = state.committed;
        let guards = (state.given + 1..).take(count).map(|number| {
            let statement = format!("{} WHERE id=1", set_number(number, before));
            before = number;
            (number, statement)
        });
        let guards = guards.collect();
        state.given += count as u64;
        guards
    }

    /// Records that the transaction with this number of [`Self::guards`] is committed.
    pub(super) fn one_committed(&self, number: u64) {
        let mut state = locked(&self.state);
        state.committed = state.committed.max(number);
    }

    /// Records that a batch is committed as one.
    pub(super) fn committed(&self, batch: BatchSeq) {
        locked(&self.state).settle_before(batch.next());
        self.changed.notify_waiters();
    }

    /// Records that this attempt of a batch was rolled back. An earlier attempt in a lost session may still commit.
    pub(super) fn failed(&self, batch: BatchSeq) {
        let mut state = locked(&self.state);
        if state.under_way.get(&batch).is_some_and(|one| !one.in_doubt) {
            state.under_way.remove(&batch);
        }
    }

    /// Records that the row contains this number, and returns who wrote it. Transactions recorded with the number count as
    /// committed.
    pub(super) fn found(&self, number: u64) -> Whose {
        let mut state = locked(&self.state);
        let mut all = state.under_way.iter();
        if let Some((&batch, _)) = all.find(|(_, one)| one.number == number) {
            state.settle_before(batch.next());
            drop(state);
            self.changed.notify_waiters();
            return Whose::Batch(batch);
        }
        if !(state.begun..=state.given).contains(&number) {
            return Whose::Other;
        }
        state.committed = state.committed.max(number);
        Whose::One
    }

    /// Returns committed transactions that are not known to be in `gtid_executed`.
    pub(super) fn unpublished(&self) -> GtidSet {
        locked(&self.state).unpublished.clone()
    }

    /// Records that these transactions are in `gtid_executed` now.
    pub(super) fn published(&self, gtids: &GtidSet) {
        let mut state = locked(&self.state);
        state.unpublished = state.unpublished.difference(gtids);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until all transactions that are known to be committed are in `gtid_executed`.
    pub(super) async fn all_published(&self) {
        loop {
            let changed = self.changed.notified();
            if locked(&self.state).unpublished.is_empty() {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Relaxed)
    }

    /// Stops committing batches as one, and logs the reason.
    pub(super) fn give_up(&self, why: &str) {
        if !self.given_up.swap(true, Relaxed) {
            tracing::warn!(
                why,
                table = TABLE,
                "transactions are not committed together any more, and each is forced to disk by itself: start the applier \
                 again when the cause is gone"
            );
        }
    }
}

/// Returns the assignment of number `own`. If the row has another number than `before`, the sum exceeds the column's type, and
/// the update fails.
fn set_number(own: u64, before: u64) -> String {
    format!("UPDATE {TABLE} SET n={own}+(n<>{before})*{}", u64::MAX)
}

// Irreversible transactions: they write to tables of engines without transactions. A rollback does not remove such writes,
// and a retry duplicates them.
//
// So each of them is applied alone, after a note with its GTID. The note is a row of the applier's table (`id` 2), durable
// before the transaction's first row is written; if there is no such table, it is in memory. The note remains if the session
// is lost, the applier is killed, or the server ends. An executed transaction is never retried. A retry of an unexecuted one
// finds the note, and the applier stops.
//
// If the server answers with an error, the outcome is known. If the ROLLBACK warns that changes remain, the applier stops.
// Otherwise the note is removed, and the transaction is retried after a lock timeout as usual.
//
// It is unknown to which tables a statement of the log writes. If the server has any table without transactions, every
// transaction with statements is assumed to write to it.

/// The `id` of the row with the GTID of the last irreversible transaction begun.
pub(super) const NOTE: u32 = 2;

/// What an applier's sessions have recorded about irreversible transactions.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// The last irreversible transaction begun; used if the row cannot be written.
    pub(super) last: Mutex<Option<Gtid>>,
    /// Some of the server's tables without transactions, and the time of the query. `None`: unknown.
    pub(super) tables: Mutex<Option<(Instant, Vec<TableName>)>>,
}

impl Begun {
    /// Forgets the list of tables if the barrier, which has ended, changed tables.
    pub(super) fn ended(&self, barrier: &Barrier) {
        if barrier.changes != SchemaChange::Nothing {
            *locked(&self.tables) = None;
        }
    }
}

/// Returns the error for a failed transaction that must not be retried because some of its changes remain.
pub(super) fn half_written(why: WriteError, tables: &[TableName]) -> WriteError {
    let stays = format!(
        "; and the rows that it had written before that stay in {}, whose engine takes nothing back",
        names(tables)
    );
    match why {
        WriteError::Refused(mut refusal) => {
            refusal.message += &stays;
            WriteError::Refused(refusal)
        }
        WriteError::Again(message) | WriteError::Lost(message) => refused_by_us(message + &stays),
    }
}

/// Returns the refusal of an irreversible transaction that was begun before and must not begin again.
pub(super) fn begun_before(writes: &str, tables: &[TableName], has_row: bool) -> String {
    let tables = names(tables);
    let goes_on = match has_row {
        true => format!("SET sql_log_bin = 0; UPDATE {TABLE} SET gtids = '' WHERE id = {NOTE}"),
        false => "start the applier again".to_owned(),
    };
    format!(
        "it was begun before and was ended in the middle, and it {writes} {tables}, whose engine takes nothing back: rows that stand \
         there already would stand twice. ALTER TABLE … ENGINE = InnoDB at the primary, and copy its data anew. Where none of its \
         rows is there, or you have taken them out, this lets it begin: {goes_on}"
    )
}

pub(super) fn names(tables: &[TableName]) -> String {
    let names: Vec<String> = tables.iter().map(TableName::to_string).collect();
    match names.is_empty() {
        true => "a table".to_owned(),
        false => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};

    use super::*;
    use crate::batch::Commits;
    use crate::transaction::{Body, RowChanges, Seq, Transaction};

    const UUID: &str = "07070707-0707-0707-0707-070707070707";

    fn batch(seq: u64, gnos: std::ops::RangeInclusive<u64>) -> Batch {
        let one = |gno| {
            Arc::new(Transaction {
                seq: Seq(gno),
                gtid: Gtid {
                    source: SourceId::from_bytes([7; SourceId::LEN]),
                    tag: Tag::NONE,
                    gno: Gno::new(gno).unwrap(),
                },
                immediate_commit: None,
                original_commit: None,
                original_version: None,
                bytes: 10,
                body: Body::Rows(RowChanges::default()),
            })
        };
        Batch::new(BatchSeq(seq), Commits::AsOne, gnos.map(one).collect())
    }

    /// Creates a checkpoint with the number 1000 in its row.
    fn checkpoint() -> Checkpoint {
        let checkpoint = Checkpoint::new();
        locked(&checkpoint.state).given = 999;
        assert_eq!(checkpoint.begin(), 1000);
        checkpoint
    }

    fn statement(own: u64, before: u64, gtids: &str) -> String {
        format!(
            "UPDATE witness_applier.checkpoint SET n={own}+(n<>{before})*18446744073709551615, gtids='{UUID}:{gtids}' WHERE id=1"
        )
    }

    #[test]
    fn each_batch_follows_its_predecessor_and_lists_unpublished_gtids() {
        let row = checkpoint();
        let (first, second, third) = (batch(7, 1..=3), batch(8, 4..=4), batch(9, 5..=6));
        assert_eq!(
            row.take_turn(&first, Turn::First),
            statement(1001, 1000, "1-3")
        );
        assert_eq!(
            row.take_turn(&second, Turn::Next),
            statement(1002, 1001, "1-4")
        );
        row.committed(first.seq);
        row.published(&first.gtids());
        assert_eq!(
            row.take_turn(&third, Turn::Next),
            statement(1003, 1002, "4-6")
        );
        row.committed(second.seq);
        row.committed(third.seq);
        assert_eq!(row.unpublished().to_string(), format!("{UUID}:4-6"));
        // A barrier had the batch number in between.
        let later = batch(11, 8..=8);
        assert_eq!(
            row.take_turn(&later, Turn::First),
            statement(1004, 1003, "4-6:8")
        );
    }

    #[test]
    fn gtids_of_a_rolled_back_batch_are_in_no_set() {
        let row = checkpoint();
        let (first, second) = (batch(1, 1..=2), batch(2, 3..=3));
        row.take_turn(&first, Turn::First);
        row.take_turn(&second, Turn::Next);
        row.failed(first.seq);
        row.failed(second.seq);
        assert_eq!(
            row.take_turn(&first, Turn::First),
            statement(1003, 1000, "1-2")
        );
        row.failed(first.seq);
        let guards = row.guards(first.seq, 2);
        assert_eq!(
            guards[1].1,
            "UPDATE witness_applier.checkpoint SET n=1005+(n<>1004)*18446744073709551615 WHERE id=1"
        );
        row.one_committed(guards[0].0);
        row.one_committed(guards[1].0);
        assert_eq!(
            row.take_turn(&second, Turn::First),
            statement(1006, 1005, "3")
        );
    }

    /// The session was lost after it sent COMMIT. The target has committed the batch, or does so a little later.
    #[test]
    fn a_batch_of_unknown_outcome_keeps_its_number() {
        let row = checkpoint();
        let (first, second) = (batch(1, 1..=2), batch(2, 3..=3));
        row.take_turn(&first, Turn::First);
        assert_eq!(
            row.take_turn(&first, Turn::First),
            statement(1001, 1000, "1-2")
        );
        assert_eq!(row.found(1002), Whose::Other);
        let doubted = row.found(1001);
        assert_eq!(doubted, Whose::Batch(first.seq));
        assert_eq!(
            row.take_turn(&second, Turn::First),
            statement(1002, 1001, "1-3")
        );
        assert_eq!(row.unpublished().to_string(), format!("{UUID}:1-2"));
    }

    #[test]
    fn numbers_of_two_appliers_differ() {
        assert_ne!(Checkpoint::new().begin(), Checkpoint::new().begin());
    }
}

#[cfg(test)]
mod for_good_tests {
    use super::*;
    use crate::backend::Refusal;

    #[test]
    fn a_half_written_transaction_is_refused_with_its_cause() {
        let tables = [TableName::new("d", "m"), TableName::new("d", "n")];
        let refusal = Refusal {
            table: Some(TableName::new("d", "n")),
            row: Some(3),
            code: 1062,
            message: "Duplicate entry".to_owned(),
        };
        for (why, code) in [
            (WriteError::Again("Duplicate entry".to_owned()), 0),
            (WriteError::Lost("Duplicate entry".to_owned()), 0),
            (WriteError::Refused(Box::new(refusal)), 1062),
        ] {
            let WriteError::Refused(refused) = half_written(why, &tables) else {
                panic!("it begins again");
            };
            assert_eq!(refused.code, code);
            assert_eq!(
                refused.message,
                "Duplicate entry; and the rows that it had written before that stay in d.m, d.n, whose engine takes nothing back"
            );
        }
        assert!(
            half_written(WriteError::Again(String::new()), &[])
                .to_string()
                .contains("stay in a table")
        );
    }
}
