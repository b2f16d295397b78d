//! Evidence that the leader's process has exited. It affects only the time of an election: the election then need not wait for missing
//! heartbeats ([`super::early_election`]). Votes and logs decide the election as usual.
//!
//! The evidence has two parts, and this member must observe both itself. First, the leader has closed all of its connections to this
//! member, as the operating system does when a process ends. Second, the leader's address refuses a new connection, as the operating system
//! does without a listener. If a host fails, neither is observed. If a connection breaks, only the first is observed: the leader still
//! answers at its address. A firewall between the leader and a member may make the member observe both.
//!
//! The evidence is valid for one term only: a restarted leader leads in a later term or not at all. The first call of that leader discards
//! the evidence.

use std::sync::Mutex;
use std::time::Duration;

use raft_types::{MemberId, Term, Vote, lock};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::engine::RoleSnapshot;

/// The leadership of another member in one term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedTerm {
    /// The member that leads or led.
    pub leader: MemberId,
    /// The term of that leadership.
    pub term: Term,
}

impl LedTerm {
    /// Returns the leadership that a member follows, if any.
    pub(crate) fn followed(role: &RoleSnapshot, own: MemberId) -> Option<Self> {
        let leader = role.leader.filter(|leader| *leader != own)?;
        let term = role.term;
        Some(Self { leader, term })
    }

    /// Returns the vote that the leader's calls carry and that every follower has stored.
    pub(crate) fn vote(self) -> Vote {
        Vote::new_committed(self.term.0, self.leader)
    }
}

/// The evidence about the leader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ExitEvidence {
    /// The leader calls, or no other state was observed.
    #[default]
    None,
    /// The leader has closed its connections; its address has not refused a connection yet.
    HungUp(LedTerm),
    /// The leader's address refuses connections as well.
    Exited(LedTerm),
}

/// Holds the evidence about the leader: see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct LeaderExit(watch::Sender<ExitEvidence>);

impl LeaderExit {
    pub(crate) fn evidence(&self) -> watch::Receiver<ExitEvidence> {
        self.0.subscribe()
    }

    /// Changes the evidence to `to` if `applies` is true for the present evidence.
    fn change(&self, to: ExitEvidence, applies: impl FnOnce(ExitEvidence) -> bool) {
        self.0.send_if_modified(|evidence| {
            let changes = applies(*evidence);
            if changes {
                *evidence = to;
            }
            changes
        });
    }

    /// Records that the leader has closed all its connections.
    pub(crate) fn hung_up(&self, led: LedTerm) {
        let is_news = |known| known != ExitEvidence::Exited(led);
        self.change(ExitEvidence::HungUp(led), is_news);
    }

    /// Records that the leader's address refuses connections. Ignored if the leader has called since it closed its connections.
    pub(crate) fn refuses(&self, led: LedTerm) {
        let is_confirmed = |known| known == ExitEvidence::HungUp(led);
        self.change(ExitEvidence::Exited(led), is_confirmed);
    }

    /// Records that this member calls as a leader, so it is alive.
    pub(crate) fn calls(&self, caller: MemberId) {
        self.change(ExitEvidence::None, |known| match known {
            ExitEvidence::HungUp(led) | ExitEvidence::Exited(led) => led.leader == caller,
            ExitEvidence::None => false,
        });
    }

    /// Returns true if this leader's process has exited; waits at most `patience` for both parts of the evidence.
    pub(crate) async fn becomes(&self, led: LedTerm, patience: Duration) -> bool {
        let mut evidence = self.0.subscribe();
        let dead = evidence.wait_for(|evidence| *evidence == ExitEvidence::Exited(led));
        tokio::time::timeout(patience, dead).await.is_ok()
    }

    /// Returns true if a vote request may bypass the lease that was granted to the leader. The leader's process must have exited, and the
    /// request must be for the next term. No other leader's lease is bypassed, even if this member follows another leader before the engine
    /// receives the request. A leader of that next term already has this member's vote. With a leader of a later term, the request is too
    /// old.
    pub(crate) fn releases(&self, asked: &Vote) -> bool {
        match *self.0.borrow() {
            ExitEvidence::Exited(led) => !asked.committed && asked.leader_id.term == led.term.0 + 1,
            ExitEvidence::None | ExitEvidence::HungUp(_) => false,
        }
    }
}

// One member's attempt at an early election ([`super::early_election`]), and its promises of a vote. A promise excludes an own attempt.

/// The progress of this member's own attempt, and the member to which it yields. If two members ask each other concurrently, the member
/// with the earlier turn proceeds and the other one yields. Otherwise they would split the votes.
#[derive(Debug, Default)]
pub(crate) struct EarlyAttempt(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    stage: Stage,
    /// The time until which another member goes first. This member has promised its vote to that member.
    gives_way_until: Option<Instant>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    Asks,
    Campaigns,
}

impl EarlyAttempt {
    /// Waits until no other member goes first, then begins to ask for votes.
    pub(crate) async fn begin(&self) -> Attempt<'_> {
        loop {
            let until = {
                let mut progress = lock(&self.0);
                let until = progress.gives_way_until;
                let Some(until) = until.filter(|until| *until > Instant::now()) else {
                    (progress.stage, progress.gives_way_until) = (Stage::Asks, None);
                    return Attempt(self);
                };
                until
            };
            tokio::time::sleep_until(until).await;
        }
    }

    /// Promises the vote to another member until `until`. Returns false if this member campaigns already, or asks for votes itself and has
    /// the earlier turn.
    pub(crate) fn promise(&self, is_ahead: bool, until: Instant) -> bool {
        let mut progress = lock(&self.0);
        let may = match progress.stage {
            Stage::None => true,
            Stage::Asks => !is_ahead,
            Stage::Campaigns => false,
        };
        if may {
            progress.gives_way_until = Some(until);
        }
        may
    }
}

/// A running attempt. It ends when it is dropped.
pub(crate) struct Attempt<'a>(&'a EarlyAttempt);

impl Attempt<'_> {
    /// Returns true if the vote has been promised to no member since the start of the attempt. Then it can no longer be promised.
    pub(crate) fn goes_on(&self) -> bool {
        let mut progress = lock(&self.0.0);
        let goes_on = progress.gives_way_until.is_none();
        if goes_on {
            progress.stage = Stage::Campaigns;
        }
        goes_on
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        lock(&self.0.0).stage = Stage::None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LED_TERM: LedTerm = LedTerm {
        leader: MemberId(1),
        term: Term(7),
    };
    impl LeaderExit {
        fn is(&self, led: LedTerm) -> bool {
            *self.0.borrow() == ExitEvidence::Exited(led)
        }
    }

    const NEXT: LedTerm = LedTerm {
        leader: MemberId(1),
        term: Term(8),
    };

    #[test]
    fn both_signs_in_order_for_one_term_are_needed() {
        let leader = LeaderExit::default();
        leader.refuses(LED_TERM);
        assert!(!leader.is(LED_TERM), "an address that refuses alone");
        leader.hung_up(LED_TERM);
        assert!(!leader.is(LED_TERM), "a connection that broke alone");
        leader.refuses(NEXT);
        assert!(!leader.is(LED_TERM) && !leader.is(NEXT));
        leader.refuses(LED_TERM);
        assert!(leader.is(LED_TERM) && !leader.is(NEXT));
        leader.hung_up(LED_TERM);
        assert!(leader.is(LED_TERM), "the last connections are closed later");
        leader.hung_up(NEXT);
        assert!(!leader.is(LED_TERM) && !leader.is(NEXT));
    }

    #[test]
    fn a_leader_that_calls_is_alive() {
        let leader = LeaderExit::default();
        for dead in [false, true] {
            leader.hung_up(LED_TERM);
            if dead {
                leader.refuses(LED_TERM);
            }
            leader.calls(MemberId(2));
            assert_eq!(leader.is(LED_TERM), dead);
            leader.calls(MemberId(1));
            assert!(!leader.is(LED_TERM));
            // The refusal belongs to an earlier connection attempt.
            leader.refuses(LED_TERM);
            assert!(!leader.is(LED_TERM));
        }
    }

    #[test]
    fn the_lease_is_bypassed_for_the_next_term_only() {
        let leader = LeaderExit::default();
        let asks = |term| Vote::new(term, MemberId(2));
        leader.hung_up(LED_TERM);
        assert!(!leader.releases(&asks(8)));
        leader.refuses(LED_TERM);
        assert!(leader.releases(&asks(8)));
        for (vote, why) in [
            (asks(7), "its own term"),
            (asks(9), "in between another one may have been elected"),
            (Vote::new_committed(8, MemberId(2)), "no request for a vote"),
        ] {
            assert!(!leader.releases(&vote), "{why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_asked_voter_waits_for_the_signs() {
        let leader = LeaderExit::default();
        let patience = Duration::from_millis(100);
        assert!(!leader.becomes(LED_TERM, patience).await);
        leader.hung_up(LED_TERM);
        let asked = leader.becomes(LED_TERM, patience);
        let refused = async {
            tokio::time::sleep(patience / 2).await;
            leader.refuses(LED_TERM);
        };
        assert!(tokio::join!(asked, refused).0);
    }
}

#[cfg(test)]
mod early_attempt_tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_of_two_concurrent_attempts_proceeds() {
        let (first, second) = (EarlyAttempt::default(), EarlyAttempt::default());
        let until = Instant::now() + Duration::from_millis(100);
        let (own, others) = (first.begin().await, second.begin().await);
        assert!(!first.promise(true, until), "it is ahead");
        assert!(second.promise(false, until), "it is not");
        assert!(own.goes_on() && !others.goes_on());
        assert!(!first.promise(false, until), "it campaigns");
        drop((own, others));
        // The yielding member waits.
        let again = second.begin().await;
        assert!(Instant::now() >= until && again.goes_on());
        // A member that does not ask for votes promises its vote, regardless of the turns.
        assert!(first.promise(true, Instant::now() + Duration::from_millis(10)));
    }
}
