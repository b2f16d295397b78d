//! Detects conflicts between rows, with one queue for each key. A queue has the uses of the key in the log's order. Compatible
//! uses form a group. As far as this key is concerned, the uses of the first group are safe to execute.
//!
//! ```text
//! head: Shared {T1 row 0, T2 row 3}     later: Exclusive {T2 row 7} | Shared {T3 row 0, T4 row 1} | Exclusive {T5 row 0}
//! ```
//!
//! A transaction never waits for itself. In the picture, row 7 of T2 is safe as soon as T1 is committed.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use crate::batch::BatchSeq;
use crate::keys::{Access, KeyAccess, KeyHash, KeyMap};

/// A row of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowPlace {
    pub(super) seq: BatchSeq,
    pub(super) row: u32,
}

/// Compatible uses of a key. All uses in an exclusive group are of one transaction.
#[derive(Debug)]
struct Group {
    access: Access,
    /// Number of uses by uncommitted transactions.
    unfinished: u32,
    /// The latest transaction in the group, and how many of the unfinished uses are of this transaction.
    newest: BatchSeq,
    newest_unfinished: u32,
    /// Rows that wait for the groups before this one.
    waiting: Vec<RowPlace>,
}

impl Group {
    fn of(at: RowPlace, access: Access, waits: bool) -> Self {
        let mut group = Self {
            access,
            unfinished: 0,
            newest: at.seq,
            newest_unfinished: 0,
            waiting: Vec::new(),
        };
        group.enter(at, waits);
        group
    }

    fn enter(&mut self, at: RowPlace, waits: bool) {
        if self.newest != at.seq {
            self.newest = at.seq;
            self.newest_unfinished = 0;
        }
        self.unfinished += 1;
        self.newest_unfinished += 1;
        if waits {
            self.waiting.push(at);
        }
    }

    /// True if all unfinished uses are of the newest transaction.
    fn is_of_its_newest_alone(&self) -> bool {
        self.unfinished == self.newest_unfinished
    }
}

/// The queue of one key.
#[derive(Debug)]
pub(super) struct KeyQueue {
    head: Group,
    later: VecDeque<Group>,
}

impl KeyQueue {
    /// Adds a use by the latest transaction, whose rows arrive in order. Returns whether the row must wait.
    pub(super) fn join(&mut self, at: RowPlace, access: Access) -> bool {
        let tail_is_head = self.later.is_empty();
        let tail = self.later.back_mut().unwrap_or(&mut self.head);
        // True if an earlier row of the same transaction is in this group. That row already waits for everything before the
        // group.
        let own = tail.newest == at.seq;
        let (joins, waits) = match (tail.access, access) {
            (Access::Shared, Access::Shared) => (true, !tail_is_head && !own),
            (Access::Exclusive, Access::Exclusive) if own => (true, false),
            (Access::Exclusive, Access::Shared) => (false, !own),
            (Access::Shared, Access::Exclusive) => (false, !(own && tail.is_of_its_newest_alone())),
            (Access::Exclusive, Access::Exclusive) => (false, true),
        };
        if joins {
            tail.enter(at, waits);
        } else {
            self.later.push_back(Group::of(at, access, waits));
        }
        waits
    }

    /// Ends one use by the committed `seq`, which is in the first group. Appends rows that no longer wait for this key to
    /// `released`. Returns whether the queue is empty; the caller must then drop it.
    pub(super) fn leave(&mut self, seq: BatchSeq, released: &mut Vec<RowPlace>) -> bool {
        let head = &mut self.head;
        head.unfinished = head.unfinished.saturating_sub(1);
        if head.newest == seq {
            head.newest_unfinished = head.newest_unfinished.saturating_sub(1);
        }
        if head.unfinished == 0 {
            let Some(next) = self.later.pop_front() else {
                return true;
            };
            self.head = next;
            released.append(&mut self.head.waiting);
        } else if head.is_of_its_newest_alone()
            && let Some(next) = self.later.front_mut()
            && next.newest == head.newest
            && next.access == Access::Exclusive
        {
            released.append(&mut next.waiting);
        }
        false
    }
}

// The queues of all keys in use.

/// A map with a larger capacity than this shrinks when it is nearly empty.
const KEPT_CAPACITY: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) by_key: KeyMap<KeyQueue>,
}

impl Queues {
    /// Adds a use of a key by the latest transaction. Returns whether the row must wait for it.
    pub(super) fn join(&mut self, at: RowPlace, use_of_key: KeyAccess) -> bool {
        match self.by_key.entry(use_of_key.key) {
            Entry::Occupied(mut queue) => queue.get_mut().join(at, use_of_key.access),
            Entry::Vacant(vacant) => {
                // The first use waits for nothing.
                vacant.insert(KeyQueue {
                    head: Group::of(at, use_of_key.access, false),
                    later: VecDeque::new(),
                });
                false
            }
        }
    }

    /// Ends the uses of `keys` by the committed `seq`, in the order in which the uses arrived. Appends rows that no longer wait
    /// to `released`.
    pub(super) fn leave(&mut self, seq: BatchSeq, keys: &[KeyHash], released: &mut Vec<RowPlace>) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the map's capacity after this many keys, most of which are no longer in use.
    fn capacity_behind(keys: usize) -> usize {
        let mut queues = Queues::default();
        let seq = BatchSeq(1);
        let all: Vec<_> = (0..keys as u64).map(KeyHash).collect();
        for key in &all {
            let use_of_key = KeyAccess {
                key: *key,
                access: Access::Exclusive,
            };
            queues.join(RowPlace { seq, row: 0 }, use_of_key);
        }
        queues.leave(seq, &all[10..], &mut Vec::new());
        queues.by_key.capacity()
    }

    #[test]
    fn a_large_key_map_releases_memory_and_a_small_one_keeps_it() {
        let most = capacity_behind(4 * KEPT_CAPACITY);
        assert!(most <= KEPT_CAPACITY, "{most}");
        assert!(capacity_behind(1000) >= 1000);
    }
}
