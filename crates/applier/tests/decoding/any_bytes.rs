//! For any input bytes, the decoder and the analysis do not panic, and memory stays proportional to
//! the input.

use std::sync::Arc;

use applier::decode::Decoder;
use applier::keys::Fold;
use applier::log_parallelism::Analysis;
use applier::schema::TableShape;
use applier::transaction::Body;
use binlog_format::framing::FramedTransaction;
use binlog_format::synthesis::{RowTransaction, Value};
use bytes::Bytes;
use proptest::prelude::*;

use crate::shapes::{key, name, parent, table};
use crate::synthesised_transactions::{framed, head, logged};

const LIMIT: u64 = 64 << 10;

/// Returns a shape with every kind of key.
fn shape() -> Arc<TableShape> {
    let columns = [("id", Fold::Bytes), ("text", Fold::AsciiCase)];
    Arc::new(TableShape {
        primary_key: Some(key(&[0])),
        unique_keys: vec![key(&[1]), key(&[1, 0])],
        parents: vec![parent(&[1], "two", &["text"])],
        children: vec![name("three")],
        cascades_to: vec![name("three")],
        ..table("one", &columns)
    })
}

fn decode(transaction: &FramedTransaction) {
    let decoded = Decoder::new(LIMIT)
        .parse(transaction)
        .and_then(|parsed| parsed.finish(|_| Some(shape())));
    if let Ok(decoded) = decoded
        && let Body::Rows(changes) = &decoded.body
    {
        for row in 0..changes.rows.len() {
            assert!(!changes.keys_of(row).is_empty());
            let write = &changes.rows[row];
            let event = &changes.events[write.event as usize].event;
            assert!(
                event
                    .get(write.images.start as usize..write.images.end as usize)
                    .is_some()
            );
        }
        assert!(decoded.bytes as u64 <= 2 * LIMIT + transaction.payload.len() as u64);
    }
    let mut analysis = Analysis::new(LIMIT);
    let _ = analysis.add(transaction);
    let report = analysis.report();
    assert!(report.transactions <= 1);
}

fn payload() -> Bytes {
    let table = logged(1, "one");
    let row = |id: i32, text: &str| vec![Value::Int(id), Value::Text(text.into())];
    let mut transaction = RowTransaction::begin(head());
    transaction
        .insert(
            &table,
            &[row(1, "a"), row(2, "é"), vec![Value::Int(3), Value::Null]],
        )
        .unwrap();
    transaction
        .update(&table, &[(row(1, "a"), row(5, "b"))])
        .unwrap();
    transaction.delete(&table, &[row(5, "b")]).unwrap();
    transaction.commit()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_payloads_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        decode(&FramedTransaction { payload: bytes.into(), ..framed(&payload()) });
    }

    #[test]
    fn damaged_transactions_are_decoded_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = payload().to_vec();
        let len = bytes.len();
        for (at, byte) in changes {
            bytes[at.index(len)] = byte;
        }
        decode(&FramedTransaction { payload: bytes.into(), ..framed(&payload()) });
    }

    #[test]
    fn transactions_of_other_events_are_decoded_or_refused(
        parts in proptest::collection::vec((0..45_u8, proptest::collection::vec(any::<u8>(), 0..60)), 1..8),
    ) {
        // The arbitrary bytes come after a valid beginning.
        let whole = payload();
        let gtid = usize::from(u16::from_le_bytes([whole[9], whole[10]]));
        let begin = usize::from(u16::from_le_bytes([whole[gtid + 9], whole[gtid + 10]]));
        let mut bytes = whole[..gtid + begin].to_vec();
        for (code, body) in parts {
            let mut event = vec![0; 19];
            event[4] = code;
            event[9] = 19 + body.len() as u8;
            event.extend(body);
            bytes.extend(event);
        }
        decode(&FramedTransaction { payload: bytes.into(), ..framed(&whole) });
    }
}

#[test]
fn the_payload_that_is_damaged_is_whole_without_damage() {
    let decoded = Decoder::new(LIMIT)
        .parse(&framed(&payload()))
        .unwrap()
        .finish(|_| Some(shape()))
        .unwrap();
    assert!(matches!(decoded.body, Body::Rows(changes) if changes.rows.len() == 5));
}
