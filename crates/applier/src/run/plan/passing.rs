//! Which session may commit in the log's order before the previous commit is answered: the database passes on the turn.
//!
//! ```text
//! session of k      turn k │ COMMIT k ········ force of the log ·│ answer
//!                     └─ told ─┐
//! session of k+1               turn k+1 (waits for k) │ COMMIT k+1 ··│ answer      both share a force
//! ```
//!
//! The database grants k+1 its turn when k is committed in its memory, and refuses it when k failed
//! (`docs/decisions/0032-pass-the-commit-turn-through-one-innodb-row.md`). So k+1 requests its turn only once that of k is known to
//! be taken.

use crate::backend::Turn;
use crate::batch::BatchSeq;

/// The last batch that may be followed before its commit is answered.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// Whether the database supports it.
    pub(super) on: bool,
    /// The last one that has taken its turn and has not failed since.
    last: Option<BatchSeq>,
}

impl Passing {
    /// A batch has taken its turn.
    pub(super) fn taken(&mut self, seq: BatchSeq) {
        self.last = Some(seq);
    }

    /// A batch was rolled back: nothing may follow it, even if it had taken its turn.
    pub(super) fn failed(&mut self, seq: BatchSeq) {
        if self.last == Some(seq) {
            self.last = None;
        }
    }

    /// How a batch commits in its turn, if it does; `base` is the first uncommitted one.
    pub(super) fn turn(&self, seq: BatchSeq, base: BatchSeq) -> Option<Turn> {
        if seq == base {
            return self.on.then_some(Turn::First);
        }
        let before = self.last.map(BatchSeq::next) == Some(seq);
        before.then_some(Turn::Next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_follows_the_one_that_was_taken_last_or_begins_at_the_front() {
        let mut passing = Passing::default();
        assert_eq!(
            passing.turn(BatchSeq(5), BatchSeq(5)),
            None,
            "not available"
        );
        passing.on = true;
        assert_eq!(passing.turn(BatchSeq(5), BatchSeq(5)), Some(Turn::First));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), None);
        passing.taken(BatchSeq(5));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), Some(Turn::Next));
        assert_eq!(passing.turn(BatchSeq(7), BatchSeq(5)), None);
    }

    #[test]
    fn nothing_follows_what_failed() {
        let mut passing = Passing::default();
        passing.taken(BatchSeq(5));
        passing.failed(BatchSeq(6));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), Some(Turn::Next));
        passing.failed(BatchSeq(5));
        assert_eq!(passing.turn(BatchSeq(6), BatchSeq(5)), None);
    }
}
