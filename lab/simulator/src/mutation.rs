//! Ways to break a ring on purpose. Each switches off one thing on which safety rests, and shows that the checkers see
//! it when that is missing. None needs a switch in the product: the network or the store of the simulator lies in one
//! way, or a mover beside the member's own takes a step that the product never takes.

use clap::ValueEnum;

use crate::faults::Stress;
use crate::scenario::Scenario;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mutation {
    /// A leader counts a follower's answer when it sends the entries, so it commits on a minority.
    CommitOnAMinority,
    /// A leader narrows a joint quorum to its own region at once, before an entry of its own term is committed.
    NarrowWithoutTheBarrier,
    /// The search for the matching point believes a follower's report whatever vote the follower has stored (rule 1 of the
    /// local answers).
    BelieveReportsOfAnotherVote,
    /// Entries are acknowledged before the disk has them.
    AcknowledgeBeforeTheDisk,
    /// Entries are acknowledged before the writer has been asked to write them.
    AnswerBeforeTheFlush,
    /// Votes, and all else in the hard state, are acknowledged before they are synced.
    SkipTheMetadataSync,
    /// A voter votes for whoever asks, whatever the candidate's log lacks.
    VoteWithoutTheLogCheck,
    /// A member that cut bytes off its log which it may have acknowledged votes and campaigns at once.
    TrustACutTail,
    /// A read of entries that fails is told to the engine, whomever they are for.
    StopAtABadRead,
    /// A leader moves the quorum by the policy of its file, whatever the log says.
    BelieveTheFile,
    /// The engine's loop waits for room in the disk's queue, and nobody waits in front of it.
    WaitInTheLoop,
    /// Whoever proposes or sends entries does not ask whether disks have room for them.
    ProposeWithoutRoom,
    /// An operator takes all answers of one set of a joint quorum for a proof that nothing is lost.
    BelieveAnySet,
    /// A voter that was just started votes at once, whatever lease it may have granted before.
    ForgetTheLease,
    /// Somebody hangs up in the name of a leader that lives and refuses connections to it, towards all others at once: both signs of
    /// its death lie to a majority.
    RefuseForTheLiving,
    /// Repairs get the least term that their plan allows, whenever they are made: two that do not know of each other get the same.
    RepairWithoutAClock,
    /// A member whose disk was lost takes part under its old number, with an empty one.
    TrustAWipedDisk,
    /// A leader adds a member under a number that was used before.
    ForgetUsedNumbers,
    /// What a member without a vote has counts as what the leader's voters have, while it is cut off from them.
    CountALearner,
    /// Logs are purged as far as a majority of the leader's region has them, whatever other regions have.
    PurgePastRegions,
    /// A member is let go where the other voters of its region have a majority, whatever the quorum needs.
    RemoveByRegion,
    /// A proxy puts back what its log has at the index, whatever term it is of.
    ProxyIgnoresTheTerm,
    /// A member writes a membership that it gets in its own words, in place of the bytes that were proposed.
    RewordMemberships,
    /// A server tells its clients that their commits succeeded before the ring has acknowledged them.
    AnswerBeforeTheAck,
    /// What a server's binlog has beyond the ring stays there when the server is started again.
    KeepTheTail,
    /// A member that is told to stop asks its server to stop first, whatever commits wait in it for the ring, and is gone.
    StopTheServerFirst,
    /// Somebody resumes failover while operators believe that it is paused.
    ResumeUnasked,
    /// The note that a server's data are being replaced is gone when its member is started again.
    ForgetTheCopy,
    /// Members that are told to release a follower say that they have, and go on managing it.
    ReleaseInWords,
    /// Nobody asks whether the other end of an open connection is still there.
    TrustOpenConnections,
    /// Members tell the leader that they speak the next format, whatever program they run.
    ClaimAnyFormat,
}

impl Mutation {
    /// What has to go wrong for it to show.
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

    /// Whether the local answers to the search have to be on, or off, for it to show. The engine's own search asks a member
    /// without entries at first: who has answered may be a proxy, and still has what its next entries replace.
    pub(crate) fn searches_itself(self) -> Option<bool> {
        match self {
            Self::BelieveReportsOfAnotherVote => Some(true),
            Self::ProxyIgnoresTheTerm => Some(false),
            _ => None,
        }
    }

    /// Whether a property of the ring is what breaks; else it is that members stay and the ring comes back.
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

    /// What has to be played for it to show.
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
            Self::ForgetTheCopy => Some(Scenario::Provisioning),
            Self::ReleaseInWords => Some(Scenario::Conversions),
            Self::TrustOpenConnections => Some(Scenario::Transport),
            Self::ClaimAnyFormat => Some(Scenario::Upgrades),
            _ => None,
        }
    }

    /// Whether a second repair must be made that knows nothing of the first for it to show.
    pub(crate) fn concerns_second_repairs(self) -> bool {
        self == Self::RepairWithoutAClock
    }

    /// Whether the quorum must move, and be lost in the middle of that, for it to show.
    pub(crate) fn concerns_narrowing(self) -> bool {
        self == Self::BelieveAnySet
    }

    /// Whether several members of a quorum must be able to serve for it to show.
    pub(crate) fn concerns_primaries(self) -> bool {
        matches!(self, Self::ForgetTheLease | Self::RefuseForTheLiving)
    }

    /// Whether there must be proxies for it to show.
    pub(crate) fn concerns_proxies(self) -> bool {
        self == Self::ProxyIgnoresTheTerm
    }
}
