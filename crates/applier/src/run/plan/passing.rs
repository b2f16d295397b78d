//! Who may commit in the log's order before the commit before it is answered: the database passes on the turn.
//!
//! ```text
//! session of k      turn k │ COMMIT k ········ force of the log ·│ answer
//!                     └─ told ─┐
//! session of k+1               turn k+1 (waits for k) │ COMMIT k+1 ··│ answer      both share a force
//! ```
//!
//! The database lets k+1 have its turn when k is committed in its memory, and refuses it when k failed
//! (`docs/decisions/0032-the-turn-to-commit-is-a-row.md`). So k+1 is only asked when the turn of k is known to be taken.

use crate::backend::Turn;
use crate::transaction::Seq;

/// See the module. Off at first, and where the database cannot do it.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// The database can do it.
    pub(super) available: bool,
    /// The first transaction begins a chain.
    on: bool,
    /// The last one that has taken its turn and has not failed since.
    last: Option<Seq>,
}

impl Passing {
    /// Whether the first transaction is to begin a chain.
    pub(super) fn set_on(&mut self, on: bool) {
        self.on = on && self.available;
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// A transaction has taken its turn.
    pub(super) fn taken(&mut self, seq: Seq) {
        self.last = Some(seq);
    }

    /// A transaction was rolled back: nothing may follow it, whatever it had taken.
    pub(super) fn failed(&mut self, seq: Seq) {
        if self.last == Some(seq) {
            self.last = None;
        }
    }

    /// How a transaction commits in its turn, if it is to; `base` is the first that is not committed.
    pub(super) fn turn(&self, seq: Seq, base: Seq) -> Option<Turn> {
        if seq == base {
            return self.on.then_some(Turn::First);
        }
        // One that has begun to wait for its turn is not left behind when the others go another way.
        let before = self.last.map(Seq::next) == Some(seq);
        before.then_some(Turn::Next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_follows_the_one_that_was_taken_last_or_begins_at_the_front() {
        let mut passing = Passing::default();
        passing.set_on(true);
        assert_eq!(passing.turn(Seq(5), Seq(5)), None, "not available");
        passing.available = true;
        passing.set_on(true);
        assert_eq!(passing.turn(Seq(5), Seq(5)), Some(Turn::First));
        assert_eq!(passing.turn(Seq(6), Seq(5)), None);
        passing.taken(Seq(5));
        assert_eq!(passing.turn(Seq(6), Seq(5)), Some(Turn::Next));
        assert_eq!(passing.turn(Seq(7), Seq(5)), None);
        passing.set_on(false);
        assert_eq!(passing.turn(Seq(6), Seq(5)), Some(Turn::Next));
        assert_eq!(passing.turn(Seq(6), Seq(6)), None);
    }

    #[test]
    fn nothing_follows_what_failed() {
        let mut passing = Passing::default();
        passing.taken(Seq(5));
        passing.failed(Seq(6));
        assert_eq!(passing.turn(Seq(6), Seq(5)), Some(Turn::Next));
        passing.failed(Seq(5));
        assert_eq!(passing.turn(Seq(6), Seq(5)), None);
    }
}
