//! From plain MySQL replication into a ring and back: what a server is at the moment ([`look()`]), what has to be done, as pure
//! plans ([`plan_enable`], [`plan_detach`]), and the statements that do it ([`steps`]). The command line drives it, each member
//! acts on its own mysqld. To be feared here: two servers that take writes, and a commit that waits for nobody.

mod detach_plan;
mod enable_plan;
mod let_through;
mod plain_server;
mod server_probe;
pub mod steps;

use std::fmt;

pub use crate::conversion::detach_plan::{DetachScene, DetachServer, DetachStep, plan_detach};
pub use crate::conversion::enable_plan::{
    EnableScene, EnableServer, EnableStep, MOST_BEHIND, plan_enable,
};
pub use crate::conversion::plain_server::{PlainServer, look_at_plain};
pub use crate::conversion::server_probe::{ReplicatesFrom, ServerLook, look};
pub use crate::conversion::steps::ConversionError;

/// What stands in the way, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Where: a member's name, or a server's address.
    pub place: String,
    /// What stands in the way, in words.
    pub found: String,
    /// What the operator has to do about it.
    pub advice: String,
}

impl Obstacle {
    /// An obstacle at a member or server.
    pub fn new(
        place: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            place: place.into(),
            found: found.into(),
            advice: advice.into(),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.found, self.advice)
    }
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned<S> {
    /// What is to be done.
    pub step: S,
    /// Whether it is so already.
    pub done: bool,
}
