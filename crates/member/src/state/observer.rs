//! What a member remembers about its ring between two looks: since when the quorum is lost, how often
//! the leader changed, how often it was elected itself.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use consensus::{Leadership, Member};
use raft_types::MemberId;

use super::status_view::has_quorum;

/// How often the quorum is looked at when nothing else happens.
const LOOK: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug)]
pub(crate) struct Observer(Mutex<Memory>);

#[derive(Debug)]
struct Memory {
    quorum_lost: Option<Instant>,
    leader: Option<MemberId>,
    leading_term: u64,
    elections_won: u64,
    leader_changes: u64,
}

/// What is remembered, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) quorum_lost_for: Option<Duration>,
    pub(crate) elections_won: u64,
    pub(crate) leader_changes: u64,
}

impl Observer {
    /// Before the first look there is no quorum.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Memory {
            quorum_lost: Some(Instant::now()),
            leader: None,
            leading_term: 0,
            elections_won: 0,
            leader_changes: 0,
        }))
    }

    /// Looks whenever the leadership changes, and once in a while, for as long as it is polled.
    pub(crate) async fn observe(&self, member: Member) {
        let mut leadership = member.leadership();
        loop {
            let now = *leadership.borrow_and_update();
            self.note_leadership(now, member.id());
            self.note_quorum(has_quorum(&member.status()));
            let changed = tokio::time::timeout(LOOK, leadership.changed()).await;
            if matches!(changed, Ok(Err(_))) {
                self.note_quorum(false);
                return;
            }
        }
    }

    /// What is remembered now.
    pub(crate) fn remembered(&self) -> Remembered {
        let memory = self.lock();
        Remembered {
            quorum_lost_for: memory.quorum_lost.map(|since| since.elapsed()),
            elections_won: memory.elections_won,
            leader_changes: memory.leader_changes,
        }
    }

    fn note_quorum(&self, ok: bool) {
        let mut memory = self.lock();
        memory.quorum_lost = match (ok, memory.quorum_lost) {
            (true, _) => None,
            (false, Some(since)) => Some(since),
            (false, None) => Some(Instant::now()),
        };
    }

    fn note_leadership(&self, now: Leadership, own: MemberId) {
        let mut memory = self.lock();
        let leader = match now {
            Leadership::Follower { leader } => leader,
            Leadership::Candidate => None,
            Leadership::LeaderNotServing { .. } | Leadership::Serving { .. } => Some(own),
        };
        if let Some(term) = now.leading_term()
            && term.0 > memory.leading_term
        {
            memory.leading_term = term.0;
            memory.elections_won += 1;
        }
        // Between two leaders there is often none; that alone is no change.
        if leader.is_some() && leader != memory.leader {
            if memory.leader.is_some() {
                memory.leader_changes += 1;
            }
            memory.leader = leader;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // Each field stands for itself, so whatever a panic left behind is as good as before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use consensus::Term;

    use super::*;

    const OWN: MemberId = MemberId(1);

    fn follows(leader: Option<u64>) -> Leadership {
        Leadership::Follower {
            leader: leader.map(MemberId),
        }
    }

    #[test]
    fn changes_of_the_leader_are_counted_once() {
        let observer = Observer::new();
        let serving = Leadership::Serving { term: Term(4) };
        let steps = [
            follows(None),
            follows(Some(2)),
            follows(None),
            follows(Some(2)),
            serving,
            serving,
        ];
        for step in steps {
            observer.note_leadership(step, OWN);
        }
        let seen = observer.remembered();
        assert_eq!((seen.leader_changes, seen.elections_won), (1, 1));
        observer.note_leadership(follows(Some(3)), OWN);
        observer.note_leadership(Leadership::Serving { term: Term(6) }, OWN);
        let seen = observer.remembered();
        assert_eq!((seen.leader_changes, seen.elections_won), (3, 2));
    }

    #[test]
    fn a_lost_quorum_has_an_age_until_it_is_back() {
        let observer = Observer::new();
        assert!(observer.remembered().quorum_lost_for.is_some());
        observer.note_quorum(true);
        assert_eq!(observer.remembered().quorum_lost_for, None);
        observer.note_quorum(false);
        let first = observer.remembered().quorum_lost_for.unwrap();
        std::thread::sleep(Duration::from_millis(5));
        observer.note_quorum(false);
        assert!(observer.remembered().quorum_lost_for.unwrap() > first);
    }
}
