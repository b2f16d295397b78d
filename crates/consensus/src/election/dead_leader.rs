//! What this member knows of the death of its leader's process: a hint about time, and about nothing else. With it an election
//! need not wait for missing heartbeats ([`super::early_election`]); who is elected, votes and logs decide as ever.
//!
//! Two signs make it, and this member has to see both itself. The leader has closed all of its connections to this member, as the
//! system does for a process that ends, however it ends; and the leader's address refuses a new one, as a system does where
//! nothing listens. A host that vanished gives neither. A connection that broke gives the first alone: the leader is there, and
//! answers at its address. A firewall in between may give both, to those who are behind it.
//!
//! It is known of one leadership, never of a member as such: whoever was started again leads in a later term or not at all. And
//! it is forgotten at the first call of that leader.

use std::time::Duration;

use raft_types::{MemberId, Vote};
use tokio::sync::watch;

use crate::engine::RoleSnapshot;
use crate::lease::leadership::Term;

/// A leadership of another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reign {
    pub(crate) leader: MemberId,
    pub(crate) term: Term,
}

impl Reign {
    /// The one that a member follows, if it follows any.
    pub(crate) fn followed(role: &RoleSnapshot, own: MemberId) -> Option<Self> {
        let leader = role.leader.filter(|leader| *leader != own)?;
        let term = role.term;
        Some(Self { leader, term })
    }

    /// What its leader's calls carry, and whoever took one has stored.
    pub(crate) fn vote(self) -> Vote {
        Vote::new_committed(self.term.0, self.leader)
    }
}

/// What is known of the leader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Signs {
    /// It calls, as far as anybody knows.
    #[default]
    None,
    /// It has closed its connections; its address was not found to refuse yet.
    HungUp(Reign),
    /// Its address refuses as well.
    Dead(Reign),
}

/// See the module.
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

    /// The address of a leader that hung up refuses; it has not called since.
    pub(crate) fn refuses(&self, reign: Reign) {
        self.0.send_if_modified(|signs| {
            let confirmed = *signs == Signs::HungUp(reign);
            if confirmed {
                *signs = Signs::Dead(reign);
            }
            confirmed
        });
    }

    /// This member calls as a leader does: it is alive.
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

    /// Whether this leader's process is gone, once both signs had the time to come.
    pub(crate) async fn becomes(&self, reign: Reign, patience: Duration) -> bool {
        let mut signs = self.0.subscribe();
        let dead = signs.wait_for(|signs| *signs == Signs::Dead(reign));
        tokio::time::timeout(patience, dead).await.is_ok()
    }

    /// Whether a request for a vote may pass by the lease that this member granted to its leader: that one is dead, and the term
    /// asked for is the very next one. So no other leader's lease can be passed by, whoever is followed by the time the engine
    /// takes the request: the leader of that very term has this member's vote already, and one of a later term makes the request too
    /// old.
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
