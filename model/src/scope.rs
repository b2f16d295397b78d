//! How large a ring is looked at, and what is broken in it.

use clap::ValueEnum;
use consensus::quorum::{QuorumPolicy, RingRules};

/// A rule that is taken away. Those that the simulator can break too have its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Broken {
    /// A leader counts a follower's answer before the follower has the entries
    CommitOnAMinority,
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
    /// A voter that was just started votes at once, whatever lease it granted before
    ForgetTheLease,
    /// A leader takes an answer for as old as itself, not as its heartbeat
    ContactIsAsOldAsTheAnswer,
    /// A leader serves while another member could elect itself alone, whatever that one has promised
    ServeBesideALoneVoter,
    /// A leader that gives the leadership away goes on serving
    ServeThroughATransfer,
    /// A leader serves before an entry of its own term is committed
    ServeBeforeTheOwnEntry,
}

/// How large a ring is looked at, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// How many members each region has.
    pub regions: Vec<usize>,
    /// What the operator wants of the quorum.
    pub rules: RingRules,
    /// Whether the quorum is on its way from the first region to the second one at the beginning, and has both sets.
    pub begins_joint: bool,
    /// The last term.
    pub terms: u8,
    /// How many entries a log has at most.
    pub entries: usize,
    /// How many transactions clients write.
    pub writes: u8,
    /// How many steps the quorum takes.
    pub moves: u8,
    /// How many times a leader gives the leadership away.
    pub transfers: u8,
    /// How many times a member is killed and started again.
    pub restarts: u8,
    /// How long a lease is, in ticks of the clock; without, there is neither time nor anybody who serves.
    pub lease: u8,
    /// What is broken.
    pub broken: Option<Broken>,
}

impl Scope {
    /// A ring of these regions without moves, transfers, restarts and time.
    #[must_use]
    pub fn of(regions: &[usize]) -> Self {
        Self {
            regions: regions.to_vec(),
            rules: RingRules::from(QuorumPolicy::SingleRegionDynamic),
            begins_joint: false,
            terms: 3,
            entries: 4,
            writes: 1,
            moves: 0,
            transfers: 0,
            restarts: 0,
            lease: 0,
            broken: None,
        }
    }
}
