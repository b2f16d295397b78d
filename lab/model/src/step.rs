//! The possible steps of a ring.

use crate::ring::{Id, Members};

/// One step. A call and its effect at the callee are one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A member requests votes in a new term.
    Campaign(Id),
    /// A voter grants its vote, and the candidate receives it.
    Vote {
        /// The voter.
        by: Id,
        /// The candidate.
        candidate: Id,
    },
    /// A candidate with enough votes leads.
    Lead(Id),
    /// A leader appends a client's transaction.
    Write(Id),
    /// A follower truncates the entries that the leader lacks, and appends the next one. The leader receives the answer.
    Append {
        /// The entry's leader.
        leader: Id,
        /// The follower.
        to: Id,
    },
    /// Like [`Step::Append`], with the content that a proxy has at that index. Possible only where the proxy's entry may differ.
    Relay {
        /// The entry's leader.
        leader: Id,
        /// The member that supplies the content.
        proxy: Id,
        /// The follower.
        to: Id,
    },
    /// A member refuses a leader's call because of a later term, and the leader becomes a follower.
    Refuse {
        /// The former leader.
        leader: Id,
        /// The refusing member.
        by: Id,
    },
    /// A leader commits more of its log.
    Commit(Id),
    /// A leader takes the next step of the quorum towards a region.
    Move {
        /// The leader.
        leader: Id,
        /// The region's index.
        home: usize,
    },
    /// A leader adds a member, without a vote.
    Add {
        /// The leader.
        leader: Id,
        /// The new member.
        member: Id,
    },
    /// A leader removes a member.
    Remove {
        /// The leader.
        leader: Id,
        /// The removed member.
        member: Id,
    },
    /// A leader begins to transfer the leadership.
    Leave(Id),
    /// A leader that transfers the leadership releases a member from its promise not to vote.
    Release {
        /// The departing leader.
        leader: Id,
        /// The released member.
        member: Id,
    },
    /// A member detects that its leader's process has ended. This releases the member from its promise not to vote.
    SeeDead(Id),
    /// A heartbeat arrives.
    Heartbeat {
        /// The sender.
        leader: Id,
        /// The receiver.
        to: Id,
    },
    /// The answer to the last heartbeat arrives.
    Answer {
        /// The receiver.
        leader: Id,
        /// The sender.
        from: Id,
    },
    /// Time passes.
    Tick,
    /// A member is killed and restarted. It loses unsynced data only if a rule is broken.
    Restart {
        /// The member.
        member: Id,
        /// True if its last entry is lost.
        loses: bool,
    },
    /// A member's disk is lost as a whole.
    Wipe(Id),
    /// A member starts and finds the last entry of its log damaged. A leader also loses later entries that it has not written yet.
    Rot(Id),
    /// A member in doubt about the end of its log asks one leader for the end of the leader's log.
    AskLeader {
        /// The asking member.
        member: Id,
        /// The answering leader.
        leader: Id,
    },
    /// A member in doubt asks all other members for the ends of their logs. If a rule is broken, it asks fewer members.
    AskAll(Id),
    /// An operator requests a plan to repair a lost quorum. Members that do not answer are down, and stay down until the plan is carried
    /// out.
    Plan(Members),
    /// The survivor carries the plan out.
    CarryOut,
    /// A stopped member starts, asks a member that knows of the repair, and takes part.
    ComeBack {
        /// The member.
        member: Id,
        /// The answering member.
        asked: Id,
    },
}
