//! How large a ring is looked at, and what is broken in it.

use clap::ValueEnum;
use consensus::quorum::{QuorumPolicy, RingRules};

use crate::ring::Term;

/// A rule that is taken away. Those that the simulator can break too have its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Broken {
    /// A leader counts a follower's answer before the follower has the entries
    CommitOnAMinority,
    /// What a member without a vote has counts as what a voter has
    CountALearner,
    /// A voter votes for whoever asks, whatever the candidate's log lacks
    VoteWithoutTheLogCheck,
    /// A leader takes a step of the quorum before an entry of its own term is committed
    NarrowWithoutTheBarrier,
    /// A leader takes a step of the quorum before the one before it is committed
    StepBeforeTheLastIsCommitted,
    /// The quorum goes from one set to another one without a joint step
    NoJointStep,
    /// A leader takes entries of earlier terms for committed as soon as a majority has them
    CommitAnEarlierTerm,
    /// Entries are acknowledged before they are synced, so that a restart loses them
    AcknowledgeBeforeTheDisk,
    /// A vote is given before it is synced, so that a restart forgets it
    SkipTheMetadataSync,
    /// A member that lost the end of its log, which it may have acknowledged, votes and campaigns at once
    TrustACutTail,
    /// A member that lost the end of its log asks those alone that vote how far theirs go
    LeaveOutWhoHasNoVote,
    /// The same, where nobody without a vote leads, and each other voter is in no doubt itself
    LeaveOutWhoLooksOn,
    /// A member whose disk was lost takes part under its old number, with an empty one
    TrustAWipedDisk,
    /// What is relayed is what the relaying member has at that place, whatever term it is of
    ProxyIgnoresTheTerm,
    /// A follower writes a membership in its own words
    RewordMemberships,
    /// A voter that was just started votes at once, whatever lease it granted before
    ForgetTheLease,
    /// The signs of a leader's death are believed although it lives
    RefuseForTheLiving,
    /// A leader takes an answer for as old as itself, not as its heartbeat
    ContactIsAsOldAsTheAnswer,
    /// A leader serves while another member could elect itself alone, whatever that one has promised
    ServeBesideALoneVoter,
    /// A leader that gives the leadership away goes on serving
    ServeThroughATransfer,
    /// A leader serves before an entry of its own term is committed
    ServeBeforeTheOwnEntry,
    /// All answers of one set of a joint quorum are taken for a proof that nothing is lost
    BelieveAnySet,
    /// Repairs get the least term that their plan allows, whenever they are made
    RepairWithoutAClock,
    /// Who comes back behind a repair votes for members that lack it
    ElectBehindTheRing,
    /// Who comes back behind a repair follows leaders from before it
    FollowBehindTheRing,
    /// Who comes back behind a repair, and cuts its log back, has forgotten then what it was told
    ForgetAtTheCut,
    /// A follower takes all up to its commit mark for what the leader has there
    TrustTheCommitMark,
}

/// How large a ring is looked at, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// How many members each region has.
    pub regions: Vec<usize>,
    /// How many of the last region's are in the ring only when a leader has added them.
    pub spares: usize,
    /// What the operator wants of the quorum.
    pub rules: RingRules,
    /// Whether the quorum is on its way from the first region to the second one at the beginning, and has both sets.
    pub begins_joint: bool,
    /// The last term; the founding is term 1.
    pub terms: Term,
    /// How many terms there are behind each repair, of which the repair's own is one.
    pub terms_behind_a_repair: Term,
    /// How many entries a log has at most.
    pub entries: usize,
    /// How many transactions clients write.
    pub writes: u8,
    /// How many steps the quorum takes.
    pub moves: u8,
    /// How many members are added and removed.
    pub changes: u8,
    /// How many times a leader gives the leadership away.
    pub transfers: u8,
    /// How many times a member is killed and started again.
    pub restarts: u8,
    /// How many members lose their disks.
    pub wipes: u8,
    /// How many times a member loses the last entry of its log, which it may have acknowledged; a leader with it the membership behind it
    /// that it has not written yet.
    pub rots: u8,
    /// How many times an operator asks for a plan to repair a lost quorum.
    pub plans: u8,
    /// How long a lease is, in ticks of the clock; without, there is neither time nor anybody who serves.
    pub lease: u8,
    /// What is broken.
    pub broken: Option<Broken>,
}

impl Scope {
    /// A ring of these regions without moves, changes, transfers, restarts, losses, repairs and time.
    #[must_use]
    pub fn of(regions: &[usize]) -> Self {
        Self {
            regions: regions.to_vec(),
            spares: 0,
            rules: RingRules::from(QuorumPolicy::SingleRegionDynamic),
            begins_joint: false,
            terms: 3,
            terms_behind_a_repair: 3,
            entries: 4,
            writes: 1,
            moves: 0,
            changes: 0,
            transfers: 0,
            restarts: 0,
            wipes: 0,
            rots: 0,
            plans: 0,
            lease: 0,
            broken: None,
        }
    }
}
