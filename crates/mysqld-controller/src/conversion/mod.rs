//! Conversion of plain MySQL replication into a ring and back. [`plan_enable`] and [`plan_detach`] are pure plans over observations of
//! servers ([`mysqld_server::conversion`], which has their statements too). The command line drives it; each member acts on its own mysqld.
//! The dangers: two writable servers, and a commit that does not wait for the ring.

mod detach_plan;
mod enable_plan;

use std::fmt;

pub use crate::conversion::detach_plan::{DetachScene, DetachServer, DetachStep, plan_detach};
pub use crate::conversion::enable_plan::{
    EnableScene, EnableServer, EnableStep, MOST_BEHIND, plan_enable,
};

/// An obstacle, and how to remove it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Where: a member's name, or a server's address.
    pub place: String,
    /// The obstacle, as text.
    pub found: String,
    /// The operator's remedy.
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
    /// The step.
    pub step: S,
    /// True if it is done already.
    pub done: bool,
}
