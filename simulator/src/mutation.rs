//! Ways to break a ring on purpose. Each switches off one thing on which safety rests, and shows that the checkers see
//! it when that is missing. None needs a switch in the product: the network or the store of the simulator lies in one
//! way, or a mover beside the member's own takes a step that the product never takes.

use clap::ValueEnum;

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
}

impl Mutation {
    /// Whether the local answers to the search must be on for it to show.
    pub(crate) fn concerns_the_search(self) -> bool {
        self == Self::BelieveReportsOfAnotherVote
    }
}
