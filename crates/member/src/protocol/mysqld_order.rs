//! What `witness enable-raft` and `witness disable-raft` have a member do to the mysqld beside it, and what it answers. No password goes
//! over the wire: accounts are those of the member's own configuration and files.

use std::fmt;
use std::path::PathBuf;

use mysqld_controller::conversion::ServerLook;
use raft_types::RingId;
use serde::{Deserialize, Serialize};

/// An order to one member. Each may be given again: what is done already is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MysqldOrder {
    /// Look at it. Changes nothing.
    Look,
    /// Leave it alone. Only to a member that does not act on it yet.
    HandsOff,
    /// Set the primary up, but for the waiting.
    Prepare,
    /// Let its commits wait for nobody. Only while the member leaves it alone.
    StopWaiting,
    /// Let it stop to acknowledge what it receives.
    StopAcknowledging,
    /// End its own replication. Only while the member leaves it alone.
    LeaveSource,
    /// Act on it from now on.
    Steer,
    /// Stop to act on it, a follower.
    LetFollowerGo,
    /// Stop to act on it, the primary: drained, then open without the ring.
    LetPrimaryGo,
    /// Replicate from the primary. Only while the member leaves it alone.
    Replicate(ReplicateFrom),
}

/// From whom a server is to replicate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicateFrom {
    /// The primary's host.
    pub host: String,
    /// The primary's port.
    pub port: u16,
    /// Whether over TLS.
    pub tls: bool,
    /// The account at the primary; none: the member's own, `mysql.user`.
    pub user: Option<String>,
    /// The file on the member's host whose first line is the password; none: that of the member's own account.
    pub password_file: Option<PathBuf>,
}

impl MysqldOrder {
    /// Whether it changes anything.
    pub fn changes_something(&self) -> bool {
        *self != Self::Look
    }
}

impl fmt::Display for MysqldOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Look => "a look at its mysqld",
            Self::HandsOff => "to leave its mysqld alone",
            Self::Prepare => "to set its mysqld up",
            Self::StopWaiting => "to switch semi-sync off at its mysqld",
            Self::StopAcknowledging => "to let its mysqld acknowledge nothing",
            Self::LeaveSource => "to end its mysqld's own replication",
            Self::Steer => "to act on its mysqld",
            Self::LetFollowerGo => "to let its mysqld go",
            Self::LetPrimaryGo => "to let the primary go",
            Self::Replicate(_) => "to let its mysqld replicate from the primary",
        })
    }
}

/// What a member says of itself and of its mysqld.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MysqldAnswer {
    /// Its ring, once that is made.
    pub ring: Option<RingId>,
    /// What its ring's log begins behind, a GTID set in MySQL's words.
    pub origin: String,
    /// Whether it was told to leave its mysqld alone.
    pub hands_off: bool,
    /// Whether it acts on its mysqld.
    pub steered: bool,
    /// Its clock, in milliseconds since the epoch.
    pub now_ms: u64,
    /// What was seen.
    pub look: Option<ServerLook>,
    /// Why nothing was seen.
    pub unseen: Option<String>,
}
