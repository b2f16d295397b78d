//! What operators do to members with servers beside them, and what came of it, as the checkers hear of it.

use std::fmt;

use raft_types::MemberId;

/// One thing of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// An operator asks for a pause of failover.
    AsksForAPause,
    /// Failover is paused, and this member keeps the primary's place.
    Paused { primary: MemberId },
    /// An operator is about to resume failover, or the pause may be over by itself from here on.
    Resumes,
    /// An operator orders that this member's server becomes the primary.
    Promotes { to: MemberId },
    /// A server takes writes that took none before.
    Opens { by: MemberId },
    /// A server whose data were taken away for a copy, which has not come, takes writes or applies.
    UsedWithoutItsData { member: MemberId },
    /// A server takes writes, or would, that no member manages, and another one does.
    TwoPrimaries { plain: MemberId, other: MemberId },
    /// A member that was told to stop has ended in good order.
    Stopped(Stopped),
}

/// How things stand when a member has ended in good order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) member: MemberId,
    /// Whether the server beside it still runs.
    pub(crate) server_runs: bool,
    /// It led when it was told to, and nothing was in the way of another one.
    pub(crate) hands_over: bool,
    /// Who serves in its place.
    pub(crate) successor: Option<MemberId>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { primary } => {
                write!(
                    f,
                    "failover is paused, member {primary} is the pinned primary"
                )
            }
            Self::AsksForAPause => f.write_str("an operator asks for a pause of failover"),
            Self::Resumes => f.write_str("the pause of failover ends"),
            Self::Promotes { to } => write!(f, "an operator promotes {to}"),
            Self::Opens { by } => write!(f, "the server of {by} takes writes"),
            Self::UsedWithoutItsData { member } => {
                write!(f, "the server of {member} is used without its data")
            }
            Self::TwoPrimaries { plain, other } => write!(
                f,
                "the server of {plain} takes writes and is not managed, and that of {other} takes writes"
            ),
            Self::Stopped(stopped) => write!(f, "{stopped:?}"),
        }
    }
}
