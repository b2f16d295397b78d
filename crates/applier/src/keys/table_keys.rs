//! The keys of a table, made ready for its rows.

use thiserror::Error;

use super::fold::Fold;
use super::hash::{KeyHash, KeySeed};
use crate::schema::{KeyPart, KeyShape, TableName, TableShape};

/// The keys of a table, made ready for its rows: serves any number of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableKeys {
    /// The table as a whole.
    pub(super) table: KeyHash,
    /// Whether all writes of the table are in each other's way: it has no primary key, or a key of something that images do
    /// not show.
    pub(super) is_serial: bool,
    /// Primary, unique and referenced keys; the primary one first.
    pub(super) own: Vec<OwnKey>,
    pub(super) parents: Vec<ParentKey>,
    /// Tables that refer to it, as a whole.
    pub(super) children: Vec<KeyHash>,
    /// Tables that lose or change rows with it, as a whole.
    pub(super) cascades_to: Vec<KeyHash>,
}

/// A key that the table's rows take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnKey {
    pub(super) seed: KeySeed,
    pub(super) parts: Vec<Part>,
    /// The primary key: every image tells it, and every row has it.
    pub(super) is_primary: bool,
}

/// A key of another table that the table's rows refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParentKey {
    /// The table that is referred to, as a whole.
    pub(super) table: KeyHash,
    pub(super) seed: KeySeed,
    pub(super) parts: Vec<Part>,
}

/// A column of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) column: usize,
    pub(super) fold: Fold,
    pub(super) prefix: Option<u32>,
}

/// A key of the target's table has a column that the log's rows have not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "column {column} of a key of the target's table is not among the {in_log} columns of the log's rows"
)]
pub struct KeyColumnMissing {
    /// The column: its name, or its number where the shape has no such column.
    pub column: String,
    /// How many columns the rows have in the log.
    pub in_log: usize,
}

impl TableKeys {
    /// The keys of a table whose rows have `in_log` columns in the log; more or fewer than the target's table is fine as long as
    /// every column of a key is among them.
    ///
    /// # Errors
    /// When one is not.
    pub fn of(shape: &TableShape, in_log: usize) -> Result<Self, KeyColumnMissing> {
        let mut is_serial = shape.primary_key.is_none();
        let mut own = Vec::new();
        let primary = shape.primary_key.iter().map(|key| (key, true));
        let others = shape.unique_keys.iter().chain(&shape.referenced);
        for (key, is_primary) in primary.chain(others.map(|key| (key, false))) {
            if key.parts.is_empty() {
                is_serial = true;
            } else {
                own.push(own_key(shape, key, is_primary, in_log)?);
            }
        }
        let parents = shape.parents.iter().map(|parent| {
            let seed = referred_seed(&parent.table, &parent.referenced);
            let parts = parent.columns.iter();
            let parts = parts.map(|column| part(shape, *column, None, in_log));
            Ok(ParentKey {
                table: KeyHash::of_table(&parent.table),
                seed,
                parts: parts.collect::<Result<_, _>>()?,
            })
        });
        let whole = |tables: &[TableName]| tables.iter().map(KeyHash::of_table).collect();
        Ok(Self {
            table: KeyHash::of_table(&shape.name),
            is_serial,
            own,
            parents: parents.collect::<Result<_, _>>()?,
            children: whole(&shape.children),
            cascades_to: whole(&shape.cascades_to),
        })
    }

    /// Whether all writes of the table are in each other's way, whatever their values.
    pub fn is_serial(&self) -> bool {
        self.is_serial
    }
}

fn own_key(
    shape: &TableShape,
    key: &KeyShape,
    is_primary: bool,
    in_log: usize,
) -> Result<OwnKey, KeyColumnMissing> {
    let parts: Vec<Part> = key
        .parts
        .iter()
        .map(|KeyPart { column, prefix }| part(shape, *column, *prefix, in_log))
        .collect::<Result<_, _>>()?;
    let names = parts.iter().filter_map(|part| {
        let column = shape.columns.get(part.column)?;
        Some((&*column.name, part.prefix))
    });
    Ok(OwnKey {
        seed: KeySeed::new(&shape.name, names),
        parts,
        is_primary,
    })
}

/// The seed that the table's own key over the same columns has.
fn referred_seed(table: &TableName, columns: &[Box<str>]) -> KeySeed {
    KeySeed::new(table, columns.iter().map(|name| (&**name, None)))
}

fn part(
    shape: &TableShape,
    column: usize,
    prefix: Option<u32>,
    in_log: usize,
) -> Result<Part, KeyColumnMissing> {
    let known = shape.columns.get(column);
    match known {
        Some(known) if column < in_log => Ok(Part {
            column,
            fold: known.fold,
            prefix,
        }),
        _ => Err(KeyColumnMissing {
            column: known.map_or_else(|| (column + 1).to_string(), |known| known.name.to_string()),
            in_log,
        }),
    }
}
