//! When a member takes part in elections. The engine campaigns when its timer expires, within the limits set at its start ([`Timers`]).
//! This module allows and forbids these campaigns. It forbids them:
//!
//! - while the end of the log is in doubt, or the ring has committed more than this member has (both in [`super::vote_gate`]),
//! - while the member's supervisor forbids campaigns,
//! - while another candidate goes first after a split vote ([`super::candidate_order`]),
//! - for a time after the start, because the member may have granted a lease before its restart.
//!
//! A campaign that a leader orders arrives through [`Inbound`](crate::Inbound). A campaign without a timer, because the leader's process
//! has exited, is in [`super::early_election`].
//!
//! # The forgotten lease
//!
//! A member that answers a leader's heartbeat promises to elect no other leader for one lease. The leader serves on that promise
//! (`lease::promise`). The engine keeps the promise in memory only. A voter that is killed and restarts within the lease would elect
//! another leader while the first one still serves. So after its start, a member waits for the longest lease that it has promised. Until
//! then, it does not vote, agree to a pre-vote or campaign.
//!
//! One lease is long enough: the promise was made before the start, and counts from the time when the heartbeat was sent. A vote request of
//! a leadership transfer is answered immediately. The leader that ordered it has ended its own lease, and all earlier leases had ended when
//! that leader was elected. A member that never had a log has promised nothing.
//!
//! Vote requests are delayed, not refused, because members that start together after a power failure all wait. The first candidate then
//! gets its answer as soon as the voter's wait is over, without a second attempt.

use std::sync::Mutex;
use std::time::Duration;

use raft_types::{MemberId, MemberKind, lock};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::Timers;
use crate::election::candidate_order::{self, Yielding, candidates};
use crate::election::vote_gate::ElectionGate;
use crate::engine::{Engine, RoleSnapshot};
use crate::lease::promise::Promise;

/// The conditions that keep this member from campaigning.
#[derive(Debug)]
pub(crate) struct Campaigning {
    /// The time until which a lease granted before the start may be in force.
    promised_until: Option<Instant>,
    /// The lease for which heartbeats are answered.
    pub(crate) promise: Promise,
    /// True if the end of the log is in doubt; also decides for whom to vote then.
    pub(crate) gate: ElectionGate,
    state: Mutex<State>,
    /// Notified when this member begins to yield to another candidate.
    gave_way: Notify,
}

#[derive(Debug)]
struct State {
    allowed: bool,
    /// True after the member's first turn has come.
    awake: bool,
    yielding: Yielding,
}

impl Campaigning {
    /// Creates the state of a member that was started at `begun`. `is_new` is true if the member has no log and never voted.
    pub(crate) fn new(begun: Instant, promise: Promise, is_new: bool, gate: ElectionGate) -> Self {
        Self {
            promised_until: (!is_new).then(|| begun + promise.longest),
            promise,
            gate,
            state: Mutex::new(State {
                allowed: true,
                awake: is_new,
                yielding: Yielding::default(),
            }),
            gave_way: Notify::new(),
        }
    }

    /// Waits until no lease granted before the start can be in force.
    pub(crate) async fn promise_is_over(&self) {
        if let Some(until) = self.promised_until {
            tokio::time::sleep_until(until).await;
        }
    }

    /// Returns true if a lease granted before the start may be in force.
    pub(crate) fn may_have_promised(&self) -> bool {
        self.promised_until
            .is_some_and(|until| Instant::now() < until)
    }

    /// Allows or forbids campaigns.
    pub(crate) fn allow(&self, raft: &Engine, allowed: bool) {
        let mut state = lock(&self.state);
        state.allowed = allowed;
        self.tell(&state, raft);
    }

    /// Changes for which candidates to vote, and therefore also whether this member campaigns.
    pub(crate) fn change_gate(&self, raft: &Engine, change: impl FnOnce(&ElectionGate)) {
        change(&self.gate);
        self.tell(&lock(&self.state), raft);
    }

    /// Waits for the member's first turn to campaign. Then campaigns are allowed if no other condition forbids them.
    pub(crate) async fn wake(&self, raft: &Engine, turn: Duration) {
        self.promise_is_over().await;
        if self.promised_until.is_some() {
            tokio::time::sleep(turn).await;
        }
        let mut state = lock(&self.state);
        state.awake = true;
        self.tell(&state, raft);
    }

    /// Yields to another candidate for `pause`, and returns true. If it is this member's own turn, returns false.
    pub(crate) fn yield_to_another(&self, raft: &Engine, pause: Duration) -> bool {
        let mut state = lock(&self.state);
        let yielding = state.yielding.begin(Instant::now(), pause);
        if yielding {
            self.tell(&state, raft);
            self.gave_way.notify_one();
        }
        yielding
    }

    /// Records that the member has voted for a candidate, and so no longer yields to another one.
    pub(crate) fn has_voted(&self, raft: &Engine) {
        let mut state = lock(&self.state);
        state.yielding.end();
        self.tell(&state, raft);
    }

    /// Allows campaigns again each time the member has yielded for long enough.
    pub(crate) async fn take_turns(&self, raft: &Engine) {
        loop {
            self.gave_way.notified().await;
            loop {
                let until = lock(&self.state).yielding.until(Instant::now());
                let Some(until) = until else { break };
                tokio::time::sleep_until(until).await;
            }
            self.tell(&lock(&self.state), raft);
        }
    }

    /// Returns true if the member may start a campaign now without an order.
    pub(crate) fn may_stand(&self) -> bool {
        self.may(&lock(&self.state))
    }

    fn may(&self, state: &State) -> bool {
        let settled = self.gate.stays_out().is_none();
        let goes_first = state.yielding.until(Instant::now()).is_none();
        state.allowed && state.awake && settled && goes_first
    }

    fn tell(&self, state: &State, raft: &Engine) {
        raft.runtime_config().elect(self.may(state));
    }
}

/// Returns how much later than the first member this member has its first turn after a start. Members that start together campaign in turn,
/// in the order of [`candidates()`]. Simultaneous campaigns would split the votes. All turns are within the time over which the engine
/// otherwise spreads campaigns.
pub(crate) fn first_turn(role: &RoleSnapshot, own: MemberId, timers: &Timers) -> Duration {
    let spread = timers
        .lease
        .saturating_sub(timers.shortest_election(MemberKind::Database));
    let turn = candidate_order::turn(&candidates(role.membership.membership()), own);
    turn.map_or(spread, |turn| spread / turn.of * turn.place)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use openraft::ServerState;
    use raft_types::MemberRecord;
    use raft_types::Membership;
    use raft_types::StoredMembership;
    use raft_types::{ElectionNotes, Term};

    use super::*;

    #[test]
    fn members_that_start_together_have_their_turns_one_after_the_other() {
        let kinds = [
            MemberKind::Witness,
            MemberKind::Database,
            MemberKind::Witness,
            MemberKind::Database,
        ];
        let records: BTreeMap<MemberId, MemberRecord> = (1..)
            .map(MemberId)
            .zip(kinds)
            .map(|(id, kind)| {
                let record = MemberRecord {
                    kind,
                    ..MemberRecord::default()
                };
                (id, record)
            })
            .collect();
        let voters: BTreeSet<MemberId> = records.keys().copied().collect();
        let membership = Membership::new(vec![voters], records).unwrap();
        let role = RoleSnapshot {
            state: ServerState::Follower,
            term: Term(1),
            leader: None,
            membership: Arc::new(StoredMembership::new(None, membership)),
        };
        let timers = Timers::default();
        let turn = |id| first_turn(&role, MemberId(id), &timers);
        let order = [2, 4, 1, 3].map(turn);
        assert_eq!(order[0], Duration::ZERO);
        assert!(order.is_sorted(), "{order:?}");
        // The turns are further apart than the engine's clock interval, and the last turn is early enough.
        assert!(order[1] >= Duration::from_millis(60), "{order:?}");
        assert!(turn(9) < timers.lease / 2, "{:?}", turn(9));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_member_has_promised_nothing_and_another_one_for_a_lease() {
        let (begun, lease) = (Instant::now(), Duration::from_millis(750));
        let promise =
            |is_new| Promise::new(lease, &ElectionNotes::default(), Term::default(), is_new);
        let fresh = Campaigning::new(begun, promise(true), true, ElectionGate::new(None));
        fresh.promise_is_over().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let old = Campaigning::new(begun, promise(false), false, ElectionGate::new(None));
        assert!(old.may_have_promised() && !fresh.may_have_promised());
        old.promise_is_over().await;
        assert!(begun.elapsed() >= lease && begun.elapsed() < lease * 2);
        assert!(!old.may_have_promised());
    }
}
