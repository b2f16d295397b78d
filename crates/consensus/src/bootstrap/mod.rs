//! The making of a ring: what each data directory knows of itself ([`identity`]), the decision to make one over fresh ones
//! ([`plan`]), and where its log begins ([`log_origin`]).

pub(crate) mod identity;
pub(crate) mod log_origin;
pub(crate) mod plan;
