//! What the controller tells of one mysqld: to ingest whether it may be the primary, to operators what goes on.

use std::fmt;

use binlog_format::gtid::GtidSet;
use raft_types::MemberId;
use serde::Serialize;
use tokio::time::Instant;

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

    /// Whether it may in the latest leadership of this member, whichever that is.
    pub(crate) fn is_of_a_primary(self) -> bool {
        matches!(self, Self::Always | Self::In(_))
    }
}

/// What a mysqld is in its ring at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RoleState {
    /// Nobody knows yet: mysqld was not looked at, or nobody leads.
    Unknown,
    /// It is the primary of this member's leadership, or is on its way to be opened.
    Primary,
    /// It follows the ring: the log is being applied to it.
    Following,
    /// This member leads, and its mysqld does not have all of the log yet.
    CatchingUp {
        /// How many transactions it lacks.
        behind: u64,
    },
    /// It should follow, and waits for something.
    Waiting {
        /// What it waits for, in words.
        what: String,
    },
    /// It neither follows nor may it be the primary; somebody has to look.
    Stopped {
        /// Why, and what to do.
        cause: String,
    },
    /// It is killed and started again, so that what the ring has not committed is cut off.
    Restarting {
        /// Why it was killed, in words.
        why: String,
    },
}

/// Why a server is left alone: its data are being replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// The command that replaces the data is at work.
    Working {
        /// The step that is under way, in words.
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
    /// What mysqld is in its ring.
    pub state: RoleState,
    /// When that state began.
    pub since: Instant,
    /// Milliseconds that what is applied is behind what this member has of the ring's log, while it follows.
    pub lag_ms: Option<u64>,
    /// Transactions that were applied since this member began.
    pub applied_total: u64,
    /// What mysqld has executed and the ring has not committed, as the last comparison found it; empty where it found nothing.
    /// Clients may have been told that these succeeded. It needs no memory of the member's: mysqld's own tables hold it, and each
    /// comparison finds it again, also behind a restart of both, until the data are replaced.
    pub not_the_rings: GtidSet,
    /// Whose locks keep what the ring has from being applied, in words.
    pub held_up_by: Vec<String>,
    /// Whether locks of a transaction that XA has prepared do so: a start of mysqld ends them.
    pub held_up_by_prepared: bool,
    /// Tables that the member's applier has written to, and whose rows nobody can take back, since their engine has no
    /// transactions; none while mysqld is the primary.
    pub without_transactions: Vec<String>,
}

impl RoleStatus {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: RoleState::Unknown,
            since: now,
            lag_ms: None,
            applied_total: 0,
            not_the_rings: GtidSet::default(),
            held_up_by: Vec::new(),
            held_up_by_prepared: false,
            without_transactions: Vec::new(),
        }
    }
}

/// Whether clients may write, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum WriteFenceState {
    /// They may.
    Open,
    /// They may not.
    Closed {
        /// Why.
        why: String,
    },
    /// They may, but should not: closing has not worked yet.
    NotClosed {
        /// Why it should be closed.
        why: String,
        /// Why that has not worked, and what to do.
        cause: String,
        /// In which start of mysqld closing waited behind commits; `None` where it failed for another reason.
        stuck_in: Option<u64>,
    },
    /// They are about to. Whether they already may is not known.
    Opening,
    /// They may not, but should: opening has not worked yet.
    NotOpened {
        /// Why not, and what to do.
        cause: String,
    },
    /// The server cannot be looked at.
    Unknown,
}

/// The state and its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteFenceStatus {
    /// Whether clients may write.
    pub state: WriteFenceState,
    /// Since when it has been so.
    pub since: Instant,
}

/// Why ordinary accounts are kept off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadFenceReason {
    /// No quorum of the ring answers.
    QuorumSilent,
    /// This member does not lead, and knows of nobody who does.
    NotLeader,
    /// The primary is beside another member.
    AnotherLeads(MemberId),
}

impl fmt::Display for ReadFenceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QuorumSilent => f.write_str("no quorum of the ring answers"),
            Self::NotLeader => f.write_str("this member does not lead, and knows of no leader"),
            Self::AnotherLeads(member) => write!(f, "the primary is beside member {member}"),
        }
    }
}

/// What the read fence is at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadFenceStatus {
    /// Whether clients take the server for the primary, so that they would have to be kept off if this member were gone.
    pub guards: bool,
    /// Why ordinary accounts are kept off by this member, if they are.
    pub because: Option<ReadFenceReason>,
}
