//! The state of ingest for operators, with its age and cause, and counters.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use binlog_format::framing::FramingError;
use binlog_format::gtid::Gtid;
use mysql_link::{DumpError, LinkError};
use mysqld_server::settings::{ApplyError, Finding};
use raft_types::Term;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ingest::ack_ledger::NotCommitted;
use crate::ingest::attachment::{AttachRefusal, NeverSent};
use crate::ring::RingError;

/// State of the attachment to the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IngestState {
    /// The member does not serve as the leader.
    Idle,
    /// Proposals of the previous attachment are undecided; a quorum is missing.
    Settling {
        /// Number of undecided proposals.
        proposals: usize,
    },
    /// Connecting to the primary and comparing it with the ring.
    Attaching,
    /// The primary's transactions arrive, but some earlier ones are still missing; commits do not wait until all have arrived.
    CatchingUp,
    /// The primary's transactions arrive as they are made, and are acknowledged.
    Attached,
    /// The attachment failed or ended; another attempt follows.
    Failed {
        /// The cause and its remedy.
        cause: String,
    },
}

/// The state and its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestStatus {
    /// State of the attachment to the primary.
    pub state: IngestState,
    /// The leadership of the current or last attachment.
    pub term: Option<Term>,
    /// Start of the state. Consecutive failed attempts count as one failure.
    pub since: Instant,
    /// Why the previous attachment ended.
    pub last_failure: Option<String>,
    pub(crate) failing: Option<Failing>,
}

/// A series of failed attempts without an ACK in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// When the first attempt failed.
    pub since: Instant,
    /// Why the last attempt failed.
    pub cause: String,
    /// True if the cause was that the primary lacks transactions of the ring.
    pub lacks_the_log: bool,
}

/// An attachment that lasts longer ends a series of failures. Longer than the dump's silence limit.
const LASTING: Duration = Duration::from_secs(10);
/// A shorter failure is transient, for example a closed connection.
const PASSING: Duration = Duration::from_secs(2);

impl IngestStatus {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: IngestState::Idle,
            term: None,
            since: now,
            last_failure: None,
            failing: None,
        }
    }

    /// True if the primary's transactions are received as they are committed.
    pub fn is_attached(&self) -> bool {
        self.state == IngestState::Attached
    }

    /// True if the primary's transactions are received, including earlier ones, so that waiting commits can be acknowledged.
    pub fn takes_in(&self) -> bool {
        matches!(self.state, IngestState::CatchingUp | IngestState::Attached)
    }

    /// Returns why the primary's transactions are not received, if attempts keep failing. An attachment that neither lasted nor
    /// acknowledged a transaction still counts as failing.
    pub fn failing(&self, now: Instant) -> Option<&Failing> {
        let tries = match self.state {
            IngestState::Attaching | IngestState::Failed { .. } => true,
            IngestState::CatchingUp | IngestState::Attached => !self.has_lasted(now),
            IngestState::Idle | IngestState::Settling { .. } => false,
        };
        let failing = self.failing.as_ref().filter(|_| tries)?;
        (now.saturating_duration_since(failing.since) >= PASSING).then_some(failing)
    }

    /// True if the last attempt found that the primary lacks transactions of the ring. No attempt succeeds before the primary has them.
    pub fn lacks_the_log(&self) -> bool {
        let failing = self.failing.as_ref().filter(|_| !self.takes_in());
        failing.is_some_and(|failing| failing.lacks_the_log)
    }

    fn has_lasted(&self, now: Instant) -> bool {
        self.takes_in() && now.saturating_duration_since(self.since) >= LASTING
    }

    /// Records an ACK, which ends the series of failures. Returns whether such a series existed.
    pub(crate) fn acknowledges(&mut self) -> bool {
        self.failing.take().is_some()
    }

    /// Records a failed attempt, and whether it had acknowledged a transaction. A failure of the ring is not counted, because another
    /// primary would not help.
    pub(crate) fn fail(&mut self, error: &IngestError, acknowledged: bool, now: Instant) {
        let cause = error.to_string();
        let goes_on = !acknowledged && !self.has_lasted(now);
        let before = self.failing.take().filter(|_| goes_on);
        if !error.is_of_the_ring() {
            self.failing = Some(Failing {
                since: before.map_or(now, |before| before.since),
                cause: cause.clone(),
                lacks_the_log: error.lacks_the_log(),
            });
        }
        self.go(IngestState::Failed { cause }, now);
    }

    /// Changes to the next state. Consecutive failures keep their start time.
    pub(crate) fn go(&mut self, state: IngestState, now: Instant) {
        match &state {
            IngestState::Failed { cause } => self.last_failure = Some(cause.clone()),
            IngestState::Idle => self.failing = None,
            _ => {}
        }
        use IngestState::{Attaching, Failed};
        let tries = matches!(self.state, Attaching | Failed { .. });
        if !(tries && matches!(state, Attaching | Failed { .. })) {
            self.since = now;
        }
        self.state = state;
    }
}

/// The figures at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IngestFiguresView {
    /// Attachments since the member started.
    pub attachments_total: u64,
    /// Transactions that the primary had committed and the ring lacked, summed over all attachments.
    pub not_in_ring_total: u64,
    /// Transactions that were proposed to the ring.
    pub proposed_total: u64,
    /// Proposed transactions that were committed and released for an ACK.
    pub committed_total: u64,
    /// Transactions that arrived although the log had them, because their ACK had been lost.
    pub known_total: u64,
    /// Semi-sync acknowledgements that were sent.
    pub acks_total: u64,
    /// Bytes of binlog events that were received.
    pub received_bytes_total: u64,
    /// How long the oldest transaction without an ACK has waited; `None` while none waits.
    pub oldest_unacknowledged: Option<Duration>,
}

/// Counters of ingest, and the arrival time of the oldest transaction without an ACK.
#[derive(Debug, Default)]
pub struct IngestFigures {
    now: Mutex<(IngestFiguresView, Option<Instant>)>,
    /// Notified after each ACK, and when no transaction waits.
    pub(super) progress: Notify,
}

impl IngestFigures {
    /// The figures of this moment.
    pub fn view(&self, now: Instant) -> IngestFiguresView {
        let (figures, oldest) = self.lock().clone();
        IngestFiguresView {
            oldest_unacknowledged: oldest.map(|came| now.saturating_duration_since(came)),
            ..figures
        }
    }

    fn lock(&self) -> MutexGuard<'_, (IngestFiguresView, Option<Instant>)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, counts: impl FnOnce(&mut IngestFiguresView)) {
        counts(&mut self.lock().0);
    }

    /// Counts an attachment. `unproposed`: transactions that the primary has committed and the ring lacks.
    pub(crate) fn attached(&self, unproposed: u128) {
        let unproposed = u64::try_from(unproposed).unwrap_or(u64::MAX);
        self.count(|figures| {
            figures.not_in_ring_total = figures.not_in_ring_total.saturating_add(unproposed);
            figures.attachments_total += 1;
        });
    }

    pub(crate) fn acks(&self) -> u64 {
        self.lock().0.acks_total
    }

    pub(crate) fn acknowledged(&self) {
        self.count(|figures| figures.acks_total += 1);
        self.progress.notify_waiters();
    }

    /// Records when the oldest waiting transaction arrived; `None` after the end of an attachment.
    pub(crate) fn oldest(&self, since: Option<Instant>) {
        let before = std::mem::replace(&mut self.lock().1, since);
        if before.is_some() && since.is_none() {
            self.progress.notify_waiters();
        }
    }
}

// Reasons for which an attachment ends.

/// Why an attachment failed to start, or ended.
#[derive(Debug, Error)]
pub enum IngestError {
    /// The leadership is over: another member attaches now.
    #[error("this member's leadership is over")]
    LeadershipOver,
    /// The primary cannot be reached, or refuses the member.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The primary's settings do not allow an attachment.
    #[error("the primary is not set up for it: {}", listed(.findings))]
    NotSetUp {
        /// The problems, and their remedies.
        findings: Vec<Finding>,
    },
    /// A setting could not be changed.
    #[error("the primary could not be set up: {0}")]
    Apply(#[from] ApplyError),
    /// Primary and ring do not belong together.
    #[error(transparent)]
    Attach(#[from] AttachRefusal),
    /// The dump skipped a transaction that waits for an ACK.
    #[error(transparent)]
    NeverSent(#[from] NeverSent),
    /// The primary sent two transactions with one GTID.
    #[error(
        "mysqld sent {0} a second time in one attachment, as after RESET BINARY LOGS AND GTIDS: members would have one of the two \
         transactions. Kill this mysqld, so that another one becomes the primary, and reprovision it"
    )]
    SentAgain(Gtid),
    /// The primary returned an unreadable value.
    #[error("the primary's {what} cannot be read: {reason}")]
    Unreadable {
        /// Name of the value, for example "executed GTIDs".
        what: &'static str,
        /// What is wrong with the value.
        reason: String,
    },
    /// The dump was refused, or ended.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The events cannot be assembled to transactions.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// The ring did not accept a transaction.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A proposal was not committed.
    #[error(transparent)]
    NotCommitted(#[from] NotCommitted),
}

impl IngestError {
    /// Whether the ring caused the failure, and not the primary.
    fn is_of_the_ring(&self) -> bool {
        matches!(
            self,
            Self::LeadershipOver | Self::Ring(_) | Self::NotCommitted(_)
        )
    }

    /// True if the primary lacks transactions that the ring has.
    fn lacks_the_log(&self) -> bool {
        matches!(self, Self::Attach(AttachRefusal::PrimaryLacks { .. }))
    }
}

fn listed(findings: &[Finding]) -> String {
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    findings.join("; ")
}

#[cfg(test)]
mod tests {
    use binlog_format::gtid::GtidSet;

    use super::*;

    const NOT_SET_UP: IngestError = IngestError::NotSetUp {
        findings: Vec::new(),
    };

    #[test]
    fn attempts_that_fail_in_a_row_are_one_failure() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let failed = |cause: &str| IngestState::Failed {
            cause: cause.to_owned(),
        };
        let mut status = IngestStatus::new(at(0));
        status.go(IngestState::Attaching, at(1));
        status.go(failed("refused"), at(2));
        status.go(IngestState::Attaching, at(3));
        status.go(failed("still refused"), at(4));
        assert_eq!(status.since, at(1));
        assert_eq!(status.last_failure.as_deref(), Some("still refused"));
        status.go(IngestState::Attached, at(5));
        assert_eq!(status.since, at(5));
        assert!(status.is_attached());
    }

    #[test]
    fn what_is_attached_to_and_fails_again_without_an_ack_fails_all_the_time() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let failure = |of_the_ring| match of_the_ring {
            true => IngestError::Ring(RingError("it refuses".to_owned())),
            false => NOT_SET_UP,
        };
        let fails_since = |status: &IngestStatus, second| {
            let failing = status.failing(at(second));
            failing.map(|failing| failing.since.duration_since(began).as_secs())
        };
        let mut status = IngestStatus::new(at(0));
        status.go(IngestState::Attached, at(0));
        status.fail(&failure(false), false, at(60));
        assert_eq!(fails_since(&status, 61), None);
        assert_eq!(fails_since(&status, 62), Some(60));
        for second in 63..90 {
            status.go(IngestState::Attaching, at(second));
            assert_eq!(fails_since(&status, second), Some(60));
            status.go(IngestState::CatchingUp, at(second));
            status.go(IngestState::Attached, at(second));
            assert_eq!(fails_since(&status, second), Some(60));
            status.fail(&failure(false), false, at(second));
            assert_eq!(fails_since(&status, second), Some(60));
        }
        // An attempt that acknowledges ends the series immediately. Regression: the leader gave up its primary all the same.
        let mut acknowledging = status.clone();
        acknowledging.go(IngestState::Attached, at(90));
        assert_eq!(fails_since(&acknowledging, 91), Some(60));
        assert!(acknowledging.acknowledges() && !acknowledging.acknowledges());
        assert_eq!(fails_since(&acknowledging, 91), None);
        // An attachment that lasts or acknowledges does not continue the series.
        status.go(IngestState::Attached, at(90));
        assert_eq!(fails_since(&status, 99), Some(60));
        assert_eq!(fails_since(&status, 100), None);
        status.fail(&failure(false), false, at(101));
        assert_eq!(fails_since(&status, 103), Some(101));
        status.go(IngestState::Attached, at(104));
        status.fail(&failure(false), true, at(105));
        assert_eq!(fails_since(&status, 107), Some(105));
        // A transaction that the ring refuses would also be refused from another primary.
        status.fail(&failure(true), false, at(108));
        assert_eq!(fails_since(&status, 118), None);
        status.fail(&failure(false), false, at(120));
        status.go(IngestState::Idle, at(121));
        status.go(IngestState::Attaching, at(122));
        assert_eq!(fails_since(&status, 123), None);
    }

    #[test]
    fn a_primary_lacks_the_log_until_an_attempt_finds_something_else_or_comes_about() {
        let now = Instant::now();
        let found = |lacks_the_log| match lacks_the_log {
            true => IngestError::Attach(AttachRefusal::PrimaryLacks {
                missing: GtidSet::new(),
            }),
            false => NOT_SET_UP,
        };
        let mut status = IngestStatus::new(now);
        status.fail(&found(true), false, now);
        assert!(status.lacks_the_log());
        status.go(IngestState::Attaching, now);
        assert!(status.lacks_the_log());
        status.go(IngestState::Attached, now);
        assert!(!status.lacks_the_log());
        status.fail(&found(false), false, now);
        assert!(!status.lacks_the_log());
        status.fail(&found(true), false, now);
        status.go(IngestState::Idle, now);
        assert!(!status.lacks_the_log());
    }

    #[test]
    fn the_oldest_wait_is_an_age() {
        let figures = IngestFigures::default();
        let now = Instant::now();
        assert_eq!(figures.view(now).oldest_unacknowledged, None);
        figures.oldest(Some(now));
        let age = figures
            .view(now + Duration::from_secs(3))
            .oldest_unacknowledged
            .unwrap();
        assert!(
            age >= Duration::from_secs(3) && age < Duration::from_millis(3001),
            "{age:?}"
        );
        figures.oldest(None);
        assert_eq!(figures.view(now).oldest_unacknowledged, None);
    }
}
