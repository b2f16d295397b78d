//! All inputs of the plan at one moment, including the actions in progress.

use std::time::Duration;

use raft_types::Term;
use tokio::time::Instant;

use crate::ring::Leading;
use crate::status::{Readiness, WriteFenceState};
use crate::watch::{Protection, ReadOnly};

/// Number of a start of mysqld, as the watcher counts them.
pub type Incarnation = u64;

/// The observed state of mysqld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerView {
    /// The start observed last.
    pub incarnation: Incarnation,
    /// Which accounts may write, including changes that this member made since the last observation.
    pub read_only: ReadOnly,
    /// True if ordinary accounts are blocked (`offline_mode`).
    pub offline: bool,
}

/// All inputs of the plan at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// True if this member leads and serves; if not, for how long it has not.
    pub leading: Leading,
    /// True if another member's mysqld could become the primary. If none can, reads on this server are never stale.
    pub others: bool,
    /// True if a leadership transfer is about to begin.
    pub transferring: bool,
    /// True if the server's data are being replaced.
    pub held: bool,
    /// True if this member is being stopped.
    pub stopping: bool,

    /// Result of the last successful observation; `None` before the first.
    pub server: Option<ServerView>,
    /// True if commits are sure to wait for the ring; unknown when the last observation failed.
    pub protection: Protection,
    /// True if ingest receives the primary's transactions in this leadership, and the server was observed after ingest attached.
    pub attached: bool,
    /// Whether ingest receives the server's transactions, so that its waiting commits can be acknowledged.
    pub takes_in: bool,
    /// How long the server has sent its greeting without completing a login; `None` if logins work or the server is unreachable.
    pub locked_out: Option<Duration>,
    /// How long the server has ended sessions and refused logins, as during a shutdown.
    pub ending: Option<Duration>,
    /// True if a received transaction has no ACK yet.
    pub waits: bool,
    /// Whether sessions waited for an ACK at the last successful observation.
    pub sessions_wait: bool,
    /// True if the applier waits for locks of an XA-prepared transaction. False if this member has killed mysqld for that reason since
    /// mysqld was last the primary.
    pub held_up_by_prepared: bool,

    /// Whether this member can kill mysqld and start it again.
    pub can_restart: bool,
    /// True if mysqld's process should run and does, as far as this member controls it.
    pub runs: bool,
    /// True if mysqld was killed within the last seconds, so other facts may be older than the kill.
    pub just_killed: bool,

    /// Whether the server may become the primary.
    pub readiness: Readiness,
    /// The start of mysqld and the leadership in which a comparison found the readiness; `None` without a comparison.
    pub found_in: Option<(Incarnation, Term)>,
    /// True if the server has followed since it was the primary. It is then closed before it is compared.
    pub followed: bool,
    /// State of the applier.
    pub applier: Applier,
    /// The action on the log in progress.
    pub applying: Option<ApplyAction>,
    /// After a comparison without result in this leadership: the leadership, and the earliest time of the next comparison.
    pub compare_not_before: Option<(Term, Instant)>,

    /// State reported by the write fence.
    pub write_fence: WriteFenceState,
    /// Past actions of the write fence; `None` while it is busy.
    pub write_memory: Option<WriteMemory>,
    /// True if the read fence is busy.
    pub read_fence_moves: bool,
    /// After a failure of the read fence: earliest time of the next attempt.
    pub read_not_before: Option<Instant>,

    /// How long clients may still write and read while this member does not serve. Commits wait in that time, because they get no ACK. An
    /// immediate close would fail them at each restart of the member.
    pub fence_after: Duration,
    /// How long a server that refuses every login is left running.
    pub lockout: LockoutPatience,
}

impl Facts {
    /// Returns the facts for a server that must not be touched, as if it was never observed. A running applier ends first.
    pub(crate) fn untouched(self) -> Self {
        if self.applier.on().is_some() || self.applying.is_some() {
            return Self { held: true, ..self };
        }
        Self {
            server: None,
            protection: Protection::Unknown {
                cause: "it may be another member's".to_owned(),
            },
            locked_out: None,
            ending: None,
            held: false,
            ..self
        }
    }

    /// True if the ring's log is being applied to the server.
    pub(crate) fn follows(&self) -> bool {
        matches!(self.applier, Applier::Applying(_))
    }

    /// The start of mysqld observed last; `None` when it cannot be observed.
    pub(crate) fn seen(&self) -> Option<Incarnation> {
        let answers = !matches!(self.protection, Protection::Unknown { .. });
        self.server
            .filter(|_| answers)
            .map(|server| server.incarnation)
    }
}

/// Past actions of the write fence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteMemory {
    /// The leadership and the start of mysqld in which the write fence last opened the server, or adopted an open one.
    pub opened: Option<(Term, Incarnation)>,
    /// True if the write fence closed the server after that.
    pub closed_by_us: bool,
    /// The leadership and the start of mysqld for which the queries before opening are complete.
    pub prepared: Option<(Term, Incarnation)>,
    /// After a failure: earliest time of the next attempt.
    pub not_before: Option<Instant>,
    /// After a failure to adopt an open server: earliest time of the next attempt.
    pub take_over_not_before: Option<Instant>,
}

/// State of the applier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applier {
    /// Not running.
    Off,
    /// Started, with no change made yet. The applier waits for the ring to report which transactions are committed.
    Asking {
        /// The start of mysqld.
        on: Incarnation,
        /// The leadership in which a comparison found missing transactions; `None` if this member did not lead.
        for_term: Option<Term>,
    },
    /// Running on this start of mysqld.
    Applying(Incarnation),
    /// Ended unexpectedly; not restarted before this moment.
    Failed(Instant),
}

impl Applier {
    /// Returns the start of mysqld on which the applier was started.
    pub(crate) fn on(self) -> Option<Incarnation> {
        match self {
            Self::Asking { on, .. } | Self::Applying(on) => Some(on),
            Self::Off | Self::Failed(_) => None,
        }
    }
}

/// How long a mysqld that refuses every login is left running before it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockoutPatience {
    /// While another database member leads.
    pub elsewhere: Duration,
    /// While this member leads; `None`: indefinitely.
    pub leading: Option<Duration>,
}

impl LockoutPatience {
    /// Creates the limits for a member that gives up the leadership after `mysql.demote_after`, if set. A member with a healthy mysqld can
    /// then take the leadership before this mysqld is killed.
    pub fn new(demote_after: Option<Duration>) -> Self {
        let elsewhere = Duration::from_secs(10);
        Self {
            elsewhere,
            leading: demote_after.map(|patience| patience + elsewhere),
        }
    }
}

/// Which sessions can write to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    Unknown,
    Clients,
    /// Clients cannot write, and no commit waits.
    None,
    /// Clients should be blocked and cannot be, because commits wait for an ACK that may never arrive.
    Stuck,
}

impl Writers {
    /// Evaluates the write fence's report for the start of mysqld observed last.
    ///
    /// A stuck server is killed. So it counts as stuck only if closing waited for commits in this very start. A report on an earlier start
    /// remains until the fence tries again; applied to the new start, it would cause a second kill and a second recovery. An unreachable
    /// server does not count as stuck either. If it is stuck, the next attempt to close it shows that.
    pub(crate) fn of(fence: &WriteFenceState, server: Option<Incarnation>) -> Self {
        match fence {
            WriteFenceState::Open => Self::Clients,
            WriteFenceState::Closed { .. } => Self::None,
            WriteFenceState::NotClosed { stuck_in, .. }
                if stuck_in.is_some() && *stuck_in == server =>
            {
                Self::Stuck
            }
            WriteFenceState::NotClosed { .. }
            | WriteFenceState::Opening
            | WriteFenceState::NotOpened { .. }
            | WriteFenceState::Unmanaged
            | WriteFenceState::Unknown => Self::Unknown,
        }
    }
}

/// What to do with the ring's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyAction {
    /// Compare the server with the log at the start of the leadership.
    Compare(Term),
    /// Start the applier, to follow another member's mysqld.
    Follow,
    /// Wait until the whole log is applied, end the applier, and prepare the server to be the primary.
    Finish(Term),
    /// End the applier, because it runs on an earlier start of mysqld or this member ends.
    EndApplier,
    /// Keep the applier and all other actions off the server.
    Hold,
    /// Abort the action in progress, because its purpose no longer exists.
    BreakOff,
    /// Kill mysqld, cut off everything that the ring has not committed, and start it.
    Kill(Kill),
    /// No action.
    Stay,
}

/// Why mysqld is killed and restarted. Each kill is like a crash: no client received OK for a waiting commit, and the next start recovers
/// the transactions that the ring has, and cuts off the rest (decision 24).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// Commits wait in mysqld, and it must follow.
    Stuck,
    /// mysqld sends its greeting and completes no login.
    LockedOut,
    /// mysqld shuts down without this member's request, and would report commits as successful that the ring lacks.
    UnaskedStop,
    /// The applier waits for locks of an XA transaction that was prepared while this server was the primary.
    HeldUpByPrepared,
}

#[cfg(test)]
impl Facts {
    /// Returns the facts before the first observation.
    pub(crate) fn unknown(fence_after: Duration, lockout: LockoutPatience) -> Self {
        Self {
            leading: Leading::No(Duration::ZERO),
            others: false,
            transferring: false,
            held: false,
            stopping: false,
            server: None,
            protection: Protection::Unknown {
                cause: String::new(),
            },
            attached: false,
            takes_in: false,
            locked_out: None,
            ending: None,
            waits: false,
            sessions_wait: false,
            held_up_by_prepared: false,
            can_restart: false,
            runs: false,
            just_killed: false,
            readiness: Readiness::Unknown,
            found_in: None,
            followed: false,
            applier: Applier::Off,
            applying: None,
            compare_not_before: None,
            write_fence: WriteFenceState::Unknown,
            write_memory: Some(WriteMemory::default()),
            read_fence_moves: false,
            read_not_before: None,
            fence_after,
            lockout,
        }
    }
}
