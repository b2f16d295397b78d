//! The data of a plan: the observed servers, the steps of [`plan_enable`] and [`plan_disable`], and the obstacles. Pure functions. Two
//! dangers must be avoided: two servers that accept writes, and a commit that does not wait for the ring.
//!
//! [`plan_enable`]: super::enable_plan::plan_enable
//! [`plan_disable`]: super::disable_plan::plan_disable

use std::fmt;

use binlog_format::gtid::GtidSet;
use mysqld_server::conversion::ServerLook;
use raft_types::RingId;

use crate::protocol::MysqldAnswer;

/// The steps in order, including completed ones; or all obstacles.
pub(super) type Plan = Result<Vec<Planned>, Vec<Obstacle>>;

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The step.
    pub step: Step,
    /// True if the step is complete.
    pub done: bool,
}

/// A step into a ring or out of it. A server is identified by the name of its member; without a member, by its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Instruct this member not to manage its server until further notice.
    StayUnmanaged(String),
    /// Create the ring; its log starts after the primary's transactions.
    CreateRing,
    /// Make the primary's member the leader.
    Lead,
    /// Change the primary's settings as required.
    Prepare,
    /// Stop commits on the primary from waiting for ACKs, temporarily.
    StopWaiting,
    /// Make this server stop acknowledging.
    StopAcknowledging(String),
    /// Make this server stop replicating from the primary, after it has executed the transactions before the ring's log.
    LeaveSource(String),
    /// Make the primary's member manage it. From then on, it belongs to the ring.
    TakeOver,
    /// Make this server's member manage it as a follower.
    Follow(String),
    /// Make this server follow the binlog server.
    Repoint(String),
    /// Make this follower's member manage it again, so that it gets the transactions that the primary has purged.
    ManageAgain(String),
    /// Make this follower's member stop managing it.
    ReleaseFollower(String),
    /// Make the primary's member stop managing it. Open transactions are acknowledged first; then clients write without the ring.
    ReleasePrimary,
    /// Make this server replicate from the primary.
    Replicate(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StayUnmanaged(name) | Self::ReleaseFollower(name) => {
                write!(f, "stop managing the mysqld of {name}")
            }
            Self::CreateRing => {
                f.write_str("create the ring, its log starting where the primary's ends")
            }
            Self::Lead => f.write_str("let the primary's member lead"),
            Self::Prepare => f.write_str("set the primary up"),
            Self::StopWaiting => {
                f.write_str("turn semi-sync off at the primary until the takeover")
            }
            Self::StopAcknowledging(name) => write!(f, "turn semi-sync off at {name}"),
            Self::LeaveSource(name) => write!(f, "{name} stops replicating from the primary"),
            Self::TakeOver => f.write_str("take the primary over (writes pause)"),
            Self::Follow(name) => write!(f, "{name} follows the ring"),
            Self::Repoint(name) => write!(f, "{name} follows the binlog server"),
            Self::ManageAgain(name) => {
                let why = "it lacks what the primary has purged";
                write!(f, "manage the mysqld of {name} again ({why})")
            }
            Self::ReleasePrimary => f.write_str("release the primary (writes pause)"),
            Self::Replicate(name) => write!(f, "{name} replicates from the primary"),
        }
    }
}

/// An obstacle, and the advice how to remove it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {found}; {advice}")]
pub struct Obstacle {
    /// The place of the obstacle: a member's name, or a server's address.
    pub place: String,
    /// The obstacle, as text.
    pub found: String,
    /// What the operator can do.
    pub advice: String,
}

impl Obstacle {
    pub(super) fn new(place: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            place: place.to_owned(),
            found: found.into(),
            advice: advice.into(),
        }
    }
}

/// A server as its member reports it. The run itself checks a server without a member.
#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    /// The name of the server's member; without a member, its address.
    pub(super) name: String,
    /// The report. It has no `look` if the server could not be checked.
    pub(super) seen: MysqldAnswer,
    /// True if the ring's log is applied to the server.
    pub(super) follows: bool,
}

/// The input of a plan.
#[derive(Debug, Clone, Default)]
pub(super) struct Scene {
    /// The primary and its member. It is observed last, so the other servers cannot have transactions that it lacked then.
    pub(super) primary: Server,
    /// All other database members of the ring.
    pub(super) others: Vec<Server>,
    /// Replicas without a member.
    pub(super) stock: Vec<Server>,
    /// True if the primary's member leads the ring.
    pub(super) leads: bool,
    /// The rings of other members, by their names.
    pub(super) rings: Vec<(String, RingId)>,
    /// Address of the binlog server that replicas without a member are to follow.
    pub(super) binlog_server: Option<(String, u16)>,
}

impl Server {
    pub(super) fn is(&self, seen: impl FnOnce(&ServerLook) -> bool) -> bool {
        self.seen.look.as_ref().is_some_and(seen)
    }

    /// Returns true if the server's member manages it, or will manage it when it takes part in its ring. Only the note `hands-off` prevents
    /// that.
    pub(super) fn is_or_will_be_managed(&self) -> bool {
        self.seen.managed || (self.seen.ring.is_some() && !self.seen.unmanaged)
    }

    pub(super) fn obstacle(&self, found: impl Into<String>, advice: impl Into<String>) -> Obstacle {
        Obstacle::new(&self.name, found, advice)
    }

    /// Returns the result of the server's check.
    ///
    /// # Errors
    /// An obstacle if the server could not be checked.
    pub(super) fn look(&self, advice: &str) -> Result<&ServerLook, Obstacle> {
        self.seen.look.as_ref().ok_or_else(|| {
            let cause = self.seen.unseen.as_deref().unwrap_or_default();
            self.obstacle(format!("its mysqld cannot be examined: {cause}"), advice)
        })
    }

    /// Returns an obstacle if the server has several channels: a new source is only set on a server with one channel at most.
    pub(super) fn several_channels(&self, advice: &str) -> Option<Obstacle> {
        self.is(|look| look.replicates_from.len() > 1)
            .then(|| self.obstacle("its mysqld replicates through several channels", advice))
    }
}

impl Scene {
    pub(super) fn members(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.primary).chain(&self.others)
    }

    /// Returns all servers except the primary.
    pub(super) fn replicas(&self) -> impl Iterator<Item = &Server> {
        self.others.iter().chain(&self.stock)
    }

    /// Returns the transactions before the ring's log; `None` without a ring.
    pub(super) fn origin(&self) -> Option<GtidSet> {
        let own = &self.primary.seen;
        own.ring.and_then(|_| own.origin.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_has_just_started_will_act_on_its_mysqld() {
        let ring = Some(RingId::default());
        for (ring, unmanaged, managed, expected) in [
            (ring, false, true, true),
            (ring, false, false, true),
            (ring, true, false, false),
            (None, false, false, false),
        ] {
            let seen = MysqldAnswer {
                ring,
                unmanaged,
                managed,
                ..MysqldAnswer::default()
            };
            let server = Server {
                seen,
                ..Server::default()
            };
            assert_eq!(server.is_or_will_be_managed(), expected, "{server:?}");
        }
    }
}
