//! Encoded rows decode to equal values, and the values of every type have the length that the metadata states.

use std::borrow::Cow;

use binlog_format::canonical::CanonicalEvents;
use binlog_format::event::EventType;
use binlog_format::events::{
    CommitTimestamp, LogicalClock, Rows, RowsChange, ServerVersion, TableId, TableMap,
};
use binlog_format::row_image::{Columns, Image, RowReader, Value as Logged};
use binlog_format::synthesis::{Column, ColumnType, RowTransaction, Table, TransactionHead, Value};
use proptest::prelude::*;

fn columns() -> impl Strategy<Value = Vec<Column>> {
    let column_type = prop_oneof![
        Just(ColumnType::Int),
        Just(ColumnType::BigInt),
        (0..700_u16).prop_map(|max_bytes| ColumnType::Varchar { max_bytes }),
    ];
    let column = (column_type, any::<bool>()).prop_map(|(column_type, nullable)| Column {
        column_type,
        nullable,
    });
    proptest::collection::vec(column, 1..20)
}

fn value(column: Column) -> BoxedStrategy<Value> {
    let some = match column.column_type {
        ColumnType::Int => any::<i32>().prop_map(Value::Int).boxed(),
        ColumnType::BigInt => any::<i64>().prop_map(Value::BigInt).boxed(),
        ColumnType::Varchar { max_bytes } => {
            proptest::collection::vec(b' '..b'~', 0..=usize::from(max_bytes))
                .prop_map(|text| Value::Text(String::from_utf8(text).unwrap()))
                .boxed()
        }
    };
    match column.nullable {
        true => prop_oneof![1 => Just(Value::Null), 3 => some].boxed(),
        false => some,
    }
}

fn row(columns: &[Column]) -> impl Strategy<Value = Vec<Value>> + use<> {
    columns
        .iter()
        .map(|column| value(*column))
        .collect::<Vec<_>>()
}

/// Pairs of rows: before and after an update.
type RowPairs = Vec<(Vec<Value>, Vec<Value>)>;

/// A table's columns, and pairs of rows in it.
fn tables() -> impl Strategy<Value = (Vec<Column>, RowPairs)> {
    columns().prop_flat_map(|columns| {
        let rows = proptest::collection::vec((row(&columns), row(&columns)), 1..6);
        (Just(columns), rows)
    })
}

fn is(image: &Image<'_>, row: &[Value]) -> Result<(), TestCaseError> {
    prop_assert_eq!(image.values().len(), row.len());
    for (logged, value) in image.values().iter().zip(row) {
        let expected = match value {
            Value::Null => None,
            Value::Int(number) => Some(number.to_le_bytes().to_vec()),
            Value::BigInt(number) => Some(number.to_le_bytes().to_vec()),
            Value::Text(text) => Some(text.as_bytes().to_vec()),
        };
        let expected = expected.as_deref().map_or(Logged::Null, Logged::Bytes);
        prop_assert_eq!(*logged, expected);
    }
    Ok(())
}

/// A type byte, its metadata, and a function that encodes a value of the given length.
type Coded = (u8, &'static [u8], fn(usize) -> Vec<u8>);

fn fixed<const N: usize>(_: usize) -> Vec<u8> {
    vec![7; N]
}

fn counted<const WIDTH: usize>(length: usize) -> Vec<u8> {
    let mut coded = (length as u32).to_le_bytes()[..WIDTH].to_vec();
    coded.resize(WIDTH + length, 7);
    coded
}

/// Every type, with the storage size from MySQL's manual, including fractions and long texts.
const EVERY_TYPE: [(Coded, usize); 44] = [
    ((1, &[], fixed::<1>), 1),
    ((2, &[], fixed::<2>), 2),
    ((9, &[], fixed::<3>), 3),
    ((3, &[], fixed::<4>), 4),
    ((8, &[], fixed::<8>), 8),
    ((4, &[4], fixed::<4>), 4),
    ((5, &[8], fixed::<8>), 8),
    ((246, &[10, 0], fixed::<5>), 5),
    ((246, &[10, 2], fixed::<5>), 5),
    ((246, &[18, 9], fixed::<8>), 8),
    ((246, &[20, 6], fixed::<10>), 10),
    ((246, &[65, 30], fixed::<30>), 30),
    ((246, &[1, 1], fixed::<1>), 1),
    ((16, &[1, 0], fixed::<1>), 1),
    ((16, &[2, 1], fixed::<2>), 2),
    ((16, &[0, 8], fixed::<8>), 8),
    ((13, &[], fixed::<1>), 1),
    ((10, &[], fixed::<3>), 3),
    ((14, &[], fixed::<3>), 3),
    ((11, &[], fixed::<3>), 3),
    ((12, &[], fixed::<8>), 8),
    ((7, &[], fixed::<4>), 4),
    ((19, &[0], fixed::<3>), 3),
    ((19, &[1], fixed::<4>), 4),
    ((19, &[6], fixed::<6>), 6),
    ((18, &[0], fixed::<5>), 5),
    ((18, &[4], fixed::<7>), 7),
    ((17, &[0], fixed::<4>), 4),
    ((17, &[5], fixed::<7>), 7),
    ((15, &[255, 0], counted::<1>), 0),
    ((15, &[0, 1], counted::<2>), 0),
    ((254, &[254, 255], counted::<1>), 0),
    // CHAR(255) with four bytes per character: 1020 bytes.
    ((254, &[206, 252], counted::<2>), 0),
    ((254, &[247, 1], fixed::<1>), 1),
    ((254, &[247, 2], fixed::<2>), 2),
    ((254, &[248, 8], fixed::<8>), 8),
    ((247, &[247, 1], fixed::<1>), 1),
    ((248, &[248, 3], fixed::<3>), 3),
    ((252, &[1], counted::<1>), 0),
    ((252, &[2], counted::<2>), 0),
    ((252, &[3], counted::<3>), 0),
    ((245, &[4], counted::<4>), 0),
    ((255, &[4], counted::<4>), 0),
    ((242, &[4], counted::<4>), 0),
];

proptest! {
    #[test]
    fn written_rows_come_back((columns, rows) in tables()) {
        let table = Table { id: TableId(9), schema: "s".into(), name: "t".into(), columns };
        let head = TransactionHead {
            gtid: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1".parse().unwrap(),
            server_id: 1,
            thread_id: 1,
            commit: CommitTimestamp(0),
            version: ServerVersion(90_700),
            clock: LogicalClock::default(),
            xid: 1,
        };
        let mut transaction = RowTransaction::begin(head);
        let firsts: Vec<_> = rows.iter().map(|(first, _)| first.clone()).collect();
        transaction.insert(&table, &firsts).unwrap();
        transaction.update(&table, &rows).unwrap();
        transaction.delete(&table, &firsts).unwrap();
        let events: Vec<_> = CanonicalEvents::new(transaction.commit()).map(Result::unwrap).collect();
        let map = events.iter().find(|event| event.event_type() == EventType::TableMap).unwrap();
        let columns = Columns::of(&TableMap::decode(map.canonical()).unwrap()).unwrap();
        let mut events_of_rows = 0;
        for event in &events {
            let Ok(logged) = Rows::decode(event.canonical()) else {
                continue;
            };
            let mut reader = RowReader::new(&logged, &columns).unwrap();
            let mut end = 0;
            for (first, second) in &rows {
                let row = reader.next_row().unwrap().unwrap();
                prop_assert_eq!(row.range.start, end);
                end = row.range.end;
                let (before, after) = match logged.change {
                    RowsChange::Write => (None, Some(first)),
                    RowsChange::Update | RowsChange::PartialUpdate => (Some(first), Some(second)),
                    RowsChange::Delete => (Some(first), None),
                };
                prop_assert_eq!(row.before.is_some(), before.is_some());
                prop_assert_eq!(row.after.is_some(), after.is_some());
                for (image, expected) in [(row.before, before), (row.after, after)] {
                    if let (Some(image), Some(expected)) = (image, expected) {
                        is(image, expected)?;
                    }
                }
            }
            prop_assert_eq!(reader.next_row().unwrap(), None);
            prop_assert_eq!(end, logged.images.len());
            events_of_rows += 1;
        }
        prop_assert_eq!(events_of_rows, 3);
    }

    #[test]
    fn values_of_every_type_end_where_they_should(
        picked in proptest::collection::vec((0..EVERY_TYPE.len(), 0..200_usize, 0..4_u8), 1..30),
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut types, mut metadata, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let (mut present, mut nulls) = (vec![0; picked.len().div_ceil(8)], Vec::new());
        let mut expected = Vec::new();
        for (at, (which, length, presence)) in picked.iter().enumerate() {
            let ((type_byte, own_metadata, code), size) = EVERY_TYPE[*which];
            types.push(type_byte);
            metadata.extend_from_slice(own_metadata);
            match presence {
                0 => expected.push(None),
                presence => {
                    present[at / 8] |= 1 << (at % 8);
                    nulls.push(*presence == 1);
                    if *presence == 1 {
                        expected.push(Some(None));
                    } else {
                        let coded = code(*length);
                        expected.push(Some(Some(if size == 0 { *length } else { size })));
                        values.extend(coded);
                    }
                }
            }
        }
        let mut images = vec![0; nulls.len().div_ceil(8)];
        for (at, _) in nulls.iter().enumerate().filter(|(_, is_null)| **is_null) {
            images[at / 8] |= 1 << (at % 8);
        }
        images.extend(values);
        let map = TableMap { column_types: types.into(), metadata: metadata.into(), ..TableMap::default() };
        let columns = Columns::of(&map).unwrap();
        let rows = |images: Vec<u8>| Rows {
            change: RowsChange::Write,
            table_id: TableId(1),
            flags: 0,
            extra_data: None,
            column_count: picked.len() as u64,
            columns: present.clone().into(),
            columns_after: Cow::Borrowed(&[]),
            images: images.into(),
        };
        // The row appears twice, so that the test notices a wrong end of the first one.
        let doubled = rows([images.clone(), images.clone()].concat());
        let mut reader = RowReader::new(&doubled, &columns).unwrap();
        for round in 0..if images.is_empty() { 1 } else { 2 } {
            let row = reader.next_row().unwrap().unwrap();
            prop_assert_eq!(&row.range, &(round * images.len()..(round + 1) * images.len()));
            for (logged, expected) in row.after.unwrap().values().iter().zip(&expected) {
                match (logged, expected) {
                    (Logged::Absent, None) | (Logged::Null, Some(None)) => {}
                    (Logged::Bytes(bytes), Some(Some(length))) => prop_assert_eq!(bytes.len(), *length),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
        prop_assert_eq!(reader.next_row().unwrap(), None);
        // If the images are truncated anywhere, they are refused.
        if !images.is_empty() {
            let cut = rows(images[..cut.index(images.len())].to_vec());
            let mut reader = RowReader::new(&cut, &columns).unwrap();
            if cut.images.is_empty() {
                prop_assert_eq!(reader.next_row().unwrap(), None);
            } else {
                prop_assert!(reader.next_row().is_err());
                prop_assert_eq!(reader.next_row().unwrap(), None);
            }
        }
    }

    #[test]
    fn damaged_metadata_is_read_or_refused(
        types in proptest::collection::vec(any::<u8>(), 0..30),
        metadata in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let map = TableMap { column_types: types.clone().into(), metadata: metadata.into(), ..TableMap::default() };
        if let Ok(columns) = Columns::of(&map) {
            prop_assert_eq!(columns.len(), types.len());
        }
    }
}

#[test]
fn types_and_metadata_that_no_server_writes_are_refused() {
    let of = |type_byte: u8, metadata: &[u8]| {
        let map = TableMap {
            column_types: vec![type_byte].into(),
            metadata: metadata.to_vec().into(),
            ..TableMap::default()
        };
        Columns::of(&map)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    for (type_byte, metadata, expected) in [
        (0, &[][..], "no type that MySQL 5.7 to 9.x writes"),
        (6, &[], "no type that"),
        (243, &[], "no type that"),
        (1, &[0], "1 unexpected bytes follow column metadata"),
        (15, &[1], "column metadata needs 2 bytes"),
        (246, &[66, 1], "more than 65 digits"),
        (246, &[5, 6], "more there than in total"),
        (16, &[1, 9], "more than 64 bits"),
        (18, &[7], "more than 6 digits"),
        (252, &[0], "other than 1 to 4"),
        (254, &[247, 3], "neither a CHAR, an ENUM nor a SET"),
        (254, &[1, 3], "neither a CHAR, an ENUM nor a SET"),
        (20, &[20], "an array of arrays"),
    ] {
        let refusal = of(type_byte, metadata).unwrap_err();
        assert!(refusal.contains(expected), "{type_byte}: {refusal}");
    }
    assert_eq!(of(20, &[15, 1, 2, 3]), Ok(()));
    assert_eq!(of(20, &[8]), Ok(()));
}
