//! Repair of a permanently lost quorum: the plan and its possible loss ([`plan`]), the membership without a proposing leader
//! ([`forced_membership`]), and members that return after the repair ([`returning`], [`rejoin`]).

pub(crate) mod forced_membership;
pub(crate) mod plan;
pub(crate) mod rejoin;
pub(crate) mod returning;
