//! The size of an explored ring, and its broken rule.

use clap::{Args, ValueEnum};
use consensus::quorum::{QuorumPolicy, RingRules};

use crate::ring::Term;

/// A rule to break. Rules that the simulator breaks too have its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Broken {
    /// A leader counts a follower's answer before the follower has the entries
    CommitOnAMinority,
    /// Entries of a member without a vote count like a voter's
    CountALearner,
    /// A voter votes for every candidate, whatever the candidate's log lacks
    VoteWithoutTheLogCheck,
    /// A leader takes a step of the quorum before an entry of its own term is committed
    NarrowWithoutTheBarrier,
    /// A leader takes a step of the quorum before the previous one is committed
    StepBeforeTheLastIsCommitted,
    /// The quorum changes from one set to another one without a joint step
    NoJointStep,
    /// A leader commits entries of earlier terms as soon as a majority has them
    CommitAnEarlierTerm,
    /// Entries are acknowledged before they are synced, so that a restart loses them
    AcknowledgeBeforeTheDisk,
    /// A vote is given before it is synced, so that a restart forgets it
    SkipTheMetadataSync,
    /// A member that lost the end of its log, which it may have acknowledged, votes and campaigns immediately
    TrustACutTail,
    /// A member that lost the end of its log asks only voters for the ends of their logs
    LeaveOutWhoHasNoVote,
    /// The same, where no member without a vote leads, and no other voter is in doubt itself
    LeaveOutWhoLooksOn,
    /// A member that lost its disk takes part under its old id, with an empty log
    TrustAWipedDisk,
    /// A proxy relays its own entry at that index, whatever its term
    ProxyIgnoresTheTerm,
    /// A follower encodes a membership in its own way
    RewordMemberships,
    /// A restarted voter votes immediately, whatever lease it granted before
    ForgetTheLease,
    /// Members accept evidence of a leader's death although it lives
    RefuseForTheLiving,
    /// A leader dates its contact by an answer, not by the heartbeat answered
    ContactIsAsOldAsTheAnswer,
    /// A leader serves while another member could elect itself alone, whatever it has promised
    ServeBesideALoneVoter,
    /// A leader continues to serve during a leadership transfer
    ServeThroughATransfer,
    /// A leader serves before an entry of its own term is committed
    ServeBeforeTheOwnEntry,
    /// Answers of all members of one set of a joint quorum count as a proof that nothing is lost
    BelieveAnySet,
    /// Repairs get the least term that their plan allows, whatever their time
    RepairWithoutAClock,
    /// A member that rejoins after a repair votes for members that lack it
    ElectBehindTheRing,
    /// A member that rejoins after a repair follows leaders from before it
    FollowBehindTheRing,
    /// A member that rejoins after a repair, and cuts its log, forgets what it learned of the repair
    ForgetAtTheCut,
    /// A follower assumes that all entries up to its commit index are the leader's
    TrustTheCommitMark,
}

/// Size and bounds of an exploration.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Scope {
    /// Number of members in each region.
    #[arg(long, value_delimiter = ',', default_value = "3")]
    pub regions: Vec<usize>,
    /// Members of the last region that join only when a leader adds them.
    #[arg(long, default_value_t = 0)]
    pub spares: usize,
    /// The operator's rules for the quorum.
    #[arg(skip = RingRules::from(QuorumPolicy::SingleRegionDynamic))]
    pub rules: RingRules,
    /// Whether the quorum starts as a joint one, in the move from the first region to the second.
    #[arg(long)]
    pub begins_joint: bool,
    /// The last term; the bootstrap is term 1.
    #[arg(long, default_value_t = 3)]
    pub terms: Term,
    /// Number of terms after each repair, its own included.
    #[arg(long, default_value_t = 3)]
    pub terms_after_a_repair: Term,
    /// Maximum length of a log, in entries.
    #[arg(long, default_value_t = 4)]
    pub entries: usize,
    /// Number of client transactions.
    #[arg(long, default_value_t = 1)]
    pub writes: u8,
    /// Number of quorum steps.
    #[arg(long, default_value_t = 0)]
    pub moves: u8,
    /// Number of members added and removed.
    #[arg(long, default_value_t = 0)]
    pub changes: u8,
    /// Number of leadership transfers.
    #[arg(long, default_value_t = 0)]
    pub transfers: u8,
    /// Number of times a member is killed and restarted.
    #[arg(long, default_value_t = 0)]
    pub restarts: u8,
    /// Number of members that lose their disks.
    #[arg(long, default_value_t = 0)]
    pub wipes: u8,
    /// Number of times a member loses the last entry of its log, which it may have acknowledged. A leader also loses a later membership
    /// that it has not written yet.
    #[arg(long, default_value_t = 0)]
    pub rots: u8,
    /// Number of plans to repair a lost quorum.
    #[arg(long, default_value_t = 0)]
    pub plans: u8,
    /// Length of a lease, in ticks; 0 leaves out time and serving.
    #[arg(long, default_value_t = 0)]
    pub lease: u8,
    /// The broken rule.
    #[arg(long, value_enum)]
    pub broken: Option<Broken>,
}

impl Scope {
    /// A ring of these regions without moves, changes, transfers, restarts, losses, repairs and time.
    pub fn of(regions: &[usize]) -> Self {
        Self {
            regions: regions.to_vec(),
            spares: 0,
            rules: RingRules::from(QuorumPolicy::SingleRegionDynamic),
            begins_joint: false,
            terms: 3,
            terms_after_a_repair: 3,
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
