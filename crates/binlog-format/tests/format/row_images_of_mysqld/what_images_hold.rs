//! Tests which columns a server omits from its images or adds to them. The computation of row keys depends on this.

use binlog_format::event::EventType;
use binlog_format::events::{Rows, RowsChange, TableMap};
use binlog_format::row_image::{Columns, RowReader, Value};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;

use super::logged_events::{TableMaps, events};

/// A logged row: its table, its event's flags and change, and the columns in its images.
type LoggedRow = (String, u16, RowsChange, Vec<Vec<usize>>);

fn logged_rows(server: &Mysqld) -> Vec<LoggedRow> {
    let (events, _) = events(server);
    let (mut maps, mut logged) = (TableMaps::default(), Vec::new());
    for event in &events {
        maps.note(event);
        let Ok(rows) = Rows::decode(event.canonical()) else {
            continue;
        };
        let map: &TableMap<'_> = maps.get(rows.table_id);
        let columns = Columns::of(map).unwrap();
        let mut reader = RowReader::new(&rows, &columns).unwrap();
        while let Some(row) = reader.next_row().unwrap() {
            let images = row.before.into_iter().chain(row.after);
            let present = images.map(|image| {
                let values = image.values().iter().enumerate();
                values
                    .filter(|(_, value)| **value != Value::Absent)
                    .map(|(at, _)| at)
                    .collect()
            });
            let table = String::from_utf8(map.table.to_vec()).unwrap();
            logged.push((table, rows.flags, rows.change, present.collect()));
        }
    }
    logged
}

#[test]
fn an_insert_of_nothing_but_defaults_is_a_row_without_bytes() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    server
        .client()
        .sql(
            "CREATE DATABASE d; USE d; CREATE TABLE t (a INT DEFAULT 5, b INT DEFAULT 6); \
             SET SESSION binlog_row_image = MINIMAL; INSERT INTO t () VALUES ();",
        )
        .unwrap();
    let (events, _) = events(&server);
    let mut maps = TableMaps::default();
    let mut rows_events = 0;
    for event in &events {
        maps.note(event);
        if event.event_type() == EventType::WriteRows {
            let rows = Rows::decode(event.canonical()).unwrap();
            let columns = Columns::of(maps.get(rows.table_id)).unwrap();
            let mut reader = RowReader::new(&rows, &columns).unwrap();
            let row = reader.next_row().unwrap().unwrap();
            assert_eq!(row.range, 0..0);
            assert_eq!(row.after.unwrap().values(), [Value::Absent, Value::Absent]);
            assert_eq!(reader.next_row().unwrap(), None);
            rows_events += 1;
        }
    }
    assert_eq!(rows_events, 1);
}

#[test]
fn minimal_images_hold_the_generated_columns_of_unique_keys_that_change() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    server
        .client()
        .sql(
            "CREATE DATABASE d; USE d; SET SESSION binlog_row_image = MINIMAL; \
             CREATE TABLE t (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL UNIQUE, s INT AS (a + 2) STORED UNIQUE, x INT); \
             INSERT INTO t (id, a) VALUES (1, 1); UPDATE t SET a = 3; DELETE FROM t;",
        )
        .unwrap();
    let rows: Vec<_> = logged_rows(&server)
        .into_iter()
        .map(|row| (row.2, row.3))
        .collect();
    assert_eq!(
        rows,
        [
            (RowsChange::Write, vec![vec![0, 1, 2, 3]]),
            (RowsChange::Update, vec![vec![0], vec![1, 2, 3]]),
            (RowsChange::Delete, vec![vec![0]]),
        ]
    );
}

#[test]
fn the_flag_marks_logged_cascades() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    server
        .client()
        .sql(
            "CREATE DATABASE d; USE d; CREATE TABLE parent (id INT PRIMARY KEY); \
             CREATE TABLE child (id INT PRIMARY KEY, p INT, \
               FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE); \
             INSERT INTO parent VALUES (1), (2); INSERT INTO child VALUES (10, 1), (20, 2); \
             DELETE FROM parent WHERE id = 1; UPDATE parent SET id = 3 WHERE id = 2;",
        )
        .unwrap();
    let rows = logged_rows(&server);
    let behind_the_inserts: Vec<_> = rows[4..]
        .iter()
        .map(|row| (row.0.as_str(), row.2))
        .collect();
    assert_eq!(
        behind_the_inserts,
        [
            ("child", RowsChange::Delete),
            ("parent", RowsChange::Delete),
            ("child", RowsChange::Update),
            ("parent", RowsChange::Update),
        ]
    );
    for (table, flags, ..) in &rows[4..] {
        assert_ne!(flags & Rows::CASCADES_LOGGED, 0, "{table}: {flags}");
    }
}
