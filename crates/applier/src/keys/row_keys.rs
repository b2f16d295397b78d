//! The keys of one row write, by what its images say.
//!
//! | the row's …                                            | access |
//! |--------------------------------------------------------|--------|
//! | table                                                  | Shared; Exclusive when it is serial, or a value of a key cannot be told |
//! | primary, unique and referenced keys, old and new value | Exclusive; none for a value with a NULL |
//! | keys of parents that it refers or referred to          | Shared, and Shared on the parent's table; Exclusive on that when the value cannot be told |
//! | tables that refer to it, when a value of it goes       | Shared; Exclusive where the server removes or changes rows with it, unseen by the log |

use binlog_format::row_image::{Image, Row, Value};

use super::hash::{KeyHash, KeySeed};
use super::table_keys::{OwnKey, ParentKey, Part, TableKeys};
use super::{Access, KeyAccess};

/// Computes keys of rows, into memory that it uses again for each.
#[derive(Debug, Default)]
pub struct RowKeys {
    keys: Vec<KeyAccess>,
    value: Vec<u8>,
}

/// What is known of a key's value in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// This value.
    Is(KeyHash),
    /// It has a NULL: it is equal to nothing and refers to nothing.
    Nothing,
    /// It cannot be told.
    Unknown,
}

impl RowKeys {
    /// The keys of one row write of the table, each key once. `cascades_logged` says that rows which go with this one come as
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
            // Every other write of the table has this key, too, which makes those of single values superfluous.
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

    /// Whether the values of the key can be told, and whether its old value goes.
    fn own_key(&mut self, key: &OwnKey, row: &Row<'_, '_>) -> (bool, bool) {
        let is_touched = is_touched(&key.parts, row);
        // The image before of a partial update names the row by its primary key; what it does not show of other keys does
        // not matter while they stay as they are.
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

    /// The value of a key, whose parts `value_of` gives.
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
                    // The length behind each part keeps ("a", "bc") and ("ab", "c") apart.
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

/// A column's value after an update: what the image after does not have stays as it was. An insert has no such column, so
/// that its default, which is not in the log, holds.
fn merged<'a>(part: &Part, before: Option<&Image<'a>>, after: &Image<'a>) -> Value<'a> {
    match (after.value(part.column), before) {
        (Value::Absent, Some(before)) => before.value(part.column),
        (value, _) => value,
    }
}
