//! Changes of the membership while the ring runs: who is a member, who votes, by which rules, and who stays the primary.
//!
//! Whatever changes goes through [`membership_step`], one entry at a time. [`leader_tasks`] brings the quorum to where the policy
//! wants it; an operator adds and removes members ([`members`]), changes what the log says of them ([`updates`]), moves the
//! leadership ([`promotion`]) now or at some time ([`scheduled_switchover`]), and pauses failover ([`pause`]).

pub(crate) mod leader_tasks;
pub(crate) mod members;
pub(crate) mod membership_step;
pub(crate) mod pause;
pub(crate) mod pinned_primary;
pub(crate) mod promotion;
pub(crate) mod scheduled_switchover;
pub(crate) mod updates;
