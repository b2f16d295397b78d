//! Everything that the plan depends on, at one moment, and what is being done.

use std::time::Duration;

use tokio::time::Instant;

use crate::leading::Leading;
use crate::ring::LeaderTerm;
use crate::status::{Readiness, WriteFenceState};
use crate::watch::{Protection, ReadOnly};

/// Which start of mysqld, as the watch counts them.
pub type Incarnation = u64;

/// What is known of mysqld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerView {
    /// The start that was looked at last.
    pub incarnation: Incarnation,
    /// Who may write. What this member has set since the last look counts.
    pub read_only: ReadOnly,
    /// Whether ordinary accounts are kept off (`offline_mode`).
    pub offline: bool,
}

/// Everything that the plan depends on, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Whether this member leads and serves, and if not for how long.
    pub leading: Leading,
    /// Whether another member's mysqld could become the primary. Without one, what is read here is never old.
    pub others: bool,
    /// Whether the leadership is about to be given away.
    pub transferring: bool,
    /// Whether the server's data are being replaced.
    pub held: bool,
    /// Whether this member is being stopped.
    pub stopping: bool,

    /// What the last look that succeeded saw; `None` before the first one.
    pub server: Option<ServerView>,
    /// Whether commits are sure to wait for the ring; unknown when the last look failed.
    pub protection: Protection,
    /// Whether the primary's transactions come in, in this leadership, and the server was looked at since they do.
    pub attached: bool,
    /// Whether the server's transactions come in, so that what waits in it can be acknowledged.
    pub takes_in: bool,
    /// For how long the server has greeted whoever came and let nobody in; `None` where it does, and where it cannot be reached.
    pub locked_out: Option<Duration>,
    /// For how long the server has ended sessions and let nobody in, as in a stop.
    pub ending: Option<Duration>,
    /// Whether a transaction that came in has no ACK yet.
    pub waits: bool,
    /// Whether sessions waited for an ACK at the last look that succeeded.
    pub sessions_wait: bool,
    /// Whether what is applied waits for locks of a transaction that XA has prepared, and mysqld was not killed for that since it was
    /// the primary last, as far as this member remembers.
    pub held_up_by_prepared: bool,

    /// Whether this member can kill mysqld and start it again.
    pub can_restart: bool,
    /// Whether the process is to run and does, as far as this member has to do with that.
    pub runs: bool,
    /// mysqld was killed a moment ago, and what is known may be older than that.
    pub just_killed: bool,

    /// Whether the server may become the primary.
    pub readiness: Readiness,
    /// In which start of mysqld and which leadership that was found, if a comparison found it.
    pub found_in: Option<(Incarnation, LeaderTerm)>,
    /// Whether it followed since it was the primary: it is closed before it is compared then.
    pub followed: bool,
    /// How far the applier is.
    pub applier: Applier,
    /// What is being done about the log at this moment.
    pub applying: Option<ApplyAction>,
    /// A comparison in this leadership came to nothing; not again before this moment.
    pub compare_not_before: Option<(LeaderTerm, Instant)>,

    /// What the write fence tells of itself.
    pub write_fence: WriteFenceState,
    /// What the write fence has done; `None` while it is doing something.
    pub write_memory: Option<WriteMemory>,
    /// Whether the read fence is doing something.
    pub read_fence_moves: bool,
    /// Behind a failure of the read fence: not again before this moment.
    pub read_not_before: Option<Instant>,

    /// How long writes and readers are let in while this member does not serve. Nothing is acknowledged meanwhile, so commits
    /// wait; closed at once, they would fail in every restart of the member.
    pub fence_after: Duration,
    /// How long a server that lets nobody in is borne with.
    pub lockout: LockoutPatience,
}

impl Facts {
    /// Before anything was looked at.
    pub fn unknown(fence_after: Duration, lockout: LockoutPatience) -> Self {
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

    /// Those of a server that is not to be touched: as if nobody had ever looked at it. An applier that is at work ends before.
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

    /// Whether the ring's log is being applied to the server.
    pub(crate) fn follows(&self) -> bool {
        matches!(self.applier, Applier::Applying(_))
    }

    /// The start of mysqld that was looked at last; `None` when it cannot be looked at.
    pub(crate) fn seen(&self) -> Option<Incarnation> {
        let answers = !matches!(self.protection, Protection::Unknown { .. });
        self.server
            .filter(|_| answers)
            .map(|server| server.incarnation)
    }
}

/// What the write fence has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteMemory {
    /// The leadership and the start of mysqld in which it opened last, or took over what was open.
    pub opened: Option<(LeaderTerm, Incarnation)>,
    /// Whether it closed after that.
    pub closed_by_us: bool,
    /// The leadership and the start of mysqld for whose opening everything has been asked.
    pub prepared: Option<(LeaderTerm, Incarnation)>,
    /// Behind a failure: not again before this moment.
    pub not_before: Option<Instant>,
    /// Behind a failure to take over what is open: not again before this moment.
    pub take_over_not_before: Option<Instant>,
}

/// How far the applier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applier {
    /// It is not at work.
    Off,
    /// It was started, and has changed nothing yet: it waits for the ring to say which transactions are committed.
    Asking {
        /// On this start of mysqld.
        on: Incarnation,
        /// To catch up behind a comparison in this leadership; `None`: while another member led, or nobody.
        for_term: Option<LeaderTerm>,
    },
    /// It is at work on this start of mysqld.
    Applying(Incarnation),
    /// It ended by itself; it is not to be started again before this moment.
    Failed(Instant),
}

impl Applier {
    /// The start of mysqld that it was started on.
    pub(super) fn on(self) -> Option<Incarnation> {
        match self {
            Self::Asking { on, .. } | Self::Applying(on) => Some(on),
            Self::Off | Self::Failed(_) => None,
        }
    }
}

/// How long a mysqld that lets nobody log in is borne with, before it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockoutPatience {
    /// While another database member leads.
    pub elsewhere: Duration,
    /// While this member leads; `None`: for ever.
    pub leading: Option<Duration>,
}

impl LockoutPatience {
    /// That of a member which gives the leadership away after `mysql.demote_after`, if ever: somebody whose mysqld is fit gets it
    /// before this one is killed.
    pub fn new(demote_after: Option<Duration>) -> Self {
        let elsewhere = Duration::from_secs(10);
        Self {
            elsewhere,
            leading: demote_after.map(|patience| patience + elsewhere),
        }
    }
}

/// Who can write to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    Unknown,
    Clients,
    /// Clients cannot, and no commit waits.
    None,
    /// Clients are to be kept from it, and cannot be: commits wait for an ACK that may never come.
    Stuck,
}

impl Writers {
    /// What the write fence says of the start of mysqld that was looked at last.
    ///
    /// A server that is stuck is killed, so it is taken for stuck only where closing waited behind commits in this very start.
    /// What was said of an earlier one stays said until the fence tries again: believed of the new one, it would cost a second
    /// kill and a second recovery. Nor is a server stuck that could not be reached. One that really is, is found at the next
    /// attempt to close it.
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
            | WriteFenceState::Unknown => Self::Unknown,
        }
    }
}

/// What to do about the ring's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyAction {
    /// Compare what the server has with the log at the begin of the leadership.
    Compare(LeaderTerm),
    /// Start the applier, to follow another member's mysqld.
    Follow,
    /// Wait until everything of the log is applied, end the applier, and make the server fit to be the primary.
    Finish(LeaderTerm),
    /// End the applier: what it writes to is not what it was started on, or this member ends.
    EndApplier,
    /// Keep the applier off, and everybody else too.
    Hold,
    /// Break off what is being done: it is about something that is over.
    BreakOff,
    /// Kill mysqld, cut off what the ring has not committed, and start it.
    Kill(Kill),
    /// Nothing is to be done.
    Stay,
}

/// Why mysqld is killed and started again. Each is what a crash does: nobody was told that what waits in it is committed, and its
/// next start recovers what the ring has and cuts off the rest (decision 24).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// Commits wait in it, and it has to follow.
    Stuck,
    /// It greets everybody and finishes no login.
    LockedOut,
    /// It stops although nobody asked this member for that, and would tell clients that commits succeeded which the ring lacks.
    UnaskedStop,
    /// What is applied to it waits for locks that a transaction of its time as the primary keeps, which XA has prepared.
    HeldUpByPrepared,
}
