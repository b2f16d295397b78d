//! A member's Raft configuration: default values, and checks that reject timers that cannot work. Each field explains its time.

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
    /// The kind of the member, witness or database member. A database member campaigns before a witness.
    pub kind: MemberKind,
    /// Heartbeats and elections.
    pub timers: Timers,
    /// Rules for the members that decide a commit, and for the preferred region.
    pub rules: RingRules,
    /// Upper bounds on the memory for proposals and for entries to followers.
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
            // The engine sends entries to the followers as soon as they are written, not at the end of its loop.
            broadcast_submitted_on_append: Some(true),
            // A snapshot is only the mark up to which the log may be purged. The member sets the mark itself.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            install_snapshot_timeout: millis(INSTALL_DEADLINE),
            enable_pre_vote: Some(true),
            // Elections stay off until the first turn of this member: see `campaign`.
            enable_elect: false,
            // A disk may have lost the end of a member's log. The leader with that member's acknowledgement sends the lost entries again.
            // This is safe, because the member votes for no candidate until then (`doubted_tail`).
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

/// How long a leader waits for a member that makes its log begin with a later file. The member removes all its old files before it answers.
/// If the removal takes longer, the leader repeats the call, and the member answers immediately. The member takes later entries only after
/// the removal.
const INSTALL_DEADLINE: Duration = Duration::from_secs(2);

/// The pauses before a leader retries a member that it could not reach; the last pause repeats.
const RECONNECT_DELAYS: &str = "50ms 100ms 200ms ...500ms";

/// Timers of heartbeats and elections. They should be the same on all members. If they differ, as in a rolling change, a leader uses for
/// each voter the shorter of its own lease and the voter's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// How often a leader calls its followers. This is also the deadline of such a call, so it must be longer than the slowest round trip
    /// to any voter. With a shorter heartbeat, an idle ring refuses every write.
    pub heartbeat: Duration,
    /// How long a follower elects no other leader after a call of its leader. A leader may rely on its last answered heartbeat for the same
    /// time. A dead leader is detected after one lease and a random part of a second lease.
    pub lease: Duration,
}

impl Timers {
    /// Returns the timers for a heartbeat. The lease is 1.5 heartbeats, so an election follows three missed heartbeats. A witness waits up
    /// to two leases before it campaigns. If the heartbeat is below 120 ms, the lease is the heartbeat plus 60 ms. Otherwise a processor
    /// that is busy for some milliseconds could end a leadership.
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

    /// Returns the shortest wait, in addition to the lease, before a member of this kind campaigns. The longest wait is one more lease. A
    /// witness usually waits longer than a database member, because the database member should win if their logs are equal. Two remaining
    /// witnesses must not campaign repeatedly at the same moment. So their waits vary by more than the engine's clock interval, which is a
    /// fifth of a heartbeat.
    pub fn shortest_election(&self, kind: MemberKind) -> Duration {
        match kind {
            MemberKind::Database => self.heartbeat + Duration::from_millis(1),
            MemberKind::Witness => self.lease - self.heartbeat / 4,
        }
    }

    /// Returns the longest time to wait for one election, for example in a leadership transfer.
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

    /// Returns the leases that are allowed for the heartbeat. A heartbeat may be sent a fifth of an interval late, and one answer may be
    /// slow.
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
/// If the heartbeat were shorter, the engine's own clock interval would be the limit.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(10);
/// If the heartbeat were longer, an election would take too long.
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(10);
const LONGEST_LEASE_IN_HEARTBEATS: u32 = 20;

/// The most that a member holds in memory for its proposals and its followers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of proposed entries that are not committed yet. A proposal that exceeds the bound waits. A single entry larger than the bound
    /// is accepted if no other entry is in flight.
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

    /// Two remaining witnesses must not campaign repeatedly at the same moment.
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
