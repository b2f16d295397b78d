//! Rows that are split at any point into statements remain the same rows, and the server can apply the
//! statements.

mod joined;

use std::sync::Arc;

use binlog_format::canonical::CanonicalEvents;
use binlog_format::event::EventRef;
use binlog_format::events::{
    CommitTimestamp, LogicalClock, RowsChange, ServerVersion, TableId, TableMap,
};
use binlog_format::framing::{FramedTransaction, SourcePosition};
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
use binlog_format::row_image::{Columns, RowReader};
use binlog_format::synthesis::{Column, ColumnType, RowTransaction, Table, TransactionHead, Value};
use proptest::prelude::*;

use super::*;
use crate::batch::{BatchSeq, Commits};
use crate::decode::Decoder;
use crate::keys::Fold;
use crate::schema::{ColumnShape, TableName, TableShape};
use crate::transaction::{Body, Transaction};

/// One row of the log: its table, the kind of change, and its images.
pub(super) type Logged = (String, RowsChange, Vec<u8>);

fn table(number: u64) -> Table {
    let text = ColumnType::Varchar { max_bytes: 400 };
    let column = |column_type| Column {
        column_type,
        nullable: true,
    };
    Table {
        id: TableId(100 + number),
        schema: "s".to_owned(),
        name: format!("t{number}"),
        columns: vec![column(ColumnType::BigInt), column(text)],
    }
}

fn shape(name: &TableName) -> Option<Arc<TableShape>> {
    let column = |name: &str| ColumnShape {
        name: name.into(),
        fold: Fold::Opaque,
    };
    let columns = vec![column("id"), column("text")];
    Some(Arc::new(TableShape::new(name.clone(), columns)))
}

/// A change of one table: the table, the kind of change, and the lengths of its rows' texts.
type Change = (u64, u8, Vec<u16>);

fn transaction(changes: &[Change]) -> Transaction {
    let mut number = 0;
    logged_transaction(shape, |built| {
        for (of_table, kind, lengths) in changes {
            let table = table(*of_table);
            let mut row = |length: &u16| {
                number += 1;
                vec![
                    Value::BigInt(number),
                    Value::Text("x".repeat(usize::from(*length))),
                ]
            };
            let added = match kind {
                0 => built.insert(&table, &lengths.iter().map(row).collect::<Vec<_>>()),
                1 => built.delete(&table, &lengths.iter().map(row).collect::<Vec<_>>()),
                _ => {
                    let pairs: Vec<_> = lengths
                        .iter()
                        .map(|length| (row(&3), row(length)))
                        .collect();
                    built.update(&table, &pairs)
                }
            };
            added.unwrap();
        }
    })
}

/// A transaction as read from a log.
pub(super) fn logged_transaction(
    shape: impl Fn(&TableName) -> Option<Arc<TableShape>>,
    add_changes: impl FnOnce(&mut RowTransaction),
) -> Transaction {
    let gtid = Gtid {
        source: SourceId::from_bytes([1; 16]),
        tag: Tag::NONE,
        gno: Gno::MIN,
    };
    let mut built = RowTransaction::begin(TransactionHead {
        gtid,
        server_id: 1,
        thread_id: 1,
        commit: CommitTimestamp(1),
        version: ServerVersion(90_704),
        clock: LogicalClock::default(),
        xid: 1,
    });
    add_changes(&mut built);
    let payload = built.commit();
    let framed = FramedTransaction {
        gtid,
        event_count: CanonicalEvents::new(payload.clone()).count() as u32,
        payload,
        payload_crc32c: 0,
        end_position: SourcePosition::default(),
        server_id: 1,
        timestamp: 0,
        immediate_commit: None,
        original_commit: None,
        clock: LogicalClock::default(),
    };
    let parsed = Decoder::new(1 << 30).parse(&framed).unwrap();
    parsed.finish(shape).unwrap()
}

pub(super) fn batch_of(transactions: impl IntoIterator<Item = Transaction>) -> Batch {
    let transactions = transactions.into_iter().map(Arc::new).collect();
    Batch::new(BatchSeq(1), Commits::AsOne, transactions)
}

fn rows_of(transaction: &Transaction) -> &RowChanges {
    match &transaction.body {
        Body::Rows(changes) => changes,
        Body::Barrier(_) => panic!("only rows"),
    }
}

/// Returns the rows that a BINLOG statement's events write. Checks that the server can apply the
/// events.
pub(super) fn read_statement(mut events: &[u8]) -> Vec<Logged> {
    let mut maps: Vec<TableMap<'_>> = Vec::new();
    let (mut logged, mut flags) = (Vec::new(), Vec::new());
    while let Some(event) = EventRef::split_from(&mut events).unwrap() {
        if event.event_type() == EventType::TableMap {
            assert!(flags.is_empty(), "a map after rows");
            let map = TableMap::decode(event).unwrap();
            assert!(
                maps.iter().all(|known| known.table_id != map.table_id),
                "mapped twice"
            );
            maps.push(map);
            continue;
        }
        let rows = Rows::decode(event).unwrap();
        flags.push(rows.flags);
        let map = maps
            .iter()
            .find(|map| map.table_id == rows.table_id)
            .unwrap();
        let columns = Columns::of(map).unwrap();
        let mut reader = RowReader::new(&rows, &columns).unwrap();
        while let Some(row) = reader.next_row().unwrap() {
            logged.push((
                rows.table_id.0,
                rows.change,
                rows.images[row.range].to_vec(),
            ));
        }
    }
    let name = |id: u64| {
        let map = maps.iter().find(|map| map.table_id.0 == id).unwrap();
        String::from_utf8(map.table.to_vec()).unwrap()
    };
    let (last, others) = flags.split_last().expect("rows");
    assert!(
        last & Rows::END_OF_STATEMENT != 0
            && others
                .iter()
                .all(|flags| flags & Rows::END_OF_STATEMENT == 0)
    );
    let used: Vec<u64> = logged.iter().map(|(table, ..)| *table).collect();
    assert!(
        maps.iter().all(|map| used.contains(&map.table_id.0)),
        "a table that is not changed"
    );
    logged
        .into_iter()
        .map(|(table, change, images)| (name(table), change, images))
        .collect()
}

#[test]
fn rows_that_need_different_sessions_share_no_statement() {
    let in_zone = |zone: &str| {
        let mut transaction = transaction(&[(0, 0, vec![1, 2])]);
        if let Body::Rows(changes) = &mut transaction.body {
            changes.context.time_zone = Some(zone.as_bytes().into());
        }
        transaction
    };
    let zones = ["-08:00", "-08:00", "SYSTEM", "-08:00"];
    let batch = batch_of(zones.map(in_zone));
    assert_eq!(first_run(&batch, 0..8, 1 << 20), 0..4);
    assert_eq!(first_run(&batch, 4..8, 1 << 20), 4..6);
    assert_eq!(first_run(&batch, 6..8, 1 << 20), 6..8);
    let zone = |row| context_of(&batch, row).and_then(|context| context.time_zone.as_deref());
    assert_eq!(zone(3), Some(&b"-08:00"[..]));
    assert_eq!(zone(4), Some(&b"SYSTEM"[..]));
    assert_eq!(zone(8), None);
}

/// Returns the rows of a range after encoding them as statements of at most `bound` bytes.
fn through_statements(batch: &Batch, rows: Range<usize>, bound: usize) -> Vec<Logged> {
    let (mut next, mut all) = (rows.start, Vec::new());
    while next < rows.end {
        let run = first_run(batch, next..rows.end, bound);
        assert!(run.start == next && run.end > next && run.end <= rows.end);
        let mut events = Vec::new();
        append_run(batch, run.clone(), &mut events);
        let tables = batch
            .pieces(0..batch.rows())
            .flat_map(|(changes, _)| &changes.tables);
        let maps: usize = tables.map(|table| table.map.len()).sum();
        assert!(
            run.len() == 1 || events.len() <= bound + maps,
            "{} bytes",
            events.len()
        );
        let logged = read_statement(&events);
        assert_eq!(logged.len(), run.len());
        all.extend(logged);
        next = run.end;
    }
    all
}

fn original(transaction: &Transaction) -> Vec<Logged> {
    let changes = rows_of(transaction);
    let mut all = Vec::new();
    for row in &changes.rows {
        let event = &changes.events[row.event as usize];
        let rows = Rows::decode(EventRef::new(&event.event).unwrap()).unwrap();
        let images = event.event[row.images.start as usize..row.images.end as usize].to_vec();
        let map = &changes.tables[event.table as usize].map;
        let map = TableMap::decode(EventRef::new(map).unwrap()).unwrap();
        let name = String::from_utf8(map.table.to_vec()).unwrap();
        all.push((name, rows.change, images));
    }
    all
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(
        (0..3_u64, 0..3_u8, prop::collection::vec(0..300_u16, 1..8)),
        1..8,
    )
}

proptest! {
    #[test]
    fn rows_split_at_any_point_are_the_same(
        changes in prop::collection::vec(changes(), 1..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        bound in 1_usize..4000,
    ) {
        let transactions: Vec<_> = changes.iter().map(|changes| transaction(changes)).collect();
        let expected: Vec<_> = transactions.iter().flat_map(original).collect();
        let batch = batch_of(transactions);
        let count = batch.rows();
        let mut borders: Vec<usize> = cuts.iter().map(|cut| cut.index(count + 1)).chain([0, count]).collect();
        borders.sort_unstable();
        let pieces = borders.windows(2).flat_map(|ends| through_statements(&batch, ends[0]..ends[1], bound));
        prop_assert_eq!(pieces.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_statements_of_a_barrier_have_all_rows_too(changes in changes(), bound in 1_usize..4000) {
        let transaction = transaction(&changes);
        let rows = rows_of(&transaction);
        let maps = rows.tables.iter().map(|table| table.map.clone());
        let events: Vec<Bytes> = maps.chain(rows.events.iter().map(|event| event.event.clone())).collect();
        let mut all = Vec::new();
        for run in statement_runs(&events, bound) {
            // Every statement has all table maps, even those that it does not need.
            let run = run.concat();
            let mut rest = run.as_slice();
            let (mut needed, mut maps) = (Vec::new(), Vec::new());
            while let Some(event) = EventRef::split_from(&mut rest).unwrap() {
                match event.event_type() {
                    EventType::TableMap => maps.push(event),
                    _ => needed.push(event),
                }
            }
            let used: Vec<_> = needed.iter().map(|event| Rows::decode(*event).unwrap().table_id).collect();
            let kept = maps.iter().filter(|map| used.contains(&TableMap::decode(**map).unwrap().table_id));
            let events: Vec<u8> = kept.chain(&needed).flat_map(|event| event.bytes().to_vec()).collect();
            all.extend(read_statement(&events));
        }
        prop_assert_eq!(all, original(&transaction));
    }
}

#[test]
fn events_with_other_flags_begin_another_statement() {
    let mut transaction = transaction(&[(0, 0, vec![1, 1]), (0, 0, vec![1]), (1, 0, vec![1])]);
    let Body::Rows(rows) = &mut transaction.body else {
        panic!("only rows")
    };
    let mut unchecked = rows.events[1].event.to_vec();
    // Sets the flag that disables foreign key checks.
    unchecked[FLAGS.start] |= 2;
    rows.events[1].event = unchecked.into();
    let batch = batch_of([transaction]);
    assert_eq!(first_run(&batch, 0..4, 10_000), 0..2);
    assert_eq!(first_run(&batch, 1..4, 10_000), 1..2);
    assert_eq!(first_run(&batch, 2..4, 10_000), 2..3);
    assert_eq!(first_run(&batch, 3..4, 10_000), 3..4);
}

#[test]
fn missing_rows_end_a_run() {
    let mut empty = transaction(&[]);
    empty.body = Body::Rows(RowChanges::default());
    let batch = batch_of([empty]);
    assert_eq!(first_run(&batch, 0..3, 100), 0..1);
    let mut events = Vec::new();
    append_run(&batch, 0..3, &mut events);
    assert!(events.is_empty());
}

/// Table numbers are local to a server. After a change of the leader, a number may belong to another
/// table.
#[test]
fn tables_with_one_number_in_two_transactions_stay_apart() {
    let numbered = |transaction: Transaction, table: u64| {
        let mut renumbered = transaction;
        let Body::Rows(rows) = &mut renumbered.body else {
            panic!("only rows")
        };
        let number = &table.to_le_bytes()[..6];
        for event in rows.events.iter_mut().map(|event| &mut event.event) {
            let mut bytes = event.to_vec();
            bytes[NUMBER].copy_from_slice(number);
            *event = bytes.into();
        }
        for map in rows.tables.iter_mut().map(|table| &mut table.map) {
            let mut bytes = map.to_vec();
            bytes[NUMBER].copy_from_slice(number);
            *map = bytes.into();
        }
        renumbered
    };
    let one = numbered(transaction(&[(0, 0, vec![1])]), 77);
    let other = numbered(transaction(&[(1, 0, vec![2])]), 77);
    let again = numbered(transaction(&[(0, 0, vec![3])]), 78);
    let expected: Vec<_> = [&one, &other, &again]
        .into_iter()
        .flat_map(original)
        .collect();
    let batch = batch_of([one, other, again]);
    let mut events = Vec::new();
    append_run(&batch, first_run(&batch, 0..3, 10_000), &mut events);
    assert_eq!(read_statement(&events), expected);
}
