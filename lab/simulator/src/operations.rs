//! Operators' actions on members with servers, and the results of these actions, as events for the checkers.

use raft_types::MemberId;

/// An operator's action, or its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// An operator requested a pause of failover.
    AsksForAPause,
    /// Failover is paused, and this member stays the primary.
    Paused { primary: MemberId },
    /// An operator is about to resume failover, or the pause may end from now on.
    Resumes,
    /// An operator promotes the server of this member to primary.
    Promotes { to: MemberId },
    /// A server began to accept writes.
    Opens { by: MemberId },
    /// A server without its data, because a clone has not completed, accepts writes or applies.
    UsedWithoutItsData { member: MemberId },
    /// An unmanaged server accepts writes, or would accept them, while another server does.
    TwoPrimaries { plain: MemberId, other: MemberId },
    /// A member that was asked to stop has ended gracefully.
    Stopped(Stopped),
}

/// The state after the graceful end of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) member: MemberId,
    /// True if the member's server still runs.
    pub(crate) server_runs: bool,
    /// True if the member led before it was asked to stop, and a transfer of the leadership was possible.
    pub(crate) hands_over: bool,
    /// The member that serves now, if any.
    pub(crate) successor: Option<MemberId>,
}
