//! What the role tells: to the gate and to ingest whether the server may become the primary, to operators what goes on.

use std::time::Instant;

use binlog_format::gtid::GtidSet;
use serde::Serialize;

use crate::ring::LeaderTerm;

/// Whether the server may become the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// In any leadership: nothing but clients writes to it (`mysql.apply = "off"`).
    Always,
    /// It was not compared with the ring's log yet.
    Unknown,
    /// It lacks transactions of the ring's log.
    Lacks,
    /// The applier is at work.
    Applying,
    /// In this leadership: it has everything that the log had when it began, and the applier is gone.
    In(LeaderTerm),
}

impl Readiness {
    /// Whether it may in the leadership of `term`.
    pub fn allows(self, term: LeaderTerm) -> bool {
        match self {
            Self::Always => true,
            Self::In(ready) => ready == term,
            Self::Unknown | Self::Lacks | Self::Applying => false,
        }
    }
}

/// What the server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RoleState {
    /// Nobody knows yet: mysqld was not looked at, or nobody leads.
    Unknown,
    /// It is the primary of this member's leadership, or is on its way to be opened.
    Primary,
    /// It follows the ring.
    Following,
    /// This member leads, and its mysqld does not have all of the log yet.
    CatchingUp {
        /// Transactions that it lacks.
        behind: u64,
    },
    /// It should follow, and waits for something.
    Waiting {
        /// For what.
        what: String,
    },
    /// It neither follows nor may it be the primary; somebody has to look.
    Stopped {
        /// Why, and what to do.
        cause: String,
    },
    /// It is killed and started again, so that what the ring has not committed is cut off.
    Restarting {
        /// Why.
        why: String,
    },
}

/// Why a server is left alone: its data are being replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// It goes on.
    Working {
        /// What is being done.
        what: String,
    },
    /// It was interrupted, and somebody has to go on with it.
    Interrupted {
        /// Where it stands, and what to do.
        cause: String,
    },
}

impl From<Hold> for RoleState {
    fn from(hold: Hold) -> Self {
        match hold {
            Hold::Working { what } => Self::Waiting { what },
            Hold::Interrupted { cause } => Self::Stopped { cause },
        }
    }
}

/// The state and its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleStatus {
    /// What the server is.
    pub state: RoleState,
    /// Since when.
    pub since: Instant,
    /// Milliseconds that what is applied is behind the ring's log, while it follows.
    pub lag_ms: Option<u64>,
    /// Transactions that were applied since this member began.
    pub applied_total: u64,
    /// What mysqld has executed and the ring has not committed, as the last comparison found it; empty where it found nothing.
    /// Clients may have been told that these succeeded. It needs no memory of the member's: mysqld's own tables hold it, and each
    /// comparison finds it again, also behind a restart of both, until the data are replaced.
    pub not_the_rings: GtidSet,
}

impl RoleStatus {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: RoleState::Unknown,
            since: now,
            lag_ms: None,
            applied_total: 0,
            not_the_rings: GtidSet::default(),
        }
    }
}
