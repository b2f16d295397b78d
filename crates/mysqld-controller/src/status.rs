//! The controller's status of one mysqld: its readiness to be the primary, for ingest, and its activity, for operators.

use std::fmt;

use binlog_format::gtid::GtidSet;
use mysqld_server::sessions::lock_holders::HeldUp;
use raft_types::{MemberId, Term};
use serde::{Deserialize, Serialize, Serializer};
use tokio::time::Instant;

/// Whether the server may become the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The server may be the primary in every leadership, because only clients write to the server (`mysql.apply = "off"`).
    Always,
    /// The server was not compared with the ring's log yet.
    Unknown,
    /// The server lacks transactions of the ring's log.
    Lacks,
    /// The applier is running.
    Applying,
    /// The server may be the primary in this leadership: it has everything that the log had at the start, and the applier has ended.
    In(Term),
}

impl Readiness {
    /// True if the server may become the primary in the leadership of `term`.
    pub fn allows(self, term: Term) -> bool {
        match self {
            Self::Always => true,
            Self::In(ready) => ready == term,
            Self::Unknown | Self::Lacks | Self::Applying => false,
        }
    }

    /// True if the server may be the primary in some leadership of this member.
    pub(crate) fn is_of_a_primary(self) -> bool {
        matches!(self, Self::Always | Self::In(_))
    }
}

/// The current role of a mysqld in its ring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RoleState {
    /// mysqld is the primary of this member's leadership, or is about to be opened.
    Primary,
    /// mysqld follows the ring: the log is being applied to it.
    Following,
    /// This member leads, and its mysqld does not have the whole log yet.
    CatchingUp {
        /// How many transactions mysqld lacks.
        #[serde(rename = "behind")]
        lacks: u64,
    },
    /// mysqld should follow, and waits.
    Waiting {
        /// What mysqld waits for.
        what: WaitingFor,
    },
    /// mysqld neither follows nor may be the primary; an operator must act.
    Stopped {
        /// Why, and what to do.
        cause: String,
    },
    /// mysqld is killed and restarted, so that everything that the ring has not committed is cut off.
    Restarting {
        /// Why mysqld was killed, as a message.
        why: String,
    },
    /// The ring's log is never applied to mysqld; not a state of the controller.
    NotApplied,
    /// The member does not manage mysqld; not a state of the controller.
    Unmanaged,
    /// mysqld was not observed yet, there is no leader, or a role of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

const UNMANAGED: &str = "unmanaged: `witness enable-raft` lets the member manage it";

impl fmt::Display for RoleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primary => f.write_str("primary"),
            Self::Following => f.write_str("following"),
            Self::CatchingUp { lacks } => {
                write!(
                    f,
                    "catching up: {lacks} transactions behind, then the primary"
                )
            }
            Self::Waiting { what } => write!(f, "waiting: {what}"),
            Self::Stopped { cause } => write!(f, "stopped: {cause}"),
            Self::Restarting { why } => write!(f, "restarting: {why}"),
            Self::NotApplied => f.write_str("nothing is applied to it"),
            Self::Unmanaged => f.write_str(UNMANAGED),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// What a mysqld that should follow waits for. In JSON this is the message, and reading it returns a [`WaitingFor::Step`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum WaitingFor {
    /// The ring must report its committed transactions.
    Ring,
    /// mysqld must answer.
    Answer,
    /// mysqld must be closed for writes.
    Writers,
    /// The next attempt, or a step of a copy, as a message.
    Step(String),
}

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "the ring has to say which transactions are committed",
            Self::Answer => "mysqld has to answer",
            Self::Writers => "clients can still write",
            Self::Step(what) => what,
        })
    }
}

impl Serialize for WaitingFor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<String> for WaitingFor {
    fn from(what: String) -> Self {
        Self::Step(what)
    }
}

/// Why a server is left alone: its data are being replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// The command that replaces the data is running.
    Working {
        /// The current step, as a message.
        what: String,
    },
    /// The command was interrupted, and an operator must continue it.
    Interrupted {
        /// The command's progress, and what to do.
        cause: String,
    },
}

impl From<Hold> for RoleState {
    fn from(hold: Hold) -> Self {
        match hold {
            Hold::Working { what } => Self::Waiting {
                what: WaitingFor::Step(what),
            },
            Hold::Interrupted { cause } => Self::Stopped { cause },
        }
    }
}

/// The role's state, and counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleStatus {
    /// The current role of mysqld in its ring.
    pub state: RoleState,
    /// Milliseconds by which the applier lags behind this member's copy of the ring's log, while mysqld follows.
    pub lag_ms: Option<u64>,
    /// Transactions applied since this member started.
    pub applied_total: u64,
    /// GTIDs that mysqld has executed and the ring has not committed, by the last comparison; empty if there are none. Clients may have
    /// received OK for these transactions. The member does not store the set. mysqld's tables keep the GTIDs, and each comparison finds
    /// them again until the data are replaced, even after a restart of member and mysqld.
    pub not_the_rings: GtidSet,
    /// What blocks the applier, and the backup that a promotion would abort.
    pub held_up: HeldUp,
    /// Tables of engines without transactions that the member's applier has written to, with their engines. Their rows cannot be rolled
    /// back. Empty while mysqld is the primary.
    pub without_transactions: Vec<String>,
}

impl RoleStatus {
    pub(crate) fn new() -> Self {
        Self {
            state: RoleState::Unknown,
            lag_ms: None,
            applied_total: 0,
            not_the_rings: GtidSet::default(),
            held_up: HeldUp::default(),
            without_transactions: Vec::new(),
        }
    }
}

/// Whether clients may write, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum WriteFenceState {
    /// Clients may write.
    Open,
    /// Clients may not write.
    Closed {
        /// Why.
        why: String,
    },
    /// Clients may write, but should not: closing has not succeeded yet.
    NotClosed {
        /// Why the server should be closed.
        why: String,
        /// Why closing has not succeeded, and what to do.
        cause: String,
        /// The start of mysqld in which closing waited for commits; `None` if closing failed for another reason.
        #[serde(skip)]
        stuck_in: Option<u64>,
    },
    /// The server is being opened: clients may write soon, or already.
    Opening,
    /// Clients may not write, but should: opening has not succeeded yet.
    NotOpened {
        /// Why opening has not succeeded, and what to do.
        cause: String,
    },
    /// The member does not manage mysqld; not a state of the controller.
    Unmanaged,
    /// The server cannot be observed, or a state of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for WriteFenceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("open"),
            Self::Closed { why } => write!(f, "closed: {why}"),
            Self::NotClosed { why, cause, .. } => {
                write!(f, "should be closed ({why}), but could not be: {cause}")
            }
            Self::Opening => f.write_str("being opened"),
            Self::NotOpened { cause } => write!(f, "could not be opened: {cause}"),
            Self::Unmanaged => f.write_str(UNMANAGED),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// The write fence's state and its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteFenceStatus {
    /// Whether clients may write.
    pub state: WriteFenceState,
    /// Since when the state is unchanged.
    pub since: Instant,
}

/// Why ordinary accounts are blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFenceReason {
    /// No quorum of the ring answers.
    QuorumSilent,
    /// This member does not lead, and knows no leader.
    NotLeader,
    /// The primary belongs to another member.
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

/// Current state of the read fence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadFenceStatus {
    /// True if clients use the server as the primary, so that the guard must block them if this member hangs or ends.
    pub guards: bool,
    /// Why this member blocks ordinary accounts, if it does.
    pub because: Option<ReadFenceReason>,
}
