//! Log entries for tests and benches: transactions of a given size that are valid binlog events, and
//! rotate, membership and blank entries.

use std::collections::{BTreeMap, BTreeSet};

use binlog_format::event::EventFlags;
use binlog_format::events::{
    CommitTimestamp, EncodeEvent, EventOrigin, FormatDescription, LogicalClock, ServerVersion,
    TableId,
};
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
use binlog_format::synthesis::{Column, ColumnType, RowTransaction, Table, TransactionHead, Value};
use bytes::Bytes;
use raft_types::{
    AppEntry, Entry, EntryPayload, LogId, MemberId, MemberRecord, Membership, MembershipPayload,
    OpId, Rotate, TransactionPayload,
};

/// The server id of the transactions.
const SERVER_ID: u32 = 11;

fn origin(timestamp: u32) -> EventOrigin {
    EventOrigin {
        timestamp,
        server_id: SERVER_ID,
        flags: EventFlags::NONE,
    }
}

/// Returns the GTID of the transaction that [`transaction_events`] creates for a number.
#[must_use]
pub fn gtid(number: u64) -> Gtid {
    Gtid {
        source: SourceId::from_bytes([0xaa; 16]),
        tag: Tag::NONE,
        gno: Gno::new(number + 1).unwrap_or(Gno::MAX),
    }
}

/// The longest text in one row.
const ROW_TEXT_BYTES: usize = 60_000;

/// Returns the canonical events of a transaction with about `bytes` bytes of text: GTID, BEGIN, a
/// table map, one event of inserted rows, and XID. Equal arguments result in equal bytes.
#[must_use]
pub fn transaction_events(number: u64, bytes: usize) -> Bytes {
    let head = TransactionHead {
        gtid: gtid(number),
        server_id: SERVER_ID,
        thread_id: 7,
        commit: CommitTimestamp((1_700_000_000 + number) * 1_000_000),
        version: ServerVersion(80_403),
        clock: LogicalClock {
            last_committed: number as i64,
            sequence_number: number as i64 + 1,
        },
        xid: number,
    };
    let column = |column_type| Column {
        column_type,
        nullable: false,
    };
    let table = Table {
        id: TableId(99),
        schema: "bank".to_owned(),
        name: "notes".to_owned(),
        columns: vec![
            column(ColumnType::BigInt),
            column(ColumnType::Varchar {
                max_bytes: ROW_TEXT_BYTES as u16,
            }),
        ],
    };
    let rows: Vec<Vec<Value>> = (0..bytes.div_ceil(ROW_TEXT_BYTES).max(1))
        .map(|row| {
            let length = bytes
                .saturating_sub(row * ROW_TEXT_BYTES)
                .min(ROW_TEXT_BYTES);
            let text = (0..length)
                .map(|at| char::from(b'a' + ((number as usize + at) % 26) as u8))
                .collect();
            vec![
                Value::BigInt((number * 1_000) as i64 + row as i64),
                Value::Text(text),
            ]
        })
        .collect();
    let mut transaction = RowTransaction::begin(head);
    transaction
        .insert(&table, &rows)
        .expect("the rows fit their table");
    transaction.commit()
}

/// A transaction entry.
#[must_use]
pub fn transaction(op_id: OpId, bytes: usize) -> Entry {
    let payload = TransactionPayload::seal(transaction_events(op_id.index, bytes));
    entry(op_id, EntryPayload::Normal(AppEntry::Transaction(payload)))
}

/// A blank entry.
#[must_use]
pub fn blank(op_id: OpId) -> Entry {
    entry(op_id, EntryPayload::Blank)
}

/// A rotate entry.
#[must_use]
pub fn rotate(op_id: OpId) -> Entry {
    let format_description = FormatDescription::built_in("8.4.3")
        .encode(origin(0))
        .into();
    let rotate = Rotate {
        format_description,
        timestamp: 1_700_000_000 + op_id.index as u32,
    };
    entry(op_id, EntryPayload::Normal(AppEntry::Rotate(rotate)))
}

/// A membership entry with these voters.
#[must_use]
pub fn membership(op_id: OpId, voters: &[u64]) -> Entry {
    let voters: BTreeSet<MemberId> = voters.iter().copied().map(MemberId).collect();
    let record = |id: &MemberId| MemberRecord {
        name: format!("member-{id}"),
        ..MemberRecord::default()
    };
    let nodes: BTreeMap<_, _> = voters.iter().map(|id| (*id, record(id))).collect();
    let membership = Membership::new(vec![voters], nodes).expect("each voter is a node");
    let payload = MembershipPayload::seal(membership);
    entry(op_id, EntryPayload::Membership(payload))
}

fn entry(op_id: OpId, payload: EntryPayload) -> Entry {
    Entry {
        log_id: LogId::from(op_id),
        payload,
    }
}
