//! A member's Raft configuration, with the defaults written once, and checks that
//! reject timers that cannot work. Each time is explained at its field.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use openraft::SnapshotPolicy;
use raft_types::{MAX_TRANSACTION_BYTES, MemberId, MemberKind, Program, RingId};
use thiserror::Error;

use crate::quorum::RingRules;

/// The configuration of one member's Raft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberConfig {
    /// The ring to which the data directory belongs.
    pub ring: RingId,
    /// This member's number in the ring.
    pub id: MemberId,
    /// Witness or database member: a database member campaigns first.
    pub kind: MemberKind,
    /// Heartbeats and elections.
    pub timers: Timers,
    /// The members that decide a commit, and the region preference.
    pub rules: RingRules,
    /// The most that the member holds in memory.
    pub bounds: Bounds,
    /// The running program. Not a user's choice: tests use it to simulate other versions.
    pub program: Program,
}

impl MemberConfig {
    /// The defaults for this member.
    pub fn new(ring: RingId, id: MemberId, kind: MemberKind) -> Self {
        Self {
            ring,
            id,
            kind,
            timers: Timers::default(),
            rules: RingRules::default(),
            bounds: Bounds::default(),
            program: Program::this(),
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first value that cannot work, and how to change it.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.timers.validate()?;
        self.bounds.validate()
    }

    /// The engine's configuration for this member.
    pub(crate) fn engine(&self) -> Result<Arc<openraft::Config>, ConfigError> {
        self.validate()?;
        let config = openraft::Config {
            cluster_name: self.ring.to_string(),
            heartbeat_interval: millis(self.timers.heartbeat),
            election_timeout_min: millis(self.timers.shortest_election(self.kind)),
            election_timeout_max: millis(self.timers.lease),
            max_payload_entries: self.bounds.entries_per_request,
            // Entries go to the followers as soon as they are written, not at the end of the loop.
            broadcast_submitted_on_append: Some(true),
            // A snapshot is only the mark up to which the log may be purged, set by hand.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            install_snapshot_timeout: millis(INSTALL_DEADLINE),
            enable_pre_vote: Some(true),
            // Until its first turn: see `campaign`.
            enable_elect: false,
            // A member may have lost the end of its log to a disk. It gets it again from the leader that has its
            // acknowledgement. This is safe because such a member votes for no candidate until then (`doubted_tail`).
            allow_log_reversion: Some(true),
            // A restarted leader must be elected again before it may report itself as the leader.
            enable_leader_restore: Some(false),
            backoff: RECONNECT_DELAYS.to_owned(),
            ..openraft::Config::default()
        };
        let config = config.validate();
        let config = config.map_err(|refusal| ConfigError::Engine(refusal.to_string()))?;
        Ok(Arc::new(config))
    }
}

/// How long a leader waits for a member that makes its log begin with a later file. That member removes all its
/// old files before it answers. If that takes longer, the repeated call is answered immediately; entries
/// that follow wait in that member until it is done.
const INSTALL_DEADLINE: Duration = Duration::from_secs(2);

/// How long a leader waits before it retries a member that could not be reached.
const RECONNECT_DELAYS: &str = "50ms 100ms 200ms ...500ms";

/// Timers of heartbeats and elections. They should be the same on all members. While they differ, as in a rolling change, a leader uses
/// the shorter lease of its own and each voter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// How often a leader calls its followers. It is also the deadline of such a call, so it must be
    /// longer than the slowest round trip to any voter: else an idle ring refuses every write.
    pub heartbeat: Duration,
    /// How long a follower elects no other leader after a call of its leader. For so long
    /// a leader may rely on its last answered heartbeat. A dead leader is detected after the lease and
    /// a random part of a second one.
    pub lease: Duration,
}

impl Timers {
    /// The timers for a heartbeat. An election follows three missed heartbeats: the lease is one and a half
    /// of them, and a witness waits a lease and as much again before it campaigns. Below 120 ms the lease is a little
    /// longer, so that a processor that is busy for some milliseconds ends no leadership.
    pub const fn from_heartbeat(heartbeat: Duration) -> Self {
        let micros = heartbeat.as_micros() as u64;
        let (relative, absolute) = (micros * 3 / 2, micros + LEAST_SLACK_MICROS);
        let lease = if relative > absolute {
            relative
        } else {
            absolute
        };
        Self {
            heartbeat,
            lease: Duration::from_micros(lease),
        }
    }

    /// The shortest wait, on top of the lease, before a member of this kind campaigns; the longest is another lease. A
    /// witness mostly waits longer than a database member, which should win with an equal log. Two remaining witnesses
    /// must not repeatedly campaign at the same moment. So their waits are spread over more than the engine's clock
    /// interval, a fifth of a heartbeat.
    pub fn shortest_election(&self, kind: MemberKind) -> Duration {
        match kind {
            MemberKind::Database => self.heartbeat + Duration::from_millis(1),
            MemberKind::Witness => self.lease - self.heartbeat / 4,
        }
    }

    /// How long a step waits that needs at most an election: a leadership transfer.
    pub fn longest_election(&self) -> Duration {
        self.lease * 2
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let Self { heartbeat, lease } = *self;
        if !(SHORTEST_HEARTBEAT..=LONGEST_HEARTBEAT).contains(&heartbeat) {
            return Err(ConfigError::Heartbeat(heartbeat));
        }
        match self.leases().contains(&lease) {
            true => Ok(()),
            false => Err(ConfigError::Lease(*self)),
        }
    }

    /// The leases that go with the heartbeat, which leaves up to a fifth of an interval late, and one may be slow.
    fn leases(&self) -> RangeInclusive<Duration> {
        self.heartbeat * 3 / 2..=self.heartbeat * LONGEST_LEASE_IN_HEARTBEATS
    }
}

impl Default for Timers {
    /// A heartbeat every 500 ms, an election after three missed ones.
    fn default() -> Self {
        Self::from_heartbeat(Duration::from_millis(500))
    }
}

/// The minimum by which a derived lease exceeds its heartbeat.
const LEAST_SLACK_MICROS: u64 = 60_000;
/// Below this the engine's own tick would be the limit.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(10);
/// Above this an election would take too long.
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(10);
const LONGEST_LEASE_IN_HEARTBEATS: u32 = 20;

/// The most that a member holds in memory for its proposals and its followers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of proposed entries that are not committed yet; a proposal beyond them waits. One
    /// larger than this is accepted when nothing else is in flight.
    pub proposals_bytes: u32,
    /// The most entries in one replication request. The store and the transport also limit
    /// it by bytes.
    pub entries_per_request: u64,
}

impl Bounds {
    fn validate(&self) -> Result<(), ConfigError> {
        if !(SMALLEST_PROPOSALS_BYTES..=LARGEST_PROPOSALS_BYTES).contains(&self.proposals_bytes) {
            return Err(ConfigError::ProposalsBytes(self.proposals_bytes));
        }
        if self.entries_per_request == 0 {
            return Err(ConfigError::EntriesPerRequest);
        }
        Ok(())
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            proposals_bytes: 64 << 20,
            entries_per_request: 1024,
        }
    }
}

const SMALLEST_PROPOSALS_BYTES: u32 = 1 << 20;
const LARGEST_PROPOSALS_BYTES: u32 = 1 << 30;
const _: () = assert!(LARGEST_PROPOSALS_BYTES as u64 <= MAX_TRANSACTION_BYTES);

/// A configuration that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The heartbeat is out of range.
    #[error(
        "a heartbeat of {0:?} cannot work; choose one between {SHORTEST_HEARTBEAT:?} and {LONGEST_HEARTBEAT:?}, \
         longer than the slowest round trip between two members"
    )]
    Heartbeat(Duration),
    /// The lease does not fit the heartbeat.
    #[error(
        "a lease of {:?} does not go with a heartbeat of {:?}; choose one between {:?} and {:?}",
        .0.lease, .0.heartbeat, .0.leases().start(), .0.leases().end()
    )]
    Lease(Timers),
    /// The bound on proposals is out of range.
    #[error(
        "a bound of {0} bytes on proposals under way cannot work; choose one between {SMALLEST_PROPOSALS_BYTES} and {LARGEST_PROPOSALS_BYTES}"
    )]
    ProposalsBytes(u32),
    /// A request of no entries.
    #[error("a replication request must be allowed to carry at least one entry")]
    EntriesPerRequest,
    /// The engine refuses a configuration that passed the checks above.
    #[error("the engine refuses the configuration: {0}")]
    Engine(String),
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> MemberConfig {
        MemberConfig::new(RingId::default(), MemberId(1), MemberKind::Database)
    }

    #[test]
    fn defaults_are_valid_for_both_kinds() {
        for kind in [MemberKind::Witness, MemberKind::Database] {
            let engine = MemberConfig { kind, ..config() }.engine().unwrap();
            assert_eq!(engine.heartbeat_interval, 500);
            assert_eq!(engine.election_timeout_max, 750);
            assert_eq!(engine.enable_pre_vote, Some(true));
            assert_eq!(engine.enable_leader_restore, Some(false));
            assert_eq!(engine.allow_log_reversion, Some(true));
        }
    }

    /// Otherwise two remaining witnesses would repeatedly campaign at the same moment.
    #[test]
    fn waits_are_spread_over_more_than_a_look_at_the_clock() {
        for millis in [100, 500, 2_000] {
            let timers = Timers::from_heartbeat(Duration::from_millis(millis));
            for kind in [MemberKind::Witness, MemberKind::Database] {
                let spread = timers.lease - timers.shortest_election(kind);
                assert!(
                    spread > timers.heartbeat / 5,
                    "{kind:?}: {spread:?} of {millis} ms"
                );
            }
        }
    }

    #[test]
    fn a_witness_mostly_waits_longer_than_a_database_member() {
        let timers = Timers::default();
        assert_eq!(
            timers.shortest_election(MemberKind::Database),
            Duration::from_millis(501)
        );
        assert_eq!(
            timers.shortest_election(MemberKind::Witness),
            Duration::from_millis(625)
        );
    }

    #[test]
    fn tens_of_milliseconds_are_valid() {
        for heartbeat in [10, 20, 50, 100] {
            let timers = Timers::from_heartbeat(Duration::from_millis(heartbeat));
            for kind in [MemberKind::Witness, MemberKind::Database] {
                MemberConfig {
                    timers,
                    kind,
                    ..config()
                }
                .engine()
                .unwrap();
            }
        }
    }

    #[test]
    fn invalid_values_are_refused_with_advice() {
        let cases = [
            (
                MemberConfig {
                    timers: Timers::from_heartbeat(Duration::from_millis(5)),
                    ..config()
                },
                "a heartbeat of 5ms cannot work; choose one between 10ms and 10s",
            ),
            (
                MemberConfig {
                    timers: Timers {
                        heartbeat: Duration::from_millis(500),
                        lease: Duration::from_millis(600),
                    },
                    ..config()
                },
                "a lease of 600ms does not go with a heartbeat of 500ms; choose one between 750ms and 10s",
            ),
            (
                MemberConfig {
                    bounds: Bounds {
                        proposals_bytes: 7,
                        ..Bounds::default()
                    },
                    ..config()
                },
                "a bound of 7 bytes on proposals under way",
            ),
            (
                MemberConfig {
                    bounds: Bounds {
                        entries_per_request: 0,
                        ..Bounds::default()
                    },
                    ..config()
                },
                "at least one entry",
            ),
        ];
        for (config, expected) in cases {
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
