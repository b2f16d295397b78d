//! Decides when a leader whose mysqld cannot be the primary transfers the leadership to a database member whose mysqld can. Causes:
//! mysqld's process has ended, only this member's disk for the log is full, or mysqld makes no progress within `demote_after`. Each further
//! transfer by the same member waits longer, so that two members with broken mysqlds do not alternate. A pause disables it. Pure: the
//! member transfers the leadership.

use std::time::Duration;

use raft_types::Term;
use tokio::time::Instant;

use crate::primary_health::PrimaryHealth;

/// Delay after a failed attempt.
const RETRY: Duration = Duration::from_secs(1);
/// Longest delay between two transfers.
const AGAIN_AFTER: Duration = Duration::from_secs(300);

/// The inputs of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemotionFacts {
    /// The term in which this member's mysqld should be the primary.
    pub leads: Option<Term>,
    /// True if an operator has paused failover.
    pub paused: bool,
    /// True if the member's mysqld can be the primary.
    pub health: PrimaryHealth,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Demotion {
    /// Nothing is wrong, or no action is possible.
    Stay,
    /// Something is wrong, and may pass before the deadline.
    Wait {
        /// The fault.
        why: String,
        /// Time until the deadline.
        left: Duration,
    },
    /// Transfer to a member whose mysqld lacks at most `at_most` transactions, if any.
    Transfer {
        /// The fault.
        why: String,
        /// Unlimited at the deadline; before it, a promotion must take less time than catching up here.
        at_most: u64,
    },
}

/// State of the decision.
#[derive(Debug)]
pub struct AutomaticDemotion {
    patience: Duration,
    /// A mysqld that lacks at most this many transactions catches up within moments.
    soon_there: u64,
    /// The term, when progress stopped, and mysqld's smallest lag in transactions.
    stuck: Option<(Term, Instant, u64)>,
    /// Since when this member has not served as the leader.
    silent: Option<Instant>,
    /// The term, and since when mysqld has been fit without interruption.
    sound: Option<(Term, Instant)>,
    given_away: Option<GivenAway>,
    /// Earliest retry after a failed attempt.
    not_before: Option<Instant>,
}

/// Transfers of the leadership since mysqld was last fit for `patience`.
#[derive(Debug, Clone, Copy)]
struct GivenAway {
    last: Instant,
    times: u32,
}

impl GivenAway {
    /// Returns the earliest time of the next transfer. An ended process restarts and recovers without help, and its cause may also reach
    /// the next primary. Other causes may persist, so their delay doubles each time.
    fn not_again_before(self, health: &PrimaryHealth, patience: Duration) -> Instant {
        let pause = match health {
            PrimaryHealth::Down(_) => AGAIN_AFTER,
            // No member transfers back to a member with such a mysqld while another can be the primary.
            PrimaryHealth::Never(_) => Duration::ZERO,
            _ => patience.saturating_mul(2_u32.saturating_pow(self.times)),
        };
        self.last + pause.min(AGAIN_AFTER)
    }
}

impl AutomaticDemotion {
    /// Creates the decision with the operator's patience, and the number of transactions that mysqld applies within moments.
    pub fn new(patience: Duration, soon_there: u64) -> Self {
        Self {
            patience,
            soon_there,
            stuck: None,
            silent: None,
            sound: None,
            given_away: None,
            not_before: None,
        }
    }

    /// Records that no quorum answers, or the term has ended. The time without progress is kept for the term, and does not grow in the
    /// meantime: on a busy machine, the quorum is often silent for a short time.
    pub fn does_not_serve(&mut self, now: Instant) {
        self.sound = None;
        self.silent.get_or_insert(now);
    }

    /// Returns the decision for the moment `now`.
    pub fn decide(&mut self, seen: &DemotionFacts, now: Instant) -> Demotion {
        let why = seen.health.why();
        let lacks = match &seen.health {
            PrimaryHealth::Fit => 0,
            PrimaryHealth::Lacks(lacks) => *lacks,
            _ => u64::MAX,
        };
        self.sound = match (seen.leads, &seen.health, self.sound) {
            (Some(term), PrimaryHealth::Fit, Some((then, since))) if then == term => {
                // The fault is fixed, so the leadership does not alternate.
                if now.saturating_duration_since(since) >= self.patience {
                    (self.given_away, self.not_before) = (None, None);
                }
                Some((then, since))
            }
            (Some(term), PrimaryHealth::Fit, _) => Some((term, now)),
            _ => None,
        };
        let Some(term) = seen.leads else {
            self.does_not_serve(now);
            return Demotion::Stay;
        };
        if let (Some(silent), Some((_, since, _))) = (self.silent.take(), &mut self.stuck) {
            *since += now.saturating_duration_since(silent);
        }
        let Some(why) = why.filter(|_| !seen.paused) else {
            self.stuck = None;
            return Demotion::Stay;
        };
        let (since, least) = match self.stuck {
            // Catching up is progress. A lagging server that becomes unreachable is not progress.
            Some((then, since, least)) if then == term && lacks >= least => (since, least),
            _ => (now, lacks),
        };
        self.stuck = Some((term, since, least));
        // An ended process must recover, which takes longer than a promotion. On a full disk, the reserved space lasts for a short time
        // only. Without an applier, missing entries never arrive.
        let at_once = matches!(
            seen.health,
            PrimaryHealth::Down(_) | PrimaryHealth::Full(_) | PrimaryHealth::Never(_)
        );
        let patience = match at_once {
            true => Duration::ZERO,
            false => self.patience,
        };
        let due = since + patience;
        let again = |given: GivenAway| given.not_again_before(&seen.health, self.patience);
        let again = self.given_away.map(again);
        let not_before = self.not_before.max(again);
        let due = not_before.map_or(due, |not_before| due.max(not_before));
        match due.saturating_duration_since(now) {
            Duration::ZERO => Demotion::Transfer {
                why,
                at_most: u64::MAX,
            },
            _ if lacks > self.soon_there
                && lacks != u64::MAX
                && not_before.is_none_or(|not_before| now >= not_before) =>
            {
                Demotion::Transfer {
                    why,
                    at_most: self.soon_there,
                }
            }
            left => Demotion::Wait { why, left },
        }
    }

    /// Records an attempt, and whether it succeeded.
    pub fn attempted(&mut self, given_away: bool, now: Instant) {
        if given_away {
            let times = self.given_away.map_or(0, |given| given.times);
            let times = times.saturating_add(1);
            self.given_away = Some(GivenAway { last: now, times });
        } else {
            self.not_before = Some(now + RETRY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn seen(term: u64, health: PrimaryHealth) -> DemotionFacts {
        DemotionFacts {
            leads: Some(Term(term)),
            paused: false,
            health,
        }
    }

    fn unable() -> PrimaryHealth {
        PrimaryHealth::Unable("no".to_owned())
    }

    #[test]
    fn a_leader_whose_log_alone_has_no_room_is_demoted_at_once() {
        let mut demotion = AutomaticDemotion::new(PATIENCE, 500);
        let seconds = [
            (0, seen(3, PrimaryHealth::Fit)),
            (1, seen(3, PrimaryHealth::full())),
        ];
        assert_eq!(verdicts(&mut demotion, Instant::now(), &seconds), ".!");
    }

    /// Between the takeover of the primary and of the last follower, and when leaving: other mysqlds may be able to be the primary.
    #[test]
    fn a_leader_that_leaves_its_mysqld_alone_is_demoted() {
        let mut demotion = AutomaticDemotion::new(PATIENCE, 500);
        let left_alone = || seen(3, PrimaryHealth::left_alone());
        let seconds = [(0, left_alone()), (29, left_alone()), (30, left_alone())];
        assert_eq!(verdicts(&mut demotion, Instant::now(), &seconds), "ww!");
    }

    #[test]
    fn a_silence_of_the_quorum_does_not_begin_the_patience_again() {
        let mut demotion = AutomaticDemotion::new(PATIENCE, 500);
        let silent = DemotionFacts {
            leads: None,
            ..seen(3, unable())
        };
        let stuck = || seen(3, unable());
        let seconds = [
            (0, stuck()),
            (20, silent),
            (29, stuck()),
            (38, stuck()),
            (39, stuck()),
            (40, seen(4, unable())),
        ];
        assert_eq!(verdicts(&mut demotion, Instant::now(), &seconds), "w.ww!w");
    }

    #[test]
    fn a_leader_whose_mysqld_gets_nothing_of_the_log_is_demoted_at_once_each_time() {
        let begin = Instant::now();
        let mut demotion = AutomaticDemotion::new(PATIENCE, 500);
        let never = |term| seen(term, PrimaryHealth::Never("nothing is applied".to_owned()));
        let first = [(0, seen(3, PrimaryHealth::Fit)), (1, never(3))];
        assert_eq!(verdicts(&mut demotion, begin, &first), ".!");
        // No member could take the leadership.
        demotion.attempted(false, begin + Duration::from_secs(1));
        let later = [(1, never(3)), (2, never(3))];
        assert_eq!(verdicts(&mut demotion, begin, &later), "w!");
        demotion.attempted(true, begin + Duration::from_secs(6));
        assert_eq!(verdicts(&mut demotion, begin, &[(8, never(5))]), "!");
    }

    fn down() -> PrimaryHealth {
        PrimaryHealth::Down("killed".to_owned())
    }

    /// One decision a second: `.` stays, `w` waits, `o` transfers to a member that lacks few transactions, `!` transfers to any.
    fn verdicts(
        demotion: &mut AutomaticDemotion,
        begin: Instant,
        seconds: &[(u64, DemotionFacts)],
    ) -> String {
        let verdict = |(second, seen): &(u64, DemotionFacts)| match demotion
            .decide(seen, begin + Duration::from_secs(*second))
        {
            Demotion::Stay => '.',
            Demotion::Wait { .. } => 'w',
            Demotion::Transfer {
                at_most: u64::MAX, ..
            } => '!',
            Demotion::Transfer { .. } => 'o',
        };
        seconds.iter().map(verdict).collect()
    }

    #[test]
    fn only_a_leader_whose_mysqld_makes_no_progress_is_demoted() {
        let lacks = PrimaryHealth::Lacks;
        let follower = DemotionFacts {
            leads: None,
            ..seen(3, unable())
        };
        let paused = DemotionFacts {
            paused: true,
            ..seen(3, unable())
        };
        let table = [
            (
                "fit",
                vec![
                    (0, seen(3, PrimaryHealth::Fit)),
                    (99, seen(3, PrimaryHealth::Fit)),
                ],
                "..",
            ),
            (
                "follows",
                vec![(0, follower.clone()), (99, follower.clone())],
                "..",
            ),
            (
                "paused",
                vec![(0, paused.clone()), (99, paused.clone())],
                "..",
            ),
            (
                "unable",
                vec![
                    (0, seen(3, unable())),
                    (29, seen(3, unable())),
                    (30, seen(3, unable())),
                ],
                "ww!",
            ),
            (
                "its process has ended",
                vec![(0, seen(3, PrimaryHealth::Fit)), (1, seen(3, down()))],
                ".!",
            ),
            (
                "it was started again and does not answer",
                vec![(0, seen(3, unable())), (20, seen(3, unable()))],
                "ww",
            ),
            (
                "came to itself in between",
                vec![
                    (0, seen(3, unable())),
                    (20, seen(3, PrimaryHealth::Fit)),
                    (31, seen(3, unable())),
                    (61, seen(3, unable())),
                ],
                "w.w!",
            ),
            (
                "another leadership starts the patience again",
                vec![
                    (0, seen(3, unable())),
                    (31, seen(5, unable())),
                    (61, seen(5, unable())),
                ],
                "ww!",
            ),
            (
                "catches up",
                vec![
                    (0, seen(3, lacks(900))),
                    (29, seen(3, lacks(500))),
                    (58, seen(3, lacks(100))),
                    (87, seen(3, lacks(1))),
                ],
                "owww",
            ),
            (
                "does not catch up, now and then unseen",
                vec![
                    (0, seen(3, lacks(900))),
                    (10, seen(3, unable())),
                    (20, seen(3, lacks(900))),
                    (30, seen(3, lacks(901))),
                ],
                "owo!",
            ),
        ];
        for (what, seconds, expected) in table {
            let begin = Instant::now();
            let mut demotion = AutomaticDemotion::new(PATIENCE, 500);
            assert_eq!(verdicts(&mut demotion, begin, &seconds), expected, "{what}");
        }
    }

    #[test]
    fn it_is_given_away_again_later_each_time() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let mut demotion = AutomaticDemotion::new(PATIENCE, 500);
        assert_eq!(
            verdicts(
                &mut demotion,
                begin,
                &[(0, seen(3, unable())), (30, seen(3, unable()))]
            ),
            "w!"
        );
        // No member could take the leadership: a retry follows after [`RETRY`], without the patience.
        demotion.attempted(false, at(30));
        assert_eq!(
            verdicts(
                &mut demotion,
                begin,
                &[(30, seen(3, unable())), (31, seen(3, unable()))]
            ),
            "w!"
        );
        // The leadership returned, and mysqld is still broken: wait twice the patience, then four times.
        demotion.attempted(true, at(35));
        let back = [
            (40, seen(5, unable())),
            (94, seen(5, unable())),
            (95, seen(5, unable())),
        ];
        assert_eq!(verdicts(&mut demotion, begin, &back), "ww!");
        demotion.attempted(true, at(95));
        let back = [
            (100, seen(7, unable())),
            (214, seen(7, unable())),
            (215, seen(7, unable())),
        ];
        assert_eq!(verdicts(&mut demotion, begin, &back), "ww!");
        // The leadership returned, and mysqld was fit for some time before it broke in a later term.
        demotion.attempted(true, at(215));
        let fit = PrimaryHealth::Fit;
        let repaired = [
            (340, seen(9, fit.clone())),
            (370, seen(9, fit.clone())),
            (371, seen(9, unable())),
            (401, seen(9, unable())),
        ];
        assert_eq!(verdicts(&mut demotion, begin, &repaired), "..w!");
        // A leader waits longer for an ended process, up to the limit.
        demotion.attempted(true, at(401));
        let in_pieces = [
            (410, seen(11, fit.clone())),
            (420, seen(13, fit.clone())),
            (445, seen(13, fit)),
            (446, seen(13, down())),
            (700, seen(13, down())),
            (701, seen(13, down())),
        ];
        assert_eq!(verdicts(&mut demotion, begin, &in_pieces), "...ww!");
    }

    #[test]
    fn the_longest_wait_is_five_minutes() {
        let begin = Instant::now();
        let mut demotion = AutomaticDemotion::new(PATIENCE, 500);
        for _ in 0..40 {
            demotion.attempted(true, begin);
        }
        let seconds = [(270, seen(3, unable())), (300, seen(3, unable()))];
        assert_eq!(verdicts(&mut demotion, begin, &seconds), "w!");
    }
}
