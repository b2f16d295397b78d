//! A table with a column of every type is changed at random, with all settings of row images. Every row must be found, and the logged
//! values must be the server's.

use binlog_format::event::{EventRef, EventType, RawEvent};
use binlog_format::events::{EncodeEvent, EventOrigin, Rows, RowsChange};
use binlog_format::row_image::{Columns, RowReader, Value};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};

use super::columns::{COLUMNS, Compare, statements};
use super::logged_events::{TableMaps, events};
use super::replayed_table::{Replayed, ReplayedTable};

const SETTINGS: [&str; 6] = [
    "binlog_row_image = FULL",
    "binlog_row_image = MINIMAL",
    "binlog_row_image = NOBLOB",
    "binlog_row_image = FULL, binlog_row_value_options = PARTIAL_JSON",
    "binlog_row_image = MINIMAL, binlog_row_value_options = PARTIAL_JSON",
    "binlog_row_image = FULL, binlog_row_value_options = '', binlog_transaction_compression = ON",
];

/// The kinds of events that were found in the log.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    inserted: usize,
    deleted: usize,
    partial_updates: usize,
    absent: usize,
    json_diffs: usize,
}

/// Reads a rows event, and the same rows as a version 1 event, if that exists.
fn read(event: &RawEvent, maps: &TableMaps, table: &mut ReplayedTable, seen: &mut Seen) {
    let rows = Rows::decode(event.canonical()).unwrap();
    let columns = Columns::of(maps.get(rows.table_id)).unwrap();
    let mut reader = RowReader::new(&rows, &columns).unwrap();
    let (mut end, mut ranges) = (0, Vec::new());
    while let Some(row) = reader.next_row().unwrap() {
        assert_eq!(row.range.start, end);
        assert!(row.range.end > end);
        end = row.range.end;
        ranges.push(row.range.clone());
        match rows.change {
            RowsChange::Write => seen.inserted += 1,
            RowsChange::Delete => seen.deleted += 1,
            RowsChange::PartialUpdate => seen.partial_updates += 1,
            RowsChange::Update => {}
        }
        for value in row
            .before
            .into_iter()
            .chain(row.after)
            .flat_map(|image| image.values())
        {
            seen.absent += usize::from(*value == Value::Absent);
            seen.json_diffs += usize::from(matches!(value, Value::JsonDiff(_)));
        }
        table.apply(&row);
    }
    assert_eq!(end, rows.images.len(), "the images are consumed exactly");
    if rows.change != RowsChange::PartialUpdate {
        let mut first_version = rows.clone();
        first_version.extra_data = None;
        let event = first_version.encode(EventOrigin::default());
        let rows = Rows::decode(EventRef::new(&event).unwrap()).unwrap();
        assert_eq!(rows.extra_data, None);
        let mut reader = RowReader::new(&rows, &columns).unwrap();
        for range in ranges {
            assert_eq!(reader.next_row().unwrap().unwrap().range, range);
        }
        assert_eq!(reader.next_row().unwrap(), None);
    }
}

#[test]
fn every_row_is_found_and_its_values_are_those_of_the_server() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch_with(
        &tree,
        // Small events, so that a statement has several of them. The table maps contain names and keys.
        MysqldOptions::default().with_arguments([
            "--binlog-row-event-max-size=4096",
            "--binlog-row-metadata=FULL",
        ]),
    )
    .unwrap();
    let client = server.client();
    let definitions: Vec<String> = COLUMNS
        .iter()
        .enumerate()
        .map(|(at, column)| format!("c{at} {}", column.definition))
        .collect();
    let create = format!(
        "CREATE DATABASE d CHARACTER SET utf8mb4; CREATE TABLE d.every (id INT PRIMARY KEY, {});",
        definitions.join(", ")
    );
    client.sql(&create).unwrap();
    let mut expected = Seen::default();
    for (round, settings) in SETTINGS.iter().enumerate() {
        let (sql, inserted, deleted) = statements(round as u64);
        let settings = settings.replace("binlog_", "SESSION binlog_");
        client
            .sql(&format!("USE d; SET {settings}; {sql}"))
            .unwrap();
        expected.inserted += inserted;
        expected.deleted += deleted;
    }

    let (events, payloads) = events(&server);
    assert!(payloads > 50, "{payloads} compressed transactions");
    let (mut maps, mut table, mut seen) = (
        TableMaps::default(),
        ReplayedTable::default(),
        Seen::default(),
    );

    for event in &events {
        maps.note(event);
        match event.event_type() {
            EventType::WriteRows
            | EventType::UpdateRows
            | EventType::DeleteRows
            | EventType::PartialUpdateRows => read(event, &maps, &mut table, &mut seen),
            _ => {}
        }
    }
    assert_eq!(
        (seen.inserted, seen.deleted),
        (expected.inserted, expected.deleted)
    );
    assert!(seen.partial_updates > 40, "{seen:?}");
    assert!(seen.json_diffs > 40, "{seen:?}");
    assert!(seen.absent > 1000, "{seen:?}");

    assert_eq!(
        client.value("SELECT COUNT(*) FROM d.every").unwrap(),
        table.rows.len().to_string()
    );
    let mut compared = 0;
    for (at, column) in COLUMNS.iter().enumerate() {
        let Some(query) = column.compare.query(&format!("c{at}")) else {
            continue;
        };
        let answers = client
            .sql(&format!("SELECT id, {query} FROM d.every"))
            .unwrap();
        for answer in &answers.0 {
            let id: i32 = answer[0].parse().unwrap();
            let replayed = match &table.rows[&id.to_le_bytes()[..]][at + 1] {
                Replayed::Null => "NULL".to_owned(),
                Replayed::Bytes(bytes) => {
                    // ENUM and SET columns have no sign.
                    let unsigned = column.definition.starts_with("SET")
                        || column.definition.starts_with("ENUM")
                        || column.definition.ends_with("UNSIGNED");
                    column.compare.text(bytes, unsigned)
                }
                Replayed::Patched => panic!("a difference of {}", column.definition),
            };
            assert_eq!(
                column.compare.answer(&answer[1]),
                replayed,
                "{} of row {id}",
                column.definition
            );
            compared += 1;
        }
    }
    let not_compared = COLUMNS
        .iter()
        .filter(|column| column.compare == Compare::Not)
        .count();
    assert_eq!(compared, table.rows.len() * (COLUMNS.len() - not_compared));
}
