//! What a run decides, pure: the observed servers, the steps of [`plan_enable`] and [`plan_disable`], and what is in their way. The
//! dangers: two writable servers, and a commit that does not wait for the ring.
//!
//! [`plan_enable`]: super::enable_plan::plan_enable
//! [`plan_disable`]: super::disable_plan::plan_disable

use std::fmt;

use binlog_format::gtid::GtidSet;
use mysqld_server::conversion::ServerLook;
use raft_types::RingId;

use crate::protocol::MysqldAnswer;

/// The steps in order, completed ones included; or all obstacles.
pub(super) type Plan = Result<Vec<Planned>, Vec<Obstacle>>;

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The step.
    pub step: Step,
    /// True if it is done already.
    pub done: bool,
}

/// A step into a ring or out of it. Servers are named by their member, or by their address without one.
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
    /// Make this server stop replicating from the primary, once it has the transactions before the start of the ring's log.
    LeaveSource(String),
    /// Make the primary's member manage it: from then on it belongs to the ring.
    TakeOver,
    /// Make this server's member let it follow.
    Follow(String),
    /// Make this server follow the binlog server.
    Repoint(String),
    /// This follower's member manages it again, so that it gets the transactions that the primary has purged.
    ManageAgain(String),
    /// This follower's member stops managing it.
    ReleaseFollower(String),
    /// The primary's member stops managing it. Open transactions are acknowledged first; clients then write without the ring.
    ReleasePrimary,
    /// This server replicates from the primary.
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

/// An obstacle, and how to remove it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {found}; {advice}")]
pub struct Obstacle {
    /// Where: a member's name, or a server's address.
    pub place: String,
    /// The obstacle, as text.
    pub found: String,
    /// The operator's remedy.
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

/// A server, as its member reports it; the run itself checks one without a member.
#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    /// Name of its member, or its address without one.
    pub(super) name: String,
    /// The report; without a look where there is none.
    pub(super) seen: MysqldAnswer,
    /// Whether the ring's log is applied to it.
    pub(super) follows: bool,
}

/// Everything that a plan depends on.
#[derive(Debug, Clone, Default)]
pub(super) struct Scene {
    /// The primary and its member. Observed after all others, so that they have nothing that it lacked.
    pub(super) primary: Server,
    /// All other database members of the ring.
    pub(super) others: Vec<Server>,
    /// Replicas without a member.
    pub(super) stock: Vec<Server>,
    /// Whether the primary's member leads the ring.
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

    /// Whether its member manages it, or will when it takes part in its ring: only the note prevents that.
    pub(super) fn is_or_will_be_managed(&self) -> bool {
        self.seen.managed || (self.seen.ring.is_some() && !self.seen.unmanaged)
    }

    pub(super) fn obstacle(&self, found: impl Into<String>, advice: impl Into<String>) -> Obstacle {
        Obstacle::new(&self.name, found, advice)
    }

    /// What was seen of it.
    ///
    /// # Errors
    /// That nothing was.
    pub(super) fn look(&self, advice: &str) -> Result<&ServerLook, Obstacle> {
        self.seen.look.as_ref().ok_or_else(|| {
            let cause = self.seen.unseen.as_deref().unwrap_or_default();
            self.obstacle(format!("its mysqld cannot be examined: {cause}"), advice)
        })
    }

    /// A source of its own can be given to a server with at most one.
    pub(super) fn several_channels(&self, advice: &str) -> Option<Obstacle> {
        self.is(|look| look.replicates_from.len() > 1)
            .then(|| self.obstacle("its mysqld replicates through several channels", advice))
    }
}

impl Scene {
    pub(super) fn members(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.primary).chain(&self.others)
    }

    /// All servers but the primary.
    pub(super) fn replicas(&self) -> impl Iterator<Item = &Server> {
        self.others.iter().chain(&self.stock)
    }

    /// The transactions before the start of the ring's log, if there is a ring.
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
