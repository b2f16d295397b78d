//! Raft for one member of a ring, over an unmodified openraft. The crate is generic over the log and the network.
//!
//! [`RaftMember`] is the entry point. [`RaftNode`] is the part that it shares with the crate `ring-admin`, which administers the ring.
//! Decisions about leadership, elections and leadership transfers are pure functions, separate from the tasks that act: `leadership`
//! decides, for example, and `observer` acts. Voters change only through the log. The engine's `change_membership` is never called: it
//! lacks the barrier that prevents two leaders from committing separately.

mod calls;
mod config;
mod election {
    //! Elections: when this member campaigns, and for whom it may vote.
    //!
    //! The engine grants a vote by its rules: the larger term, a log at least as long, a majority of each voter set. This module adds
    //! restrictions. [`vote_gate`] checks incoming vote requests ([`crate::calls::inbound`]). [`campaign`] decides whether this member may
    //! campaign.
    //!
    //! A member asks the others before it campaigns if its log lost its end ([`doubted_tail`]), or if its data directory was restored to an
    //! earlier state ([`restored_directory`]). The other members report the restored state to it ([`greetings`]). If only a non-voter has the entries
    //! that such a member needs, the non-voter becomes the interim leader ([`interim_leader`]).
    //!
    //! Candidates that split the votes campaign in turn afterwards ([`candidate_order`]). A voter with a slow disk is asked for its vote
    //! earlier ([`counted_votes`]). Before a promotion, [`mock_election`] tests whether its target would be elected; [`mock_vote`] holds
    //! and answers such an election. [`leader_exit`] is the evidence that a leader's process has exited. With that evidence,
    //! [`early_election`] does not wait for missing heartbeats.

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
    pub(crate) mod restored_directory;
    pub(crate) mod vote_gate;
}
mod engine;
mod failed_targets;
mod forced_membership;
mod lacking;
mod lease {
    //! The leader's lease (CheckQuorum): a leader serves only while the answers of a quorum are younger than the lease.
    //!
    //! [`contacts`] records when each member last answered. [`promise`] records how long this member elects no other leader. [`leadership`]
    //! decides from both; [`observer`] publishes the decision.

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
pub use crate::election::restored_directory::{
    Remembered, Report, RestoredDirectory, TERM_LEAP, leap_from,
};
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

/// A member's decisions about the answers of other members. They are pure functions, shared with the administration and a model of the
/// ring.
pub mod rules {
    pub use crate::calls::common_entry;
    pub use crate::election::doubted_tail::enough;
    pub use crate::election::restored_directory::{given_up, judge as judge_restored};
}
