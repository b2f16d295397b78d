//! A model of the ring's leaders and quorums, small enough to be looked at as a whole: every order of elections, replication,
//! commits, moves of the quorum, members that come and go, transfers, losses, repairs of a lost quorum, restarts and passing time
//! within a [`Scope`].
//!
//! What the product decides in pure code is that very code here: the steps from one quorum to the next
//! ([`consensus::quorum`]), the sets that a policy wants, the size of a majority, the plan of a repair
//! ([`consensus::plan_repair`]), what members make of others' answers that come back ([`consensus::rules`]). The rest, which is
//! openraft's and the tasks around it, is written down once more, as rules (`rules.rs`). [`Broken`] takes one rule away; then the
//! properties must fail.
//!
//! [`trace`] holds what members of the real code did against the same rules.
//!
//! Not in it: messages that are lost or late as such. A call and its effect at the callee are one step, and what the caller makes
//! of the answer is another one, so that anything may come between; a call that is lost is a step that is not taken. What is lost with
//! an unsynced disk is a step of its own, taken only where a rule is broken.

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
