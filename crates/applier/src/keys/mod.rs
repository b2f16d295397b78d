//! Keys of row writes: two writes whose order matters share a key.

mod row_keys;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub use crate::keys::row_keys::{KeyColumnMissing, RowKeys, TableKeys};
pub use crate::schema::Fold;
use crate::schema::TableName;

/// How a write uses a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// It depends on it: any number of such writes may proceed concurrently (a child row and its parent, any row and
    /// its table).
    Shared,
    /// It takes, changes or frees it.
    Exclusive,
}

/// One key of a row write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyAccess {
    /// The key as a hash, which replaces table and value.
    pub key: KeyHash,
    /// Whether the write shares the key with others or needs it exclusively.
    pub access: Access,
}

// Hashes of keys. XXH3 with 64 bits: its specification fixes its values for every version and machine. It is among the
// fastest for inputs of this size (one to a few dozen bytes, one pass).

/// The hash of a table's key and one value of it. Values that the database considers equal have equal hashes;
/// others may collide, which only costs parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The key of a whole table.
    pub fn of_table(table: &TableName) -> Self {
        Self(hash_names([&*table.schema, &*table.table]))
    }
}

/// The common part of the hashes of a key's values: the table and the key's columns, in the key's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeySeed(u64);

impl KeySeed {
    /// The seed of a key of `table` over these columns with these prefixes.
    pub(super) fn new<'a>(
        table: &TableName,
        columns: impl Iterator<Item = (&'a str, Option<u32>)>,
    ) -> Self {
        let mut bytes = KeyHash::of_table(table).0.to_le_bytes().to_vec();
        for (name, prefix) in columns {
            bytes.extend_from_slice(&hash_names([name]).to_le_bytes());
            bytes.extend_from_slice(&prefix.unwrap_or_default().to_le_bytes());
        }
        Self(xxh3_64(&bytes))
    }

    /// The hash of one value, given as the folds of its parts with their lengths.
    pub(super) fn hash(self, value: &[u8]) -> KeyHash {
        KeyHash(xxh3_64_with_seed(value, self.0))
    }
}

/// Names that differ only in case have equal hashes: whether they mean the same table is a setting of the server, and a foreign key
/// may spell a column in any case.
fn hash_names<const N: usize>(names: [&str; N]) -> u64 {
    let mut bytes = Vec::new();
    for name in names {
        for character in name.chars().flat_map(char::to_lowercase) {
            let mut buffer = [0; 4];
            bytes.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
        }
        // No name contains a zero.
        bytes.push(0);
    }
    xxh3_64(&bytes)
}

/// A map by key hash.
pub(crate) type KeyMap<V> = HashMap<KeyHash, V, BuildHasherDefault<KeyHasher>>;

/// 2^64 divided by the golden ratio.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// Keys are hashes already: this only spreads them, for hashes that are small numbers.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The product, folded, so that high and low bits both depend on all input bits.
        let product = u128::from(self.0 ^ number) * u128::from(GOLDEN_RATIO);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn hash(numbers: &[u64]) -> u64 {
        let mut hasher = KeyHasher::default();
        for number in numbers {
            hasher.write_u64(*number);
        }
        hasher.finish()
    }

    fn different(hashes: impl Iterator<Item = u64>) -> usize {
        hashes.collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn any_number_may_be_a_key() {
        let numbers = [0, 1, 2, u64::MAX, u64::MAX / 2];
        assert_eq!(different(numbers.iter().map(|number| hash(&[*number]))), 5);
    }

    /// The standard library's map uses the lowest bits for the bucket, and the highest for its tags.
    #[test]
    fn all_bits_of_a_hash_go_by_all_bits_of_a_key() {
        for shift in [0, 20, 57] {
            let hashes = || (0..128).map(move |number| hash(&[number << shift]));
            for bits in [0, 57] {
                let places = different(hashes().map(|hash| (hash >> bits) & 127));
                assert!(
                    places > 40,
                    "{places} of 128 places, keys from bit {shift}, places from {bits}"
                );
            }
        }
        for bit in 0..64 {
            let ones = (0..1024).filter(|number| hash(&[*number]) >> bit & 1 == 1);
            let ones = ones.count();
            assert!(
                (400..624).contains(&ones),
                "bit {bit} is set in {ones} of 1024"
            );
        }
        // The first number does not hide a second one.
        assert_eq!(different((0..128).map(|number| hash(&[7, number]))), 128);
    }
}
