//! Measures the duration of a takeover of the leadership, phase by phase. It begins when this member loses its leader, and ends when
//! clients may write to its mysqld. A failover and a switchover are the same for this member.

use std::sync::Arc;
use std::time::Duration;

use consensus::{Leadership, Term};
use ring_admin::Member;
use tokio::time::Instant;

use crate::ring_history::note_leadership;
use crate::state::MemberState;

/// A phase of a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakeoverPhase {
    /// From the loss of the known leader to this member's election. There is no such phase if it was elected immediately, as in a
    /// switchover.
    Election,
    /// From the election until the member serves, because an entry of its own term is committed.
    Commit,
    /// From then until clients may write to its mysqld, because missing transactions are applied and ingest is attached.
    Open,
}

/// Observes the duration of each phase when it ends.
pub trait TakeoverObserver: Send + Sync {
    /// Called when a phase has ended.
    fn took(&self, phase: TakeoverPhase, time: Duration);
}

/// The progress of the member's takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takeover {
    /// Another member leads.
    Follows,
    /// No leader is known.
    Leaderless { since: Instant },
    /// The member was elected, and does not serve yet.
    Elected { term: Term, at: Instant },
    /// The member serves, but its mysqld is not open for writes yet.
    Serving { term: Term, at: Instant },
    /// The takeover has ended; no other phase follows in this term.
    Over { term: Term },
}

impl Takeover {
    /// Returns the next state, and the phases that have ended. Pure.
    fn next(
        self,
        seen: Leadership,
        writable: bool,
        now: Instant,
    ) -> (Self, Vec<(TakeoverPhase, Duration)>) {
        let since = match self {
            Self::Leaderless { since } => since,
            _ => now,
        };
        let term = match seen {
            Leadership::Follower { leader: Some(_) } => return (Self::Follows, Vec::new()),
            Leadership::Follower { leader: None } | Leadership::Candidate => {
                return (Self::Leaderless { since }, Vec::new());
            }
            Leadership::LeaderNotServing { term, .. } | Leadership::Serving { term } => term,
        };
        let mut ended = Vec::new();
        let mut state = match self {
            Self::Elected { term: of, .. }
            | Self::Serving { term: of, .. }
            | Self::Over { term: of }
                if of == term =>
            {
                self
            }
            _ => {
                ended.push((TakeoverPhase::Election, now - since));
                Self::Elected { term, at: now }
            }
        };
        if let (Self::Elected { at, .. }, Some(term)) = (state, seen.serving_term()) {
            ended.push((TakeoverPhase::Commit, now - at));
            state = Self::Serving { term, at: now };
        }
        if let (Self::Serving { term, at }, true) = (state, writable) {
            ended.push((TakeoverPhase::Open, now - at));
            state = Self::Over { term };
        }
        (state, ended)
    }
}

impl Takeover {
    /// Returns the entry for the ring's history, if one is due: the term in which this member leads, and whether clients may write.
    fn to_be_noted(self, has_mysqld: bool, now: Instant) -> Option<(Term, bool)> {
        match self {
            Self::Over { term } => Some((term, true)),
            Self::Serving { term, at } => {
                (!has_mysqld || now - at > LONG_CLOSED).then_some((term, false))
            }
            Self::Follows | Self::Leaderless { .. } | Self::Elected { .. } => None,
        }
    }
}

/// If mysqld is still closed after this time, the entry is written without waiting longer.
const LONG_CLOSED: Duration = Duration::from_secs(10);

/// Measures takeovers while polled.
pub(crate) async fn watch_takeovers(
    state: Arc<MemberState>,
    member: Member,
    observer: Option<Arc<dyn TakeoverObserver>>,
) {
    let mut leadership = member.leadership();
    let has_mysqld = state.settings.mysql.is_some();
    let mut noted = None;
    let mut takeover = Takeover::Leaderless {
        since: Instant::now(),
    };
    loop {
        let seen = *leadership.borrow_and_update();
        let next_change = state.next_change();
        let opening = matches!(takeover, Takeover::Serving { .. });
        let management = state.management().filter(|_| opening);
        let writable = management.is_some_and(|management| management.view().writable);
        let (next, ended) = takeover.next(seen, writable, Instant::now());
        takeover = next;
        for (phase, time) in ended {
            if let Some(observer) = &observer {
                observer.took(phase, time);
            }
        }
        if let Some((term, writable)) = takeover.to_be_noted(has_mysqld, Instant::now())
            && noted.replace(term) != Some(term)
        {
            note_leadership(&member, writable);
        }
        let opening = has_mysqld && matches!(takeover, Takeover::Serving { .. });
        tokio::select! {
            changed = leadership.changed() => if changed.is_err() { return },
            () = next_change, if opening => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use consensus::NotServing;
    use raft_types::MemberId;

    use super::*;

    const LEADERLESS: Leadership = Leadership::Follower { leader: None };
    const ANOTHER: Leadership = Leadership::Follower {
        leader: Some(MemberId(2)),
    };

    fn elected(term: u64) -> Leadership {
        Leadership::LeaderNotServing {
            term: Term(term),
            why: NotServing::OwnEntryNotCommitted,
        }
    }

    fn serving(term: u64) -> Leadership {
        Leadership::Serving { term: Term(term) }
    }

    /// Returns the phases that end at each step. A step has a second, the observed leadership, and whether clients may write.
    fn play(steps: &[(u64, Leadership, bool)]) -> Vec<(TakeoverPhase, u64)> {
        let began = Instant::now();
        let mut takeover = Takeover::Leaderless { since: began };
        let mut all = Vec::new();
        for (second, seen, writable) in steps {
            let now = began + Duration::from_secs(*second);
            let (next, ended) = takeover.next(*seen, *writable, now);
            takeover = next;
            all.extend(
                ended
                    .into_iter()
                    .map(|(phase, time)| (phase, time.as_secs())),
            );
        }
        all
    }

    #[test]
    fn a_failover_has_three_phases() {
        let phases = play(&[
            (0, ANOTHER, false),
            (10, LEADERLESS, false),
            (11, Leadership::Candidate, false),
            (13, elected(2), false),
            (14, serving(2), false),
            (18, serving(2), false),
            (19, serving(2), true),
            (30, serving(2), true),
        ]);
        assert_eq!(
            phases,
            [
                (TakeoverPhase::Election, 3),
                (TakeoverPhase::Commit, 1),
                (TakeoverPhase::Open, 5)
            ]
        );
    }

    #[test]
    fn the_history_hears_of_a_leader_when_clients_can_write_or_have_waited_for_long() {
        let at = Instant::now();
        let term = Term(4);
        let serving = Takeover::Serving { term, at };
        let later = at + LONG_CLOSED + Duration::from_secs(1);
        assert_eq!(serving.to_be_noted(true, at), None);
        assert_eq!(serving.to_be_noted(false, at), Some((term, false)));
        assert_eq!(serving.to_be_noted(true, later), Some((term, false)));
        let over = Takeover::Over { term };
        assert_eq!(over.to_be_noted(true, at), Some((term, true)));
        assert_eq!(
            Takeover::Elected { term, at }.to_be_noted(true, later),
            None
        );
    }

    #[test]
    fn in_a_switchover_the_election_takes_no_time() {
        let phases = play(&[(0, ANOTHER, false), (9, elected(2), false)]);
        assert_eq!(phases, [(TakeoverPhase::Election, 0)]);
    }

    #[test]
    fn a_quorum_that_comes_back_and_a_mysqld_that_reopens_are_no_takeover() {
        let phases = play(&[
            (1, serving(2), true),
            (5, elected(2), false),
            (9, serving(2), false),
            (12, serving(2), true),
        ]);
        assert_eq!(phases.len(), 3);
        assert!(
            phases.iter().all(|(_, seconds)| *seconds <= 1),
            "{phases:?}"
        );
    }

    #[test]
    fn a_leader_that_is_elected_again_takes_over_again() {
        let phases = play(&[
            (1, serving(2), true),
            (5, LEADERLESS, false),
            (7, serving(3), false),
            (8, ANOTHER, false),
        ]);
        let again = &phases[3..];
        assert_eq!(
            again,
            [(TakeoverPhase::Election, 2), (TakeoverPhase::Commit, 0)]
        );
    }
}
