//! Membership changes at runtime: the members, the voters, the rules, and the pinned primary.
//!
//! Every change goes through [`membership_step`], one entry at a time. [`leader_tasks`] moves the quorum to where the policy requires. An
//! operator adds and removes members ([`members`]), changes their records ([`updates`]), moves the leadership now ([`promotion`]) or later
//! ([`scheduled_switchover`]), and pauses failover ([`pause`]).

pub(crate) mod leader_tasks;
pub(crate) mod members;
pub(crate) mod membership_step;
pub(crate) mod pause;
pub(crate) mod pinned_primary;
pub(crate) mod promotion;
pub(crate) mod scheduled_switchover;
pub(crate) mod updates;
