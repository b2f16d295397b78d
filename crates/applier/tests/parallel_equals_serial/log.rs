//! Creates random logs, and the tables' contents after each transaction.

use std::collections::BTreeMap;

use applier::schema::TableName;
use binlog_format::canonical::CanonicalEvents;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::events::{CommitTimestamp, LogicalClock, ServerVersion};
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
use binlog_format::synthesis::{RowTransaction, TransactionHead, Value, statement_transaction};
use bytes::Bytes;
use fastrand::Rng;
use testkit::memory_database::Row;

use crate::tables::{self, BAG, CHILD, COUNTER, LATE, Model, PAIR, PLAIN, UNIQUE};

/// The content of all tables.
pub(crate) type Content = BTreeMap<TableName, Vec<Row>>;

pub(crate) const ALTER: &str = "ALTER TABLE late ADD UNIQUE (c1)";

pub(crate) struct Log {
    pub(crate) transactions: Vec<FramedTransaction>,
    /// The contents before the first transaction, after the first, after the second, and so on.
    pub(crate) contents: Vec<Content>,
    /// The statements in the log, in order.
    pub(crate) statements: Vec<String>,
    /// The number of rows in the largest transaction.
    pub(crate) largest: usize,
}

/// Parameters of the random log.
struct Taste {
    /// The most changes in a transaction.
    changes: usize,
    /// The number of counters; with one, every writer updates the same row.
    counters: i64,
    /// Percentage of changes that update counters.
    counting: u32,
    statements: bool,
    huge: bool,
}

struct Writer<'r> {
    random: &'r mut Rng,
    tables: Vec<Model>,
    /// The first number for rows of huge transactions.
    next_row: i64,
    rows: usize,
}

/// Creates a log from a random generator.
pub(crate) fn random(random: &mut Rng) -> Log {
    let taste = Taste {
        changes: random.usize(1..7),
        counters: random.i64(1..6),
        counting: random.u32(0..60),
        statements: random.u8(0..4) == 0,
        huge: random.u8(0..4) == 0,
    };
    let count = random.usize(2..45);
    let alter_from = taste.statements.then(|| random.usize(0..count));
    let mut log = Log {
        transactions: Vec::new(),
        contents: Vec::new(),
        statements: Vec::new(),
        largest: 1,
    };
    let mut writer = Writer {
        random,
        tables: tables::all(),
        next_row: 1_000,
        rows: 0,
    };
    log.contents.push(writer.content());
    let mut altered = false;
    for place in 0..count {
        writer.rows = 0;
        let head = head(place as u64 + 1);
        if !altered && alter_from.is_some_and(|from| place >= from) {
            // The table's rows are deleted first, because the in-memory database does not index
            // existing rows.
            let payload = if writer.tables[LATE].rows.is_empty() {
                altered = true;
                log.statements.push(ALTER.to_owned());
                statement_transaction(head, "s", ALTER)
            } else {
                let mut transaction = RowTransaction::begin(head);
                writer.clear(&mut transaction, LATE);
                log.largest = log.largest.max(writer.rows);
                transaction.commit()
            };
            log.push(payload, &writer);
            continue;
        }
        let statement = format!("GRANT SELECT ON s.* TO 'u{place}'");
        if taste.statements && writer.random.u8(0..9) == 0 {
            let payload = statement_transaction(head, "s", &statement);
            log.push(payload, &writer);
            log.statements.push(statement);
            continue;
        }
        let mut transaction = RowTransaction::begin(head);
        if taste.huge && writer.random.u8(0..12) == 0 {
            writer.huge(&mut transaction);
        }
        for _ in 0..writer.random.usize(1..=taste.changes) {
            if writer.random.u32(0..100) < taste.counting {
                writer.count(&mut transaction, taste.counters);
            } else {
                writer.change(&mut transaction, altered);
            }
        }
        log.largest = log.largest.max(writer.rows);
        log.push(transaction.commit(), &writer);
    }
    log
}

fn head(number: u64) -> TransactionHead {
    // Two alternating sources.
    let source = (number % 2) as u8;
    TransactionHead {
        gtid: Gtid {
            source: SourceId::from_bytes([source + 1; SourceId::LEN]),
            tag: Tag::NONE,
            gno: Gno::new(number / 2 + 1).expect("a small number"),
        },
        server_id: 1,
        thread_id: 1,
        commit: CommitTimestamp(1_700_000_000_000_000 + number * 1_000),
        version: ServerVersion(90_704),
        clock: LogicalClock::default(),
        xid: number,
    }
}

impl Log {
    fn push(&mut self, payload: Bytes, writer: &Writer<'_>) {
        let mut framer = TransactionFramer::new(ChecksumAlgorithm::None, 1 << 30);
        let mut framed = None;
        for event in CanonicalEvents::new(payload) {
            let event = event.expect("an event");
            framed = framer.push(&event).expect("a transaction's events");
        }
        let Some(StreamItem::Transaction(framed)) = framed else {
            panic!("no whole transaction");
        };
        self.transactions.push(framed);
        self.contents.push(writer.content());
    }
}

impl Writer<'_> {
    fn content(&self) -> Content {
        let tables = self.tables.iter();
        tables
            .map(|model| (model.shape.name.clone(), model.content()))
            .collect()
    }

    fn insert(&mut self, transaction: &mut RowTransaction, table: usize, rows: Vec<Vec<Value>>) {
        let model = &mut self.tables[table];
        transaction
            .insert(&model.table, &rows)
            .expect("rows that fit");
        self.rows += rows.len();
        model.rows.extend(rows);
    }

    fn delete(&mut self, transaction: &mut RowTransaction, table: usize, place: usize) {
        let model = &mut self.tables[table];
        let row = model.rows.swap_remove(place);
        transaction
            .delete(&model.table, &[row])
            .expect("a row that fits");
        self.rows += 1;
    }

    fn update(
        &mut self,
        transaction: &mut RowTransaction,
        table: usize,
        place: usize,
        to: Vec<Value>,
    ) {
        let model = &mut self.tables[table];
        let from = std::mem::replace(&mut model.rows[place], to.clone());
        transaction
            .update(&model.table, &[(from, to)])
            .expect("rows that fit");
        self.rows += 1;
    }

    fn clear(&mut self, transaction: &mut RowTransaction, table: usize) {
        while !self.tables[table].rows.is_empty() {
            self.delete(transaction, table, 0);
        }
    }

    /// Increments a counter and inserts a row about it: readers must see both or none.
    fn count(&mut self, transaction: &mut RowTransaction, counters: i64) {
        let counter = self.random.i64(0..counters);
        let rows = &self.tables[COUNTER].rows;
        let place = rows.iter().position(|row| row[0] == Value::BigInt(counter));
        match place {
            None => {
                let row = vec![Value::BigInt(counter), Value::BigInt(1)];
                self.insert(transaction, COUNTER, vec![row]);
            }
            Some(place) => {
                let Value::BigInt(so_far) = rows[place][1] else {
                    panic!("a counter is a number");
                };
                let row = vec![Value::BigInt(counter), Value::BigInt(so_far + 1)];
                self.update(transaction, COUNTER, place, row);
            }
        }
    }

    fn huge(&mut self, transaction: &mut RowTransaction) {
        let count = self.random.i64(40..150);
        let rows = (self.next_row..self.next_row + count)
            .map(|number| vec![Value::BigInt(number), Value::Int(number as i32)]);
        let rows = rows.collect();
        self.next_row += count;
        self.insert(transaction, PLAIN, rows);
    }

    fn change(&mut self, transaction: &mut RowTransaction, altered: bool) {
        let table = *self
            .random
            .choice(&[PLAIN, UNIQUE, UNIQUE, PAIR, BAG, CHILD, LATE])
            .expect("some table");
        let count = self.tables[table].rows.len();
        let place = (count > 0).then(|| self.random.usize(0..count));
        let is_unique = table == UNIQUE || (table == LATE && altered);
        match (place, self.random.u8(0..10)) {
            (None, _) | (_, 0..=3) => {
                if let Some(row) = self.new_row(table, is_unique) {
                    self.insert(transaction, table, vec![row]);
                }
            }
            (Some(place), 4 | 5) => self.delete(transaction, table, place),
            (Some(place), 6) if is_unique && count > 1 => self.swap(transaction, table, place),
            // Often with another primary key.
            (Some(place), 7) => {
                if let Some(row) = self.new_row(table, is_unique) {
                    self.update(transaction, table, place, row);
                }
            }
            (Some(place), _) => {
                let mut row = self.tables[table].rows[place].clone();
                let key = if table == PAIR { 2 } else { 1 };
                if let Some(new) = self.new_row(table, is_unique) {
                    row[key..].clone_from_slice(&new[key..]);
                    self.update(transaction, table, place, row);
                }
            }
        }
    }

    /// Two rows swap their unique values, with NULL in between.
    fn swap(&mut self, transaction: &mut RowTransaction, table: usize, one: usize) {
        let count = self.tables[table].rows.len();
        let other = (one + 1 + self.random.usize(0..count - 1)) % count;
        let (first, second) = (
            self.tables[table].rows[one].clone(),
            self.tables[table].rows[other].clone(),
        );
        let with = |row: &[Value], value: &Value| {
            let mut row = row.to_vec();
            row[1] = value.clone();
            row
        };
        self.update(transaction, table, one, with(&first, &Value::Null));
        self.update(transaction, table, other, with(&second, &first[1]));
        self.update(transaction, table, one, with(&first, &second[1]));
    }

    /// Returns a row with unused keys; `None` if none was found.
    fn new_row(&mut self, table: usize, is_unique: bool) -> Option<Vec<Value>> {
        let random = &mut *self.random;
        let small = |random: &mut Rng| Value::BigInt(random.i64(0..25));
        let int = |random: &mut Rng| Value::Int(random.i32(0..1000));
        let rows = &self.tables[table].rows;
        let row = match table {
            PLAIN => vec![small(random), int(random)],
            UNIQUE => vec![small(random), small(random), int(random)],
            PAIR => {
                let text = format!("text {}", random.u8(0..4));
                vec![Value::Int(random.i32(0..6)), Value::Text(text), int(random)]
            }
            BAG => vec![Value::Int(random.i32(0..3)), Value::Int(0)],
            CHILD | LATE => vec![small(random), small(random)],
            _ => return None,
        };
        let keys = match table {
            BAG => 0,
            PAIR => 2,
            _ => 1,
        };
        let is_taken = |other: &Vec<Value>| {
            (keys > 0 && other[..keys] == row[..keys]) || (is_unique && other[1] == row[1])
        };
        (!rows.iter().any(is_taken)).then_some(row)
    }
}
