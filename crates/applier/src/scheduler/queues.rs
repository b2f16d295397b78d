//! The queues of all keys that somebody uses.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use crate::keys::{KeyAccess, KeyHash};
use crate::scheduler::key_queue::{KeyQueue, RowPlace};
use crate::transaction::Seq;

/// From here on, a map that is nearly empty gives its memory back.
const KEPT_CAPACITY: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Queues {
    by_key: HashMap<KeyHash, KeyQueue, BuildHasherDefault<KeyHasher>>,
}

impl Queues {
    /// Adds a use of a key by the latest transaction. Says whether the row has to wait for it.
    pub(super) fn join(&mut self, at: RowPlace, use_of_key: KeyAccess) -> bool {
        match self.by_key.entry(use_of_key.key) {
            Entry::Occupied(mut queue) => queue.get_mut().join(at, use_of_key.access),
            Entry::Vacant(vacant) => {
                vacant.insert(KeyQueue::new(at, use_of_key.access));
                false
            }
        }
    }

    /// Uses by `seq` are finished, in the order in which they came in. Rows that waited for them go to `released`.
    pub(super) fn leave(&mut self, seq: Seq, keys: &[KeyHash], released: &mut Vec<RowPlace>) {
        for key in keys {
            if let Entry::Occupied(mut queue) = self.by_key.entry(*key)
                && queue.get_mut().leave(seq, released)
            {
                queue.remove();
            }
        }
        if self.by_key.capacity() > KEPT_CAPACITY && self.by_key.len() < self.by_key.capacity() / 8
        {
            self.by_key.shrink_to(self.by_key.len() * 2);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
}

/// 2^64 divided by the golden ratio.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// Keys are hashes already: this only spreads them, for hashes that are small numbers.
#[derive(Debug, Default)]
struct KeyHasher(u64);

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
        // The product, folded, so that high and low bits both depend on all of it.
        let product = u128::from(self.0 ^ number) * u128::from(GOLDEN_RATIO);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_may_be_a_key() {
        let hash = |number: u64| {
            let mut hasher = KeyHasher::default();
            hasher.write_u64(number);
            hasher.finish()
        };
        let hashes = [0, 1, 2, u64::MAX, u64::MAX / 2].map(hash);
        let mut different = hashes.to_vec();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), hashes.len());
    }
}
