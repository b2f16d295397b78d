//! When the guard beside a member acts in its place, pure.

use std::time::Duration;

/// The most that counts of the time between two looks. A guard that stood still itself, as the whole machine may have, knows
/// nothing of that time; what its member said meanwhile is read before more of it counts.
pub const MOST_AT_ONCE: Duration = Duration::from_secs(1);

/// How long the guard tries to keep readers off by a statement before it kills the server, where it may.
pub const KILL_AFTER: Duration = Duration::from_secs(5);

/// What comes from the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It goes on, and says whether its server is to be kept from readers when it does not.
    GoesOn {
        /// Clients take the server for the primary, and another member's could become it.
        guards: bool,
    },
    /// It has ended: the line is closed.
    Ended,
}

/// What the guard does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardStep {
    /// Listen on.
    Wait,
    /// Keep ordinary accounts off.
    Fence {
        /// Whether the server is to be killed when that fails.
        or_kill: bool,
    },
    /// Nothing is left to guard.
    End,
}

/// Counts for how long the member has said nothing.
///
/// It acts only on what a member that looked after a primary left behind: a member that never said that it has one, or said
/// last that it has none, is nobody whose readers could see what is old. Acting takes readers away and nothing else, so a guard
/// that is wrong costs sessions and no transaction; a member that goes on takes it back by the same rule as its own fence.
#[derive(Debug, Clone)]
pub struct Silence {
    limit: Duration,
    guards: bool,
    ended: bool,
    silent: Duration,
    acted: bool,
}

impl Silence {
    /// Nothing was heard yet. After `limit` of silence it acts.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            guards: false,
            ended: false,
            silent: Duration::ZERO,
            acted: false,
        }
    }

    /// The member said something.
    pub fn hears(&mut self, word: Word) {
        match word {
            Word::GoesOn { guards } => {
                self.guards = guards;
                self.silent = Duration::ZERO;
                self.acted = false;
            }
            Word::Ended => self.ended = true,
        }
    }

    /// This much has passed since the last look, behind everything that was heard.
    pub fn passes(&mut self, time: Duration) -> GuardStep {
        self.silent += time.min(MOST_AT_ONCE);
        if !self.guards || self.acted {
            return match self.ended {
                true => GuardStep::End,
                false => GuardStep::Wait,
            };
        }
        match self.silent.checked_sub(self.limit) {
            None => GuardStep::Wait,
            Some(over) => GuardStep::Fence {
                or_kill: over >= KILL_AFTER,
            },
        }
    }

    /// Readers are kept off, or nobody can read there.
    pub fn is_done(&mut self) {
        self.acted = true;
    }

    /// Whether the member has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the member's last words are too old to be the usual pause between two.
    pub fn is_silent(&self) -> bool {
        self.ended || self.silent >= MOST_AT_ONCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIMARY: Word = Word::GoesOn { guards: true };
    const REPLICA: Word = Word::GoesOn { guards: false };

    /// What is heard at which second, `.` for waiting, `!` for fencing, `k` for fencing or killing, `e` for the end, a letter a
    /// second.
    fn course(heard: &[(usize, Word)], fenced_at: Option<usize>, seconds: usize) -> String {
        let mut silence = Silence::new(Duration::from_secs(4));
        let mut course = String::new();
        for second in 0..seconds {
            for (_, word) in heard.iter().filter(|(at, _)| *at == second) {
                silence.hears(*word);
            }
            course.push(match silence.passes(Duration::from_secs(1)) {
                GuardStep::Wait => '.',
                GuardStep::Fence { or_kill: false } => '!',
                GuardStep::Fence { or_kill: true } => 'k',
                GuardStep::End => 'e',
            });
            if fenced_at == Some(second) {
                silence.is_done();
            }
        }
        course
    }

    #[test]
    fn who_looked_after_a_primary_and_is_silent_is_acted_for() {
        type Row<'a> = (&'a str, &'a [(usize, Word)], Option<usize>, &'a str);
        let table: &[Row<'_>] = &[
            ("nothing was ever said", &[], None, "......"),
            ("a replica's member hangs", &[(0, REPLICA)], None, "......"),
            (
                "a primary's member hangs",
                &[(0, PRIMARY)],
                Some(3),
                "...!..",
            ),
            (
                "the server does not answer either",
                &[(0, PRIMARY)],
                Some(8),
                "...!!!!!k.",
            ),
            (
                "it goes on in time",
                &[(0, PRIMARY), (3, PRIMARY)],
                None,
                "......!",
            ),
            (
                "it is no primary's any more",
                &[(0, PRIMARY), (3, REPLICA)],
                None,
                ".........",
            ),
            (
                "it went on, and hangs again",
                &[(0, PRIMARY), (5, PRIMARY)],
                Some(3),
                "...!....!",
            ),
            (
                "it ended, and nobody came back",
                &[(0, PRIMARY), (1, Word::Ended)],
                Some(3),
                "...!e",
            ),
            (
                "a replica's member ended",
                &[(0, REPLICA), (1, Word::Ended)],
                None,
                ".e",
            ),
        ];
        for (what, heard, fenced_at, expected) in table {
            assert_eq!(
                &course(heard, *fenced_at, expected.len()),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn time_in_which_the_guard_stood_still_itself_does_not_count() {
        let mut silence = Silence::new(Duration::from_secs(4));
        silence.hears(PRIMARY);
        assert_eq!(silence.passes(Duration::from_secs(600)), GuardStep::Wait);
        silence.hears(PRIMARY);
        assert_eq!(silence.passes(Duration::from_secs(3)), GuardStep::Wait);
    }
}
