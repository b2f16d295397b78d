//! Clients that append to lists and read lists in transactions, and readers of the lists at every server. The crate `histories` checks the
//! order of the results.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;
use fastrand::Rng;
use histories::{Access, Operation, Outcome, Transaction, check_in_words};
use mysql_link::Connection;
use testkit::mysqld::MysqlClient;

/// The length of a period, in transaction numbers. Each period uses new lists, so that no list becomes long.
const NUMBERS: u64 = 200;
/// Number of lists of each period.
const AT_A_TIME: u64 = 4;
/// A transaction may also use the lists of this many earlier periods.
const REACHES_BACK: u64 = 5;
/// Readers read the lists of the current period and of this many earlier ones.
const LOOKS_BACK: u64 = 2;

/// Maximum number of characters of each transaction in a finding. A read of all lists is longer.
const SHOWN: usize = 1_000;

/// The recorded history of transactions. Clones share the record.
#[derive(Clone, Debug)]
pub(crate) struct History(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    start: Instant,
    /// The newest period of any transaction.
    newest: AtomicU64,
    sessions: AtomicU64,
    seen: Mutex<Vec<Transaction>>,
}

impl Default for History {
    fn default() -> Self {
        Self(Arc::new(Kept {
            start: Instant::now(),
            newest: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            seen: Mutex::default(),
        }))
    }
}

impl History {
    /// Returns the operations of a transaction with this number. At least one is an append, so that the commit needs a quorum and proves
    /// the reads.
    pub(crate) fn plan(&self, number: u64, dice: &mut Rng) -> Vec<Operation> {
        let now = number / NUMBERS;
        self.0.newest.fetch_max(now, Ordering::Relaxed);
        let list = |dice: &mut Rng| {
            let back = match dice.u8(0..4) {
                0 => dice.u64(0..=REACHES_BACK),
                _ => 0,
            };
            now.saturating_sub(back) * AT_A_TIME + dice.u64(0..AT_A_TIME)
        };
        let mut operations = Vec::new();
        for _ in 0..dice.u8(0..3) {
            operations.push(Operation::Read(list(dice), Vec::new()));
        }
        for part in 0..dice.u64(1..3) {
            let append = Operation::Append(list(dice), number * 10 + part);
            operations.insert(dice.usize(0..=operations.len()), append);
        }
        operations
    }

    /// Records a transaction of a client.
    pub(crate) fn write(&self, began: Instant, outcome: Outcome, operations: Vec<Operation>) {
        self.add(began, outcome, Access::Primary, operations);
    }

    /// Returns a new number for a reader's session. Within a session, reads must not return older states than earlier reads.
    pub(crate) fn session(&self) -> u64 {
        self.0.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Reads the lists of the newest periods in one statement. Returns whether the connection remains usable.
    pub(crate) async fn look(&self, session: u64, connection: &mut Connection) -> bool {
        let newest = self.0.newest.load(Ordering::Relaxed);
        let first = newest.saturating_sub(LOOKS_BACK) * AT_A_TIME;
        let lists = first..(newest + 1) * AT_A_TIME;
        let statement = format!(
            "SELECT list, items FROM nemesis.lists WHERE list BETWEEN {} AND {}",
            lists.start,
            lists.end - 1
        );
        let began = Instant::now();
        let Ok(answer) = connection.query(statement).await else {
            return false;
        };
        let rows = answer.rows.iter().filter_map(|row| {
            let list = row.text_at(0)?.parse().ok()?;
            Some((list, values(row.text_at(1)?)))
        });
        let reads = reads(lists, rows.collect());
        self.add(began, Outcome::Committed, Access::Follower(session), reads);
        true
    }

    /// Reads all lists at a server while no client writes. The check then requires every acknowledged append in the result.
    pub(crate) fn read_all(&self, client: &MysqlClient) -> Result<()> {
        let began = Instant::now();
        let rows = client.sql("SELECT list, items FROM nemesis.lists")?.0;
        let mut there = BTreeMap::new();
        for row in rows {
            if let [list, items] = row.as_slice() {
                there.insert(list.parse()?, values(items));
            }
        }
        let newest = self.0.newest.load(Ordering::Relaxed);
        let reads = reads(0..(newest + 1) * AT_A_TIME, there);
        self.add(began, Outcome::Committed, Access::Primary, reads);
        Ok(())
    }

    /// Returns all anomalies of the history as text.
    pub(crate) fn judge(&self) -> Vec<String> {
        check_in_words(&self.seen(), SHOWN)
    }

    /// The number of recorded transactions and reads.
    pub(crate) fn len(&self) -> usize {
        self.seen().len()
    }

    fn add(&self, began: Instant, outcome: Outcome, access: Access, operations: Vec<Operation>) {
        let micros = |at: Instant| {
            let since = at.duration_since(self.0.start).as_micros();
            u64::try_from(since).unwrap_or(u64::MAX)
        };
        let transaction = Transaction {
            began: micros(began),
            ended: micros(Instant::now()),
            outcome,
            access,
            operations,
        };
        self.seen().push(transaction);
    }

    fn seen(&self) -> MutexGuard<'_, Vec<Transaction>> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reads of these lists; a missing list is empty.
fn reads(lists: Range<u64>, mut there: BTreeMap<u64, Vec<u64>>) -> Vec<Operation> {
    let read = |list| Operation::Read(list, there.remove(&list).unwrap_or_default());
    lists.map(read).collect()
}

/// The statement of an operation.
pub(crate) fn statement(operation: &Operation) -> String {
    match operation {
        Operation::Append(list, value) => format!(
            "INSERT INTO nemesis.lists VALUES ({list}, ',{value}') ON DUPLICATE KEY UPDATE items = CONCAT(items, ',{value}')"
        ),
        Operation::Read(list, _) => format!("SELECT items FROM nemesis.lists WHERE list = {list}"),
    }
}

/// Parses a list such as `,7,8`. A text that is not a number becomes a value that no client appended.
pub(crate) fn values(items: &str) -> Vec<u64> {
    let items = items.split(',').filter(|item| !item.is_empty());
    items.map(|item| item.parse().unwrap_or(u64::MAX)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_transaction_appends_and_no_value_comes_twice() {
        let history = History::default();
        let mut dice = Rng::with_seed(7);
        let mut appended = BTreeSet::new();
        for number in 1..2_000 {
            let plan = history.plan(number, &mut dice);
            let mut appends = 0;
            for operation in &plan {
                if let Operation::Append(_, value) = operation {
                    assert!(appended.insert(*value));
                    appends += 1;
                }
            }
            assert!(appends > 0);
        }
    }

    #[test]
    fn lost_acknowledged_transactions_are_reported_with_the_members() {
        let history = History::default();
        let now = Instant::now();
        history.write(now, Outcome::Committed, vec![Operation::Append(1, 70)]);
        std::thread::sleep(std::time::Duration::from_millis(1));
        let read = vec![Operation::Read(1, values("")), Operation::Append(1, 80)];
        history.write(Instant::now(), Outcome::Committed, read);
        let told = history.judge().join("\n");
        assert!(
            told.contains("Time") && told.contains("Append(1, 70)"),
            "{told}"
        );
        assert_eq!(values(",7,8"), [7, 8]);
    }
}
