//! One ring member's Raft over an unmodified openraft, generic over its log and its network.
//!
//! [`Member`] is the entry point. Its decisions are pure and separate from the acting tasks: leadership (`leadership` decides, `observer`
//! acts), leadership transfers, admission of calls, bootstrap. Voters change only through the log. The engine's `change_membership` is
//! never called: it lacks the barrier that prevents two leaders from committing separately.

pub(crate) mod bootstrap;
pub(crate) mod calls;
mod election;
mod engine;
mod formats;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/consensus.rs"]
pub mod fuzzing;
mod history;
mod lacking;
mod lease;
pub mod log_probe;
mod log_room;
pub(crate) mod member;
mod proposal;
mod purge_floor;
pub mod quorum;
mod reconfiguration;
mod repair;
mod ring_view;
mod state_machine;
mod transfer;

pub use raft_types::{Outcome, Refusal, Term, Unknown};

pub use crate::bootstrap::identity::{
    Identity, IdentityBook, IdentityError, IdentityFile, IdentityPages, LogOrigin, RingState,
};
pub use crate::bootstrap::{BootstrapPlan, BootstrapRefusal, Introduction, plan_bootstrap};
pub use crate::calls::admission::{AdmissionRefusal, Envelope, Party, admit};
pub use crate::calls::inbound::{AppendAnswers, Inbound, InstallRefusal};
pub use crate::calls::{
    Answer, CallError, DatabaseState, EarlyVoteCall, FileBytes, Greeting, Knock, LogEnd,
    MemberCalls, Question,
};
pub use crate::election::mock_election::{MockElection, MockElectionCall, MockVote, MockVoteCall};
pub use crate::election::put_back::{PutBack, Remembered, Report};
pub use crate::engine::Fault;
pub use crate::formats::{FormatStatus, Program};
pub use crate::history::{HistoryEntry, HistoryEvent, Named, without as without_history};
pub use crate::lease::leadership::{Leadership, NotServing};
pub use crate::lease::promise::PromisedLease;
pub use crate::log_room::rooms::NoRoom;
pub use crate::member::config::{Bounds, ConfigError, MemberConfig, Timers};
pub use crate::member::explain::{Explanation, MemberStatus, Prospects, explain};
pub use crate::member::{BootstrapError, Member, PurgeError, StartError};
pub use crate::proposal::{ProposalTicket, ProposeError};
pub use crate::purge_floor::{
    NeededBy, PurgeFloor, RegionWatermark, purge_floor, region_watermarks,
};
pub use crate::reconfiguration::leader_tasks::LeaderTask;
pub use crate::reconfiguration::members::ReconfigurationError;
pub use crate::reconfiguration::membership_step::MoveError;
pub use crate::reconfiguration::pause::{PauseError, PauseRequest};
pub use crate::reconfiguration::pinned_primary::{Primacy, RingPause};
pub use crate::reconfiguration::promotion::{
    Promoted, PromotionError, PromotionPhase, PromotionProgress, PromotionRefusal,
};
pub use crate::reconfiguration::scheduled_switchover::ScheduledSwitchover;
pub use crate::reconfiguration::updates::{Amendment, RecordChange, RulesChange};
pub use crate::repair::plan::{
    MemberEvidence, PossibleLoss, RepairPlan, RepairRefusal, UnusedLog, WhyUnused,
    accept as accept_repair, plan_repair,
};
pub use crate::repair::rejoin::{Agreement, Recollection, Rejoin};
pub use crate::repair::returning::Returning;
pub use crate::ring_view::{RingMember, RingView};
pub use crate::state_machine::{AppliedFloor, CommitStateMachine, MarkBuilder};
pub use crate::transfer::fitness::SOON_THERE;
pub use crate::transfer::leadership_transfer::{TransferError, TransferOutcome, TransferRefusal};
pub use crate::transfer::mysqld::{Database, Writer};

/// Members' decisions on others' answers, as pure functions that a model of the ring shares.
pub mod rules {
    pub use crate::election::doubted_tail::enough;
    pub use crate::repair::rejoin::{common_entry, judge};
    pub use crate::repair::returning::ahead;
}
