//! One ring member's Raft over an unmodified openraft, generic over its log and its network.
//!
//! [`RaftMember`] is the entry point, and [`RaftNode`] what it shares with the administration of the ring, which is in the crate
//! `ring-admin`. Decisions are pure and separate from the acting tasks: leadership (`leadership` decides, `observer` acts), elections,
//! leadership transfers. Voters change only through the log. The engine's `change_membership` is never called: it lacks the barrier that
//! prevents two leaders from committing separately.

mod calls;
mod config;
mod election {
    //! Elections: when this member campaigns, and for whom it may vote.
    //!
    //! The engine grants a vote by its rules: the larger term, a log at least as long, a majority of each voter set. This module restricts
    //! that. [`vote_gate`] checks incoming vote requests ([`crate::calls::inbound`]). [`campaign`] decides whether this member may
    //! campaign. A member asks the others first if its log lost its end ([`doubted_tail`]) or its data directory was restored to an earlier
    //! state ([`put_back`]). The others report that to it ([`greetings`]). Where only a non-voter has what such a member needs, it is asked
    //! to be the interim leader ([`interim_leader`]). Candidates that split the votes then campaign in turn ([`candidate_order`]). A
    //! voter with a slow disk is asked for its vote earlier ([`counted_votes`]). [`mock_election`] tests before a promotion whether its
    //! target would be elected; [`mock_vote`] holds and answers it. [`leader_exit`] is the evidence that a leader's process has exited;
    //! [`early_election`] then does not wait for its heartbeats.

    pub(crate) mod campaign;
    pub(crate) mod candidate_order;
    pub(crate) mod counted_votes;
    pub(crate) mod doubted_tail;
    pub(crate) mod early_election;
    pub(crate) mod elections;
    pub(crate) mod greetings;
    pub(crate) mod interim_leader;
    pub(crate) mod leader_exit;
    pub(crate) mod mock_election;
    pub(crate) mod mock_vote;
    pub(crate) mod put_back;
    pub(crate) mod vote_gate;
}
mod engine;
mod failed_targets;
mod forced_membership;
mod lacking;
mod lease {
    //! The leader's lease (CheckQuorum): it serves only while answers of a quorum are younger than the lease.
    //!
    //! [`contacts`] records when each member last answered, and [`promise`] how long it elects no other leader. [`leadership`] decides
    //! from that; [`observer`] publishes the decision.

    pub(crate) mod contacts;
    pub(crate) mod leadership;
    pub(crate) mod observer;
    pub(crate) mod promise;
}
pub mod log_probe;
mod log_room;
mod member;
mod membership_step;
mod node;
mod primacy;
mod proposal;
mod purge_floor;
pub mod quorum;
mod ring_view;
mod state_machine;
mod transfer;

pub use raft_types::{HistoryEntry, HistoryEvent, Named, Outcome, Program, Refusal, Term, Unknown};

pub use crate::calls::inbound::{AppendAnswers, Inbound, InstallRefusal};
pub use crate::calls::{
    Agreement, Answer, CallError, DatabaseState, EarlyVoteCall, FileBytes, Greeting, Knock, LogEnd,
    MemberCalls, Question, Recollection,
};
pub use crate::config::{Bounds, ConfigError, MemberConfig, Timers};
pub use crate::election::leader_exit::LedTerm;
pub use crate::election::mock_election::{MockElection, MockElectionCall, MockVote, MockVoteCall};
pub use crate::election::put_back::{PutBack, Remembered, Report, TERM_LEAP, leap_from};
pub use crate::engine::{Engine, Fault, ProgressSnapshot, RoleSnapshot};
pub use crate::failed_targets::{FailedTargets, Standings, TargetStanding};
pub use crate::forced_membership::ForceError;
pub use crate::lease::leadership::{Leadership, NotServing};
pub use crate::lease::promise::PromisedLease;
pub use crate::log_room::NoRoom;
pub use crate::member::{PurgeError, RaftMember, StartError};
pub use crate::membership_step::MoveError;
pub use crate::node::{Administrator, FormatError, RaftNode};
pub use crate::primacy::{Primacy, RingPause};
pub use crate::proposal::{ProposalTicket, ProposeError};
pub use crate::purge_floor::{NeededBy, PurgeFloor, purge_floor};
pub use crate::ring_view::{RingMember, RingView};
pub use crate::state_machine::{AppliedFloor, CommitStateMachine, MarkBuilder};
pub use crate::transfer::{TransferError, TransferRefusal};

/// Members' decisions on others' answers, as pure functions that the administration and a model of the ring share.
pub mod rules {
    pub use crate::calls::common_entry;
    pub use crate::election::doubted_tail::enough;
    pub use crate::election::put_back::{given_up, judge as judge_put_back};
}
