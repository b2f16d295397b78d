//! What ingest is doing, for operators: a state with an age and a cause, and figures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::ingest::ack_ledger::Release;
use crate::ring::LeaderTerm;

/// How far ingest is with attaching to the primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum IngestState {
    /// The member does not serve as the leader.
    Idle,
    /// Proposals of the attachment before are not decided yet; a quorum is missing.
    Settling {
        /// How many proposals are not decided.
        proposals: usize,
    },
    /// Connecting to the primary and comparing it with the ring.
    Attaching,
    /// The primary's transactions come in; those that it had before are not all there yet, and its
    /// commits are not made to wait before they are.
    CatchingUp,
    /// The primary's transactions come in as they are made, and are acknowledged.
    Attached,
    /// It did not come about, or ended; another attempt follows.
    Failed {
        /// Why, and what to do.
        cause: String,
    },
}

/// The state and its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestStatus {
    /// How far ingest is with attaching to the primary.
    pub state: IngestState,
    /// The leadership in which it does, or did last.
    pub term: Option<LeaderTerm>,
    /// Since when. Attempts that fail one after the other count as one failure.
    pub since: Instant,
    /// Why the attachment before this one ended.
    pub last_failure: Option<String>,
}

impl IngestStatus {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: IngestState::Idle,
            term: None,
            since: now,
            last_failure: None,
        }
    }

    /// Whether the primary's transactions come in as they are made.
    pub fn is_attached(&self) -> bool {
        self.state == IngestState::Attached
    }

    /// Whether the primary's transactions come in, those that it had before included: what waits there can be acknowledged.
    pub fn takes_in(&self) -> bool {
        matches!(self.state, IngestState::CatchingUp | IngestState::Attached)
    }

    /// Moves to the next state; attempts that fail one after the other keep their time.
    pub(crate) fn go(&mut self, state: IngestState, now: Instant) {
        if let IngestState::Failed { cause } = &state {
            self.last_failure = Some(cause.clone());
        }
        let trying = |state: &IngestState| {
            matches!(state, IngestState::Attaching | IngestState::Failed { .. })
        };
        if !(trying(&self.state) && trying(&state)) {
            self.since = now;
        }
        self.state = state;
    }
}

/// Counters and gauges. Written by ingest, read by whoever wants to.
#[derive(Debug)]
pub struct IngestFigures {
    epoch: Instant,
    attachments: AtomicU64,
    proposed: AtomicU64,
    proposed_bytes: AtomicU64,
    committed: AtomicU64,
    known: AtomicU64,
    rotations: AtomicU64,
    acks: AtomicU64,
    received_bytes: AtomicU64,
    in_flight_bytes: AtomicU64,
    /// Microseconds from the epoch to when the oldest unacknowledged transaction came, plus 1; 0: none.
    oldest: AtomicU64,
    longest_wait: AtomicU64,
}

/// The figures at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct IngestFiguresView {
    /// Attachments since the member started.
    pub attachments_total: u64,
    /// Transactions that were proposed to the ring.
    pub proposed_total: u64,
    /// Bytes of their canonical payloads.
    pub proposed_bytes_total: u64,
    /// Of these, those that were committed and released for an ACK.
    pub committed_total: u64,
    /// Transactions that came although the log had them: their ACK had been lost.
    pub known_total: u64,
    /// Files of the ring's log that a rotation began.
    pub rotations_total: u64,
    /// Semi-sync acknowledgements that were sent.
    pub acks_total: u64,
    /// Bytes of binlog events that were received.
    pub received_bytes_total: u64,
    /// Bytes proposed and not committed yet.
    pub in_flight_bytes: u64,
    /// How long the oldest transaction without an ACK has waited, in seconds; `None` while none waits.
    pub oldest_unacknowledged: Option<Duration>,
    /// The longest wait of any transaction from its receipt to its release.
    pub longest_wait: Duration,
}

impl Default for IngestFigures {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            epoch: Instant::now(),
            attachments: zero(),
            proposed: zero(),
            proposed_bytes: zero(),
            committed: zero(),
            known: zero(),
            rotations: zero(),
            acks: zero(),
            received_bytes: zero(),
            in_flight_bytes: zero(),
            oldest: zero(),
            longest_wait: zero(),
        }
    }
}

impl IngestFigures {
    /// The figures of this moment.
    pub fn view(&self, now: Instant) -> IngestFiguresView {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let oldest = get(&self.oldest).checked_sub(1).map(Duration::from_micros);
        IngestFiguresView {
            attachments_total: get(&self.attachments),
            proposed_total: get(&self.proposed),
            proposed_bytes_total: get(&self.proposed_bytes),
            committed_total: get(&self.committed),
            known_total: get(&self.known),
            rotations_total: get(&self.rotations),
            acks_total: get(&self.acks),
            received_bytes_total: get(&self.received_bytes),
            in_flight_bytes: get(&self.in_flight_bytes),
            oldest_unacknowledged: oldest
                .map(|came| now.saturating_duration_since(self.epoch + came)),
            longest_wait: Duration::from_micros(get(&self.longest_wait)),
        }
    }

    pub(crate) fn attached(&self) {
        add(&self.attachments, 1);
    }

    pub(crate) fn received(&self, bytes: usize) {
        add(&self.received_bytes, bytes as u64);
    }

    pub(crate) fn proposed(&self, bytes: u64) {
        add(&self.proposed, 1);
        add(&self.proposed_bytes, bytes);
        add(&self.in_flight_bytes, bytes);
    }

    pub(crate) fn released(&self, release: &Release) {
        add(&self.committed, release.committed);
        add(&self.known, release.known);
        add(&self.rotations, release.own);
        self.in_flight_bytes
            .fetch_sub(release.bytes, Ordering::Relaxed);
        self.longest_wait
            .fetch_max(release.longest_wait.as_micros() as u64, Ordering::Relaxed);
    }

    pub(crate) fn acknowledged(&self) {
        add(&self.acks, 1);
    }

    pub(crate) fn oldest(&self, since: Option<Instant>) {
        let micros = since.map_or(0, |since| {
            since.saturating_duration_since(self.epoch).as_micros() as u64 + 1
        });
        self.oldest.store(micros, Ordering::Relaxed);
    }

    pub(crate) fn detached(&self) {
        self.in_flight_bytes.store(0, Ordering::Relaxed);
        self.oldest(None);
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

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
