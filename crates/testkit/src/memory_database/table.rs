//! A table in memory: the effect of a row write on its rows and its unique keys.

use applier::schema::{KeyShape, TableShape};
use binlog_format::events::Rows;
use binlog_format::row_image::{Columns, Image, Row as LoggedRow, RowReader, Value};

use crate::memory_database::row::{Row, put};
use crate::memory_database::rows::{Complaint, DIFFERS, DUPLICATE, Key, MISSING, Pen};

/// A table, and its number in keys.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) number: u32,
    pub(super) shape: TableShape,
}

pub(super) const UNREADABLE: Complaint = "the transaction's events cannot be read";

impl Table {
    /// Returns the prefix of all keys of an index; index 0 contains the rows.
    pub(super) fn prefix(&self, index: usize) -> Vec<u8> {
        let mut key = self.number.to_be_bytes().to_vec();
        key.extend_from_slice(&(index as u16).to_be_bytes());
        key
    }

    /// Returns the key of a row: the values of its primary key, or all of its values if there is no primary
    /// key.
    fn key_of_values(&self, values: &[Option<&[u8]>]) -> Key {
        let mut key = self.prefix(0);
        for value in values {
            put(&mut key, *value);
        }
        key.into()
    }

    fn key_of_row(&self, row: &Row) -> Key {
        match &self.shape.primary_key {
            Some(primary) => self.key_of(0, primary, row).unwrap_or_default(),
            None => self.key_of_values(&row.values().collect::<Vec<_>>()),
        }
    }

    /// Returns a row's key in an index; `None` if a value is NULL, which equals no other value.
    fn key_of(&self, index: usize, shape: &KeyShape, row: &Row) -> Option<Key> {
        let mut key = self.prefix(index);
        let values: Vec<Option<&[u8]>> = row.values().collect();
        for part in &shape.parts {
            let value = values.get(part.column).copied().flatten()?;
            let length = part.prefix.map_or(value.len(), |prefix| prefix as usize);
            put(&mut key, Some(&value[..length.min(value.len())]));
        }
        Some(key.into())
    }

    /// Writes all rows of an event.
    pub(super) fn write_images(
        &self,
        pen: &mut Pen<'_>,
        rows: &Rows<'_>,
        columns: &Columns,
    ) -> Result<(), Complaint> {
        let mut reader = RowReader::new(rows, columns).map_err(|_| UNREADABLE)?;
        while let Some(row) = reader.next_row().map_err(|_| UNREADABLE)? {
            self.write(pen, &row)?;
        }
        Ok(())
    }

    /// Writes one row of an event.
    fn write(&self, pen: &mut Pen<'_>, logged: &LoggedRow<'_, '_>) -> Result<(), Complaint> {
        if self.shape.primary_key.is_none() {
            return self.write_counted(pen, logged);
        }
        let mut old = None;
        let mut new = match (logged.before, logged.after) {
            (None, Some(after)) => Some(inserted(after)?),
            _ => None,
        };
        if let Some(before) = logged.before {
            pen.write(self.key_of_row(&shown(before)), |there| {
                let there = there.ok_or(MISSING)?;
                if !matches(before, there) {
                    return Err(DIFFERS);
                }
                old = Some(there.clone());
                new = logged.after.map(|after| merged(there, after)).transpose()?;
                // With another primary key it would be another row.
                let stays = |new: &Row| self.key_of_row(new) == self.key_of_row(there);
                Ok(new.clone().filter(stays))
            })?;
        }
        let key_of = |row: &Option<Row>| row.as_ref().map(|row| self.key_of_row(row));
        let (old_key, new_key) = (key_of(&old), key_of(&new));
        if let (Some(new), Some(key)) = (&new, &new_key)
            && new_key != old_key
        {
            pen.write(key.clone(), |there| vacant(there, new))?;
        }
        for (index, shape) in (1..).zip(&self.shape.unique_keys) {
            let value_of = |row: &Option<Row>| self.key_of(index, shape, row.as_ref()?);
            let (was, is) = (value_of(&old), value_of(&new));
            if was == is && old_key == new_key {
                continue;
            }
            let owner = |key: &Option<Key>| key.as_ref().map(|key| Row::of([Some(&**key)]));
            if let Some(was) = was {
                let owner = owner(&old_key);
                pen.write(was, |there| match there == owner.as_ref() {
                    true => Ok(None),
                    false => Err(DIFFERS),
                })?;
            }
            if let (Some(is), Some(owner)) = (is, owner(&new_key)) {
                pen.write(is, |there| vacant(there, &owner))?;
            }
        }
        Ok(())
    }

    /// Writes a row of a table without a primary key. Equal rows are stored as one key with a count.
    fn write_counted(
        &self,
        pen: &mut Pen<'_>,
        logged: &LoggedRow<'_, '_>,
    ) -> Result<(), Complaint> {
        let mut new = match (logged.before, logged.after) {
            (None, Some(after)) => Some(inserted(after)?),
            _ => None,
        };
        if let Some(before) = logged.before {
            let old = shown(before);
            pen.write(self.key_of_row(&old), |there| {
                let count = there.map_or(0, count_of);
                let less = count.checked_sub(1).ok_or(MISSING)?;
                Ok((less > 0).then(|| counted(less)))
            })?;
            new = logged.after.map(|after| merged(&old, after)).transpose()?;
        }
        match new {
            Some(new) => pen.write(self.key_of_row(&new), |there| {
                Ok(Some(counted(there.map_or(0, count_of) + 1)))
            }),
            None => Ok(()),
        }
    }

    /// Returns the rows that a key and its stored value represent.
    pub(super) fn rows_of(&self, key: &Key, stored: &Row) -> Vec<Row> {
        if self.shape.primary_key.is_some() {
            return vec![stored.clone()];
        }
        let values = key.get(self.prefix(0).len()..).unwrap_or_default();
        vec![Row::from_stored(values); count_of(stored) as usize]
    }
}

fn vacant(there: Option<&Row>, new: &Row) -> Result<Option<Row>, Complaint> {
    match there {
        None => Ok(Some(new.clone())),
        Some(_) => Err(DUPLICATE),
    }
}

fn counted(count: u64) -> Row {
    Row::of([Some(&count.to_le_bytes()[..])])
}

fn count_of(row: &Row) -> u64 {
    let bytes = row.value(0).and_then(|value| value.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Returns the row in an image; missing columns are NULL.
fn shown(image: &Image<'_>) -> Row {
    Row::of(image.values().iter().map(|value| match value {
        Value::Bytes(bytes) => Some(*bytes),
        Value::Null | Value::Absent | Value::JsonDiff(_) => None,
    }))
}

fn inserted(image: &Image<'_>) -> Result<Row, Complaint> {
    if image.values().contains(&Value::Absent) {
        return Err(
            "the in-memory database does not know the defaults of columns: it needs rows from binlog_row_image=FULL",
        );
    }
    Ok(shown(image))
}

fn merged(there: &Row, after: &Image<'_>) -> Result<Row, Complaint> {
    if after
        .values()
        .iter()
        .any(|value| matches!(value, Value::JsonDiff(_)))
    {
        return Err(
            "the in-memory database cannot apply differences of JSON values (binlog_row_value_options)",
        );
    }
    let values = there.values().zip(after.values());
    Ok(Row::of(values.map(|(old, new)| match new {
        Value::Bytes(bytes) => Some(*bytes),
        Value::Absent => old,
        Value::Null | Value::JsonDiff(_) => None,
    })))
}

/// True if a stored row equals the image before.
fn matches(before: &Image<'_>, there: &Row) -> bool {
    let mut values = there.values();
    before.values().iter().all(|value| {
        let there = values.next().flatten();
        match value {
            Value::Absent | Value::JsonDiff(_) => true,
            Value::Null => there.is_none(),
            Value::Bytes(bytes) => there == Some(*bytes),
        }
    })
}
