//! Operators' actions on members with servers, and their outcomes, as events for the checkers.

use raft_types::MemberId;

/// One such event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// An operator requests a pause of failover.
    AsksForAPause,
    /// Failover is paused, and this member stays primary.
    Paused { primary: MemberId },
    /// An operator is about to resume failover, or the pause may end by itself from here on.
    Resumes,
    /// An operator promotes this member's server to primary.
    Promotes { to: MemberId },
    /// A server begins to accept writes.
    Opens { by: MemberId },
    /// A server whose data were removed for an incomplete copy accepts writes or applies.
    UsedWithoutItsData { member: MemberId },
    /// An unmanaged server accepts or would accept writes, and another one does.
    TwoPrimaries { plain: MemberId, other: MemberId },
    /// A member that was asked to stop has ended gracefully.
    Stopped(Stopped),
}

/// The state after a member's graceful end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) member: MemberId,
    /// Whether its server still runs.
    pub(crate) server_runs: bool,
    /// It led when it was asked to, and nothing prevented a transfer.
    pub(crate) hands_over: bool,
    /// The member that serves instead.
    pub(crate) successor: Option<MemberId>,
}
