//! Synthetic rows events of text columns, and the keys of their rows.

use applier::keys::{KeyAccess, RowKeys, TableKeys};
use applier::schema::TableShape;
use binlog_format::events::{Rows, RowsChange, TableId, TableMap};
use binlog_format::row_image::{Columns, RowReader};

/// A column's value in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Absent,
    Null,
    Text(Vec<u8>),
}

/// Parses cells: `-` is absent, `NULL` is NULL.
pub(crate) fn cells(words: &str) -> Vec<Cell> {
    let cell = |word: &str| match word {
        "-" => Cell::Absent,
        "NULL" => Cell::Null,
        text => Cell::Text(text.as_bytes().to_vec()),
    };
    words.split(' ').map(cell).collect()
}

/// A write of a row.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) before: Option<Vec<Cell>>,
    pub(crate) after: Option<Vec<Cell>>,
}

impl Write {
    pub(crate) fn insert(after: &str) -> Self {
        Self {
            before: None,
            after: Some(cells(after)),
        }
    }

    pub(crate) fn update(before: &str, after: &str) -> Self {
        Self {
            before: Some(cells(before)),
            after: Some(cells(after)),
        }
    }

    pub(crate) fn delete(before: &str) -> Self {
        Self {
            before: Some(cells(before)),
            after: None,
        }
    }
}

/// Encodes cells: the bits of the columns that are present, and the image.
fn coded(cells: &[Cell]) -> (Vec<u8>, Vec<u8>) {
    let bits = |set: &dyn Fn(&Cell) -> bool, cells: &mut dyn Iterator<Item = &Cell>| {
        let mut bits = Vec::new();
        for (at, cell) in cells.enumerate() {
            if at % 8 == 0 {
                bits.push(0);
            }
            bits[at / 8] |= u8::from(set(cell)) << (at % 8);
        }
        bits
    };
    let is_present = |cell: &Cell| *cell != Cell::Absent;
    let present = bits(&is_present, &mut cells.iter());
    let mut image = bits(
        &|cell| *cell == Cell::Null,
        &mut cells.iter().filter(|cell| is_present(cell)),
    );
    for cell in cells {
        if let Cell::Text(text) = cell {
            image.push(text.len() as u8);
            image.extend_from_slice(text);
        }
    }
    (present, image)
}

/// Returns the event of one write to a table of VARCHAR(200) columns, and the table map.
fn rows_of(write: &Write) -> (Rows<'static>, TableMap<'static>) {
    let (change, first, second) = match (&write.before, &write.after) {
        (None, Some(after)) => (RowsChange::Write, after, None),
        (Some(before), None) => (RowsChange::Delete, before, None),
        (Some(before), Some(after)) => (RowsChange::Update, before, Some(after)),
        (None, None) => panic!("a write of nothing"),
    };
    let (columns, mut images) = coded(first);
    let (columns_after, second) = second.map(|second| coded(second)).unwrap_or_default();
    images.extend(second);
    let rows = Rows {
        change,
        table_id: TableId(1),
        flags: Rows::END_OF_STATEMENT,
        extra_data: Some(Default::default()),
        column_count: first.len() as u64,
        columns: columns.into(),
        columns_after: columns_after.into(),
        images: images.into(),
    };
    let map = TableMap {
        table_id: TableId(1),
        column_types: vec![15; first.len()].into(),
        metadata: [200, 0].repeat(first.len()).into(),
        nullable: vec![0xff; first.len().div_ceil(8)].into(),
        ..TableMap::default()
    };
    (rows, map)
}

/// Returns the keys of a write to a table of this shape.
pub(crate) fn keys(shape: &TableShape, write: &Write) -> Vec<KeyAccess> {
    keys_with(shape, write, false)
}

/// As `keys`, with the event's cascade flag.
pub(crate) fn keys_with(
    shape: &TableShape,
    write: &Write,
    cascades_logged: bool,
) -> Vec<KeyAccess> {
    let (rows, map) = rows_of(write);
    let columns = Columns::of(&map).unwrap();
    let table = TableKeys::of(shape, columns.len()).unwrap();
    let mut reader = RowReader::new(&rows, &columns).unwrap();
    let row = reader.next_row().unwrap().unwrap();
    RowKeys::default()
        .of(&table, &row, cascades_logged)
        .to_vec()
}
