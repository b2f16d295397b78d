//! Fuzzing entry points for the applier's input from the log and from the target mysqld. The product does not call them.

use std::sync::Arc;

use binlog_format::event::EventRef;
use binlog_format::events::{EncodeEvent, EventOrigin, GtidEvent, LogicalClock, Query, Rows, Xid};
use binlog_format::framing::{FramedTransaction, SourcePosition};
use binlog_format::fuzzing::event_of;
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
use bytes::Bytes;

use crate::decode::{Decoder, Parsed};
use crate::keys::{Fold, TableKeys};
use crate::log_parallelism::Analysis;
pub use crate::mysql::fuzzing::table_shapes;
use crate::mysql::fuzzing::{statements_of_a_barrier, written_by_statements};
use crate::schema::{ColumnShape, KeyPart, KeyShape, ParentShape, TableName, TableShape};
use crate::transaction::{Body, RowChanges};

/// Limit for the memory of a transaction's events and of the decoder's records about them.
const MAX_TRANSACTION_BYTES: u64 = 64 << 10;

/// Decodes a transaction's events, and creates the statements that apply it. The table's shape at the target differs from the log. The
/// first four bytes describe the table. Each event follows as its type, its body's length in two bytes, and its body. Returns whether the
/// input is a transaction that fits the table.
pub fn transaction(bytes: &[u8]) -> bool {
    let Some((shape, events)) = bytes.split_first_chunk() else {
        return false;
    };
    let framed = framed(events);
    // The analysis uses the tables as the log describes them, instead of the target's.
    let _ = Analysis::new(MAX_TRANSACTION_BYTES).add(&framed);
    let Ok(parsed) = Decoder::new(MAX_TRANSACTION_BYTES).parse(&framed) else {
        return false;
    };
    a_table_without_columns_is_refused(&parsed);
    let Ok(transaction) = parsed.finish(|name| Some(Arc::new(shape_of(*shape, name)))) else {
        return false;
    };
    match &transaction.body {
        Body::Barrier(barrier) => statements_of_a_barrier(barrier),
        Body::Rows(changes) => rows_lie_in_their_events(changes),
    }
    written_by_statements(transaction);
    true
}

fn a_table_without_columns_is_refused(parsed: &Parsed) {
    let without_columns = |name: &TableName| {
        let mut shape = TableShape::new(name.clone(), Vec::new());
        shape.primary_key = Some(KeyShape::of(&[0]));
        Some(Arc::new(shape))
    };
    let finished = parsed.clone().finish(without_columns);
    assert!(parsed.tables().next().is_none() || finished.is_err());
}

fn framed(mut bytes: &[u8]) -> FramedTransaction {
    let gtid = Gtid {
        source: SourceId::from_bytes([1; 16]),
        tag: Tag::NONE,
        gno: Gno::MIN,
    };
    let origin = EventOrigin::default();
    let first = GtidEvent {
        tagged: false,
        flags: 0,
        gtid,
        clock: LogicalClock::default(),
        immediate_commit: None,
        original_commit: None,
        transaction_length: None,
        immediate_version: None,
        original_version: None,
        commit_group_ticket: None,
    };
    let begin = Query {
        statement: b"BEGIN".into(),
        ..Query::default()
    };
    let mut payload = first.encode(origin);
    payload.extend(begin.encode(origin));
    let mut event_count = 3;
    while let Some(([code, low, high], rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let (body, rest) = rest.split_at(length.min(rest.len()));
        payload.extend(event_of(*code, body));
        event_count += 1;
        bytes = rest;
    }
    payload.extend(Xid { xid: 1 }.encode(origin));
    FramedTransaction {
        gtid,
        event_count,
        payload: payload.into(),
        payload_crc32c: 0,
        end_position: SourcePosition::default(),
        server_id: 1,
        timestamp: 0,
        immediate_commit: None,
        original_commit: None,
        clock: LogicalClock::default(),
    }
}

/// The target's table `name`: number of columns, their types, and its keys.
fn shape_of([columns, folds, primary, others]: [u8; 4], name: &TableName) -> TableShape {
    const FOLDS: [Fold; 5] = [
        Fold::Bytes,
        Fold::Trimmed,
        Fold::AsciiCase,
        Fold::Float,
        Fold::Opaque,
    ];
    let count = usize::from(columns % 16) + 1;
    let column = |at: usize| ColumnShape {
        name: format!("c{at}").into(),
        fold: FOLDS[(usize::from(folds) + at) % FOLDS.len()],
    };
    let mut shape = TableShape::new(name.clone(), (0..count).map(column).collect());
    // Most results are existing columns; one result is past the last column.
    let of = |place: u8| usize::from(place) % (count + 1);
    if primary & 0x80 == 0 {
        shape.primary_key = Some(KeyShape::of(&[of(primary & 0x0f)]));
    }
    if others & 1 != 0 {
        let part = KeyPart {
            column: of(others >> 4),
            prefix: Some(u32::from(primary >> 4)),
        };
        shape.unique_keys.push(KeyShape { parts: vec![part] });
    }
    if others & 2 != 0 {
        shape.parents.push(ParentShape {
            columns: vec![of(others >> 5)],
            table: TableName::new("s", "parent"),
            referenced: vec!["id".into()],
        });
    }
    if others & 4 != 0 {
        shape.referenced.push(KeyShape::of(&[0]));
        shape.children.push(TableName::new("s", "child"));
    }
    if others & 8 != 0 {
        shape.cascades_to.push(TableName::new("s", "child"));
    }
    shape
}

/// Asserts that the rows of each event are adjacent in the event, and that their keys are among the transaction's keys.
fn rows_lie_in_their_events(changes: &RowChanges) {
    let mut next_row = 0;
    for (place, event) in changes.events.iter().enumerate() {
        assert_eq!(event.rows.start, next_row);
        next_row = event.rows.end;
        let of_event = &changes.rows[event.rows.start as usize..event.rows.end as usize];
        let mut end = event.images_at;
        for row in of_event {
            assert_eq!(row.event as usize, place);
            assert_eq!(row.images.start, end);
            end = row.images.end;
            let after = row.joinable_after.map_or(end, Into::into);
            assert!((row.images.start..=end).contains(&after));
        }
        let rows = Rows::decode(EventRef::new(&event.event).expect("an event"));
        let rows = rows.expect("an event of rows");
        assert_eq!(
            event.event.len() - event.images_at as usize,
            rows.images.len()
        );
        assert!(end as usize <= event.event.len());
    }
    assert_eq!(next_row as usize, changes.rows.len());
    let mut next_key = 0;
    for row in &changes.rows {
        assert_eq!(row.keys.start, next_key);
        next_key = row.keys.end;
    }
    assert_eq!(next_key as usize, changes.keys.len());
}

/// Asserts that a shape's keys fit a table with as many columns in the log, and that a table with fewer columns causes no panic.
pub(crate) fn keys_fit(shape: &TableShape) {
    let columns = shape.columns.len();
    TableKeys::of(shape, columns).expect("its keys are of its columns");
    for fewer in 0..columns.min(4) {
        let _ = TableKeys::of(shape, fewer);
    }
    for parent in &shape.parents {
        assert_eq!(parent.columns.len(), parent.referenced.len());
    }
}

/// The event in `bytes`.
pub(crate) fn event(bytes: &Bytes) -> EventRef<'_> {
    EventRef::new(bytes).expect("it was read")
}
