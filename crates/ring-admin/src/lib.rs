//! The administration of a ring by one of its members, above the member's Raft (crate `consensus`): bootstrap, members, rules, the leader's
//! tasks, promotions, pauses and scheduled switchovers, the ring's history and format, and the repair of a lost quorum.
//!
//! [`Member`] is the entry point. Decisions are pure functions; tasks execute them. `RaftNode::append_membership` appends every change of
//! the membership as one entry. Bootstrap and the repair of a lost quorum are the only exceptions.

mod administration;
mod admission;
mod bootstrap;
mod formats;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/ring_admin.rs"]
pub mod fuzzing;
mod history;
mod identity;
mod leader_tasks;
mod member;
mod member_tasks;
mod members;
mod mysqld;
mod pause;
mod promotion;
mod rejoin;
mod repair_plan;
mod scheduled_switchover;
mod status;
mod target;
mod updates;

pub use crate::administration::LeaderTask;
pub use crate::admission::{AdmissionRefusal, Envelope, Party, admit};
pub use crate::bootstrap::{
    BootstrapError, BootstrapPlan, BootstrapRefusal, Introduction, plan_bootstrap,
};
pub use crate::formats::FormatStatus;
pub use crate::history::without as without_history;
pub use crate::identity::{
    Identity, IdentityBook, IdentityError, IdentityFile, IdentityPages, LogOrigin, RingState,
};
pub use crate::member::Member;
pub use crate::members::ReconfigurationError;
pub use crate::mysqld::{Database, NotPaused, SOON_THERE, Writer};
pub use crate::pause::PauseRequest;
pub use crate::promotion::{
    Promoted, PromotionError, PromotionPhase, PromotionProgress, PromotionRefusal,
};
pub use crate::rejoin::{Rejoin, Returning};
pub use crate::repair_plan::{
    MemberEvidence, PossibleLoss, RepairPlan, RepairRefusal, UnusedLog, WhyUnused,
    accept as accept_repair, plan_repair,
};
pub use crate::scheduled_switchover::ScheduledSwitchover;
pub use crate::status::{Explanation, MemberStatus, Prospects, explain};
pub use crate::target::NoTarget;
pub use crate::updates::{Amendment, RecordChange, RulesChange};

/// Pure functions with which a member judges the answers of other members. A model of the ring uses them, too.
pub mod rules {
    pub use crate::rejoin::{ahead, judge};
}

#[cfg(test)]
#[path = "../../consensus/src/ring_view/tests.rs"]
mod test_ring;

// `test_ring`, a file of the crate `consensus`, needs these names at the root of the crate.
#[cfg(test)]
use consensus::{RingMember, RingView};
