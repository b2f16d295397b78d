//! A model of the ring's leaders and quorums, small enough for an exhaustive exploration within a [`Scope`]. It covers every order of
//! elections, replication, commits, quorum moves, membership changes, transfers, losses, repairs, restarts and passing time.
//!
//! Where the product decides in pure code, the model calls that code: quorum steps ([`consensus::quorum`]), a policy's voter sets, majority
//! sizes, repair plans ([`ring_admin::plan_repair`]), and the answers to a rejoining member ([`consensus::rules`], [`ring_admin::rules`]).
//! The model restates openraft and the tasks around it as rules (`rules.rs`). [`Broken`] disables one rule, and a property must then fail.
//!
//! [`trace`] checks recorded actions of the real code against the same rules.
//!
//! The model has no lost or late messages. A call and its effect at the receiver are one step; the caller's handling of the answer is
//! another, so that any step may come between the two. A lost call is a step that is not taken. Unsynced data is lost only in a separate
//! step, and only while a rule is disabled.

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
