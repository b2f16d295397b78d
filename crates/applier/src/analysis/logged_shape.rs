//! A table's shape as far as the log alone tells it.

use binlog_format::DecodeError;
use binlog_format::event::EventRef;
use binlog_format::events::TableMap;
use binlog_format::row_image::{Columns, TableMetadata};

use crate::decode::LoggedTable;
use crate::keys::Fold;
use crate::schema::{ColumnShape, KeyPart, KeyShape, TableShape};

/// What a table map says of the primary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrimaryKey {
    /// It has one, and the log says which.
    Logged,
    /// It has none.
    None,
    /// The log does not say.
    Unknown,
}

/// The shape of a table by its table map. Unique and foreign keys are not in the log.
pub(super) fn shape_of(table: &LoggedTable) -> Result<(TableShape, PrimaryKey), DecodeError> {
    let map = TableMap::decode(EventRef::new(&table.map)?)?;
    let columns = Columns::of(&map)?;
    let metadata = TableMetadata::decode(&map, &columns)?;
    let parts: Vec<KeyPart> = metadata
        .primary_key()
        .iter()
        .map(|part| KeyPart {
            column: part.column,
            prefix: part.prefix,
        })
        .collect();
    let known = match (parts.is_empty(), metadata.is_full()) {
        (false, _) => PrimaryKey::Logged,
        (true, true) => PrimaryKey::None,
        (true, false) => PrimaryKey::Unknown,
    };
    let column_shapes = columns.iter().enumerate().map(|(at, column)| ColumnShape {
        name: match metadata.name(at) {
            Some(name) => String::from_utf8_lossy(name).into(),
            None => format!("@{}", at + 1).into(),
        },
        fold: Fold::of_logged(column, metadata.collation(at)),
    });
    let shape = TableShape {
        primary_key: (known == PrimaryKey::Logged).then_some(KeyShape { parts }),
        ..TableShape::new(table.name.clone(), column_shapes.collect())
    };
    Ok((shape, known))
}
