//! Room for transactions on the disks of the ring: proposals are refused where there is none ([`rooms`]), and a leader's entries
//! wait at a follower until its log can take them ([`intake`]).

pub(crate) mod asking;
pub(crate) mod intake;
pub(crate) mod rooms;
