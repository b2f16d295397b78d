//! Deliberate breakages of a ring. Each one disables a condition of safety, to prove that the checkers detect this. The product needs no
//! switch for them: the simulator's network or store misbehaves in one way, or an additional task takes a step that the product never
//! takes.

use clap::ValueEnum;

use crate::faults::Stress;
use crate::scenario::Scenario;

/// The broken part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mutation {
    /// A leader counts a follower's answer when it sends the entries, so that it commits on a minority.
    CommitOnAMinority,
    /// A leader narrows a joint quorum to its own region immediately, before an entry of its own term is committed.
    NarrowWithoutTheBarrier,
    /// Entries are acknowledged before they are durable.
    AcknowledgeBeforeTheDisk,
    /// Entries are acknowledged before the writer gets them.
    AnswerBeforeTheFlush,
    /// Votes and the rest of the hard state are acknowledged before they are synced.
    SkipTheMetadataSync,
    /// A voter votes for any candidate, whatever its log lacks.
    VoteWithoutTheLogCheck,
    /// A member that truncated possibly acknowledged bytes of its log votes and campaigns immediately.
    TrustACutTail,
    /// A failed read of entries is reported to the engine, for any purpose.
    StopAtABadRead,
    /// A leader moves the quorum by its file's policy, whatever the log has.
    BelieveTheFile,
    /// The engine's loop itself waits for room in the disk's queue.
    WaitInTheLoop,
    /// Proposals and sent entries do not check for room on the disks.
    ProposeWithoutRoom,
    /// An operator takes all answers of one set of a joint quorum as proof that nothing is lost.
    BelieveAnySet,
    /// A restarted voter votes immediately, whatever lease it may have granted before.
    ForgetTheLease,
    /// Towards all other members, a living leader's connections are closed and its address refuses calls: a majority gets both kinds of
    /// false evidence of its exit.
    RefuseForTheLiving,
    /// Repairs get the least term of their plan, regardless of time: two independent ones get the same.
    RepairWithoutAClock,
    /// A member with a lost disk takes part under its old number, with an empty disk.
    TrustAWipedDisk,
    /// A leader adds a member under a number that was used before.
    ForgetUsedNumbers,
    /// A learner's entries count as the leader's voters', while it is disconnected from them.
    CountALearner,
    /// Logs are purged as far as a majority of the leader's region has them, regardless of other regions.
    PurgePastRegions,
    /// A member is removed if the other voters of its region have a majority, regardless of the quorum.
    RemoveByRegion,
    /// A proxy fills in its own log's entry at an index, regardless of the term.
    ProxyIgnoresTheTerm,
    /// A member re-encodes a received membership instead of storing the proposed bytes.
    RewordMemberships,
    /// A server reports commits to its clients before the ring has acknowledged them.
    AnswerBeforeTheAck,
    /// A server's binlog tail beyond the ring stays at its restart.
    KeepTheTail,
    /// A member that is asked to stop first stops its server, despite commits waiting for the ring, and exits.
    StopTheServerFirst,
    /// Failover is resumed while operators assume that it is paused.
    ResumeUnasked,
    /// Members confirm the release of a follower, and continue to manage it.
    ReleaseInWords,
    /// No check whether the other end of an open connection still exists.
    TrustOpenConnections,
    /// Members claim support of the next format to the leader, whatever program they run.
    ClaimAnyFormat,
}

impl Mutation {
    /// Returns the faults that expose the mutation.
    pub(crate) fn stress(self) -> Option<Stress> {
        match self {
            Self::NarrowWithoutTheBarrier => Some(Stress::Moves),
            Self::ProxyIgnoresTheTerm | Self::ForgetTheLease | Self::RefuseForTheLiving => {
                Some(Stress::Leaders)
            }
            Self::TrustACutTail | Self::TrustAWipedDisk | Self::ForgetUsedNumbers => {
                Some(Stress::Disks)
            }
            Self::BelieveAnySet | Self::RepairWithoutAClock => Some(Stress::Lost),
            _ => None,
        }
    }

    /// Returns whether the mutation violates a property of the ring. Otherwise members stop, or the ring does not recover.
    pub(crate) fn breaks_a_property(self) -> bool {
        !matches!(
            self,
            Self::ProposeWithoutRoom
                | Self::RemoveByRegion
                | Self::StopAtABadRead
                | Self::BelieveTheFile
                | Self::WaitInTheLoop
                | Self::KeepTheTail
                | Self::TrustOpenConnections
        )
    }

    /// Returns the scenario that exposes the mutation.
    pub(crate) fn scenario(self) -> Option<Scenario> {
        match self {
            Self::ProposeWithoutRoom => Some(Scenario::FullDisks),
            Self::RemoveByRegion => Some(Scenario::Removals),
            Self::CountALearner => Some(Scenario::Learners),
            Self::PurgePastRegions => Some(Scenario::Purges),
            Self::StopAtABadRead => Some(Scenario::ColdDamage),
            Self::BelieveTheFile => Some(Scenario::Policies),
            Self::WaitInTheLoop => Some(Scenario::SlowDisk),
            Self::AnswerBeforeTheAck | Self::KeepTheTail => Some(Scenario::Mysqlds),
            Self::StopTheServerFirst | Self::ResumeUnasked => Some(Scenario::MysqldOperations),
            Self::ReleaseInWords => Some(Scenario::Conversions),
            Self::TrustOpenConnections => Some(Scenario::Transport),
            Self::ClaimAnyFormat => Some(Scenario::Upgrades),
            _ => None,
        }
    }

    /// Returns whether the run must move the quorum, and lose it in the middle of the move.
    pub(crate) fn concerns_narrowing(self) -> bool {
        self == Self::BelieveAnySet
    }

    /// Returns whether several members of a quorum must be able to serve.
    pub(crate) fn concerns_primaries(self) -> bool {
        matches!(self, Self::ForgetTheLease | Self::RefuseForTheLiving)
    }
}
