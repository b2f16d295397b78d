//! One ring member's Raft over an unmodified openraft, generic over its log and its network.
//!
//! [`Member`] is the whole of it for its user. What it decides is pure and stands apart from the tasks
//! that act: leadership (`leadership` decides, `observer` acts), transfers and handovers, admission of
//! calls, the founding of a ring. Voters change only as the log says; `change_membership` of the engine
//! is never called, because it lacks the barrier that keeps two leaders from committing apart.

mod bootstrap;
mod calls;
mod election;
mod engine;
mod fault;
mod lease;
pub mod log_probe;
mod log_room;
mod member;
mod passing_on;
mod proposal;
mod purge_floor;
pub mod quorum;
mod reconfiguration;
mod repair;
mod ring_view;
mod state_machine;
mod transfer;

pub use bootstrap::identity::{Identity, IdentityBook, IdentityError, IdentityFile, RingState};
pub use bootstrap::log_origin::LogOrigin;
pub use bootstrap::plan::{BootstrapPlan, BootstrapRefusal, Introduction, plan_bootstrap};
pub use calls::admission::{AdmissionRefusal, Envelope, Party, admit};
pub use calls::inbound::{AppendAnswers, Inbound, InstallRefusal};
pub use calls::questions::{Answer, CallError, FileBytes, MemberCalls, Question};
pub use election::doubted_tail::LogEnd;
pub use election::mock_election::{MockElection, MockElectionCall, MockVote, MockVoteCall};
pub use fault::Fault;
pub use lease::leadership::{Leadership, NotServing, Term};
pub use log_room::rooms::NoRoom;
pub use member::config::{Bounds, ConfigError, MemberConfig, Timers};
pub use member::explain::{Explanation, Prospects, explain};
pub use member::status::MemberStatus;
pub use member::{BootstrapError, Member, PurgeError, StartError};
pub use proposal::{Outcome, ProposalTicket, ProposeError, Refusal, Unknown};
pub use purge_floor::{NeededBy, PurgeFloor, RegionWatermark, purge_floor, region_watermarks};
pub use reconfiguration::leader_tasks::LeaderTask;
pub use reconfiguration::members::RosterError;
pub use reconfiguration::membership_step::MoveError;
pub use reconfiguration::pause::{PauseError, PauseWish};
pub use reconfiguration::pinned_primary::RingPause;
pub use reconfiguration::promotion::{
    Promoted, PromotionError, PromotionPhase, PromotionProgress, PromotionRefusal,
};
pub use reconfiguration::updates::{Amendment, RecordWish, RulesWish};
pub use repair::plan::{
    MemberEvidence, PossibleLoss, RepairPlan, RepairRefusal, accept as accept_repair, plan_repair,
};
pub use repair::rejoin::{Agreement, Recollection, Rejoin};
pub use repair::returning::Returning;
pub use ring_view::{RingView, Standing};
pub use state_machine::{AppliedFloor, CommittedLog, MarkBuilder};
pub use transfer::fitness::{Database, DatabaseState, SOON_THERE};
pub use transfer::leadership_transfer::{TransferError, TransferOutcome, TransferRefusal};
pub use transfer::writer::Writer;
