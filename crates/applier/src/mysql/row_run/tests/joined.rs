//! A run with joined writes has the same result as the log, and violates no key at any point.

use std::collections::BTreeMap;
use std::sync::Arc;

use binlog_format::events::{RowsChange, TableId};
use binlog_format::synthesis::{Column, ColumnType, Table, Value};
use proptest::prelude::*;

use super::{Logged, batch_of, logged_transaction, read_statement};
use crate::batch::{Batch, BatchSeq, Commits};
use crate::keys::{Fold, KeyHash};
use crate::mysql::row_run::{append_run, first_run};
use crate::schema::{ColumnShape, KeyShape, ParentShape, TableName, TableShape};
use crate::transaction::{Body, Transaction};

/// In both tables the fourth column is in no key. In `parent` the second column is unique. In `child` the third
/// column refers to a parent.
const TABLES: [&str; 2] = ["parent", "child"];
const CHILD: usize = 1;

/// A row's columns: id, unique column, reference, note.
type Columns = [Option<i64>; 4];

fn table(number: usize) -> Table {
    let column = Column {
        column_type: ColumnType::BigInt,
        nullable: true,
    };
    Table {
        id: TableId(100 + number as u64),
        schema: "s".to_owned(),
        name: TABLES[number].to_owned(),
        columns: vec![column; 4],
    }
}

fn shape(name: &TableName) -> Option<Arc<TableShape>> {
    Some(Arc::new(shape_with(Fold::Bytes, name)))
}

/// Returns a table's shape. `of_unique`: how values of the unique column are compared.
fn shape_with(of_unique: Fold, name: &TableName) -> TableShape {
    let column = |(name, fold): (&str, Fold)| ColumnShape {
        name: name.into(),
        fold,
    };
    let columns = [
        ("id", Fold::Bytes),
        ("unique", of_unique),
        ("link", Fold::Bytes),
        ("note", Fold::Bytes),
    ];
    let columns = columns.map(column).to_vec();
    let plain = TableShape {
        primary_key: Some(KeyShape::of(&[0])),
        ..TableShape::new(name.clone(), columns)
    };
    match &*name.table {
        "parent" => TableShape {
            unique_keys: vec![KeyShape::of(&[1])],
            children: vec![TableName::new("s", "child")],
            ..plain
        },
        _ => TableShape {
            parents: vec![ParentShape {
                columns: vec![2],
                table: TableName::new("s", "parent"),
                referenced: vec!["id".into()],
            }],
            ..plain
        },
    }
}

/// Tables in memory that check constraints as the server does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tables {
    rows: BTreeMap<(usize, i64), Columns>,
}

impl Tables {
    fn write(&mut self, table: usize, before: Option<Columns>, after: Option<Columns>) -> bool {
        let id = |row: Columns| row[0].expect("every row has an id");
        let mut changed = self.rows.clone();
        if let Some(before) = before
            && changed.remove(&(table, id(before))).is_none()
        {
            return false;
        }
        if let Some(after) = after
            && changed.insert((table, id(after)), after).is_some()
        {
            return false;
        }
        let of = |table| changed.iter().filter(move |((of, _), _)| *of == table);
        let mut unique: Vec<i64> = of(0).filter_map(|(_, row)| row[1]).collect();
        unique.sort_unstable();
        let links_hold = of(CHILD)
            .filter_map(|(_, row)| row[2])
            .all(|link| changed.contains_key(&(0, link)));
        if unique.windows(2).any(|pair| pair[0] == pair[1]) || !links_hold {
            return false;
        }
        self.rows = changed;
        true
    }
}

/// A client's attempt to set one column of a row of a table, or to insert or delete the row.
type Attempt = (usize, i64, u8, Option<i64>);

/// Returns the write that results from an attempt, if any.
fn attempted(
    tables: &Tables,
    (table, id, what, value): Attempt,
) -> (Option<Columns>, Option<Columns>) {
    let row = tables.rows.get(&(table, id)).copied();
    let changed = |column: usize| {
        row.map(|mut row| {
            row[column] = value;
            row
        })
    };
    match (what, row) {
        (_, None) => (None, Some([Some(id), None, None, value])),
        (0, Some(_)) => (row, None),
        (1, Some(_)) => (row, changed(1)),
        (2, Some(_)) => (row, changed(2)),
        (3, Some(_)) if value.is_some() => (row, changed(0)),
        (_, Some(_)) => (row, changed(3)),
    }
}

fn values(row: Columns) -> Vec<Value> {
    row.map(|value| value.map_or(Value::Null, Value::BigInt))
        .to_vec()
}

/// Returns the transactions of a log in which clients made these attempts, and the resulting tables.
fn log(before: &Tables, attempts: &[Vec<Attempt>]) -> (Vec<Transaction>, Tables) {
    log_of(shape, before, attempts)
}

fn log_of(
    shape: impl Fn(&TableName) -> Option<Arc<TableShape>>,
    before: &Tables,
    attempts: &[Vec<Attempt>],
) -> (Vec<Transaction>, Tables) {
    let mut tables = before.clone();
    let transactions = attempts.iter().map(|attempts| {
        logged_transaction(&shape, |built| {
            for attempt in attempts {
                let (before, after) = attempted(&tables, *attempt);
                let of = table(attempt.0);
                if !tables.write(attempt.0, before, after) {
                    continue;
                }
                let added = match (before.map(values), after.map(values)) {
                    (None, Some(after)) => built.insert(&of, &[after]),
                    (Some(before), None) => built.delete(&of, &[before]),
                    (Some(before), Some(after)) => built.update(&of, &[(before, after)]),
                    (None, None) => continue,
                };
                added.unwrap();
            }
        })
    });
    (transactions.collect(), tables)
}

/// Returns the writes of a batch's statements, of at most `bound` bytes each.
fn written(batch: &Batch, bound: usize) -> Vec<Logged> {
    let (mut next, mut all) = (0, Vec::new());
    while next < batch.rows() {
        let run = first_run(batch, next..batch.rows(), bound);
        let mut events = Vec::new();
        append_run(batch, run.clone(), &mut events);
        all.extend(read_statement(&events));
        next = run.end;
    }
    all
}

/// Reads an image of four nullable BIGINTs; returns it and the bytes after it.
fn image(bytes: &[u8]) -> (Columns, &[u8]) {
    let (nulls, mut rest) = bytes.split_first().unwrap();
    let columns = [0, 1, 2, 3].map(|at| {
        if nulls >> at & 1 == 1 {
            return None;
        }
        let (value, after) = rest.split_first_chunk().unwrap();
        rest = after;
        Some(i64::from_le_bytes(*value))
    });
    (columns, rest)
}

fn replayed(tables: &mut Tables, written: &[Logged]) -> bool {
    written.iter().all(|(name, change, images)| {
        let table = TABLES.iter().position(|table| table == name).unwrap();
        let (first, rest) = image(images);
        let (before, after) = match change {
            RowsChange::Write => (None, Some(first)),
            RowsChange::Delete => (Some(first), None),
            _ => (Some(first), Some(image(rest).0)),
        };
        tables.write(table, before, after)
    })
}

fn attempts(count: usize) -> impl Strategy<Value = Vec<Vec<Attempt>>> {
    // Of four attempts at an existing row, two change its note.
    let attempt = (
        0..2_usize,
        1..4_i64,
        0..8_u8,
        prop::option::weighted(0.8, 1..4_i64),
    );
    prop::collection::vec(prop::collection::vec(attempt, 1..4), 1..count)
}

proptest! {
    #[test]
    fn joined_writes_have_the_result_of_the_log(
        earlier in attempts(10),
        attempts in attempts(40),
        bound in 100_usize..6000,
    ) {
        let (_, before) = log(&Tables::default(), &earlier);
        let (transactions, after) = log(&before, &attempts);
        let batch = batch_of(transactions);
        let written = written(&batch, bound);
        prop_assert!(written.len() <= batch.rows());
        let mut tables = before;
        prop_assert!(replayed(&mut tables, &written), "{:?}", written);
        prop_assert_eq!(tables, after);
    }
}

const NOTE: u8 = 9;
const UNIQUE: u8 = 1;
const LINK: u8 = 2;
const GO: u8 = 0;

/// Returns the number of rows written and the number of rows in the log.
fn counts(attempts: &[Attempt]) -> (usize, usize) {
    counts_of(shape, attempts)
}

fn counts_of(
    shape: impl Fn(&TableName) -> Option<Arc<TableShape>>,
    attempts: &[Attempt],
) -> (usize, usize) {
    let attempts: Vec<_> = attempts.iter().map(|attempt| vec![*attempt]).collect();
    let (transactions, _) = log_of(shape, &Tables::default(), &attempts);
    let batch = batch_of(transactions);
    (written(&batch, 100_000).len(), batch.rows())
}

#[test]
fn repeated_writes_of_a_row_are_joined() {
    let note = |id, value| (0, id, NOTE, Some(value));
    assert_eq!(
        counts(&[note(1, 1), note(1, 2), note(2, 1), note(1, 3), note(2, 2)]),
        (2, 5)
    );
    let attempts = [vec![note(1, 1)], vec![note(1, 2)], vec![note(1, 7)]];
    let (transactions, tables) = log(&Tables::default(), &attempts);
    let written = written(&batch_of(transactions), 100_000);
    assert_eq!(image(&written[0].2).0, tables.rows[&(0, 1)]);
}

#[test]
fn key_changes_are_not_joined() {
    let note = |value| (0, 1, NOTE, Some(value));
    let unique = |value| (0, 1, UNIQUE, value);
    assert_eq!(
        counts(&[note(1), unique(Some(1)), note(2), note(3)]),
        (3, 4)
    );
    assert_eq!(
        counts(&[note(1), unique(Some(1)), unique(None), note(3)]),
        (4, 4)
    );
    let child = |what, value| (1, 1, what, value);
    assert_eq!(
        counts(&[
            note(1),
            child(NOTE, None),
            child(LINK, Some(1)),
            child(NOTE, Some(1)),
            child(NOTE, Some(2))
        ]),
        (4, 5)
    );
}

#[test]
fn a_deleted_and_reinserted_row_is_not_joined() {
    let write = |what, value| (0, 1, what, Some(value));
    let attempts = [write(NOTE, 1), write(GO, 0), write(NOTE, 1), write(NOTE, 2)];
    assert_eq!(counts(&attempts), (3, 4));
}

#[test]
fn a_write_with_unknown_keys_prevents_joining() {
    let attempts = [
        (0, 1, NOTE, Some(1)),
        // A value that is not ASCII, so its comparison is unknown.
        (0, 1, UNIQUE, Some(0xff)),
        (0, 1, UNIQUE, None),
        // The image before is equal to the image after of the first write.
        (0, 1, NOTE, Some(2)),
    ];
    let text = |name: &TableName| Some(Arc::new(shape_with(Fold::AsciiCase, name)));
    assert_eq!(counts_of(text, &attempts), (4, 4));
}

#[test]
fn rows_with_equal_key_hashes_are_not_joined() {
    let note = |id, value| vec![(0, id, NOTE, Some(value))];
    let attempts = [note(1, 1), note(2, 1), note(2, 2), note(1, 2)];
    let (mut transactions, _) = log(&Tables::default(), &attempts);
    for transaction in &mut transactions {
        let Body::Rows(changes) = &mut transaction.body else {
            panic!("only rows")
        };
        changes.keys[1].key = KeyHash(7);
    }
    // Only consecutive updates are known to be of the same row.
    assert_eq!(written(&batch_of(transactions), 100_000).len(), 3);
}

#[test]
fn one_by_one_batches_are_not_joined() {
    let note = |value| vec![(0, 1, NOTE, Some(value))];
    let (transactions, _) = log(&Tables::default(), &[note(1), note(2)]);
    let transactions = transactions.into_iter().map(Arc::new).collect();
    let batch = Batch::new(BatchSeq(1), Commits::OneByOne, transactions);
    assert_eq!(written(&batch, 100_000).len(), 2);
}
