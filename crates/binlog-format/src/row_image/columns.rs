//! The columns of a table map.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::events::TableMap;
use crate::row_image::column_type::ColumnType;

/// The types of a table's columns, in order. Serves all rows events that mean the same table map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    types: Box<[ColumnType]>,
    /// How many of them are JSON: images with differences have a bit for each.
    json: usize,
}

impl Columns {
    /// The most columns that a MySQL table has.
    pub const MAX: usize = 4096;

    /// The columns that a table map describes. Takes a few bytes of memory for each.
    ///
    /// # Errors
    /// When a type is none that MySQL 5.7 to 9.x writes, the metadata does not fit the types, or there are more than
    /// [`Self::MAX`].
    pub fn of(map: &TableMap<'_>) -> Result<Self, DecodeError> {
        if map.column_types.len() > Self::MAX {
            return Err(DecodeError::invalid(
                "table map",
                "it has more columns than a MySQL table may have (4,096)",
            ));
        }
        let mut metadata = Cursor::new(&map.metadata);
        let types = map
            .column_types
            .iter()
            .map(|type_byte| ColumnType::read(*type_byte, &mut metadata))
            .collect::<Result<Box<[_]>, _>>()?;
        metadata.finish("column metadata")?;
        let is_json = |column: &&ColumnType| matches!(column, ColumnType::Json { .. });
        let json = types.iter().filter(is_json).count();
        Ok(Self { types, json })
    }

    /// How many columns the table has.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The type of a column, counted from 0.
    pub fn get(&self, column: usize) -> Option<ColumnType> {
        self.types.get(column).copied()
    }

    /// The types in order.
    pub fn iter(&self) -> impl Iterator<Item = ColumnType> + '_ {
        self.types.iter().copied()
    }

    pub(super) fn json_count(&self) -> usize {
        self.json
    }
}
