//! A quorum that is lost for good: the plan to go on without it and what may be lost by that ([`plan`]), the membership that no
//! leader proposed ([`forced_membership`]), and members that were not there and come back behind it ([`returning`], [`rejoin`]).

pub(crate) mod forced_membership;
pub(crate) mod plan;
pub(crate) mod rejoin;
pub(crate) mod returning;
