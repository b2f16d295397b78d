//! The lease of a leader (CheckQuorum): it serves while answers of a quorum are younger than the lease, and not a moment longer.
//!
//! [`contacts`] notes when each member last answered, and [`promise`] how long that one elects no other leader; [`leadership`] decides
//! from that; [`observer`] publishes what it decides.

pub(crate) mod contacts;
pub(crate) mod leadership;
pub(crate) mod observer;
pub(crate) mod promise;
