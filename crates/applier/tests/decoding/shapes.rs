//! Tables for the tests.

use applier::keys::Fold;
use applier::schema::{ColumnShape, KeyShape, ParentShape, TableName, TableShape};

pub(crate) fn name(table: &str) -> TableName {
    TableName::new("d", table)
}

/// Returns a table with these columns and without keys.
pub(crate) fn table(table: &str, columns: &[(&str, Fold)]) -> TableShape {
    let columns = columns.iter().map(|(name, fold)| ColumnShape {
        name: (*name).into(),
        fold: *fold,
    });
    TableShape::new(name(table), columns.collect())
}

/// Returns a key over whole columns.
pub(crate) fn key(columns: &[usize]) -> KeyShape {
    KeyShape::of(columns)
}

/// Returns a foreign key.
pub(crate) fn parent(columns: &[usize], table: &str, referenced: &[&str]) -> ParentShape {
    ParentShape {
        columns: columns.to_vec(),
        table: name(table),
        referenced: referenced.iter().map(|name| (*name).into()).collect(),
    }
}
