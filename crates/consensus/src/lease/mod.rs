//! The leader's lease (CheckQuorum): it serves only while answers of a quorum are younger than the lease.
//!
//! [`contacts`] records when each member last answered, and [`promise`] how long it elects no other leader. [`leadership`] decides
//! from that; [`observer`] publishes the decision.

pub(crate) mod contacts;
pub(crate) mod leadership;
pub(crate) mod observer;
pub(crate) mod promise;
