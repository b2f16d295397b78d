//! Evidence that the leader's process has exited: a hint about timing only. With it an election
//! need not wait for missing heartbeats ([`super::early_election`]). Votes and logs decide the election as usual.
//!
//! It takes two signs, and this member must observe both itself. First, the leader has closed all of its connections to this member, as
//! the system does whenever a process ends. Second, the leader's address refuses a new connection, as a system does without a
//! listener. A vanished host gives neither. A broken connection gives only the first: the leader still answers at its address.
//! A firewall in between may give both to the members on the other side.
//!
//! The evidence is about one term, never about a member: a restarted leader leads in a later term or not at all.
//! The first call of that leader discards it.

use std::time::Duration;

use raft_types::{MemberId, Term, Vote};
use tokio::sync::watch;

use crate::engine::RoleSnapshot;

/// The leadership of another member in one term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reign {
    pub(crate) leader: MemberId,
    pub(crate) term: Term,
}

impl Reign {
    /// The one that a member follows, if any.
    pub(crate) fn followed(role: &RoleSnapshot, own: MemberId) -> Option<Self> {
        let leader = role.leader.filter(|leader| *leader != own)?;
        let term = role.term;
        Some(Self { leader, term })
    }

    /// The vote that its leader's calls carry and that every follower has stored.
    pub(crate) fn vote(self) -> Vote {
        Vote::new_committed(self.term.0, self.leader)
    }
}

/// The evidence about the leader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Signs {
    /// It calls, as far as this member knows.
    #[default]
    None,
    /// It has closed its connections; its address has not refused yet.
    HungUp(Reign),
    /// Its address refuses as well.
    Dead(Reign),
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct DeadLeader(watch::Sender<Signs>);

impl DeadLeader {
    pub(crate) fn signs(&self) -> watch::Receiver<Signs> {
        self.0.subscribe()
    }

    /// The leader has closed all its connections.
    pub(crate) fn hung_up(&self, reign: Reign) {
        self.0.send_if_modified(|signs| {
            let news = *signs != Signs::Dead(reign);
            if news {
                *signs = Signs::HungUp(reign);
            }
            news
        });
    }

    /// The address of a leader that closed its connections refuses; it has not called since.
    pub(crate) fn refuses(&self, reign: Reign) {
        self.0.send_if_modified(|signs| {
            let confirmed = *signs == Signs::HungUp(reign);
            if confirmed {
                *signs = Signs::Dead(reign);
            }
            confirmed
        });
    }

    /// This member calls as a leader: it is alive.
    pub(crate) fn calls(&self, caller: MemberId) {
        self.0.send_if_modified(|signs| {
            let alive = match *signs {
                Signs::HungUp(reign) | Signs::Dead(reign) => reign.leader == caller,
                Signs::None => false,
            };
            if alive {
                *signs = Signs::None;
            }
            alive
        });
    }

    /// Whether this leader's process is gone, after at most `patience` for both signs.
    pub(crate) async fn becomes(&self, reign: Reign, patience: Duration) -> bool {
        let mut signs = self.0.subscribe();
        let dead = signs.wait_for(|signs| *signs == Signs::Dead(reign));
        tokio::time::timeout(patience, dead).await.is_ok()
    }

    /// Whether a vote request may bypass the lease granted to the leader: that leader is dead, and the request is for the next term.
    /// No other leader's lease is bypassed, even if this member follows another one before the engine takes the request.
    /// The leader of that next term already has this member's vote, and a leader of a later term makes the request too old.
    pub(crate) fn releases(&self, asked: &Vote) -> bool {
        match *self.0.borrow() {
            Signs::Dead(reign) => !asked.committed && asked.leader_id.term == reign.term.0 + 1,
            Signs::None | Signs::HungUp(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REIGN: Reign = Reign {
        leader: MemberId(1),
        term: Term(7),
    };
    impl DeadLeader {
        fn is(&self, reign: Reign) -> bool {
            *self.0.borrow() == Signs::Dead(reign)
        }
    }

    const NEXT: Reign = Reign {
        leader: MemberId(1),
        term: Term(8),
    };

    #[test]
    fn it_takes_both_signs_in_their_order_about_one_leadership() {
        let leader = DeadLeader::default();
        leader.refuses(REIGN);
        assert!(!leader.is(REIGN), "an address that refuses alone");
        leader.hung_up(REIGN);
        assert!(!leader.is(REIGN), "a connection that broke alone");
        leader.refuses(NEXT);
        assert!(!leader.is(REIGN) && !leader.is(NEXT));
        leader.refuses(REIGN);
        assert!(leader.is(REIGN) && !leader.is(NEXT));
        leader.hung_up(REIGN);
        assert!(leader.is(REIGN), "the last connections are closed later");
        leader.hung_up(NEXT);
        assert!(!leader.is(REIGN) && !leader.is(NEXT));
    }

    #[test]
    fn a_leader_that_calls_is_alive() {
        let leader = DeadLeader::default();
        for dead in [false, true] {
            leader.hung_up(REIGN);
            if dead {
                leader.refuses(REIGN);
            }
            leader.calls(MemberId(2));
            assert_eq!(leader.is(REIGN), dead);
            leader.calls(MemberId(1));
            assert!(!leader.is(REIGN));
            // An answer to an earlier attempt.
            leader.refuses(REIGN);
            assert!(!leader.is(REIGN));
        }
    }

    #[test]
    fn the_lease_is_passed_by_for_the_next_term_alone() {
        let leader = DeadLeader::default();
        let asks = |term| Vote::new(term, MemberId(2));
        leader.hung_up(REIGN);
        assert!(!leader.releases(&asks(8)));
        leader.refuses(REIGN);
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
    async fn who_is_asked_waits_for_the_signs() {
        let leader = DeadLeader::default();
        let patience = Duration::from_millis(100);
        assert!(!leader.becomes(REIGN, patience).await);
        leader.hung_up(REIGN);
        let asked = leader.becomes(REIGN, patience);
        let refused = async {
            tokio::time::sleep(patience / 2).await;
            leader.refuses(REIGN);
        };
        assert!(tokio::join!(asked, refused).0);
    }
}
