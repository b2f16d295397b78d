//! How many whole transactions one session is given at once. One network packet with several is faster than several, but a
//! transaction that another worker could begin now is not to wait behind others.

use crate::run::options::BatchSize;

/// A transaction behind the first of a batch, in the log's order without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Neighbour {
    /// A worker has it already, it is a barrier, or it may not be committed now: the batch ends before it.
    pub(super) ends: bool,
    /// All its rows are safe now.
    pub(super) whole: bool,
    /// A worker could begin it now, at least in part.
    pub(super) ready: bool,
    pub(super) bytes: usize,
}

/// Who else could do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Occasion {
    /// Everything before the first of the batch is committed: what waits for nothing but the batch may follow in it.
    pub(super) at_front: bool,
    /// Other workers without anything to do.
    pub(super) others_free: usize,
    /// Transactions that could be begun now, with the first.
    pub(super) ready: usize,
}

/// How many transactions to take, the first (of `first_bytes`) included.
pub(super) fn length(
    limit: BatchSize,
    first_bytes: usize,
    occasion: Occasion,
    neighbours: impl IntoIterator<Item = Neighbour>,
) -> usize {
    let share = match occasion.others_free {
        0 => limit.transactions,
        others => occasion.ready.div_ceil(others + 1),
    };
    let (mut taken, mut taken_ready, mut bytes) = (1, 1, first_bytes);
    for neighbour in neighbours {
        bytes = bytes.saturating_add(neighbour.bytes);
        let safe_here = neighbour.whole || occasion.at_front;
        let for_others = neighbour.ready && taken_ready >= share;
        if neighbour.ends
            || !safe_here
            || for_others
            || taken >= limit.transactions
            || bytes > limit.bytes
        {
            break;
        }
        taken += 1;
        taken_ready += usize::from(neighbour.ready);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: BatchSize = BatchSize {
        transactions: 4,
        bytes: 100,
    };

    /// Neighbours by letters: `w` whole, `p` ready in part, `.` waits, `x` ends; each has 10 bytes, or as many as follow.
    fn neighbours(text: &str) -> Vec<Neighbour> {
        let one = |word: &str| {
            let (kind, bytes) = word.split_at(1);
            Neighbour {
                ends: kind == "x",
                whole: kind == "w",
                ready: kind == "w" || kind == "p",
                bytes: bytes.parse().unwrap_or(10),
            }
        };
        text.split_whitespace().map(one).collect()
    }

    #[test]
    fn batches_are_as_long_as_they_may_be() {
        // at the front, others that are free, transactions that are ready, neighbours, length
        let table = [
            (
                "nobody else is free: as many as allowed",
                true,
                0,
                9,
                "w w w w w w",
                4,
            ),
            (
                "and whatever waits for them only",
                true,
                0,
                1,
                ". . . . .",
                4,
            ),
            (
                "also one whose first rows alone are safe",
                true,
                0,
                2,
                "p . .",
                4,
            ),
            ("up to one that another worker has", true, 0, 2, "w x w", 2),
            ("bytes count", true, 0, 3, "w60 w60", 2),
            ("a large one is for another batch", true, 0, 3, "w w95 w", 2),
            ("a chain is for nobody else", true, 3, 1, ". . .", 4),
            ("what others can begin is theirs", true, 3, 4, "w w w", 1),
            (
                "unless there is more than they can begin",
                true,
                1,
                8,
                "w w w w w",
                4,
            ),
            ("shares are fair", true, 2, 7, "w w w w", 3),
            ("a chain goes on behind one's share", true, 3, 1, ". p .", 2),
            (
                "behind the front, only what waits for nothing",
                false,
                0,
                3,
                "w . w",
                2,
            ),
            ("not what is safe in part", false, 0, 3, "p w", 1),
            (
                "and there, too, others get their share",
                false,
                1,
                6,
                "w w w w w",
                3,
            ),
        ];
        for (what, at_front, others_free, ready, text, expected) in table {
            let occasion = Occasion {
                at_front,
                others_free,
                ready,
            };
            let taken = length(LIMIT, 10, occasion, neighbours(text));
            assert_eq!(taken, expected, "{what}");
        }
        let alone = Occasion {
            at_front: true,
            others_free: 0,
            ready: 3,
        };
        assert_eq!(length(LIMIT, 500, alone, neighbours("w w")), 1);
    }
}
