//! One ring member's Raft over an unmodified openraft, generic over its log and its network.
//!
//! [`RaftMember`] is the entry point, and [`RaftNode`] what it shares with the administration of the ring, which is in the crate
//! `ring-admin`. Decisions are pure and separate from the acting tasks: leadership (`leadership` decides, `observer` acts), elections,
//! leadership transfers. Voters change only through the log. The engine's `change_membership` is never called: it lacks the barrier that
//! prevents two leaders from committing separately.

mod administrator;
mod agreement;
mod calls;
mod config;
mod election;
mod engine;
mod failed_targets;
mod forced_membership;
mod lacking;
mod lease;
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

pub use crate::administrator::{Administrator, FormatError};
pub use crate::agreement::{Agreement, Recollection};
pub use crate::calls::inbound::{AppendAnswers, Inbound, InstallRefusal};
pub use crate::calls::{
    Answer, CallError, DatabaseState, EarlyVoteCall, FileBytes, Greeting, Knock, LogEnd,
    MemberCalls, Question,
};
pub use crate::config::{Bounds, ConfigError, MemberConfig, Timers};
pub use crate::election::mock_election::{MockElection, MockElectionCall, MockVote, MockVoteCall};
pub use crate::election::put_back::{PutBack, Remembered, Report};
pub use crate::engine::{Engine, Fault, ProgressSnapshot, RoleSnapshot};
pub use crate::failed_targets::{FailedTargets, Standings, TargetStanding};
pub use crate::forced_membership::{ForceError, TERM_LEAP, leap_from};
pub use crate::lease::leadership::{Leadership, NotServing};
pub use crate::lease::promise::PromisedLease;
pub use crate::log_room::NoRoom;
pub use crate::member::{PurgeError, RaftMember, StartError};
pub use crate::membership_step::MoveError;
pub use crate::node::RaftNode;
pub use crate::primacy::{Primacy, RingPause};
pub use crate::proposal::{ProposalTicket, ProposeError};
pub use crate::purge_floor::{
    NeededBy, PurgeFloor, RegionWatermark, purge_floor, region_watermarks,
};
pub use crate::ring_view::{RingMember, RingView};
pub use crate::state_machine::{AppliedFloor, CommitStateMachine, MarkBuilder};
pub use crate::transfer::{TransferError, TransferOutcome, TransferRefusal};

/// Members' decisions on others' answers, as pure functions that the administration and a model of the ring share.
pub mod rules {
    pub use crate::agreement::common_entry;
    pub use crate::election::doubted_tail::enough;
    pub use crate::election::put_back::{given_up, judge as judge_put_back};
}
