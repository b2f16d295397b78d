//! A model of the ring's leaders and quorums, small enough for an exhaustive exploration within a [`Scope`]. It covers every order of
//! elections, replication, commits, quorum moves, membership changes, transfers, losses, repairs, restarts and passing time.
//!
//! Decisions that are pure code in the product use that code here. That covers quorum steps ([`consensus::quorum`]), a policy's sets,
//! majority sizes, repair plans ([`ring_admin::plan_repair`]), and rejoining members' use of answers ([`consensus::rules`], [`ring_admin::rules`]). The rest,
//! openraft's code and its surrounding tasks, is restated as rules (`rules.rs`). [`Broken`] disables one rule; then the properties must
//! fail.
//!
//! [`trace`] checks recorded actions of the real code against the same rules.
//!
//! Not modelled: lost or late messages as such. A call and its effect at the callee are one step; the caller's handling of the answer is
//! another, so that any step may come between. A lost call is a step not taken. Loss of unsynced data is a separate step, taken only where
//! a rule is broken.

mod explored;
mod naming;
mod properties;
mod repair;
mod ring;
mod rules;
mod scope;
mod step;
pub mod trace;

pub use crate::explored::RingModel;
pub use crate::ring::{
    Content, Count, Doubt, End, Entry, Id, Leader, Member, Members, Membership, Planned, Ring,
    Role, Term,
};
pub use crate::scope::{Broken, Scope};
pub use crate::step::Step;
