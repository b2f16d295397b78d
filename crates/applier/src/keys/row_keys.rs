//! The keys of one row write, from its images.
//!
//! | the row's …                                            | access |
//! |--------------------------------------------------------|--------|
//! | table                                                  | Shared; Exclusive when it is serial, or a value of a key is unknown |
//! | primary, unique and referenced keys, old and new value | Exclusive; none for a value with a NULL |
//! | keys of parents that it refers or referred to          | Shared, and Shared on the parent's table; Exclusive on that when the value is unknown |
//! | tables that refer to it, when a value of it goes       | Shared; Exclusive where the server removes or changes rows with it, unseen by the log |

use binlog_format::row_image::{Image, Row, Value};
use thiserror::Error;

use crate::keys::{Access, Fold, KeyAccess, KeyHash, KeySeed};
use crate::schema::{KeyPart, KeyShape, TableName, TableShape};

/// Computes keys of rows, in memory that is reused for each.
#[derive(Debug, Default)]
pub struct RowKeys {
    keys: Vec<KeyAccess>,
    value: Vec<u8>,
}

/// A key's value in a row, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Is(KeyHash),
    /// It has a NULL: it is equal to nothing and refers to nothing.
    Nothing,
    /// The log has too little of the row.
    Unknown,
}

impl RowKeys {
    /// The keys of one row write of the table, each key once. `cascades_logged`: rows that change together with this one are logged as
    /// writes of their own ([`Rows::CASCADES_LOGGED`](binlog_format::events::Rows::CASCADES_LOGGED)).
    pub fn of(
        &mut self,
        table: &TableKeys,
        row: &Row<'_, '_>,
        cascades_logged: bool,
    ) -> &[KeyAccess] {
        self.keys.clear();
        let mut goes = false;
        let mut untold = table.is_serial;
        self.take(table.table, Access::Shared);
        for key in &table.own {
            let (told, value_goes) = self.own_key(key, row);
            untold |= !told;
            goes |= value_goes;
        }
        if untold {
            // Every other write of the table has this key, too, so those of single values are superfluous.
            self.keys.clear();
            self.take(table.table, Access::Exclusive);
        }
        for parent in &table.parents {
            self.parent(parent, row);
        }
        if goes || untold && row.before.is_some() {
            for child in &table.children {
                self.take(*child, Access::Shared);
            }
            if !cascades_logged {
                for child in &table.cascades_to {
                    self.take(*child, Access::Exclusive);
                }
            }
        }
        &self.keys
    }

    /// Whether the values of the key are known, and whether its old value goes.
    fn own_key(&mut self, key: &OwnKey, row: &Row<'_, '_>) -> (bool, bool) {
        let is_touched = is_touched(&key.parts, row);
        // The image before of a partial update identifies the row by its primary key; other keys missing in it do
        // not matter while they are unchanged.
        if !is_touched && !key.is_primary {
            return (true, false);
        }
        let before = row
            .before
            .map(|before| self.value(key.seed, &key.parts, |part| before.value(part.column)));
        let after = row
            .after
            .filter(|_| is_touched)
            .map(|after| self.value(key.seed, &key.parts, |part| merged(part, row.before, after)));
        let mut told = true;
        for value in before.into_iter().chain(after) {
            match value {
                Told::Is(hash) => self.take(hash, Access::Exclusive),
                Told::Nothing => {}
                Told::Unknown => told = false,
            }
        }
        let goes = match before {
            None | Some(Told::Nothing) => false,
            Some(Told::Is(_) | Told::Unknown) => is_changed(&key.parts, row),
        };
        (told, goes)
    }

    fn parent(&mut self, key: &ParentKey, row: &Row<'_, '_>) {
        let is_touched = is_touched(&key.parts, row);
        let is_shown = |before: &&Image<'_>| {
            let is_absent = |part: &Part| before.value(part.column) == Value::Absent;
            is_touched || !key.parts.iter().any(is_absent)
        };
        let before = row
            .before
            .filter(is_shown)
            .map(|before| self.value(key.seed, &key.parts, |part| before.value(part.column)));
        let after = row
            .after
            .filter(|_| is_touched)
            .map(|after| self.value(key.seed, &key.parts, |part| merged(part, row.before, after)));
        for value in before.into_iter().chain(after) {
            match value {
                Told::Is(hash) => {
                    self.take(key.table, Access::Shared);
                    self.take(hash, Access::Shared);
                }
                Told::Nothing => {}
                Told::Unknown => self.take(key.table, Access::Exclusive),
            }
        }
    }

    /// The value of a key, whose parts `value_of` returns.
    fn value<'a>(
        &mut self,
        seed: KeySeed,
        parts: &[Part],
        value_of: impl Fn(&Part) -> Value<'a>,
    ) -> Told {
        self.value.clear();
        let mut told = true;
        for part in parts {
            match value_of(part) {
                // Whatever the others are.
                Value::Null => return Told::Nothing,
                Value::Bytes(bytes) => {
                    let start = self.value.len();
                    told &= part.fold.append(bytes, part.prefix, &mut self.value);
                    // The length after each part distinguishes ("a", "bc") from ("ab", "c").
                    let length = (self.value.len() - start) as u32;
                    self.value.extend_from_slice(&length.to_le_bytes());
                }
                Value::Absent | Value::JsonDiff(_) => told = false,
            }
        }
        if told {
            Told::Is(seed.hash(&self.value))
        } else {
            Told::Unknown
        }
    }

    fn take(&mut self, key: KeyHash, access: Access) {
        match self.keys.iter_mut().find(|taken| taken.key == key) {
            Some(taken) => taken.access = taken.access.max(access),
            None => self.keys.push(KeyAccess { key, access }),
        }
    }
}

/// Whether a row write can give a key another value: it inserts or deletes the row, or its image after has a column of it.
fn is_touched(parts: &[Part], row: &Row<'_, '_>) -> bool {
    match (row.before, row.after) {
        (Some(_), Some(after)) => parts
            .iter()
            .any(|part| after.value(part.column) != Value::Absent),
        _ => true,
    }
}

/// Whether a key's bytes change, or the row goes.
fn is_changed(parts: &[Part], row: &Row<'_, '_>) -> bool {
    match (row.before, row.after) {
        (Some(before), Some(after)) => parts.iter().any(|part| {
            let value = after.value(part.column);
            value != Value::Absent && value != before.value(part.column)
        }),
        _ => true,
    }
}

/// A column's value after an update: columns missing in the image after are unchanged. In an insert a missing column has
/// its default, which is not in the log.
fn merged<'a>(part: &Part, before: Option<&Image<'a>>, after: &Image<'a>) -> Value<'a> {
    match (after.value(part.column), before) {
        (Value::Absent, Some(before)) => before.value(part.column),
        (value, _) => value,
    }
}

// The keys of a table, prepared for its rows.

/// The keys of a table, prepared for any number of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableKeys {
    /// The table as a whole.
    pub(super) table: KeyHash,
    /// Whether all writes of the table conflict: it has no primary key, or a key of an expression that images do
    /// not contain.
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
    /// The primary key: every image contains it, and every row has it.
    pub(super) is_primary: bool,
}

/// A key of another table that the table's rows refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParentKey {
    /// The referenced table, as a whole.
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

/// A key of the target's table has a column that is missing in the log's rows.
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
    /// When one is missing.
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

    /// Whether the write leaves a completely known row, and neither takes a key from another row nor leaves one to it: an
    /// insert, or an update with complete images that changes no column of a key of the table's own or of a parent. The write
    /// before it could have had the effect of such an update.
    pub fn can_be_joined(&self, row: &Row<'_, '_>) -> bool {
        let is_whole = |image: &Image<'_>| {
            let mut values = image.values().iter();
            values.all(|value| matches!(value, Value::Null | Value::Bytes(_)))
        };
        let Some(after) = row.after.filter(|after| is_whole(after)) else {
            return false;
        };
        let Some(before) = row.before else {
            return !self.is_serial;
        };
        let own = self.own.iter().map(|key| &key.parts);
        let mut parts = own
            .chain(self.parents.iter().map(|key| &key.parts))
            .flatten();
        !self.is_serial
            && is_whole(before)
            && parts.all(|part| before.value(part.column) == after.value(part.column))
    }

    /// Whether all writes of the table conflict, whatever their values.
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

/// The seed of the table's own key over the same columns.
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
