//! Leadership transfer: the target ([`target`]), chosen by the state of the mysqlds ([`fitness`]), the pause of writes ([`mysqld`]), the
//! transfer ([`leadership_transfer`]), and failed targets ([`failed_targets`]).

pub(crate) mod failed_targets;
pub(crate) mod fitness;
pub(crate) mod leadership_transfer;
pub(crate) mod mysqld;
pub(crate) mod target;
