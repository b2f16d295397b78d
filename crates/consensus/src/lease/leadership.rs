//! Determines which member leads, as far as this member may rely on it. The engine's role "leader" alone is not enough. A leader serves
//! after it has committed an entry of its own term, and only while a quorum's answers are younger than the lease. This module decides;
//! `observer` supplies the input.

use std::sync::Mutex;
use std::time::Duration;

use openraft::ServerState;
use raft_types::{MemberId, OpId, Term, lock};
use thiserror::Error;
use tokio::time::Instant;

/// The role of this member in its ring at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// The member follows a leader, or waits for one.
    Follower {
        /// The leader, if known.
        leader: Option<MemberId>,
    },
    /// The member requests votes, because it has received no call of a leader for the lease.
    Candidate,
    /// The member was elected, but no client may rely on it now.
    LeaderNotServing {
        /// The term in which it was elected.
        term: Term,
        /// Why it does not serve as the leader.
        why: NotServing,
    },
    /// The member leads with a quorum.
    Serving {
        /// The term in which it was elected. Each proposal names this term.
        term: Term,
    },
}

impl Leadership {
    /// Returns the term in which this member leads, serving or not.
    pub fn leading_term(&self) -> Option<Term> {
        match self {
            Self::LeaderNotServing { term, .. } | Self::Serving { term } => Some(*term),
            Self::Follower { .. } | Self::Candidate => None,
        }
    }

    /// Returns the term in which this member serves as the leader.
    pub fn serving_term(&self) -> Option<Term> {
        match self {
            Self::Serving { term } => Some(*term),
            _ => None,
        }
    }

    /// Returns why this member, which was elected, does not serve; `None` in any other role.
    pub fn not_serving(&self) -> Option<NotServing> {
        match self {
            Self::LeaderNotServing { why, .. } => Some(*why),
            _ => None,
        }
    }
}

/// Why an elected leader does not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotServing {
    /// No entry of the leader's own term is committed yet, so it may not have recorded all committed entries as committed.
    #[error("no entry of its own term is committed yet; wait for a quorum to answer")]
    OwnEntryNotCommitted,
    /// No quorum has answered within the lease, so another member may lead by now.
    #[error("no quorum has answered within the lease; bring voters back")]
    QuorumSilent,
    /// The named member alone is a quorum, or may still be one. The engine lets such a member elect itself immediately, even if it has
    /// promised otherwise to a leader.
    #[error(
        "member {0} alone forms the quorum and could elect itself; make it the leader, or add voters to its set"
    )]
    AnotherAlone(MemberId),
    /// The leader is transferring the leadership to the named member, and accepts no more entries in its term.
    #[error("it is transferring the leadership to member {0}")]
    TransferringTo(MemberId),
}

/// The engine's view of its own role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) role: ServerState,
    pub(crate) term: Term,
    pub(crate) leader: Option<MemberId>,
    pub(crate) committed: Option<OpId>,
    /// How long ago the last call that a quorum has answered was sent; `None` before the first one.
    pub(crate) quorum_age: Option<Duration>,
    /// True if the member is the only voter, and therefore a quorum alone.
    pub(crate) alone: bool,
    /// Another member that is the only voter, or was the only voter before a change that is not committed yet.
    pub(crate) another_alone: Option<MemberId>,
    pub(crate) transferring_to: Option<MemberId>,
}

/// Returns the leadership that follows from an observation. The quorum's last answer counts for `lease`.
pub(crate) fn assess(seen: &Observation, lease: Duration) -> Leadership {
    match seen.role {
        ServerState::Leader => {}
        ServerState::Candidate => return Leadership::Candidate,
        ServerState::Follower | ServerState::Learner | ServerState::Shutdown => {
            return Leadership::Follower {
                leader: seen.leader,
            };
        }
    }
    let term = seen.term;
    let own_committed = seen.committed.is_some_and(|op_id| op_id.term == term.0);
    let answered = seen.alone || seen.quorum_age.is_some_and(|age| age < lease);
    let why = match seen.transferring_to {
        Some(to) => Some(NotServing::TransferringTo(to)),
        None if seen.another_alone.is_some() => seen.another_alone.map(NotServing::AnotherAlone),
        None if !answered => Some(NotServing::QuorumSilent),
        None if !own_committed => Some(NotServing::OwnEntryNotCommitted),
        None => None,
    };
    match why {
        Some(why) => Leadership::LeaderNotServing { term, why },
        None => Leadership::Serving { term },
    }
}

/// When a leader must check its lease again without an event, and what it does then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextLook {
    pub(crate) after: Duration,
    /// True if the quorum's last answer is older than a heartbeat. Then another answer is requested now, so that one late answer does not
    /// end the lease.
    pub(crate) call_now: bool,
}

/// Returns the next check of a leader whose quorum answered `quorum_age` ago.
pub(crate) fn next_look(
    quorum_age: Option<Duration>,
    heartbeat: Duration,
    lease: Duration,
) -> NextLook {
    let step = heartbeat / 4;
    let (after, call_now) = match quorum_age {
        Some(age) if age < heartbeat => (heartbeat - age, false),
        Some(age) if age < lease => (step.min(lease - age), true),
        _ => (step, true),
    };
    NextLook { after, call_now }
}

/// Returns true if a leader, after `silent` without its quorum, sends nothing to its followers at this moment. Members that receive
/// its heartbeats elect no other leader, although they may be able to reach a quorum. So after two leases, the leader is quiet for
/// [`QUIET_LEASES`], which is long enough for an election. Then it calls for the same time, in case no other member could be elected.
pub(crate) fn is_quiet(silent: Duration, lease: Duration) -> bool {
    let Some(past) = silent.checked_sub(lease * 2) else {
        return false;
    };
    let phase = lease * QUIET_LEASES;
    (past.as_nanos() / phase.as_nanos().max(1)).is_multiple_of(2)
}

/// Duration of the quiet time in leases. A follower waits for its lease and a random part of a second one, and then for the answers in two
/// rounds. The rest is for split votes, and for followers with a longer lease.
const QUIET_LEASES: u32 = 4;

// How long this member has led without interruption, as far as the method was called. If a member has never answered this leader, it counts
// as absent only after the leader has waited for it.

/// The time since which this member leads in a term.
#[derive(Debug, Default)]
pub(crate) struct Tenure(Mutex<Option<(Term, Instant)>>);

impl Tenure {
    /// Returns how long this member has been leading in this term, measured from the first call with this term.
    pub(crate) fn led_for(&self, term: Term, now: Instant) -> Duration {
        let mut since = lock(&self.0);
        let known = since.filter(|(of, _)| *of == term);
        let (_, began) = *since.insert(known.unwrap_or((term, now)));
        now - began
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(800);

    fn leading() -> Observation {
        Observation {
            role: ServerState::Leader,
            term: Term(3),
            leader: Some(MemberId(1)),
            committed: Some(OpId::new(3, 10)),
            quorum_age: Some(Duration::from_millis(10)),
            alone: false,
            another_alone: None,
            transferring_to: None,
        }
    }

    fn not_serving(why: NotServing) -> Leadership {
        Leadership::LeaderNotServing { term: Term(3), why }
    }

    #[test]
    fn a_leader_reports_its_right_to_serve() {
        let table = [
            (leading(), Leadership::Serving { term: Term(3) }),
            (
                Observation {
                    committed: Some(OpId::new(2, 10)),
                    ..leading()
                },
                not_serving(NotServing::OwnEntryNotCommitted),
            ),
            (
                Observation {
                    committed: None,
                    ..leading()
                },
                not_serving(NotServing::OwnEntryNotCommitted),
            ),
            (
                Observation {
                    quorum_age: None,
                    ..leading()
                },
                not_serving(NotServing::QuorumSilent),
            ),
            (
                Observation {
                    quorum_age: Some(LEASE),
                    ..leading()
                },
                not_serving(NotServing::QuorumSilent),
            ),
            (
                Observation {
                    quorum_age: None,
                    alone: true,
                    ..leading()
                },
                Leadership::Serving { term: Term(3) },
            ),
            (
                Observation {
                    another_alone: Some(MemberId(4)),
                    ..leading()
                },
                not_serving(NotServing::AnotherAlone(MemberId(4))),
            ),
            (
                Observation {
                    transferring_to: Some(MemberId(2)),
                    ..leading()
                },
                not_serving(NotServing::TransferringTo(MemberId(2))),
            ),
        ];
        for (seen, expected) in table {
            assert_eq!(assess(&seen, LEASE), expected, "{seen:?}");
        }
    }

    #[test]
    fn every_other_role_follows() {
        for role in [
            ServerState::Follower,
            ServerState::Learner,
            ServerState::Shutdown,
        ] {
            let seen = Observation { role, ..leading() };
            let leader = Some(MemberId(1));
            assert_eq!(assess(&seen, LEASE), Leadership::Follower { leader });
        }
        let seen = Observation {
            role: ServerState::Candidate,
            ..leading()
        };
        assert_eq!(assess(&seen, LEASE), Leadership::Candidate);
    }

    #[test]
    fn a_leader_without_a_quorum_is_quiet_for_longer_than_an_election_and_calls_again() {
        let quiet = |leases: u32| is_quiet(LEASE * leases, LEASE);
        let phases: Vec<bool> = (0..12).map(quiet).collect();
        let (calls, keeps_quiet) = ([false; 4], [true; 4]);
        assert_eq!(phases[..2], [false; 2]);
        assert_eq!(phases[2..6], keeps_quiet);
        assert_eq!(phases[6..10], calls);
        assert_eq!(phases[10..], [true; 2]);
    }

    #[test]
    fn a_check_is_due_before_the_end_of_the_lease() {
        let heartbeat = Duration::from_millis(500);
        for age in (0..800).map(Duration::from_millis) {
            let look = next_look(Some(age), heartbeat, LEASE);
            assert!(
                !look.after.is_zero() && age + look.after <= LEASE,
                "{age:?}"
            );
            assert_eq!(look.call_now, age >= heartbeat, "{age:?}");
        }
        assert!(next_look(None, heartbeat, LEASE).call_now);
    }
}

#[cfg(test)]
mod tenure_tests {
    use super::*;

    #[test]
    fn tenure_restarts_with_the_term() {
        let tenure = Tenure::default();
        let minute = Duration::from_secs(60);
        let now = Instant::now();
        assert_eq!(tenure.led_for(Term(3), now), Duration::ZERO);
        assert_eq!(tenure.led_for(Term(3), now + minute), minute);
        assert_eq!(tenure.led_for(Term(4), now + minute), Duration::ZERO);
    }
}
