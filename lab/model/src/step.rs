//! What may happen in a ring.

use crate::ring::{Id, Members};

/// What happens. A call and its effect at the callee are one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A member asks for votes in a new term.
    Campaign(Id),
    /// A voter gives its vote, and the candidate hears of it.
    Vote {
        /// Who votes.
        by: Id,
        /// For whom.
        candidate: Id,
    },
    /// A candidate with enough votes leads.
    Lead(Id),
    /// A leader appends a client's transaction.
    Write(Id),
    /// A follower cuts what is not the leader's, takes the next entry, and the leader hears of it.
    Append {
        /// Whose entry it is.
        leader: Id,
        /// Who takes it.
        to: Id,
    },
    /// The same, where the entry's content is what another member has at its place. Taken only where that need not be the same.
    Relay {
        /// Whose entry it is.
        leader: Id,
        /// Who has put back the content.
        proxy: Id,
        /// Who takes it.
        to: Id,
    },
    /// A member refuses a leader's call because it knows of a later term, and the leader follows.
    Refuse {
        /// Who led.
        leader: Id,
        /// Who refuses.
        by: Id,
    },
    /// A leader finds that more of its log is committed.
    Commit(Id),
    /// A leader takes the next step of the quorum towards a region.
    Move {
        /// Who leads.
        leader: Id,
        /// The region, by its place.
        home: usize,
    },
    /// A leader adds a member, without a vote.
    Add {
        /// Who leads.
        leader: Id,
        /// Who joins.
        member: Id,
    },
    /// A leader lets a member go.
    Remove {
        /// Who leads.
        leader: Id,
        /// Who goes.
        member: Id,
    },
    /// A leader begins to give the leadership away.
    Leave(Id),
    /// A member hears from such a leader that it need not keep its promise.
    Release {
        /// Who leaves.
        leader: Id,
        /// Who is released.
        member: Id,
    },
    /// A member sees that the process of the leader that it follows is gone, and need not keep its promise.
    SeeDead(Id),
    /// A heartbeat arrives.
    Heartbeat {
        /// Whose it is.
        leader: Id,
        /// Where it arrives.
        to: Id,
    },
    /// The answer to the last heartbeat arrives.
    Answer {
        /// Where it arrives.
        leader: Id,
        /// Whose it is.
        from: Id,
    },
    /// Time passes.
    Tick,
    /// A member is killed and started again. What it had not synced is lost: nothing, unless a rule is broken.
    Restart {
        /// Who.
        member: Id,
        /// Whether its last entry is lost.
        loses: bool,
    },
    /// A member's disk is lost as a whole.
    Wipe(Id),
    /// A member starts, and finds the last entry of its log damaged, and what a leader had not written yet behind it gone.
    Rot(Id),
    /// Such a member asks one leader how far its log goes.
    AskLeader {
        /// Who asks.
        member: Id,
        /// Who answers.
        leader: Id,
    },
    /// Such a member asks all others how far their logs go; fewer, where a rule is broken.
    AskAll(Id),
    /// An operator asks for a plan to repair a lost quorum. Whoever does not answer does not run, and will not before the plan is
    /// carried out.
    Plan(Members),
    /// The survivor carries the plan out.
    CarryOut,
    /// A member that did not run starts, asks one that has heard of the repair, and takes part.
    ComeBack {
        /// Who.
        member: Id,
        /// Who answers.
        asked: Id,
    },
}
