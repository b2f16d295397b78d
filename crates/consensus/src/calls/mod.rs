//! Calls between members: whether one is listened to ([`admission`]), what comes in ([`inbound`]), and what members ask each
//! other beside the engine's own calls ([`questions`]).

pub(crate) mod admission;
pub(crate) mod inbound;
pub(crate) mod questions;
