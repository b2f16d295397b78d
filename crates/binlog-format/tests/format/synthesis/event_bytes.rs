//! Synthesized events equal the server's bytes, and this crate's framer and views decode them.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

use std::path::Path;

use binlog_format::canonical::{CanonicalEvents, stamp_payload, stamped_len};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventType, RawEvent};
use binlog_format::events::{EncodeEvent, GtidEvent, Query, Rows, TableMap, Xid};
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::gtid::GtidSet;
use binlog_format::synthesis::{
    Column, ColumnType, RowTransaction, SynthesisError, Table, TransactionHead, Value,
};
use bytes::Bytes;

use super::own_transactions::{GTIDS, account, file, head, payloads, row};

fn frame(file: Vec<u8>) -> Vec<FramedTransaction> {
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, 1 << 20);
    let mut rest = Bytes::from(file).slice(4..);
    let mut transactions = Vec::new();
    while let Some(event) = RawEvent::split_from(&mut rest).unwrap() {
        if let Some(StreamItem::Transaction(framed)) = framer.push(&event).unwrap() {
            transactions.push(framed);
        }
    }
    transactions
}

fn events(payload: &Bytes) -> Vec<RawEvent> {
    CanonicalEvents::new(payload.clone())
        .map(|event| event.unwrap())
        .collect()
}

#[test]
fn the_framer_finds_our_transactions_again() {
    let framed = frame(file());
    let payloads = payloads();
    assert_eq!(framed.len(), payloads.len());
    for (framed, payload) in framed.iter().zip(&payloads) {
        assert_eq!(framed.payload, payload);
    }

    let gtids: GtidSet = framed.iter().map(|framed| framed.gtid).collect();
    assert_eq!(gtids.to_string(), GTIDS);
}

#[test]
fn the_gtid_event_announces_the_length_in_a_file() {
    for payload in payloads() {
        let events = events(&payload);
        let gtid = GtidEvent::decode(events[0].canonical()).unwrap();
        assert_eq!(
            gtid.transaction_length,
            Some(stamped_len(&payload).unwrap())
        );
    }
}

#[test]
fn lengths_are_announced_right_where_they_get_longer() {
    let column = Column {
        column_type: ColumnType::Varchar { max_bytes: 65_000 },
        nullable: false,
    };
    let table = Table {
        columns: vec![column],
        ..account()
    };
    // The length field becomes longer at 251 and at 65,536 bytes.
    for size in (0..120).chain(64_000..65_000) {
        let mut transaction = RowTransaction::begin(head("1", 1));
        transaction
            .insert(&table, &[vec![Value::Text("x".repeat(size))]])
            .unwrap();
        let payload = transaction.commit();
        let events = events(&payload);
        let gtid = GtidEvent::decode(events[0].canonical()).unwrap();
        assert_eq!(
            gtid.transaction_length,
            Some(stamped_len(&payload).unwrap())
        );
    }
}

/// The first transaction of `rows.binlog`: INSERT INTO item VALUES (1, 'nail', 2), (2, 'screw', NULL), (3, NULL, 7).
fn of_the_server() -> Vec<RawEvent> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/rows.binlog");
    events(&frame(std::fs::read(path).unwrap()).remove(0).payload)
}

#[test]
fn rows_are_written_byte_for_byte_as_a_server_writes_them() {
    let original = of_the_server();
    let gtid = GtidEvent::decode(original[0].canonical()).unwrap();
    let begin = Query::decode(original[1].canonical()).unwrap();
    let map = TableMap::decode(original[2].canonical()).unwrap();
    let xid = Xid::decode(original[4].canonical()).unwrap();

    let column = |column_type, nullable| Column {
        column_type,
        nullable,
    };
    let item = Table {
        id: map.table_id,
        schema: "shop".into(),
        name: "item".into(),
        columns: vec![
            column(ColumnType::BigInt, false),
            column(ColumnType::Varchar { max_bytes: 160 }, true),
            column(ColumnType::Int, true),
        ],
    };
    let mut transaction = RowTransaction::begin(TransactionHead {
        gtid: gtid.gtid,
        server_id: original[0].header().server_id,
        thread_id: begin.thread_id,
        commit: gtid.immediate_commit.unwrap(),
        version: gtid.immediate_version.unwrap(),
        clock: gtid.clock,
        xid: xid.xid,
    });
    let text = |text: &str| Value::Text(text.into());
    transaction
        .insert(
            &item,
            &[
                vec![Value::BigInt(1), text("nail"), Value::Int(2)],
                vec![Value::BigInt(2), text("screw"), Value::Null],
                vec![Value::BigInt(3), Value::Null, Value::Int(7)],
            ],
        )
        .unwrap();
    let ours = events(&transaction.commit());
    assert_eq!(ours.len(), original.len());

    // Synthesis omits the session's schema in BEGIN, which takes four bytes, and a flag that 9.7 sets on rows.
    let our_gtid = GtidEvent::decode(ours[0].canonical()).unwrap();
    let length = gtid.transaction_length.map(|length| length - 4);
    assert_eq!(
        our_gtid,
        GtidEvent {
            transaction_length: length,
            ..gtid
        }
    );
    assert_eq!(
        Query::decode(ours[1].canonical()).unwrap(),
        Query {
            schema: b"".as_slice().into(),
            ..begin
        }
    );
    assert_eq!(ours[2], original[2]);
    let rows = Rows::decode(original[3].canonical()).unwrap();
    let rows = Rows {
        flags: Rows::END_OF_STATEMENT,
        ..rows
    };
    assert_eq!(
        ours[3].bytes()[..],
        rows.encode(original[3].header().into())
    );
    assert_eq!(ours[4], original[4]);
}

#[test]
fn updates_have_two_images_and_statements_end() {
    let transfer = events(&payloads()[3]);
    let types: Vec<EventType> = transfer.iter().map(RawEvent::event_type).collect();
    use EventType::{DeleteRows, Gtid, Query, TableMap, UpdateRows, Xid};
    assert_eq!(
        types,
        [Gtid, Query, TableMap, UpdateRows, TableMap, DeleteRows, Xid]
    );
    for rows in transfer
        .iter()
        .filter_map(|event| Rows::decode(event.canonical()).ok())
    {
        assert_eq!(rows.flags & Rows::END_OF_STATEMENT, Rows::END_OF_STATEMENT);
        assert_eq!(
            rows.columns_after.len(),
            if rows.change.has_two_images() { 1 } else { 0 }
        );
    }
}

#[test]
fn rows_that_do_not_fit_are_refused_and_change_nothing() {
    let table = account();
    let mut transaction = RowTransaction::begin(head("1", 1));
    let fitting = row(1, None, None, None);
    let mut short = fitting.clone();
    short.pop();
    let refusals = [
        (
            short,
            SynthesisError::ColumnCount {
                table: "made.account".into(),
                columns: 4,
                values: 3,
            },
        ),
        (
            vec![Value::Null, Value::Null, Value::Null, Value::Null],
            SynthesisError::WrongValue {
                table: "made.account".into(),
                column: 1,
            },
        ),
        (
            vec![Value::BigInt(1), Value::Int(1), Value::Null, Value::Null],
            SynthesisError::WrongValue {
                table: "made.account".into(),
                column: 2,
            },
        ),
        (
            row(1, Some(&"x".repeat(81)), None, None),
            SynthesisError::TooLong {
                table: "made.account".into(),
                column: 2,
                size: 81,
                limit: 80,
            },
        ),
    ];
    for (row, refusal) in refusals {
        assert_eq!(
            transaction.insert(&table, &[fitting.clone(), row.clone()]),
            Err(refusal.clone())
        );
        assert_eq!(
            transaction.update(&table, &[(fitting.clone(), row.clone())]),
            Err(refusal.clone())
        );
        assert_eq!(transaction.delete(&table, &[row]), Err(refusal));
    }
    let payload = transaction.commit();
    assert_eq!(payload, RowTransaction::begin(head("1", 1)).commit());
    let mut stored = Vec::new();
    stamp_payload(&payload, 4, &mut stored).unwrap();
    assert_eq!(events(&payload).len(), 3);
}
