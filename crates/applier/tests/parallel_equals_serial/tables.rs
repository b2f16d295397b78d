//! The tables of a random log, and their contents while the log is created.

use applier::keys::Fold;
use applier::schema::{ColumnShape, KeyShape, ParentShape, TableName, TableShape};
use binlog_format::events::TableId;
use binlog_format::synthesis::{Column, ColumnType, Table, Value};
use testkit::memory_database::Row;

/// A table with its content.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) table: Table,
    pub(crate) shape: TableShape,
    pub(crate) rows: Vec<Vec<Value>>,
}

pub(crate) fn name(table: &str) -> TableName {
    TableName::new("s", table)
}

impl Model {
    /// Creates a table with these columns: `big`, `int` or `text`, with `?` after a nullable one.
    fn new(id: u64, table: &str, columns: &str, primary: &[usize], unique: &[usize]) -> Self {
        let column = |word: &str| Column {
            column_type: match word.trim_end_matches('?') {
                "big" => ColumnType::BigInt,
                "int" => ColumnType::Int,
                _ => ColumnType::Varchar { max_bytes: 40 },
            },
            nullable: word.ends_with('?'),
        };
        let columns: Vec<Column> = columns.split(' ').map(column).collect();
        let shapes = (0..columns.len()).map(|at| ColumnShape {
            name: format!("c{at}").into(),
            fold: Fold::Bytes,
        });
        Self {
            shape: TableShape {
                primary_key: (!primary.is_empty()).then(|| KeyShape::of(primary)),
                unique_keys: unique
                    .iter()
                    .map(|&column| KeyShape::of(&[column]))
                    .collect(),
                ..TableShape::new(name(table), shapes.collect())
            },
            table: Table {
                id: TableId(id),
                schema: "s".to_owned(),
                name: table.to_owned(),
                columns,
            },
            rows: Vec::new(),
        }
    }

    /// Returns the content as the in-memory database shows it.
    pub(crate) fn content(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.rows.iter().map(|row| as_logged(row)).collect();
        rows.sort_unstable();
        rows
    }
}

/// Returns the tables of a log: independent rows, unique values, a key of two columns, counters that every writer
/// updates, rows without a key, children of the first table, and a table that a statement changes.
pub(crate) fn all() -> Vec<Model> {
    let mut child = Model::new(16, "child", "big big?", &[0], &[]);
    child.shape.parents.push(ParentShape {
        columns: vec![1],
        table: name("plain"),
        referenced: vec!["c0".into()],
    });
    let mut plain = Model::new(11, "plain", "big int", &[0], &[]);
    plain.shape.children.push(name("child"));
    vec![
        plain,
        Model::new(12, "unique", "big big? int", &[0], &[1]),
        Model::new(13, "pair", "int text int?", &[0, 1], &[]),
        Model::new(14, "counter", "big big", &[0], &[]),
        Model::new(15, "bag", "int int", &[], &[]),
        child,
        late(),
    ]
}

pub(crate) const PLAIN: usize = 0;
pub(crate) const UNIQUE: usize = 1;
pub(crate) const PAIR: usize = 2;
pub(crate) const COUNTER: usize = 3;
pub(crate) const BAG: usize = 4;
pub(crate) const CHILD: usize = 5;
pub(crate) const LATE: usize = 6;

/// Returns the table that the statement changes, as it is before: without a unique key.
fn late() -> Model {
    Model::new(17, "late", "big big?", &[0], &[])
}

pub(crate) fn late_behind_the_statement() -> TableShape {
    Model::new(17, "late", "big big?", &[0], &[1]).shape
}

fn as_logged(row: &[Value]) -> Row {
    let bytes = |value: &Value| match value {
        Value::Null => None,
        Value::Int(number) => Some(number.to_le_bytes().to_vec()),
        Value::BigInt(number) => Some(number.to_le_bytes().to_vec()),
        Value::Text(text) => Some(text.clone().into_bytes()),
    };
    let values: Vec<Option<Vec<u8>>> = row.iter().map(bytes).collect();
    Row::of(values.iter().map(Option::as_deref))
}
