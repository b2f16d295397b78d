//! Keys of row writes. If the order of two writes matters, they have a key in common.

use std::collections::HashMap;

use binlog_format::row_image::{Image, Row, Value};
use foldhash::fast::FixedState;
use thiserror::Error;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub use crate::schema::Fold;
use crate::schema::{ColumnShape, TableName, TableShape};

/// How a write uses a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// The write depends on the key. Any number of such writes may proceed concurrently: child rows of one parent row, or rows of one
    /// table.
    Shared,
    /// The write inserts, changes or deletes the key's value.
    Exclusive,
}

/// One key of a row write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyAccess {
    /// A hash of the table, the key's columns and the value.
    pub key: KeyHash,
    /// True if other writes may use the key at the same time.
    pub access: Access,
}

// Hashes of keys. XXH3 with 64 bits, whose specification fixes the result for every version and machine. It is among the fastest
// hashes for inputs of this size: one to a few dozen bytes.

/// The hash of one value of a key of a table. Values that the database considers equal have equal hashes. Different values may
/// collide, which only costs parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The key of a whole table.
    pub fn of_table(table: &TableName) -> Self {
        Self(hash_names([&*table.schema, &*table.table]))
    }
}

/// The common part of the hashes of a key's values: the table and the key's columns with their prefixes, in the key's order.
fn seed_of<'a>(table: &TableName, columns: impl Iterator<Item = (&'a str, Option<u32>)>) -> u64 {
    let mut bytes = KeyHash::of_table(table).0.to_le_bytes().to_vec();
    for (name, prefix) in columns {
        bytes.extend_from_slice(&hash_names([name]).to_le_bytes());
        bytes.extend_from_slice(&prefix.unwrap_or_default().to_le_bytes());
    }
    xxh3_64(&bytes)
}

/// Hashes names without case: names that differ only in case have equal hashes. The server's settings decide whether they mean the
/// same table, and a foreign key may spell a column in any case.
fn hash_names<const N: usize>(names: [&str; N]) -> u64 {
    let mut bytes = Vec::new();
    for name in names {
        let folded: String = name.chars().flat_map(char::to_lowercase).collect();
        bytes.extend_from_slice(folded.as_bytes());
        // No name contains a zero byte.
        bytes.push(0);
    }
    xxh3_64(&bytes)
}

/// A map by key hash. The hasher only mixes the bits of the hash, for hashes that are small numbers (as in tests).
pub(crate) type KeyMap<V> = HashMap<KeyHash, V, FixedState>;

// The keys of one row write, from its images.
//
// | a write uses …                                             | access |
// |------------------------------------------------------------|--------|
// | its table                                                  | Shared; Exclusive if the table is serial, or a value of a key is unknown |
// | primary, unique and referenced keys, old and new value     | Exclusive; none for a value with a NULL |
// | the parents' keys to which it refers, or referred          | Shared, and Shared on the parent's table; Exclusive when unknown |
// | tables that refer to its table, when it removes a value    | Shared; Exclusive where the server changes rows with it, unlogged |

/// Computes keys of rows; the memory is reused from row to row.
#[derive(Debug, Default)]
pub struct RowKeys {
    keys: Vec<KeyAccess>,
    value: Vec<u8>,
}

/// A key's value in a row, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyValue {
    Is(KeyHash),
    /// The value contains a NULL, so it is equal to no other value and refers to no row.
    Nothing,
    /// The log does not contain all columns of the key, or their comparison is unknown.
    Unknown,
}

impl RowKeys {
    /// Returns the keys of one row write of the table, each key once. `cascades_logged`: rows that a cascade changes together with
    /// this row are logged as separate writes ([`Rows::CASCADES_LOGGED`](binlog_format::events::Rows::CASCADES_LOGGED)).
    pub fn of(
        &mut self,
        table: &TableKeys,
        row: &Row<'_, '_>,
        cascades_logged: bool,
    ) -> &[KeyAccess] {
        self.keys.clear();
        let mut goes = false;
        let mut unknown = table.is_serial;
        self.take(table.table, Access::Shared);
        for key in &table.own {
            let (known, value_goes) = self.own_key(key, row);
            unknown |= !known;
            goes |= value_goes;
        }
        if unknown {
            // Every other write of the table uses the table's key, too, so the keys of single values are superfluous.
            self.keys.clear();
            self.take(table.table, Access::Exclusive);
        }
        for parent in &table.parents {
            self.parent(parent, row);
        }
        if goes || unknown && row.before.is_some() {
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

    /// Adds the values of one key to the write's keys. Returns whether all values are known, and whether the write removes the old
    /// value.
    fn own_key(&mut self, key: &OwnKey, row: &Row<'_, '_>) -> (bool, bool) {
        let is_touched = is_touched(&key.parts, row);
        // The image before of a partial update identifies the row by its primary key. Columns of other keys may be missing in it; that
        // does not matter while they are unchanged.
        if !is_touched && !key.is_primary {
            return (true, false);
        }
        let [before, after] = self.values(key.seed, &key.parts, row, is_touched);
        let mut known = true;
        for value in before.into_iter().chain(after) {
            match value {
                KeyValue::Is(hash) => self.take(hash, Access::Exclusive),
                KeyValue::Nothing => {}
                KeyValue::Unknown => known = false,
            }
        }
        let had_value = before.is_some_and(|before| before != KeyValue::Nothing);
        (known, had_value && is_changed(&key.parts, row))
    }

    fn parent(&mut self, key: &ParentKey, row: &Row<'_, '_>) {
        let is_touched = is_touched(&key.parts, row);
        let is_shown = |before: &Image<'_>| {
            let mut values = key.parts.iter().map(|part| before.value(part.column));
            is_touched || values.all(|value| value != Value::Absent)
        };
        let [before, after] = self.values(key.seed, &key.parts, row, is_touched);
        let before = before.filter(|_| row.before.is_some_and(is_shown));
        for value in before.into_iter().chain(after) {
            match value {
                KeyValue::Is(hash) => {
                    self.take(key.table, Access::Shared);
                    self.take(hash, Access::Shared);
                }
                KeyValue::Nothing => {}
                KeyValue::Unknown => self.take(key.table, Access::Exclusive),
            }
        }
    }

    /// Returns the values of a key in the images before and after.
    fn values(
        &mut self,
        seed: u64,
        parts: &[Part],
        row: &Row<'_, '_>,
        is_touched: bool,
    ) -> [Option<KeyValue>; 2] {
        let before = row.before;
        let after = row.after.filter(|_| is_touched);
        [
            before.map(|image| self.value(seed, parts, |part| image.value(part.column))),
            after.map(|image| self.value(seed, parts, |part| merged(part, before, image))),
        ]
    }

    /// Computes the value of a key from its columns; `value_of` returns the value of a column.
    fn value<'a>(
        &mut self,
        seed: u64,
        parts: &[Part],
        value_of: impl Fn(&Part) -> Value<'a>,
    ) -> KeyValue {
        self.value.clear();
        let mut known = true;
        for part in parts {
            match value_of(part) {
                // One NULL is enough, whatever the other columns contain.
                Value::Null => return KeyValue::Nothing,
                Value::Bytes(bytes) => {
                    let start = self.value.len();
                    known &= part.fold.append(bytes, part.prefix, &mut self.value);
                    // The length after each part distinguishes ("a", "bc") from ("ab", "c").
                    let length = (self.value.len() - start) as u32;
                    self.value.extend_from_slice(&length.to_le_bytes());
                }
                Value::Absent | Value::JsonDiff(_) => known = false,
            }
        }
        match known {
            true => KeyValue::Is(KeyHash(xxh3_64_with_seed(&self.value, seed))),
            false => KeyValue::Unknown,
        }
    }

    fn take(&mut self, key: KeyHash, access: Access) {
        match self.keys.iter_mut().find(|taken| taken.key == key) {
            Some(taken) => taken.access = taken.access.max(access),
            None => self.keys.push(KeyAccess { key, access }),
        }
    }
}

/// True if a row write may change the value of a key: it inserts or deletes the row, or its image after contains a column of the key.
fn is_touched(parts: &[Part], row: &Row<'_, '_>) -> bool {
    match (row.before, row.after) {
        (Some(_), Some(after)) => {
            let mut values = parts.iter().map(|part| after.value(part.column));
            values.any(|value| value != Value::Absent)
        }
        _ => true,
    }
}

/// True if the write changes the key's bytes or deletes the row.
fn is_changed(parts: &[Part], row: &Row<'_, '_>) -> bool {
    match (row.before, row.after) {
        (Some(before), Some(after)) => parts.iter().any(|part| {
            let value = after.value(part.column);
            value != Value::Absent && value != before.value(part.column)
        }),
        _ => true,
    }
}

/// Returns a column's value after an update: a column missing in the image after is unchanged. In an insert, a missing column has its
/// default value, which is not in the log.
fn merged<'a>(part: &Part, before: Option<&Image<'a>>, after: &Image<'a>) -> Value<'a> {
    match (after.value(part.column), before) {
        (Value::Absent, Some(before)) => before.value(part.column),
        (value, _) => value,
    }
}

// The keys of a table.

/// The keys of a table, prepared for any number of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableKeys {
    /// The hash of the table as a whole.
    table: KeyHash,
    /// True if all writes of the table conflict, because it has no primary key, or has a key over an expression, which images do not
    /// contain.
    is_serial: bool,
    /// Primary, unique and referenced keys; the primary one first.
    own: Vec<OwnKey>,
    parents: Vec<ParentKey>,
    /// Hashes of the tables that refer to this one, each as a whole.
    children: Vec<KeyHash>,
    /// Hashes of the tables whose rows a cascade from this table deletes or changes, each as a whole.
    cascades_to: Vec<KeyHash>,
}

/// A key of the table itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnKey {
    seed: u64,
    parts: Vec<Part>,
    /// True if it is the primary key: its columns are never NULL, and every image that identifies a row contains them.
    is_primary: bool,
}

/// A key of another table that the table's rows refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ParentKey {
    /// The hash of the referenced table as a whole.
    table: KeyHash,
    seed: u64,
    parts: Vec<Part>,
}

/// A column of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    column: usize,
    fold: Fold,
    prefix: Option<u32>,
}

/// Error: a column of a key of the target's table is missing in the log's rows.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "column {column} of a key of the target's table is not among the {in_log} columns of the log's rows"
)]
pub struct KeyColumnMissing {
    /// The column's name, or its number from 1 on where the target's table has no such column.
    pub column: String,
    /// The number of columns that the rows have in the log.
    pub in_log: usize,
}

impl TableKeys {
    /// Prepares the keys of a table whose rows have `in_log` columns in the log. The target's table may have more or fewer columns, if
    /// the log contains every column of a key.
    ///
    /// # Errors
    /// If the log lacks a column of a key.
    pub fn of(shape: &TableShape, in_log: usize) -> Result<Self, KeyColumnMissing> {
        let mut is_serial = shape.primary_key.is_none();
        let mut own = Vec::new();
        let primary = shape.primary_key.iter().map(|key| (key, true));
        let others = shape.unique_keys.iter().chain(&shape.referenced);
        for (key, is_primary) in primary.chain(others.map(|key| (key, false))) {
            if key.parts.is_empty() {
                is_serial = true;
                continue;
            }
            let parts = key.parts.iter();
            let parts = parts.map(|one| part(shape, one.column, one.prefix, in_log));
            let parts: Vec<Part> = parts.collect::<Result<_, _>>()?;
            let names = parts.iter();
            let names = names.map(|part| (&*shape.columns[part.column].name, part.prefix));
            own.push(OwnKey {
                seed: seed_of(&shape.name, names),
                parts,
                is_primary,
            });
        }
        let parents = shape.parents.iter().map(|parent| {
            // The same seed as that of the parent's own key over these columns.
            let names = parent.referenced.iter().map(|name| (&**name, None));
            let seed = seed_of(&parent.table, names);
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

    /// True if an earlier write of the row can include the effect of this write (joining): an insert, or an update with complete
    /// images that changes no column of a key, neither of the table's own keys nor of a parent's. Such a write leaves a completely
    /// known row, takes no key value from another row, and releases none to another row.
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
        let own = self.own.iter().flat_map(|key| &key.parts);
        let mut parts = own.chain(self.parents.iter().flat_map(|key| &key.parts));
        !self.is_serial
            && is_whole(before)
            && parts.all(|part| before.value(part.column) == after.value(part.column))
    }
}

fn part(
    shape: &TableShape,
    column: usize,
    prefix: Option<u32>,
    in_log: usize,
) -> Result<Part, KeyColumnMissing> {
    let known = shape.columns.get(column);
    if let Some(ColumnShape { fold, .. }) = known.filter(|_| column < in_log) {
        let fold = *fold;
        return Ok(Part {
            column,
            fold,
            prefix,
        });
    }
    let name = known.map(|known| known.name.to_string());
    let column = name.unwrap_or_else(|| (column + 1).to_string());
    Err(KeyColumnMissing { column, in_log })
}
