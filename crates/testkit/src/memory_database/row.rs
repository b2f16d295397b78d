//! A row in memory, with its values in one allocation.

/// The length field's value for a NULL.
const NULL: u32 = u32::MAX;

/// A row's values in the order of its columns, encoded as in the log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(Box<[u8]>);

impl Row {
    /// Creates a row of these values; `None` is NULL.
    pub fn of<'a>(values: impl IntoIterator<Item = Option<&'a [u8]>>) -> Self {
        let mut bytes = Vec::new();
        for value in values {
            put(&mut bytes, value);
        }
        Self(bytes.into())
    }

    /// Creates a row from its stored bytes.
    pub(super) fn from_stored(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns the row's values.
    pub fn values(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let length = u32::from_le_bytes(*length);
            if length == NULL {
                rest = after;
                return Some(None);
            }
            let (value, after) = after.split_at_checked(length as usize)?;
            rest = after;
            Some(Some(value))
        })
    }

    /// Returns one value of the row; `None` for NULL, and for a column that the row does not have.
    pub fn value(&self, column: usize) -> Option<&[u8]> {
        self.values().nth(column).flatten()
    }
}

/// Appends a value so that different lists of values never encode equally.
pub(super) fn put(bytes: &mut Vec<u8>, value: Option<&[u8]>) {
    // A value is a part of an event, and event sizes have 32 bits.
    let length = value.map_or(NULL, |value| value.len() as u32);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(value.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let values: [Option<&[u8]>; 4] = [Some(b"abc"), None, Some(b""), Some(&[0xff; 300])];
        let row = Row::of(values);
        assert_eq!(row.values().collect::<Vec<_>>(), values);
        assert_eq!(
            (row.value(0), row.value(1), row.value(9)),
            (values[0], None, None)
        );
        assert_ne!(
            Row::of([Some(&b"ab"[..]), Some(b"c")]),
            Row::of([Some(&b"a"[..]), Some(b"bc")])
        );
    }
}
