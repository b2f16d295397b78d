//! One ring member's Raft over an unmodified openraft, generic over its log and its network.
//!
//! [`Member`] is the whole of it for its user. What it decides is pure and stands apart from the tasks
//! that act: leadership (`leadership` decides, `observer` acts), transfers and handovers, admission of
//! calls, the founding of a ring. Voters change only as the log says; `change_membership` of the engine
//! is never called, because it lacks the barrier that keeps two leaders from committing apart.

mod admission;
mod bootstrap;
mod engine;
mod fault;
mod handover;
mod identity;
mod inbound;
mod last_heard;
mod leadership;
pub mod matching;
mod member;
mod member_config;
mod observer;
mod proposal;
mod questions;
pub mod quorum;
mod seat;
mod standing;
mod status;
mod transfer;
mod watermark;

pub use admission::{AdmissionRefusal, Envelope, Party, admit};
pub use bootstrap::{FoundingPlan, FoundingRefusal, Introduction, plan_founding};
pub use fault::Fault;
pub use handover::HandoverState;
pub use identity::{Identity, IdentityBook, IdentityError, IdentityFile, RingState};
pub use inbound::{AppendAnswers, Inbound};
pub use leadership::{Leadership, NotServing, Term};
pub use member::{BootstrapError, Member, PurgeError, StartError};
pub use member_config::{Bounds, ConfigError, MemberConfig, Timers};
pub use proposal::{Outcome, ProposalTicket, ProposeError, Refusal, Unknown};
pub use questions::{Answer, CallError, MemberCalls, Question};
pub use standing::{RingView, Standing};
pub use status::MemberStatus;
pub use transfer::{TransferError, TransferOutcome, TransferRefusal};
pub use watermark::{AppliedFloor, CommittedLog, MarkBuilder};
