//! Decodes synthetic transactions: checks their rows and the refusals.

use std::sync::Arc;

use applier::decode::{DecodeCause, DecodeFailure, Decoder};
use applier::keys::Fold;
use applier::schema::{TableName, TableShape};
use applier::transaction::{
    BarrierEnd, Body, Changed, RowChanges, SchemaChange, Step, Transaction,
};
use binlog_format::canonical::CanonicalEvents;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::EventType;
use binlog_format::events::{
    CommitTimestamp, Compression, EncodeEvent, EventOrigin, GtidEvent, LogicalClock, Rows,
    ServerVersion, TableId, TableMap, TransactionPayload,
};
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::synthesis::{
    Column, ColumnType, RowTransaction, Table, TransactionHead, Value, statement_transaction,
};
use bytes::Bytes;

use crate::shapes::{key, table};

const GTID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562:7";

pub(crate) fn head() -> TransactionHead {
    TransactionHead {
        gtid: GTID.parse().unwrap(),
        server_id: 1,
        thread_id: 1,
        commit: CommitTimestamp(1_700_000_000_000_001),
        version: ServerVersion(90_700),
        clock: LogicalClock {
            last_committed: 3,
            sequence_number: 4,
        },
        xid: 1,
    }
}

/// Returns the single transaction of a payload.
pub(crate) fn framed(payload: &Bytes) -> FramedTransaction {
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::None, 1 << 30);
    for event in CanonicalEvents::new(payload.clone()) {
        if let Some(StreamItem::Transaction(framed)) = framer.push(&event.unwrap()).unwrap() {
            return framed;
        }
    }
    panic!("no whole transaction");
}

/// Returns a table of an INT and a VARCHAR as the log describes it.
pub(crate) fn logged(id: u64, name: &str) -> Table {
    let column = |column_type| Column {
        column_type,
        nullable: true,
    };
    Table {
        id: TableId(id),
        schema: "d".into(),
        name: name.into(),
        columns: vec![
            column(ColumnType::Int),
            column(ColumnType::Varchar { max_bytes: 80 }),
        ],
    }
}

/// Returns the shape of this table on the target.
pub(crate) fn shape(name: &str) -> Arc<TableShape> {
    Arc::new(TableShape {
        primary_key: Some(key(&[0])),
        ..table(name, &[("id", Fold::Bytes), ("text", Fold::AsciiCase)])
    })
}

fn row(id: i32, text: &str) -> Vec<Value> {
    vec![Value::Int(id), Value::Text(text.into())]
}

/// Returns a transaction with two tables, three kinds of change and six rows.
fn mixed_rows() -> Bytes {
    let (one, other) = (logged(1, "one"), logged(2, "other"));
    let mut transaction = RowTransaction::begin(head());
    transaction
        .insert(&one, &[row(1, "a"), row(2, "b")])
        .unwrap();
    transaction
        .update(&other, &[(row(3, "c"), row(4, "c"))])
        .unwrap();
    transaction
        .delete(&one, &[row(1, "a"), row(2, "b"), row(5, "e")])
        .unwrap();
    transaction.commit()
}

fn decode(payload: &Bytes, limit: u64) -> Result<Transaction, DecodeFailure> {
    let parsed = Decoder::new(limit).parse(&framed(payload))?;
    parsed.finish(|name| Some(shape(&name.table)))
}

fn rows_of(transaction: &Transaction) -> &RowChanges {
    match &transaction.body {
        Body::Rows(changes) => changes,
        Body::Barrier(barrier) => panic!("{barrier:?}"),
    }
}

/// Returns the transaction with its events compressed into one event.
fn compressed(payload: &Bytes, uncompressed_size: Option<u64>) -> Bytes {
    let mut events = CanonicalEvents::new(payload.clone());
    let gtid = events.next().unwrap().unwrap();
    let rest = &payload[gtid.bytes().len()..];
    let block = zstd::bulk::compress(rest, 3).unwrap();
    let event = TransactionPayload {
        compression: Compression::Zstd,
        uncompressed_size,
        block: block.into(),
    };
    let mut gtid = GtidEvent::decode(gtid.canonical()).unwrap();
    let event = event.encode(EventOrigin::default());
    let mut out = Vec::new();
    // The GTID event contains the transaction's length, which depends on the event's own length.
    for _ in 0..3 {
        out = gtid.encode(EventOrigin::default());
        out.extend_from_slice(&event);
        gtid.transaction_length = Some(out.len() as u64);
    }
    out.into()
}

fn check_mixed_rows(transaction: &Transaction) {
    assert_eq!(transaction.gtid.to_string(), GTID);
    assert_eq!(
        transaction.immediate_commit,
        Some(CommitTimestamp(1_700_000_000_000_001))
    );
    assert_eq!(transaction.original_commit, transaction.immediate_commit);
    assert_eq!(transaction.original_version, Some(ServerVersion(90_700)));
    let changes = rows_of(transaction);
    let tables: Vec<_> = changes
        .tables
        .iter()
        .map(|table| table.shape.name.to_string())
        .collect();
    assert_eq!(tables, ["d.one", "d.other"]);
    let of_events: Vec<_> = changes
        .events
        .iter()
        .map(|event| (event.table, event.rows.clone()))
        .collect();
    assert_eq!(of_events, [(0, 0..2), (1, 2..3), (0, 3..6)]);
    // The rows of each event are its images in sequence.
    for (number, event) in changes.events.iter().enumerate() {
        let mut end = event.images_at;
        for row in &changes.rows[event.rows.start as usize..event.rows.end as usize] {
            assert_eq!((row.event as usize, row.images.start), (number, end));
            end = row.images.end;
        }
        assert_eq!(end as usize, event.event.len());
        let rows =
            Rows::decode(binlog_format::event::EventRef::new(&event.event).unwrap()).unwrap();
        assert_eq!(&event.event[event.images_at as usize..], &*rows.images);
    }
    // Each write uses its table's key and one primary key; the update uses two primary keys.
    let counts: Vec<_> = (0..6).map(|row| changes.keys_of(row).len()).collect();
    assert_eq!(counts, [2, 2, 3, 2, 2, 2]);
    // The insert and the delete of one row have the same keys. A row with the same number in
    // another table has other keys.
    assert_eq!(changes.keys_of(0), changes.keys_of(3));
    assert_ne!(changes.keys_of(0)[1].key, changes.keys_of(2)[1].key);
    assert!(transaction.bytes > 500);
    let mut tables = changes.tables.iter();
    assert!(tables.all(|table| table.shape.primary_key.is_some()));
}

#[test]
fn rows_come_apart_with_their_keys() {
    check_mixed_rows(&decode(&mixed_rows(), 1 << 20).unwrap());
}

#[test]
fn compressed_rows_come_apart_all_the_same() {
    let payload = mixed_rows();
    let size = payload.len() as u64;
    check_mixed_rows(&decode(&compressed(&payload, Some(size)), 1 << 20).unwrap());
    check_mixed_rows(&decode(&compressed(&payload, None), 1 << 20).unwrap());
    let refusal = decode(&compressed(&payload, Some(1 << 40)), 1 << 20)
        .unwrap_err()
        .to_string();
    assert_eq!(
        refusal,
        format!(
            "transaction {GTID} cannot be applied: its compressed payload has more than max_transaction_bytes (1048576): \
             raise that limit"
        )
    );
    // Memory stays within the limit even if the transaction states a wrong size.
    let lies = decode(&compressed(&payload, Some(100)), 1 << 20)
        .unwrap_err()
        .to_string();
    assert!(lies.contains("larger than it says"), "{lies}");
}

#[test]
fn a_transaction_of_too_many_rows_to_note_is_applied_alone() {
    let table = logged(1, "one");
    let mut transaction = RowTransaction::begin(head());
    let rows: Vec<_> = (0..100).map(|id| row(id, "")).collect();
    transaction.insert(&table, &rows).unwrap();
    transaction.insert(&logged(2, "other"), &rows).unwrap();
    let payload = transaction.commit();
    // A row has 6 bytes here, and about 50 bytes of metadata.
    let limit = payload.len() as u64;
    let decoded = decode(&payload, limit).unwrap();
    let Body::Barrier(barrier) = &decoded.body else {
        panic!("{:?}", decoded.body);
    };
    assert_eq!(
        (&barrier.end, &barrier.changes),
        (&BarrierEnd::Commit, &SchemaChange::Nothing)
    );
    let types: Vec<Vec<EventType>> = barrier
        .steps
        .iter()
        .map(|step| match step {
            Step::Rows(events) => events
                .iter()
                .map(|event| {
                    binlog_format::event::EventRef::new(event)
                        .unwrap()
                        .event_type()
                })
                .collect(),
            Step::Statement(_) => panic!("a statement"),
        })
        .collect();
    assert_eq!(types, [[EventType::TableMap, EventType::WriteRows]; 2]);
    assert_eq!(rows_of(&decode(&payload, 1 << 20).unwrap()).rows.len(), 200);
}

#[test]
fn an_empty_transaction_has_no_rows() {
    let decoded = decode(&RowTransaction::begin(head()).commit(), 1 << 20).unwrap();
    assert_eq!(rows_of(&decoded).rows.len(), 0);
}

#[test]
fn refusals_name_the_transaction_and_the_table_and_say_what_to_do() {
    let payload = mixed_rows();
    let parsed = Decoder::new(1 << 20).parse(&framed(&payload)).unwrap();
    let tables: Vec<_> = parsed.tables().map(ToString::to_string).collect();
    assert_eq!(tables, ["d.one", "d.other"]);
    let finish = |shape: Option<TableShape>| {
        let shape = shape.map(Arc::new);
        let failure = parsed.clone().finish(|name| {
            if &*name.table == "other" {
                shape.clone()
            } else {
                Some(self::shape("one"))
            }
        });
        failure.unwrap_err().to_string()
    };
    assert_eq!(
        finish(None),
        format!(
            "transaction {GTID} cannot be applied: d.other: the target has no such table: create it as the source has it, or \
             provision the target with a copy of the source"
        )
    );
    let wide = TableShape {
        primary_key: Some(key(&[2])),
        ..table(
            "other",
            &[("a", Fold::Bytes), ("b", Fold::Bytes), ("c", Fold::Bytes)],
        )
    };
    assert_eq!(
        finish(Some(wide)),
        format!(
            "transaction {GTID} cannot be applied: d.other: column c of a key of the target's table is not among the 2 columns \
             of the log's rows; give the target's table the source's columns, in the same order"
        )
    );
}

#[test]
fn a_statement_alone_is_a_barrier_that_commits_by_itself() {
    let payload = statement_transaction(head(), "d", "CREATE TABLE t (a INT)");
    let decoded = decode(&payload, 1 << 20).unwrap();
    let Body::Barrier(barrier) = &decoded.body else {
        panic!("rows");
    };
    assert_eq!(barrier.end, BarrierEnd::ByItself);
    let changed = SchemaChange::Tables(vec![Changed::Table(TableName::new("d", "t"))]);
    assert_eq!(barrier.changes, changed);
    assert!(
        matches!(&barrier.steps[..], [Step::Statement(statement)] if statement.variables.is_empty())
    );
}

/// Returns a transaction that inserts a row with each of these table maps.
fn with_maps(maps: &[TableMap<'_>]) -> Bytes {
    let plain = {
        let mut transaction = RowTransaction::begin(head());
        transaction
            .insert(&logged(1, "one"), &[row(1, "a")])
            .unwrap();
        transaction.commit()
    };
    let events: Vec<_> = CanonicalEvents::new(plain).map(Result::unwrap).collect();
    let mut body = events[1].bytes().to_vec();
    for map in maps {
        map.encode_into(EventOrigin::default(), &mut body);
        body.extend_from_slice(events[3].bytes());
    }
    body.extend_from_slice(events[4].bytes());
    let mut gtid = GtidEvent::decode(events[0].canonical()).unwrap();
    gtid.transaction_length = None;
    let mut out = gtid.encode(EventOrigin::default());
    out.extend_from_slice(&body);
    out.into()
}

#[test]
fn a_table_may_be_mapped_again_with_other_flags_and_no_other_table_by_its_number() {
    let mut transaction = RowTransaction::begin(head());
    transaction
        .insert(&logged(1, "one"), &[row(1, "a")])
        .unwrap();
    let map = CanonicalEvents::new(transaction.commit())
        .map(Result::unwrap)
        .nth(2)
        .unwrap();
    let map = TableMap::decode(map.canonical()).unwrap();
    let other_flags = TableMap {
        flags: map.flags | 4,
        optional_metadata: Default::default(),
        ..map.clone()
    };
    let decoded = decode(&with_maps(&[map.clone(), other_flags]), 1 << 20).unwrap();
    assert_eq!(
        (rows_of(&decoded).tables.len(), rows_of(&decoded).rows.len()),
        (1, 2)
    );
    let other_table = TableMap {
        table: b"other"[..].into(),
        ..map.clone()
    };
    let refusal = decode(&with_maps(&[map, other_table]), 1 << 20).unwrap_err();
    assert!(
        matches!(*refusal.cause, DecodeCause::DoubleTable(TableId(1))),
        "{refusal}"
    );
}
