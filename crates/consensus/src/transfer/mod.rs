//! The leadership is given to another member: to whom ([`target`]), by what their mysqlds are ([`fitness`]), behind what stops
//! writing first ([`mysqld`]), and how ([`leadership_transfer`]); and who did not take it ([`failed_targets`]).

pub(crate) mod failed_targets;
pub(crate) mod fitness;
pub(crate) mod leadership_transfer;
pub(crate) mod mysqld;
pub(crate) mod target;
