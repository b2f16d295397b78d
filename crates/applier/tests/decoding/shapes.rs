//! Tables for the tests.

use applier::keys::Fold;
use applier::schema::{ColumnShape, KeyPart, KeyShape, ParentShape, TableName, TableShape};

pub(crate) fn name(table: &str) -> TableName {
    TableName {
        schema: "d".into(),
        table: table.into(),
    }
}

/// A table without keys, of these columns.
pub(crate) fn table(table: &str, columns: &[(&str, Fold)]) -> TableShape {
    let columns = columns.iter().map(|(name, fold)| ColumnShape {
        name: (*name).into(),
        fold: *fold,
    });
    TableShape {
        name: name(table),
        columns: columns.collect(),
        primary_key: None,
        unique_keys: Vec::new(),
        parents: Vec::new(),
        referenced: Vec::new(),
        children: Vec::new(),
        cascades_to: Vec::new(),
    }
}

/// A key over whole columns.
pub(crate) fn key(columns: &[usize]) -> KeyShape {
    let parts = columns.iter().map(|column| KeyPart {
        column: *column,
        prefix: None,
    });
    KeyShape {
        parts: parts.collect(),
    }
}

/// A foreign key.
pub(crate) fn parent(columns: &[usize], table: &str, referenced: &[&str]) -> ParentShape {
    ParentShape {
        columns: columns.to_vec(),
        table: name(table),
        referenced: referenced.iter().map(|name| (*name).into()).collect(),
    }
}
