//! What the replicated membership says of each member.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::extras::Extras;
use crate::ids::{Incarnation, Region};
use crate::pause::PauseMark;

/// Whether a member has a mysqld beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberKind {
    /// Log only: stores, acknowledges, votes, relays, and leads only to hand over.
    #[default]
    Witness,
    /// The same beside a mysqld that it steers.
    Database,
}

impl fmt::Display for MemberKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Witness => "witness",
            Self::Database => "database",
        })
    }
}

/// One member as the membership entries of the log describe it.
///
/// Two records are equal when they are of the same member: of one data directory, and of one kind. The engine compares
/// records for that alone, and refuses a membership in which another member stands behind a number. Everything else
/// about a member may change while it stays the same one; [`MemberRecord::says_the_same`] compares that as well.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MemberRecord {
    /// The operator's name for it, unique in the ring.
    pub name: String,
    /// Where it runs.
    pub region: Region,
    /// Witness or database member.
    pub kind: MemberKind,
    /// Whether it may ever count in a quorum; false for one that only receives the log.
    pub votes: bool,
    /// Which of several fit members a witness gives the leadership to: the highest. 0: to this one only when there is
    /// no other.
    #[serde(default = "MemberRecord::default_priority")]
    pub priority: u32,
    /// `host:port` at which the other members reach it.
    pub address: String,
    /// The data directory that stands behind it.
    pub incarnation: Incarnation,
    /// Failover is paused, and this member is the primary meanwhile: no other one's mysqld becomes it by itself. One
    /// record of a ring has it at most.
    #[serde(default, skip_serializing_if = "PauseMark::is_none")]
    pub pause: PauseMark,
    /// What is carried on into every membership that is made from this one: what a later version of this program says of
    /// the member, and what the ring's members all carry.
    #[serde(flatten)]
    pub extras: Extras,
}

impl MemberRecord {
    /// The priority of a member for which the operator chose none.
    pub const DEFAULT_PRIORITY: u32 = 100;

    /// Whether both say the same of the same member, what they carry along left aside.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let said = |of: &Self| {
            let region = of.region.clone();
            (
                of.name.clone(),
                region,
                of.votes,
                of.priority,
                of.address.clone(),
            )
        };
        self == other && said(self) == said(other)
    }

    const fn default_priority() -> u32 {
        Self::DEFAULT_PRIORITY
    }
}

impl PartialEq for MemberRecord {
    fn eq(&self, other: &Self) -> bool {
        self.incarnation == other.incarnation && self.kind == other.kind
    }
}

impl Eq for MemberRecord {}

impl Default for MemberRecord {
    fn default() -> Self {
        Self {
            name: String::new(),
            region: Region::default(),
            kind: MemberKind::default(),
            votes: false,
            priority: Self::DEFAULT_PRIORITY,
            address: String::new(),
            incarnation: Incarnation::default(),
            pause: PauseMark::default(),
            extras: Extras::default(),
        }
    }
}
