//! Who used a key last.

use std::collections::HashMap;

use crate::keys::{Access, KeyAccess, KeyHash};

/// When something is done, by each measure; each of them only ever grows along a chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moment {
    /// The transaction's level: one more than the highest that it waits for.
    pub(super) level: u64,
    /// Row writes up to the end of the transaction, when transactions wait as a whole.
    pub(super) transaction_end: u64,
    /// Row writes up to this row's, when rows wait for rows.
    pub(super) row_end: u64,
}

impl Moment {
    /// The later one, by each measure for itself.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            level: self.level.max(other.level),
            transaction_end: self.transaction_end.max(other.transaction_end),
            row_end: self.row_end.max(other.row_end),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Use {
    exclusive: Moment,
    shared: Moment,
}

/// The last uses of the keys that are remembered. When there are too many, the older half is forgotten: whatever uses one of
/// those waits for all of them.
#[derive(Debug)]
pub(super) struct LastUses {
    uses: HashMap<KeyHash, Use>,
    limit: usize,
    /// All that is not remembered is done at this moment.
    floor: Moment,
    forgotten: u64,
}

impl LastUses {
    /// Remembers so many keys.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            uses: HashMap::new(),
            limit: limit.max(2),
            floor: Moment::default(),
            forgotten: 0,
        }
    }

    /// What a use of a key waits for.
    pub(super) fn before(&self, key: KeyAccess) -> Moment {
        let Some(last) = self.uses.get(&key.key) else {
            return self.floor;
        };
        let before = match key.access {
            Access::Shared => last.exclusive,
            Access::Exclusive => last.exclusive.max(last.shared),
        };
        before.max(self.floor)
    }

    /// Notes a use.
    pub(super) fn note(&mut self, key: KeyAccess, at: Moment) {
        let last = self.uses.entry(key.key).or_default();
        let place = match key.access {
            Access::Shared => &mut last.shared,
            Access::Exclusive => &mut last.exclusive,
        };
        *place = place.max(at);
        if self.uses.len() > self.limit {
            self.forget();
        }
    }

    /// Forgets all uses, since nothing waits for them any more.
    pub(super) fn clear(&mut self) {
        self.uses.clear();
        self.floor = Moment::default();
    }

    /// How many keys were forgotten for want of room.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn forget(&mut self) {
        let mut levels: Vec<u64> = self.uses.values().map(Use::level).collect();
        let middle = levels.len() / 2;
        let (_, median, _) = levels.select_nth_unstable(middle);
        let median = *median;
        let mut floor = self.floor;
        let before = self.uses.len();
        self.uses.retain(|_, last| {
            let stays = last.level() > median;
            if !stays {
                floor = floor.max(last.exclusive).max(last.shared);
            }
            stays
        });
        self.floor = floor;
        self.forgotten += (before - self.uses.len()) as u64;
    }
}

impl Use {
    fn level(&self) -> u64 {
        self.exclusive.level.max(self.shared.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64, access: Access) -> KeyAccess {
        KeyAccess {
            key: KeyHash(number),
            access,
        }
    }

    fn at(level: u64) -> Moment {
        Moment {
            level,
            transaction_end: level * 2,
            row_end: level,
        }
    }

    #[test]
    fn shared_uses_wait_for_exclusive_ones_only() {
        let mut uses = LastUses::new(10);
        uses.note(key(1, Access::Shared), at(5));
        assert_eq!(uses.before(key(1, Access::Shared)), Moment::default());
        assert_eq!(uses.before(key(1, Access::Exclusive)), at(5));
        uses.note(key(1, Access::Exclusive), at(3));
        assert_eq!(uses.before(key(1, Access::Shared)), at(3));
        assert_eq!(uses.before(key(1, Access::Exclusive)), at(5));
    }

    #[test]
    fn what_is_forgotten_is_waited_for_all_the_same() {
        let mut uses = LastUses::new(100);
        for number in 1..=1000 {
            uses.note(key(number, Access::Exclusive), at(number));
            assert!(uses.uses.len() <= 100);
            for earlier in 1..=number {
                let before = uses.before(key(earlier, Access::Exclusive));
                assert!(before.level >= earlier && before.level <= number);
            }
        }
        assert!(uses.forgotten() > 800);
    }
}
