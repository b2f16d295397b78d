//! Events that a member observed in its ring.

use std::fmt;

use member::status::PauseView;

use crate::text::Level;
use crate::text::member::MysqldKind;
use crate::text::ring::paused;
use crate::text::times::{precise, span};

/// A change between two observations. A `String` for a member contains its name in backticks, or its number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Started {
        member: String,
        version: String,
    },
    Silent(String),
    Answers(String),
    Leads {
        member: String,
        term: u64,
        after: LedAfter,
    },
    /// The observing member is the leader, and too few members answer it. Contains the cause.
    NoQuorum(String),
    /// No leader is known since this member lost the leadership, if the observer knew a leader.
    NoLeader(Option<String>),
    Mysqld {
        member: String,
        was: MysqldKind,
        now: MysqldKind,
    },
    /// Transactions trimmed from the binlog of a mysqld.
    Trimmed {
        member: String,
        transactions: u64,
    },
    Added(String),
    Removed(String),
    /// The voter sets changed. Each text lists the voters of one set.
    VoterSets(Vec<String>),
    Policy {
        was: String,
        now: String,
    },
    Paused {
        pause: PauseView,
        primary: String,
    },
    Resumed,
    Fault(String),
}

/// The state of the leadership before the new leader.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LedAfter {
    /// The same member led in an earlier term.
    Itself,
    Leader(String),
    /// The measured time without a leader, in milliseconds.
    NoLeader(Option<u64>),
    /// Seconds without a quorum.
    NoQuorum(f64),
}

impl Change {
    pub(crate) fn level(&self) -> Level {
        match self {
            Self::Answers(_) | Self::Leads { .. } => Level::Good,
            Self::Silent(_) | Self::NoQuorum(_) | Self::NoLeader(_) | Self::Fault(_) => Level::Bad,
            Self::Mysqld { was, now, .. } => now.level_after(*was),
            _ => Level::Note,
        }
    }
}

/// Writes a sentence without its full stop.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { member, version } => write!(f, "{member} started, version {version}"),
            Self::Silent(member) => write!(f, "{member} does not answer"),
            Self::Answers(member) => write!(f, "{member} answers again"),
            Self::Leads {
                member,
                term,
                after,
            } => write!(f, "{member} leads in term {term}{after}"),
            Self::NoQuorum(cause) => write!(f, "no quorum: {cause}. Commits wait"),
            Self::NoLeader(Some(was)) => {
                write!(f, "{was} lost the leadership; no leader is known")
            }
            Self::NoLeader(None) => f.write_str("no leader is known"),
            Self::Mysqld { member, was, now } => {
                write!(f, "the mysqld of {member}: {now}, before: {was}")
            }
            Self::Trimmed {
                member,
                transactions,
            } => write!(
                f,
                "the mysqld of {member}: {} cut off its binlog",
                uncommitted(*transactions)
            ),
            Self::Added(member) => write!(f, "{member} was added to the ring"),
            Self::Removed(member) => write!(f, "{member} was removed from the ring"),
            Self::VoterSets(sets) => {
                let sets: Vec<_> = sets
                    .iter()
                    .map(|set| format!("a majority of {set}"))
                    .collect();
                write!(f, "a commit needs {} now", sets.join(", and "))
            }
            Self::Policy { was, now } => write!(f, "the policy is `{now}`, before: `{was}`"),
            Self::Paused { pause, primary } => f.write_str(&paused(pause, primary)),
            Self::Resumed => f.write_str("maintenance mode ended"),
            Self::Fault(why) => write!(f, "stopped working: {why}"),
        }
    }
}

impl fmt::Display for LedAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Itself | Self::NoLeader(None) => Ok(()),
            Self::Leader(was) => write!(f, ", before: {was}"),
            Self::NoLeader(Some(measured)) => {
                write!(f, ", after {} without a leader", precise(*measured))
            }
            Self::NoQuorum(seconds) => {
                write!(f, ", after about {} without a quorum", span(*seconds))
            }
        }
    }
}

/// Trimmed transactions as a subject with its verb.
pub(crate) fn uncommitted(transactions: u64) -> String {
    match transactions {
        1 => "1 transaction that the ring had not committed was".to_owned(),
        more => format!("{more} transactions that the ring had not committed were"),
    }
}

/// A change and the time of its observation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) change: Change,
}
