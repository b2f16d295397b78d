//! One ring member's Raft over an unmodified openraft, generic over its log and its network.
//!
//! [`Member`] is the whole of it for its user. What it decides is pure and stands apart from the tasks
//! that act: leadership (`leadership` decides, `observer` acts), transfers and handovers, admission of
//! calls, the founding of a ring. Voters change only as the log says; `change_membership` of the engine
//! is never called, because it lacks the barrier that keeps two leaders from committing apart.

mod admission;
mod amendment;
mod bootstrap;
mod campaigning;
mod candidacy;
mod canvass;
mod contacts;
mod contradiction;
mod doubted_tail;
mod election_gate;
mod engine;
mod explain;
mod fault;
mod handover;
mod heir;
mod identity;
mod impose;
mod inbound;
mod inquiry;
mod intake;
mod kept_place;
mod last_heard;
mod leadership;
mod log_origin;
pub mod matching;
mod member;
mod member_config;
mod mock_election;
mod mover;
mod observer;
mod passing_on;
mod pause;
mod promotion;
mod proposal;
mod questions;
pub mod quorum;
mod region_watermarks;
mod reign;
mod rejoin;
mod repair;
mod retired_numbers;
mod returning;
mod rooms;
mod roster;
mod seat;
mod standing;
mod status;
mod steward;
mod supervision;
mod transfer;
mod watermark;

pub use admission::{AdmissionRefusal, Envelope, Party, admit};
pub use amendment::{Amendment, RecordWish, RulesWish};
pub use bootstrap::{FoundingPlan, FoundingRefusal, Introduction, plan_founding};
pub use candidacy::{Database, DatabaseState, SOON_THERE};
pub use doubted_tail::LogEnd;
pub use explain::{Explanation, Prospects, explain};
pub use fault::Fault;
pub use handover::Writer;
pub use identity::{Identity, IdentityBook, IdentityError, IdentityFile, RingState};
pub use inbound::{AppendAnswers, Inbound, InstallRefusal};
pub use kept_place::RingPause;
pub use leadership::{Leadership, NotServing, Term};
pub use log_origin::LogOrigin;
pub use member::{BootstrapError, Member, PurgeError, StartError};
pub use member_config::{Bounds, ConfigError, MemberConfig, Timers};
pub use mock_election::{MockElection, MockElectionCall, MockVote, MockVoteCall};
pub use mover::MoveError;
pub use pause::{PauseError, PauseWish};
pub use promotion::{
    Promoted, PromotionError, PromotionPhase, PromotionProgress, PromotionRefusal,
};
pub use proposal::{Outcome, ProposalTicket, ProposeError, Refusal, Unknown};
pub use questions::{Answer, CallError, FileBytes, MemberCalls, Question};
pub use region_watermarks::{
    NeededBy, PurgeFloor, RegionWatermark, purge_floor, region_watermarks,
};
pub use rejoin::{Agreement, Recollection, Rejoin};
pub use repair::{
    MemberEvidence, PossibleLoss, RepairPlan, RepairRefusal, accept as accept_repair, plan_repair,
};
pub use returning::Returning;
pub use rooms::NoRoom;
pub use roster::RosterError;
pub use standing::{RingView, Standing};
pub use status::MemberStatus;
pub use steward::StewardState;
pub use transfer::{TransferError, TransferOutcome, TransferRefusal};
pub use watermark::{AppliedFloor, CommittedLog, MarkBuilder};
