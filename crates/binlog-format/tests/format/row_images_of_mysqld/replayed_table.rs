//! A table that is reconstructed from the row images in a log.

use std::collections::BTreeMap;

use binlog_format::row_image::{Image, Row, Value};

/// A value in the reconstructed table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Replayed {
    Null,
    Bytes(Vec<u8>),
    /// A JSON value that was changed by a difference; it is not tracked further.
    Patched,
}

/// The rows, by the bytes of their primary key, which is column 0.
#[derive(Debug, Default)]
pub(crate) struct ReplayedTable {
    pub(crate) rows: BTreeMap<Vec<u8>, Vec<Replayed>>,
}

impl ReplayedTable {
    /// Applies one row of a rows event.
    pub(crate) fn apply(&mut self, row: &Row<'_, '_>) {
        let mut values = match row.before {
            Some(before) => {
                let old = self.rows.remove(&key(before)).expect("a row that is there");
                assert_shows(before, &old);
                old
            }
            None => row
                .after
                .unwrap()
                .values()
                .iter()
                .map(|_| Replayed::Null)
                .collect(),
        };
        let Some(after) = row.after else {
            return;
        };
        for (value, new) in values.iter_mut().zip(after.values()) {
            match new {
                Value::Absent => {}
                Value::Null => *value = Replayed::Null,
                Value::Bytes(bytes) => *value = Replayed::Bytes(bytes.to_vec()),
                Value::JsonDiff(_) => *value = Replayed::Patched,
            }
        }
        let Replayed::Bytes(key) = &values[0] else {
            panic!("a row without its primary key");
        };
        let replaced = self.rows.insert(key.clone(), values);
        assert_eq!(replaced, None);
    }
}

fn key(image: &Image<'_>) -> Vec<u8> {
    let Value::Bytes(key) = image.value(0) else {
        panic!("an image before without the primary key");
    };
    key.to_vec()
}

/// Checks that a before image has the values that were replayed so far.
fn assert_shows(before: &Image<'_>, old: &[Replayed]) {
    for (shown, value) in before.values().iter().zip(old) {
        match (shown, value) {
            (Value::Absent, _) | (_, Replayed::Patched) => {}
            (Value::Null, value) => assert_eq!(*value, Replayed::Null),
            (Value::Bytes(bytes), value) => assert_eq!(*value, Replayed::Bytes(bytes.to_vec())),
            (Value::JsonDiff(_), _) => panic!("a difference in an image before"),
        }
    }
}
